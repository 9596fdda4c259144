//! Launches into a stream beside other streams' operations, though the window is full. The window
//! bounds how long the device needs for what is under way once the gate closes. An operation that
//! runs already is not shortened by keeping a launch into another stream. Why: ADR 256.

use super::{StreamKey, Window};
use crate::estimate::Expected;
use crate::ran::Ran;

/// The shortest operation that says how many streams the device runs side by side (ns). The window
/// has room for shorter ones.
const LONG: u64 = 1_000_000;
/// The most streams that are let begin an operation beside each other.
const MOST: u64 = 128;
/// Kinds of long operations whose duration alone is kept.
const KINDS: usize = 8;
/// The most operations that end between two attempts to have more streams side by side.
const LONGEST_REST: u32 = 64;

/// How many streams the device runs side by side without one delaying another, as far as was seen
/// while no other tenant worked. One at first. Where as many as that are not slower than one alone,
/// it becomes twice as many; where they are, as many as got the work of one each done.
#[derive(Debug)]
pub(crate) struct Width {
    streams: u64,
    /// The width to which the last streams that delayed each other reduced it.
    safe: u64,
    /// How long an operation of a kind takes alone (ns), and where the next kind goes.
    alone: [(u64, u64); KINDS],
    next: usize,
    /// Operations that end before more streams are tried, and how many after the next failure.
    rests: u32,
    rest: u32,
}

impl Default for Width {
    fn default() -> Self {
        Self {
            streams: 1,
            safe: 1,
            alone: [(0, 0); KINDS],
            next: 0,
            rests: 0,
            rest: 1,
        }
    }
}

impl Width {
    /// Learns from an operation of `key`.
    fn learn(&mut self, key: u64, ran: &Ran) {
        self.rests = self.rests.saturating_sub(1);
        let alone = self.alone(key, ran);
        let side_by_side = ran.side_by_side();
        if ran.least > alone.saturating_add(alone / 2) {
            let width = (ran.beside().saturating_mul(alone) / ran.least).max(1);
            if width < self.streams {
                (self.streams, self.safe) = (width, width);
                self.rest = self.rest.saturating_mul(2).min(LONGEST_REST);
                self.rests = self.rest;
            }
        } else if ran.most <= alone.saturating_add(alone / 3) && side_by_side >= self.streams {
            if side_by_side > self.safe {
                self.rest = 1;
            }
            if self.rests == 0 {
                self.streams = self.streams.saturating_mul(2).min(MOST);
            }
        }
    }

    /// How long an operation of this kind takes alone, now that one has run.
    fn alone(&mut self, key: u64, ran: &Ran) -> u64 {
        let known = self.alone.iter().position(|(kind, _)| *kind == key);
        let at = known.unwrap_or_else(|| {
            self.next = (self.next + 1) % KINDS;
            self.alone[self.next] = (key, ran.most);
            self.next
        });
        let (_, alone) = &mut self.alone[at];
        if ran.is_alone() {
            *alone = ran.most;
        } else if ran.most < *alone {
            *alone = *alone / 2 + ran.most / 2;
        }
        *alone
    }
}

impl<M> Window<M> {
    /// The oldest batch of the stream at `at` is complete: what that says of streams side by side.
    pub(super) fn widen(&mut self, now: u64, at: usize, mut ran: Ran) {
        if ran.most < LONG || self.queues[at].stream_key.is_context() {
            return;
        }
        for (other, queue) in self.queues.iter_mut().enumerate() {
            let began = queue.working_since().filter(|_| other != at);
            let Some(began) = began.filter(|_| !queue.stream_key.is_context()) else {
                continue;
            };
            if (began, other) < (ran.began, at) {
                ran.behind = ran.behind.saturating_add(ran.most);
            } else {
                queue.behind = queue.behind.saturating_add(now.saturating_sub(began));
            }
        }
        if let Some(key) = ran.key {
            self.width.learn(key, &ran);
        }
    }

    /// [`School::crowd`](crate::queue::School::crowd) and
    /// [`School::share`](crate::queue::School::share) of `now`.
    pub(super) fn counted(&mut self, now: u64) -> (u64, u64) {
        self.shares = self.shares_at(now);
        self.counted_until = self.counted_until.max(now);
        self.shares
    }

    fn shares_at(&self, now: u64) -> (u64, u64) {
        let streams = self.queues.iter();
        let busy = streams.filter(|queue| !queue.stream_key.is_context());
        let passed = now.saturating_sub(self.counted_until);
        let all = passed.saturating_mul(busy.count() as u64);
        let (crowd, share) = self.shares;
        let one = passed / self.side_by_side();
        (crowd.saturating_add(all), share.saturating_add(one))
    }

    /// Expected nanoseconds that the device has spent on what is under way.
    pub(super) fn spent(&self, now: u64) -> u64 {
        let (_, share) = self.shares_at(now);
        self.queues
            .iter()
            .map(|queue| queue.spent(now, share))
            .sum()
    }

    /// Whether at most half a window, `half`, waits for the longest operation of another stream, or
    /// runs beside it, with one more launch. The device needs that operation's time and half a
    /// window then.
    pub(super) fn fits_beside(
        &self,
        now: u64,
        half: u64,
        stream_key: StreamKey,
        expected: Expected,
    ) -> bool {
        let beside = self.side_by_side();
        let (_, share) = self.shares_at(now);
        let (mut all, mut longest) = (self.reserved.1.saturating_add(expected.ns), 0);
        for queue in &self.queues {
            let spent = queue.spent(now, share);
            all = all.saturating_add(queue.total().saturating_sub(spent));
            let (left, overdue) = queue.running(now, share, beside);
            let is_own = queue.stream_key == stream_key;
            // Of a measured launch it is known that it is short, however long others take.
            let counts = is_own || !expected.known;
            let overdue = if counts { overdue } else { 0 };
            all = all.saturating_add(overdue);
            if !is_own {
                longest = longest.max(left.saturating_add(overdue));
            }
        }
        all.saturating_sub(longest) <= half
    }

    /// Whether a stream has nothing to do and the device runs one more beside those that have.
    pub(super) fn begins_beside(&self, stream_key: StreamKey) -> bool {
        let streams = self.queues.iter().map(|queue| queue.stream_key);
        let mut busy = u64::from(self.reserved.0);
        for of in streams {
            if of == stream_key {
                return false;
            }
            busy += u64::from(!of.is_context());
        }
        busy < self.width.streams
    }
}
