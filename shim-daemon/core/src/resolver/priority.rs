//! `priority`: end tenants that hold borrowed memory, are idle or lower, and allow it.
//!
//! It passes if it cannot complete: when the victims together do not give enough, or when the ask
//! would time out before they are gone.

use super::victims::fewest_bytes;
use super::{Candidate, Case, Resolve, Verdict};

pub(super) struct Priority;

impl Resolve for Priority {
    fn resolve(&self, case: &Case<'_>) -> Verdict {
        if case.borrowed && case.short.is_zero() {
            return Verdict::End(Vec::new());
        }
        if !case.borrowed || case.patience < case.ladder {
            return Verdict::Pass;
        }
        let eligible: Vec<Candidate> = case
            .candidates
            .iter()
            .filter(|candidate| candidate.idle || candidate.priority < case.priority)
            .copied()
            .collect();
        fewest_bytes(&eligible, case.short).map_or(Verdict::Pass, Verdict::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TenantId;
    use crate::time::Nanos;
    use gpushare_protocol::units::Bytes;

    fn candidate(priority: u16, idle: bool) -> Candidate {
        let bytes = Bytes::gib(4);
        Candidate {
            tenant: TenantId(1),
            priority,
            idle,
            gives: bytes,
            destroys: bytes,
        }
    }

    fn verdict(candidate: Candidate, change: impl FnOnce(&mut Case<'_>)) -> Verdict {
        let candidates = [candidate];
        let mut case = Case {
            priority: 500,
            short: Bytes::gib(2),
            borrowed: true,
            patience: Nanos::secs(30),
            ladder: Nanos::secs(15),
            candidates: &candidates,
            movers: &[],
            guaranteed: false,
            now: Nanos::ZERO,
            host: Bytes::ZERO,
            room: Bytes::ZERO,
            alone: false,
        };
        change(&mut case);
        Priority.resolve(&case)
    }

    #[test]
    fn a_lower_tenant_is_ended() {
        assert_eq!(
            verdict(candidate(499, false), |_| ()),
            Verdict::End(vec![TenantId(1)])
        );
    }

    #[test]
    fn an_equal_tenant_is_ended_only_when_idle() {
        assert_eq!(verdict(candidate(500, false), |_| ()), Verdict::Pass);
        assert_eq!(
            verdict(candidate(500, true), |_| ()),
            Verdict::End(vec![TenantId(1)])
        );
    }

    #[test]
    fn nobody_is_ended_when_all_of_them_would_not_be_enough() {
        assert_eq!(
            verdict(candidate(1, true), |case| case.short = Bytes::gib(5)),
            Verdict::Pass
        );
    }

    #[test]
    fn nobody_is_ended_for_an_asker_that_gives_up_first() {
        assert_eq!(
            verdict(candidate(1, true), |case| case.patience = Nanos::secs(14)),
            Verdict::Pass
        );
    }

    #[test]
    fn nobody_is_ended_when_the_memory_is_promised_to_others() {
        assert_eq!(
            verdict(candidate(1, true), |case| case.borrowed = false),
            Verdict::Pass
        );
    }

    #[test]
    fn nobody_is_ended_when_what_is_on_its_way_is_enough() {
        let enough = verdict(candidate(1, true), |case| case.short = Bytes::ZERO);
        assert_eq!(enough, Verdict::End(vec![]));
    }
}
