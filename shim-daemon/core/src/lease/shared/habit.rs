//! How a tenant uses a shared device, lately: how much of the time, and with what gaps.

use super::rules::Rules;
use crate::time::Nanos;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habit {
    /// Its recent service, and its recent time without pending work: both halved now and then.
    solo: u64,
    think: u64,
    /// The part of the time it is pending, lately, in thousandths; and how many samples that is a
    /// mean of.
    presence: u64,
    samples: u64,
    /// For how long it has been pending for at least half of each sample.
    unbroken: Nanos,
    /// It was pending at the last sample.
    works: bool,
    /// When work was last seen pending.
    pending_at: Option<Nanos>,
    /// When it was last looked at.
    seen: Nanos,
}

impl Habit {
    /// Sampling begins.
    pub(super) fn begin(&mut self) {
        self.samples = 0;
    }

    /// The part of the time it is pending, lately, in thousandths.
    pub(super) fn presence(&self) -> u64 {
        self.presence
    }

    /// For how long it has been pending for at least half of each sample.
    pub(super) fn unbroken(&self) -> Nanos {
        self.unbroken
    }

    /// Whether it was pending at the last sample.
    pub(super) fn works(&self) -> bool {
        self.works
    }

    /// Whether it was seen pending a moment ago, or at the last look where the next one is late.
    pub(super) fn was_pending(&self, now: Nanos) -> bool {
        self.pending_at.is_some_and(|at| {
            let last = at == self.seen && now <= at + Rules::LATE_LOOK;
            last || now <= at + Rules::LATELY
        })
    }

    /// Whether it was ever seen pending.
    pub(super) fn has_worked(&self) -> bool {
        self.pending_at.is_some()
    }

    /// Whether it would keep the device busy by itself, nearly.
    pub(super) fn is_dense(&self) -> bool {
        let all = self.solo + self.think;
        all >= Rules::SEEN.0 && self.solo * 10 >= all * Rules::DENSE
    }

    /// Records its last `span`: its service, how long it was pending, and whether it `works` at the
    /// end. `waits`: a call waits at its gate.
    pub(super) fn note(
        &mut self,
        (now, span): (Nanos, Nanos),
        (bill, pending): (u64, u64),
        (works, waits): (bool, bool),
    ) {
        self.seen = now;
        if pending > 0 {
            self.pending_at = Some(now);
        }
        self.unbroken = match pending >= 500 {
            true => self.unbroken + span,
            false => Nanos::ZERO,
        };
        self.works = works;
        self.solo += bill;
        // A long pause is no gap: what works on after it is as dense as before.
        if waits || self.was_pending(now) {
            self.think += span.0 * (1000 - pending) / 1000;
        }
        if self.solo + self.think > Rules::HABIT.0 {
            (self.solo, self.think) = (self.solo / 2, self.think / 2);
        }
        // A mean over so many samples, or as many as there have been.
        self.samples = (self.samples + 1).min(Rules::SAMPLES);
        self.presence = (self.presence * (self.samples - 1) + pending) / self.samples;
    }
}
