//! Waiting until a device has nothing of this process's under way: short, exact and at little cost.
//!
//! One of the waiting threads checks the marks; it sleeps until they should be passed. The others
//! sleep until it is done, and are woken one after another: each admitted thread wakes the next
//! one, which is admitted too or checks from then on. A checking thread may never return, by a
//! jump: so it counts only until shortly after its next check is due. Why: ADR 66.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{DeviceGate, GateState, Inner, Relaxed, Told, clock};
use crate::guest::exit;
use crate::guest::frames;
use crate::guest::futex;
use crate::guest::nap::Exact;
use gpushare_pacing::estimate::Expected;
use gpushare_pacing::looks::{BEHIND, Lateness, Looks};
use gpushare_pacing::slices::Full;
use gpushare_pacing::window::StreamKey;

/// How soon a launch that finds no room looks again at work that should be complete (ns).
const RELOOK: u64 = 20_000;
/// How little too early a look is not slept for (ns).
const SHORTEST: u64 = 5_000;
/// The shortest sleep that is shortened by what sleeps are too long, and that teaches it (ns).
const LONG: u64 = 2 * MOST_LATE;
/// A sleep that ends later than that (ns) does so because the machine is busy, and teaches no more
/// than this.
const MOST_LATE: u64 = 50_000;
/// The longest sleep (ns): how often to check whether the gate closes, or whether the wait is still
/// needed.
const LONGEST: u64 = 5_000_000;
/// How often a thread that waits puts marks behind what other threads have launched meanwhile.
const TRIES: u32 = 3;
/// How long after its next look is due a looker is not believed to come any more (ns).
const LOST: u64 = 1_000_000;

/// The threads that wait for an empty device.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// Until when the checking thread counts.
    looker_until: u64,
    /// Whether a thread may sleep without checking.
    pub(super) sleeps: bool,
    /// By how much sleeps lately ended too late (ns): they are made so much shorter.
    late: u64,
    /// By how much slices lately ended too late.
    lateness: Lateness,
}

impl Sleepers {
    /// A sleep that should have ended at `planned` ended at `now`.
    fn woke(&mut self, planned: u64, now: u64) {
        // A thread that was woken, or began so late that it never slept, is no evidence.
        if now >= planned {
            let late = (now - planned).min(MOST_LATE);
            self.late = (7 * self.late + late) / 8;
        }
    }

    /// How long to sleep so that `pause` nanoseconds pass. A short sleep is as long as it is: less
    /// than the processor needs to rest would be a spin.
    fn shortened(&self, pause: u64) -> u64 {
        match pause >= LONG {
            true => pause - self.late,
            false => pause,
        }
    }
}

/// The next step of a waiting thread.
enum Next {
    /// It asks again.
    Ask,
    /// It sleeps, and looks then.
    Look(u64),
    /// It sleeps; another thread checks.
    Sleep(u64),
    /// It puts marks behind work that came without one, and asks again.
    Mark,
}

impl DeviceGate {
    /// Whether a launch in `stream_key` that is expected to take so long has to wait: until nothing
    /// is under way, or until it is this process's turn.
    pub(super) fn has_to_yield(
        &self,
        inner: &mut Inner,
        now: u64,
        stream_key: StreamKey,
        expected: Expected,
    ) -> Option<Told> {
        let Some(slice) = inner.rules.yields() else {
            self.rests(inner, now);
            return None;
        };
        if inner.window.is_empty() {
            self.emptied(inner, now);
        }
        let in_stream = inner.in_stream_with(stream_key, expected);
        let takes = slice.max(expected.ns);
        if inner.slices.has_room(now, slice, expected.ns, in_stream) {
            return self.begins_slice(inner, now, takes).map(Told::Taken);
        }
        let left = inner.window.left(now);
        if left == 0 && now.saturating_sub(inner.looked) >= RELOOK && inner.window.has_marks() {
            inner.look_relaxed(now);
            self.settle(inner, now);
        }
        let left = inner.window.left(now);
        let full = inner.slices.ask(now, slice, expected.ns, in_stream, left);
        if inner.slices.is_new() {
            inner.window.counts_anew();
        }
        if full.is_none() && inner.window.is_stuck() {
            // The slice did not end in time.
            inner.window.goes_on(now);
        }
        match full {
            Some(full) => Some(Told::Full(full)),
            None => self.begins_slice(inner, now, takes).map(Told::Taken),
        }
    }

