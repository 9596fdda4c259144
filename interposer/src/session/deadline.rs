//! One call of the program, and how long it may block in all.
//!
//! A call may wait several times: for the tenant's lock, for the bytes of the dead, for the
//! daemon's answer, for a driver that has no memory yet. All of these count from the same moment,
//! the call's first wait, so that they do not add up. The value is made in the hook, costs nothing
//! until something has to wait, and goes down through the account to the session.

use core::cell::Cell;
use std::time::{Duration, Instant};

/// Longest wait for the tenant's lock in one call. Its holders need microseconds each, with
/// hundreds of processes milliseconds.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// The shortest: a tenant whose allocations may hardly wait must not be refused for a
/// neighbour's few milliseconds.
const LEAST_LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// The time that every attempt at the lock has, also when the call's time is over.
const LAST_LOCK_PATIENCE: Duration = Duration::from_millis(250);

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Deadline {
    began: Cell<Option<Instant>>,
    refused: Cell<bool>,
}

impl Deadline {
    /// Of a call that has not waited yet.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            began: Cell::new(None),
            refused: Cell::new(false),
        }
    }

    /// When the call began to wait: now, if it had not.
    pub(crate) fn began(&self) -> Instant {
        let began = self.began.get().unwrap_or_else(Instant::now);
        self.began.set(Some(began));
        began
    }

    /// A wait of this call was extended by the daemon, or was for memory to return, which has a
    /// bound of its own: what it waits for after that is counted from now on.
    pub(crate) fn begins_anew(&self) {
        self.began.set(Some(Instant::now()));
    }

    /// The call goes on with others that began to wait at `since`: they have one time together.
    pub(crate) fn goes_on(&self, since: Instant) {
        self.began.set(Some(since));
    }

    /// When the call began to wait, if the daemon has refused it after a wait.
    pub(crate) fn waited_in_vain(&self) -> Option<Instant> {
        self.began.get().filter(|_| self.is_refused())
    }

    /// The rest of `span` in this call.
    pub(crate) fn left_of(&self, span: Duration) -> Duration {
        span.saturating_sub(self.began().elapsed())
    }

    /// How long this attempt may wait for the tenant's lock, where an allocation may wait for
    /// `longest`.
    pub(crate) fn lock_patience(&self, longest: Duration) -> Duration {
        let span = longest.clamp(LEAST_LOCK_PATIENCE, LOCK_PATIENCE);
        self.left_of(span).max(LAST_LOCK_PATIENCE)
    }

    /// The daemon has refused a question of this call that could wait: none is put again.
    pub(super) fn refuse(&self) {
        self.refused.set(true);
    }

    /// Whether it has.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn begun(ago: Duration) -> Deadline {
        let deadline = Deadline::new();
        deadline.began.set(Some(Instant::now() - ago));
        deadline
    }

    #[test]
    fn what_a_call_has_waited_is_missing_from_all_its_later_waits() {
        let fresh = Deadline::new();
        assert_eq!(fresh.began(), fresh.began(), "it begins once");
        let late = begun(Duration::from_secs(8));
        assert!(late.left_of(Duration::from_secs(10)) <= Duration::from_secs(2));
        assert_eq!(late.left_of(Duration::from_secs(5)), Duration::ZERO);
    }

    #[test]
    fn the_lock_is_waited_for_no_longer_than_an_allocation_may_wait() {
        let fresh = Deadline::new();
        assert!(fresh.lock_patience(LONG) <= LOCK_PATIENCE);
        assert!(fresh.lock_patience(Duration::from_secs(5)) <= Duration::from_secs(5));
        assert!(fresh.lock_patience(Duration::ZERO) <= LEAST_LOCK_PATIENCE);
    }

    #[test]
    fn a_call_whose_time_is_over_still_gets_a_lock_that_is_only_busy() {
        assert_eq!(begun(LONG).lock_patience(LONG), LAST_LOCK_PATIENCE);
    }
}
