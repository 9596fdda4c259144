//! How a tenant uses a shared device, lately: how much of the time, and with what gaps.

use super::done::Done;
use super::rules::Rules;
use crate::time::Nanos;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habit {
    /// Its recent service, and its recent time without pending work: both halved now and then.
    solo: u64,
    think: u64,
    /// The part of the time it is pending, lately, in millionths: rounding takes less than a
    /// thousandth. And how many samples that is a mean of.
    presence: u64,
    samples: u64,
    /// The part of its samples, lately, in which its work was a queue, in thousandths; and how many
    /// that is a mean of.
    depth: (u64, u64),
    /// When that was last known of its own open gate.
    judged: Option<Nanos>,
    /// For how long it has been pending for at least half of each sample.
    unbroken: Nanos,
    /// It leaves gaps shorter than the time for which it waits for the device.
    loops: bool,
    /// When work was last seen pending.
    pending_at: Option<Nanos>,
    /// When it was last looked at.
    seen: Nanos,
}

impl Habit {
    /// Sampling begins.
    pub(super) fn begin(&mut self) {
        self.samples = 0;
        self.depth.1 = 0;
    }

    /// The part of the time it is pending, lately, in thousandths.
    pub(super) fn presence(&self) -> u64 {
        (self.presence + 500) / 1000
    }

    /// For how long it has been pending for at least half of each sample.
    pub(super) fn unbroken(&self) -> Nanos {
        self.unbroken
    }

    /// Whether it was seen pending in the last `time`, or at the last look where the next is late.
    pub(super) fn was_pending(&self, time: Nanos, now: Nanos) -> bool {
        self.pending_at.is_some_and(|at| {
            let last = at == self.seen && now <= at + Rules::LATE_LOOK;
            last || now <= at + time
        })
    }

    /// Whether it was seen pending so lately that it may be back any moment; or before, and there
    /// is a sign of it `since` a moment ago.
    pub(super) fn is_expected(&self, since: Nanos, now: Nanos) -> bool {
        let sign = self.pending_at.is_some() && now <= since + Rules::EXPECTED;
        sign || self.was_pending(Rules::EXPECTED, now)
    }

    /// Whether it would keep the device busy by itself, nearly.
    pub(super) fn is_dense(&self) -> bool {
        let all = self.solo + self.think;
        all >= Rules::SEEN.0 && self.solo * 10 >= all * Rules::DENSE
    }

    /// Whether it was pending in the span before the last look.
    pub(super) fn was_at_work(&self) -> bool {
        self.pending_at == Some(self.seen)
    }

    /// Whether it waits for each of its operations, and soon submits the next one: beside others it
    /// is pending nearly all the time, though it leaves gaps.
    pub(super) fn loops(&self) -> bool {
        self.loops
    }

    /// Which part of its own time is service, in thousandths.
    pub(super) fn service(&self) -> u64 {
        self.solo * 1000 / (self.solo + self.think).max(1)
    }

    /// Whether it is unknown what it submits at a time, because its gate bounded its work before
    /// that was seen, or has bounded it for long: programs change.
    pub(super) fn is_unjudged(&self, now: Nanos) -> bool {
        self.judged.is_none_or(|at| now > at + Rules::JUDGED)
    }

    /// Decides at the end of a sample whether it loops. `is_open`: its own gate did not bound its
    /// work, or what it submits at a time says nothing. So many such samples tell a `queue` from a
    /// loop. In its turn it need not wait for others, so it loops until it pauses or queues.
    pub(super) fn judge(&mut self, now: Nanos, done: Done, (is_open, queue): (bool, u64)) {
        if is_open {
            if self.is_unjudged(now) && self.judged.take().is_some() {
                self.depth.1 = 0;
            }
            let (depth, samples) = self.depth;
            let samples = (samples + 1).min(Rules::SAMPLES);
            let deep = if done.deep { 1000 } else { 0 };
            self.depth = ((depth * (samples - 1) + deep) / samples, samples);
            if samples >= queue {
                self.judged = Some(now);
            }
        }
        let is_known = self.solo + self.think >= Rules::SEEN.0
            && self.samples >= Rules::SAMPLES
            && self.judged.is_some();
        let waits = is_known && self.presence() >= Rules::LOOPS;
        let is_shallow = self.depth.0 <= 1000 - Rules::LOOPS;
        self.loops = !done.guessed
            && is_shallow
            && self.was_pending(Rules::LATELY, now)
            && (self.loops || waits);
    }

    /// Records its last `span`: its service, and how long it was pending. `waits`: a call waits at
    /// its gate.
    pub(super) fn note(
        &mut self,
        (now, span): (Nanos, Nanos),
        (bill, pending): (u64, u64),
        waits: bool,
    ) {
        self.seen = now;
        if pending > 0 {
            self.pending_at = Some(now);
        }
        self.unbroken = match pending >= 500 {
            true => self.unbroken + span,
            false => Nanos::ZERO,
        };
        self.solo += bill;
        // A long pause is no gap: what works on after it is as dense as before.
        if waits || self.was_pending(Rules::LATELY, now) {
            self.think += span.0 * (1000 - pending) / 1000;
        }
        if self.solo + self.think > Rules::HABIT.0 {
            (self.solo, self.think) = (self.solo / 2, self.think / 2);
        }
        // A mean over so many samples, or as many as there have been.
        self.samples = (self.samples + 1).min(Rules::SAMPLES);
        let all = self.presence * (self.samples - 1) + pending * 1000;
        self.presence = all / self.samples;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue whose gate bounds its work for so long, and which waits for each operation then.
    fn loops_after(bounded: Nanos) -> bool {
        let mut habit = Habit::default();
        let mut now = Nanos::ZERO;
        let mut look = |deep: bool, is_open: bool| {
            now = now + Rules::TICK;
            let done = Done {
                service: Rules::TICK.0,
                pending: 1000,
                contexts: 1000,
                works: true,
                deep,
                guessed: false,
            };
            habit.note((now, Rules::TICK), (done.service, done.pending), false);
            habit.judge(now, done, (is_open, 7));
            habit.loops()
        };
        (0..Rules::SAMPLES).for_each(|_| {
            look(true, true);
        });
        (0..bounded.0 / Rules::TICK.0).for_each(|_| {
            look(false, false);
        });
        // Fewer looks than the mean of the old ones would need.
        (0..8).map(|_| look(false, true)).last() == Some(true)
    }

    #[test]
    fn one_that_was_bounded_for_long_is_judged_by_its_next_open_looks() {
        assert!(loops_after(Rules::JUDGED + Nanos::secs(1)));
        assert!(!loops_after(Nanos(Rules::JUDGED.0 - Nanos::secs(1).0)));
    }

    #[test]
    fn rounding_takes_nothing_from_the_part_of_the_time_it_is_pending() {
        let mut habit = Habit::default();
        let mut note = |pending| {
            habit.note((Nanos::ZERO, Nanos::ZERO), (0, pending), false);
            habit.presence()
        };
        // A mean of 960 thousandths, over an even number of looks.
        let looks = (0..1000).map(|_| [note(1000), note(920)]);
        let both = looks.last().unwrap_or_default();
        assert_eq!((both[0] + both[1]) / 2, 960);
        let last = (0..400).map(|_| note(1000)).last();
        assert_eq!(last, Some(1000));
    }
}
