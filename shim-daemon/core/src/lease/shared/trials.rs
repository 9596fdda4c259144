//! A trial of steering for each set of tenants.
//!
//! What steering costs depends on the tenants. A verdict is kept while its tenants stay, and for a
//! while after them: tenants that pause and come back find theirs.

use super::rules::Rules;
use super::trial::{Regime, Trial};
use crate::ids::TenantId;
use crate::time::Nanos;
use std::collections::VecDeque;

/// See the module's page.
#[derive(Debug, Default)]
pub(super) struct Trials {
    /// The tenants that had work lately, in order, and their trial.
    tenants: Vec<TenantId>,
    trial: Trial,
    /// Those of other sets, the latest last.
    past: VecDeque<(Vec<TenantId>, Trial)>,
}

impl Trials {
    /// Whether this may be done now.
    pub(super) fn allows(&self, regime: Regime, now: Nanos) -> bool {
        self.trial.allows(regime, now)
    }

    /// A sample with these tenants, in order: see [`Trial::note`].
    pub(super) fn note(
        &mut self,
        times: (Nanos, Nanos),
        useful: Option<&[u64]>,
        (tenants, regime): (Vec<TenantId>, Regime),
    ) {
        // A tenant alone is not steered.
        if tenants.len() > 1 && tenants != self.tenants {
            self.meet(tenants);
        }
        self.trial.note(times, useful, regime);
    }

    /// The terms of a tenant changed: what was found of steering for it says nothing of the new
    /// ones. The measured time of the driver alone stays.
    pub(super) fn terms_changed(&mut self, tenant: TenantId) {
        self.past.retain(|(tenants, _)| !tenants.contains(&tenant));
        if self.tenants.contains(&tenant) {
            self.trial.begin_anew();
        }
    }

    fn meet(&mut self, tenants: Vec<TenantId>) {
        let known = self.past.iter().position(|(past, _)| *past == tenants);
        let known = known.and_then(|at| self.past.remove(at));
        let trial = known.map_or_else(Trial::default, |(_, trial)| trial);
        let trial = trial.after(&self.trial);
        let past = std::mem::replace(&mut self.tenants, tenants);
        let past = (past, std::mem::replace(&mut self.trial, trial));
        self.past.push_back(past);
        if self.past.len() > Rules::SETS {
            self.past.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Nanos = Rules::TICK;

    fn set(ids: &[u64]) -> Vec<TenantId> {
        ids.iter().copied().map(TenantId).collect()
    }

    /// Lets time pass with these tenants. Steering for them, where it is allowed, leaves so many
    /// thousandths useful; the driver alone 880. Returns the time after that, and for how long they
    /// were steered.
    fn run(
        trials: &mut Trials,
        (from, time): (Nanos, Nanos),
        ids: &[u64],
        part: u64,
    ) -> (Nanos, Nanos) {
        let (mut now, mut steered) = (from, Nanos::ZERO);
        while now < from + time {
            let (regime, part) = if trials.allows(Regime::Yields, now) {
                steered = steered + TICK;
                (Regime::Yields, part)
            } else {
                (Regime::Driver, 880)
            };
            now = now + TICK;
            let all = TICK.0 * part / 1000;
            let useful = match regime {
                Regime::Driver => [all, 0],
                _ => [all / 2, all / 2],
            };
            trials.note((now, TICK), Some(&useful), (set(ids), regime));
        }
        (now, steered)
    }

    const LONG: Nanos = Nanos::secs(20);

    #[test]
    fn other_tenants_are_tried_though_help_was_given_up() {
        let mut trials = Trials::default();
        let (now, _) = run(&mut trials, (Nanos::ZERO, LONG), &[1, 2], 600);
        assert!(!trials.allows(Regime::Yields, now));
        let (now, steered) = run(&mut trials, (now, Nanos::secs(2)), &[1, 3], 850);
        let waited = Nanos::secs(2) - steered;
        assert!(waited <= Rules::BARE + TICK + TICK, "{waited:?}");
        assert!(trials.allows(Regime::Yields, now));
    }

    #[test]
    fn tenants_that_come_back_find_their_verdict() {
        let mut trials = Trials::default();
        let (mut now, _) = run(&mut trials, (Nanos::ZERO, LONG), &[1, 2], 600);
        for _ in 0..20 {
            (now, _) = run(&mut trials, (now, Nanos::millis(100)), &[1, 2, 3], 850);
            let (after, steered) = run(&mut trials, (now, Nanos::millis(100)), &[1, 2], 600);
            now = after;
            assert!(steered <= TICK, "{steered:?}");
        }
    }

    #[test]
    fn other_terms_are_tried_at_once_and_only_where_their_tenant_is() {
        let mut trials = Trials::default();
        let (now, _) = run(&mut trials, (Nanos::ZERO, LONG), &[1, 3], 600);
        let (now, _) = run(&mut trials, (now, LONG), &[1, 2], 600);
        trials.terms_changed(TenantId(3));
        assert!(!trials.allows(Regime::Yields, now));
        trials.terms_changed(TenantId(2));
        assert!(trials.allows(Regime::Yields, now));
        // Those of the third one were forgotten, and are given up again for as long or longer.
        let (now, _) = run(&mut trials, (now, LONG), &[1, 2], 600);
        assert!(!trials.allows(Regime::Yields, now));
        assert!(
            trials
                .past
                .iter()
                .all(|(tenants, _)| !tenants.contains(&TenantId(3)))
        );
    }

    /// One that is alone is not sampled, or with others that have had no work.
    #[test]
    fn a_tenant_alone_leaves_the_verdict_as_it_is() {
        let mut trials = Trials::default();
        let (now, _) = run(&mut trials, (Nanos::ZERO, LONG), &[1, 2], 600);
        trials.note((now + TICK, TICK), None, (set(&[1]), Regime::Driver));
        assert!(!trials.allows(Regime::Yields, now + TICK));
        assert!(trials.past.iter().all(|(tenants, _)| tenants.is_empty()));
    }

    #[test]
    fn new_tenants_again_and_again_make_bad_help_go_on_half_of_the_time() {
        for every in [Nanos::millis(1000), Nanos::secs(3)] {
            let mut trials = Trials::default();
            let (mut now, _) = run(&mut trials, (Nanos::ZERO, LONG), &[1, 2], 600);
            let (from, mut all) = (now, Nanos::ZERO);
            for guest in 3..63 {
                let (after, steered) = run(&mut trials, (now, every), &[1, 2, guest], 700);
                (now, all) = (after, all + steered);
            }
            let time = now - from;
            assert!(all.0 * 2 <= time.0, "{all:?} of {time:?}");
        }
    }

    /// They come before anything was measured.
    #[test]
    fn new_tenants_do_not_put_off_that_the_driver_alone_is_measured() {
        let mut trials = Trials::default();
        let (mut now, mut all) = (Nanos::ZERO, Nanos::ZERO);
        for guest in 2..62 {
            let (after, steered) = run(&mut trials, (now, Nanos::secs(1)), &[1, guest], 600);
            (now, all) = (after, all + steered);
        }
        assert!(all.0 * 2 <= now.0, "{all:?} of {now:?}");
    }

    #[test]
    fn no_more_than_some_sets_are_remembered() {
        let mut trials = Trials::default();
        let mut now = Nanos::ZERO;
        for guest in 2..100 {
            (now, _) = run(&mut trials, (now, TICK), &[1, guest], 850);
        }
        assert_eq!(trials.past.len(), Rules::SETS);
    }
}