    /// Waits outside the gate until no work is in flight, or the wait is not needed any more.
    /// `thread` is the calling thread's number.
    pub(in crate::gate) fn rest(&self, full: Full, thread: usize) {
        if !self.mark_touched(thread) {
            return self.goes_on(full);
        }
        let _exact = Exact::begin();
        let mut looks = None;
        let mut planned = 0;
        let mut may_mark = true;
        while !exit::is_leaving() {
            let seen = self.emptied.load(Ordering::Acquire);
            let now = clock::now();
            if planned > 0 {
                self.lock().sleepers.woke(planned, now);
            }
            let next = self.next(now, full, &mut looks, may_mark);
            planned = match next {
                Next::Look(pause) if pause >= LONG - MOST_LATE => now.saturating_add(pause),
                _ => 0,
            };
            may_mark = !matches!(next, Next::Mark);
            match next {
                Next::Ask => return,
                Next::Mark => {
                    // If that is refused, the launching thread may be about to put it.
                    let _ = self.mark_touched(thread);
                }
                Next::Look(pause) | Next::Sleep(pause) => {
                    frames::sleep_on(&self.emptied, seen, Duration::from_nanos(pause));
                }
            }
        }
    }

    /// A mark was refused. A capture may be in the way, and the end of the slice would go
    /// unnoticed: it is not waited for.
    fn goes_on(&self, full: Full) {
        let mut inner = self.lock();
        if inner.slices.overran(clock::now(), full.limit) {
            inner.window.counts_anew();
        }
    }

    /// What a waiting thread does at `now`. The checking one also puts marks behind work that
    /// another thread has launched without the lock meanwhile, if it `may_mark`: once a look.
    fn next(&self, now: u64, full: Full, looks: &mut Option<Looks>, may_mark: bool) -> Next {
        let mut inner = self.lock();
        inner.refresh(now);
        let due = full.ends.saturating_add(BEHIND);
        let first = due.saturating_add(inner.sleepers.lateness.first());
        let is_due = now.saturating_add(SHORTEST) >= first;
        let is_mine = looks.is_some() || now >= inner.sleepers.looker_until;
        if is_mine && is_due {
            inner.look_relaxed(now);
            self.settle(&mut inner, now);
        }
        let is_open = inner.follower.stand() == GateState::Open;
        let needs_no_wait = inner.rules.yields().is_none() || !is_open;
        if needs_no_wait || inner.window.is_empty() || now >= full.limit {
            if let Some(looks) = looks.take() {
                if is_due && inner.window.is_empty() {
                    let late = now.saturating_sub(due);
                    inner.sleepers.lateness.ended(looks, late);
                }
                inner.sleepers.looker_until = 0;
                self.wake_sleeper(&mut inner);
            }
            return Next::Ask;
        }
        if !is_mine {
            let until = inner.sleepers.looker_until.min(full.limit);
            inner.sleepers.sleeps = true;
            return Next::Sleep(until.saturating_sub(now).clamp(1, LONGEST));
        }
        let looks = looks.get_or_insert_default();
        if may_mark && inner.window.unmarked_streams().next().is_some() {
            inner.sleepers.looker_until = now.saturating_add(LOST);
            return Next::Mark;
        }
        let pause = if is_due {
            let late = now.saturating_sub(due);
            inner.sleepers.lateness.again(looks, late)
        } else {
            first.saturating_sub(now)
        };
        let pause = inner.sleepers.shortened(pause);
        let pause = pause.min(full.limit.saturating_sub(now));
        let pause = pause.clamp(1, LONGEST);
        inner.sleepers.looker_until = now.saturating_add(pause).saturating_add(LOST);
        Next::Look(pause)
    }

    /// Puts marks behind all work that has none. `false` if one was refused. A launch that another
    /// thread makes meanwhile is marked by that thread where it takes the lock, else by the thread
    /// that checks.
    fn mark_touched(&self, thread: usize) -> bool {
        for _ in 0..TRIES {
            if self.lock().window.unmarked_streams().next().is_none() {
                break;
            }
            let _relaxed = Relaxed::enter();
            if !self.mark_rest(thread, 0) {
                return false;
            }
        }
        true
    }

    /// Wakes one thread that sleeps while another one checks, if there are any. It is called with
    /// the lock held, but few wait for it.
    pub(super) fn wake_sleeper(&self, inner: &mut Inner) {
        if inner.sleepers.sleeps {
            self.emptied.fetch_add(1, Ordering::AcqRel);
            inner.sleepers.sleeps = futex::wake_one(&self.emptied);
        }
    }
}

impl Inner {
    /// For how long a stream has work with one more launch, at least (ns).
    #[inline]
    fn in_stream_with(&self, stream_key: StreamKey, expected: Expected) -> u64 {
        let has = self.window.in_stream(stream_key);
        has.saturating_add(expected.in_stream)
    }

    /// Whether the device yields, and has no room for another launch like the last one.
    pub(super) fn fills_slice(&self, now: u64, stream_key: StreamKey, expected: Expected) -> bool {
        let Some(slice) = self.rules.yields() else {
            return false;
        };
        let in_stream = self.in_stream_with(stream_key, expected);
        self.slices.fills(now, slice, expected.ns, in_stream)
    }
}

#[cfg(test)]
mod tests;
