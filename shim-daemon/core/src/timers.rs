//! Named timers: setting one again moves it. This module reads no clock.

use crate::ids::{AskKey, DeviceId, TenantId};
use crate::time::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The recovery after a restart is over.
    Recovered,
    /// An ask has waited its time.
    Patience(AskKey),
    /// A tenant may have become idle.
    Idle(TenantId),
    /// A tenant must be warned or ended.
    End(TenantId),
    /// The next step of a kill ladder.
    Ladder(TenantId),
    /// Limbo or a victim stops counting as coming.
    Settle(DeviceId),
    /// Look whether waiters wait on each other.
    Cycle,
    /// Look at a device again for waiting asks.
    Look(DeviceId),
    /// Look at a device again because some reservations there are estimates.
    Guess(DeviceId),
    /// A step of a tenant's move on a device takes too long, or a look may show its end.
    Move(DeviceId, TenantId),
    /// A process of the previous daemon has not said where its memory is for too long.
    Silent(DeviceId, TenantId),
    /// A turn on a device may be over, or another may begin.
    Turn(DeviceId),
}

/// The table of running timers, and the time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    now: Nanos,
    due: BTreeSet<(Nanos, Timer)>,
    at: BTreeMap<Timer, Nanos>,
}

impl Timers {
    /// The time up to which everything has happened.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Time passes; it never goes back.
    pub(crate) fn pass(&mut self, now: Nanos) {
        self.now = now.max(self.now);
    }

    /// Starts or moves a timer.
    pub(crate) fn set(&mut self, timer: Timer, at: Nanos) {
        debug_assert!(
            at >= self.now || !matches!(timer, Timer::Settle(_)),
            "{timer:?} is set to {at:?}, which has passed: it would be due without end"
        );
        self.stop(timer);
        self.at.insert(timer, at);
        self.due.insert((at, timer));
    }

    /// Starts a timer, or moves it to an earlier time; never to a later one.
    pub(crate) fn set_no_later(&mut self, timer: Timer, at: Nanos) {
        if self.at.get(&timer).is_none_or(|set| at < *set) {
            self.set(timer, at);
        }
    }

    /// Stops a timer if it runs.
    pub(crate) fn stop(&mut self, timer: Timer) {
        if let Some(at) = self.at.remove(&timer) {
            self.due.remove(&(at, timer));
        }
    }

    /// When this one is due, if it runs.
    pub(crate) fn due(&self, timer: Timer) -> Option<Nanos> {
        self.at.get(&timer).copied()
    }

    /// When the first one is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Those that are due by then, the first one first.
    pub(crate) fn due_until(&self, now: Nanos) -> impl Iterator<Item = Timer> {
        let due = self.due.iter().take_while(move |(at, _)| *at <= now);
        due.map(|(_, timer)| *timer)
    }

    /// Takes a due timer.
    pub(crate) fn take_due(&mut self) -> Option<Timer> {
        let (at, timer) = *self.due.first()?;
        if at > self.now {
            return None;
        }
        self.stop(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_set_again_fires_once_at_its_new_time() {
        let mut timers = Timers::default();
        timers.set(Timer::Cycle, Nanos(5));
        timers.set(Timer::Cycle, Nanos(9));
        timers.pass(Nanos(8));
        assert_eq!(timers.take_due(), None);
        timers.pass(Nanos(9));
        assert_eq!(timers.take_due(), Some(Timer::Cycle));
        timers.pass(Nanos(99));
        assert_eq!(timers.take_due(), None);
    }

    #[test]
    fn a_stopped_timer_never_fires() {
        let mut timers = Timers::default();
        timers.set(Timer::Cycle, Nanos(5));
        timers.stop(Timer::Cycle);
        timers.pass(Nanos::MAX);
        assert_eq!((timers.next(), timers.take_due()), (None, None));
    }

    #[test]
    fn set_no_later_only_moves_a_timer_forward() {
        let mut timers = Timers::default();
        timers.set_no_later(Timer::Cycle, Nanos(5));
        timers.set_no_later(Timer::Cycle, Nanos(9));
        assert_eq!(timers.next(), Some(Nanos(5)));
    }

    #[test]
    fn time_never_goes_back() {
        let mut timers = Timers::default();
        timers.pass(Nanos(5));
        timers.pass(Nanos(3));
        assert_eq!(timers.now(), Nanos(5));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "has passed")]
    fn a_device_is_not_settled_in_the_past() {
        let mut timers = Timers::default();
        timers.pass(Nanos(5));
        timers.set(Timer::Settle(DeviceId(1)), Nanos(5));
        timers.set(Timer::Settle(DeviceId(1)), Nanos(4));
    }
}
