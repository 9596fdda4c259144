//! Work that no gate governs: of processes without the library, and of those that stand aside.
//!
//! It takes device time that no tenant claims. The driver's samples say how much of it lately. In
//! the driver's round robin it has as much as some number of contexts that always want the device:
//! from its part of the time, and from how many contexts of tenants had work that ran meanwhile,
//! follows how many. So it is known what it takes from a tenant that runs alone, and from one that
//! runs beside others.

use super::rules::Rules;
use crate::lease::arithmetic::scaled;
use crate::time::Nanos;

/// See the module's page. All times are of lately: halved whenever the driver's samples are read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outside {
    /// The time that the driver's samples are of, and what such processes had of it (ns).
    span: u64,
    ran: u64,
    /// The time that was sampled here, and that time once for each context that had work which ran
    /// (ns).
    watched: u64,
    running: u64,
    /// How many such processes ran at the last reading, and at the one before.
    processes: (u32, u32),
    /// The contexts that they are worth, in thousandths.
    contexts: u64,
    /// When the driver's samples were last read.
    read: Nanos,
}

impl Outside {
    /// In a sample of this span work of so many thousandths of tenants' contexts ran.
    pub(super) fn watch(&mut self, span: Nanos, running: u64) {
        let span = span.0.min(Rules::MOST.0);
        self.watched += span;
        self.running += scaled(span, running, 1000);
        // Nothing may be read for long.
        if self.watched > Rules::READ.0 {
            (self.watched, self.running) = (self.watched / 2, self.running / 2);
        }
    }

    /// The driver's samples of the last `span` are read: so many such processes had `ran` of it
    /// together.
    pub(super) fn read(&mut self, now: Nanos, span: Nanos, (processes, ran): (u32, Nanos)) {
        if span == Nanos::ZERO {
            return;
        }
        let long = span.0.min(Rules::MOST.0);
        let part = scaled(ran.0.min(span.0), long, span.0);
        (self.span, self.ran) = (self.span / 2 + long, self.ran / 2 + part);
        self.processes = (processes, self.processes.0);
        // A tenant alone is left what they did not have.
        let beside = scaled(1000, self.running, self.watched).max(1000);
        let contexts = match self.span - self.ran {
            0 => u64::MAX,
            rest => scaled(beside, self.ran, rest),
        };
        let most = u64::from(self.processes.0.max(self.processes.1)) * 1000;
        self.contexts = contexts.min(most);
        (self.watched, self.running) = (self.watched / 2, self.running / 2);
        self.read = now;
    }

    /// The contexts that such work is worth, in thousandths: no more than there are processes that
    /// ran. None once the driver has said nothing for long.
    pub(super) fn contexts(&self, now: Nanos) -> u64 {
        let is_known = now <= self.read + Rules::READ;
        if is_known { self.contexts } else { 0 }
    }
}

/// A tenant's part (ns) of a `time` in which its `own` contexts run beside work of no gate alone,
/// which is worth so many `contexts`; both in thousandths.
pub(super) fn beside(time: i64, (own, contexts): (u64, u64)) -> i64 {
    let own = i128::from(own.max(1000));
    let whole = i128::from(contexts) + own;
    i64::try_from(i128::from(time) * own / whole).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::secs(1);

    /// After so many seconds in which so many tenants ran, and so many such processes had this part
    /// of the time, in thousandths.
    fn after(seconds: u64, running: u64, (processes, part): (u32, u64)) -> Outside {
        let mut outside = Outside::default();
        for second in 1..=seconds {
            outside.watch(SECOND, running * 1000);
            let ran = Nanos(SECOND.0 / 1000 * part);
            outside.read(Nanos::secs(second), SECOND, (processes, ran));
        }
        outside
    }

    /// In thousandths, within one in a hundred.
    fn is_near(contexts: u64, expected: u64) -> bool {
        contexts.abs_diff(expected) * 100 <= expected
    }

    #[test]
    fn a_part_of_the_time_is_worth_as_many_contexts_as_have_it_beside_tenants() {
        for (running, many, part) in [(1, 1, 500), (2, 1, 333), (2, 4, 667), (3, 1, 250)] {
            let now = Nanos::secs(20);
            let contexts = after(20, running, (many, part)).contexts(now);
            assert!(is_near(contexts, u64::from(many) * 1000), "{contexts}");
        }
    }

    #[test]
    fn how_many_tenants_ran_is_a_mean_of_the_last_seconds() {
        let mut outside = Outside::default();
        (0..1_000).for_each(|_| outside.watch(SECOND, 3000));
        for second in 1..=12 {
            outside.watch(SECOND, 1000);
            outside.read(Nanos::secs(second), SECOND, (1, Nanos::millis(250)));
        }
        let contexts = outside.contexts(Nanos::secs(12));
        assert!(is_near(contexts, 333), "{contexts}");
    }

    #[test]
    fn a_tenant_alone_is_left_what_such_work_did_not_have() {
        let contexts = after(20, 0, (1, 300)).contexts(Nanos::secs(20));
        assert!(
            beside(1000, (1000, contexts)).abs_diff(700) <= 5,
            "{contexts}"
        );
    }

    #[test]
    fn no_process_is_worth_more_than_a_context() {
        for part in [999, 1000] {
            let contexts = after(20, 3, (2, part)).contexts(Nanos::secs(20));
            assert_eq!(contexts, 2000);
        }
        // A reading without news comes now and then.
        let mut outside = after(20, 1, (2, 1000));
        outside.read(Nanos::secs(21), SECOND, (0, Nanos::ZERO));
        assert!(outside.contexts(Nanos::secs(21)) > 0);
    }

    #[test]
    fn processes_that_do_not_run_are_worth_nothing() {
        assert_eq!(after(20, 2, (0, 0)).contexts(Nanos::secs(20)), 0);
        assert_eq!(Outside::default().contexts(Nanos::ZERO), 0);
    }

    #[test]
    fn work_that_has_ended_is_forgotten_soon() {
        let mut outside = after(20, 2, (1, 333));
        for second in 21..=24 {
            outside.watch(SECOND, 2000);
            outside.read(Nanos::secs(second), SECOND, (0, Nanos::ZERO));
        }
        assert_eq!(outside.contexts(Nanos::secs(24)), 0);
        // Or where the driver says nothing any more.
        let outside = after(20, 2, (1, 333));
        assert!(outside.contexts(Nanos::secs(23)) > 0);
        assert_eq!(outside.contexts(Nanos(Nanos::secs(23).0 + 1)), 0);
    }

    #[test]
    fn a_reading_of_no_time_is_none() {
        let mut outside = after(20, 1, (1, 500));
        outside.read(Nanos::secs(25), Nanos::ZERO, (9, SECOND));
        assert_eq!(outside.contexts(Nanos::secs(25)), 0);
    }
}
