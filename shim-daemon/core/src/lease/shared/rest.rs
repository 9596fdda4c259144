//! The device's time that no measured work accounts for: what the tenants of unknown service had.
//!
//! Operations as long as the driver's slice are never measured beside other tenants, so the claims
//! of such a tenant are guesses. The device's time is known, though: while any work is in flight
//! the device is busy, and the bills of the other tenants say what they had of it. While several
//! have work in flight, changes of contexts take a part of the time, which is nobody's service. So
//! does work that no gate governs ([`Outside`](super::outside::Outside)). The rest is divided among
//! the tenants of unknown service by the time the work of each of their contexts was in flight, as
//! the driver's round robin does.

use super::rules::Rules;
use crate::ids::TenantId;
use crate::lease::arithmetic::{scaled, signed};
use crate::time::Nanos;
use std::collections::BTreeMap;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// Busy time that is not billed yet (ns); negative after bills for more than passed: an
    /// operation is billed when it ends.
    left: i64,
}

/// A tenant's part in a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) tenant: TenantId,
    /// For how much of the span its work was in flight, in thousandths.
    pub(super) flight: u64,
    /// The same of each of its contexts, added up.
    pub(super) contexts: u64,
    /// Its bill by its own claims (ns); `None`: its service is unknown.
    pub(super) billed: Option<u64>,
    /// What is known of that service (ns): of a gang, what its kernels take alone.
    pub(super) least: u64,
}

impl Rest {
    /// The bills of the tenants of unknown service among `parts` for a `span` (ns). So many
    /// thousandths of the time in which several have work in flight are `left` by changes of
    /// contexts. Work of so many thousandths of contexts is `outside` of all gates.
    pub(super) fn divide(
        &mut self,
        parts: &[Part],
        (span, left): (Nanos, u64),
        outside: u64,
    ) -> BTreeMap<TenantId, u64> {
        let unknown = || parts.iter().filter(|part| part.billed.is_none());
        let most: u64 = unknown().map(|part| span.0 * part.flight / 1000).sum();
        if unknown().next().is_none() {
            *self = Self::default();
            return BTreeMap::new();
        }
        let (idle, several) = flights(parts, span);
        let lost = several - scaled(several, left, 1000);
        let billed = parts.iter().filter_map(|part| part.billed);
        let billed = billed.fold(0, u64::saturating_add);
        let all: u64 = parts.iter().map(|part| part.contexts).sum();
        let busy = span.0.saturating_sub(idle + lost);
        let lost = lost + scaled(busy, outside, outside + all.max(1000));
        let bound = signed(Rules::MOST);
        self.left = self
            .left
            .saturating_add(signed(span) - signed(Nanos(idle + lost)))
            .saturating_sub(signed(Nanos(billed)))
            .max(-bound);
        let had = u64::try_from(self.left).unwrap_or(0).min(most);
        // While none of them was in flight the time was the others', who claim it later.
        self.left = (self.left - signed(Nanos(had))).min(signed(Rules::FADE));
        let least = unknown().fold(0, |sum: u64, part| sum.saturating_add(part.least));
        let known = least.min(had);
        let mut rest = unknown().copied().collect::<Vec<Part>>();
        // Those with the least time for their contexts first: none has more than that time.
        rest.sort_by_key(|part| scaled(part.flight, 1_000_000, part.contexts));
        let mut contexts: u64 = rest.iter().map(|part| part.contexts).sum();
        let mut others = had - known;
        let bill = |part: &Part| {
            let own = scaled(part.least, known, least);
            let most = (span.0 * part.flight / 1000).saturating_sub(own);
            let part_of_others = scaled(others, part.contexts, contexts).min(most);
            (others, contexts) = (others - part_of_others, contexts - part.contexts);
            (part.tenant, own + part_of_others)
        };
        rest.iter().map(bill).collect()
    }
}

/// In how much of a `span` no work was in flight, and in how much that of several tenants (ns).
/// Their times in flight are taken as independent.
fn flights(parts: &[Part], span: Nanos) -> (u64, u64) {
    let (none, one) = parts.iter().fold((span.0, 0), |(none, one), part| {
        let flight = part.flight.min(1000);
        let without = |time: u64| time * (1000 - flight) / 1000;
        (without(none), without(one) + none * flight / 1000)
    });
    (none, span.0.saturating_sub(none + one))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SPAN: Nanos = Nanos::millis(2);

    fn part(tenant: u64, flight: u64, billed: Option<u64>) -> Part {
        Part {
            tenant: TenantId(tenant),
            flight,
            contexts: flight,
            billed,
            least: 0,
        }
    }

    /// The bills of tenants 2 and 3 after so many spans.
    fn bills(parts: &dyn Fn(u64) -> Vec<Part>, spans: u64) -> [u64; 2] {
        let mut rest = Rest::default();
        let mut sums = [0, 0];
        for at in 0..spans {
            for (id, bill) in rest.divide(&parts(at), (SPAN, 1000), 0) {
                sums[usize::try_from(id.0).unwrap_or(0) - 2] += bill;
            }
        }
        sums
    }

    #[test]
    fn the_rest_of_the_time_is_divided_by_time_in_flight() {
        let known = |_| {
            vec![
                part(1, 1000, Some(SPAN.0 / 2)),
                part(2, 1000, None),
                part(3, 500, None),
            ]
        };
        // Rounded down, in each span.
        let [two, one] = bills(&known, 3);
        assert!((2 * MS).abs_diff(two) <= 3 && MS.abs_diff(one) <= 3);
        let alone = |_| vec![part(2, 1000, None)];
        assert_eq!(bills(&alone, 5), [10 * MS, 0]);
        let idle = |_| vec![part(2, 0, None)];
        assert_eq!(bills(&idle, 5), [0, 0]);
    }

    /// Each context of a process has its turn in the driver's round robin.
    #[test]
    fn tenants_of_several_contexts_have_as_many_parts() {
        let two = |flight, contexts| {
            move |_| {
                let many = Part {
                    contexts,
                    ..part(2, flight, None)
                };
                vec![many, part(3, 1000, None)]
            }
        };
        let near = |bills: [u64; 2], first: u64| {
            let all = 9 * SPAN.0;
            bills[0].abs_diff(first) <= 9 && bills[1].abs_diff(all - first) <= 9
        };
        assert!(near(bills(&two(1000, 8000), 9), 8 * SPAN.0));
        assert!(near(bills(&two(1000, 1000), 9), 9 * SPAN.0 / 2));
        // All of them at the same time, and for no longer than that.
        assert!(near(bills(&two(100, 800), 9), 9 * SPAN.0 / 10));
    }

    /// Of the time in which both have work, changes of contexts leave nine tenths.
    #[test]
    fn the_time_of_changes_of_contexts_is_nobodys_service() {
        let billed = |flight, left| {
            let parts = [part(1, flight, Some(SPAN.0 / 4)), part(2, 1000, None)];
            Rest::default().divide(&parts, (SPAN, left), 0)[&TenantId(2)]
        };
        let quarters = SPAN.0 / 4 * 3;
        assert_eq!(billed(1000, 1000), quarters);
        assert_eq!(billed(1000, 900), quarters - SPAN.0 / 10);
        assert_eq!(billed(500, 900), quarters - SPAN.0 / 20);
        assert_eq!(billed(0, 900), quarters);
    }

    #[test]
    fn what_work_of_no_gate_has_is_nobodys_service() {
        let billed = |outside| {
            let parts = [part(1, 1000, Some(SPAN.0 / 3)), part(2, 1000, None)];
            Rest::default().divide(&parts, (SPAN, 1000), outside)[&TenantId(2)]
        };
        let near = |bill: u64, expected: u64| bill.abs_diff(expected) <= 2;
        assert!(near(billed(0), SPAN.0 * 2 / 3));
        assert!(near(billed(1000), SPAN.0 / 3));
        assert!(near(billed(500), SPAN.0 * 4 / 5 - SPAN.0 / 3));
    }

    #[test]
    fn a_gangs_waiting_is_divided_and_its_own_work_is_not() {
        let gang = |tenant, least| Part {
            least,
            ..part(tenant, 1000, None)
        };
        let half = SPAN.0 / 2;
        let two = |_| vec![gang(2, half), gang(3, SPAN.0 / 4), part(1, 1000, Some(0))];
        let [most, least] = bills(&two, 8);
        assert_eq!([most, least], [8 * (half + SPAN.0 / 8), 8 * 3 * SPAN.0 / 8]);
        let alone = |_| vec![gang(2, half), part(1, 1000, Some(half / 2))];
        assert_eq!(bills(&alone, 8), [6 * SPAN.0, 0]);
        // Claims of more than there was are cut.
        let liar = |_| vec![gang(2, u64::MAX), gang(3, half), part(1, 1000, Some(half))];
        let [bill, _] = bills(&liar, 8);
        assert!(bill <= 4 * SPAN.0, "{bill}");
    }

    /// A measured operation of 20 ms is billed when it ends: what was taken for the rest until then
    /// is repaid.
    #[test]
    fn late_bills_of_others_are_subtracted_afterwards() {
        let lumps = |at| {
            let billed = if at % 20 == 19 { 20 * MS } else { 0 };
            vec![part(1, 1000, Some(billed)), part(2, 1000, None)]
        };
        let [bill, _] = bills(&lumps, 2_000);
        assert!(bill.abs_diff(2_000 * MS) <= 40 * MS, "{bill}");
    }

    #[test]
    fn bills_beyond_the_time_leave_nothing_and_are_forgotten_without_guesses() {
        let mut rest = Rest::default();
        let much = part(1, 1000, Some(100 * SPAN.0));
        let guessed = part(2, 1000, None);
        assert_eq!(
            rest.divide(&[much, guessed], (SPAN, 1000), 0)[&TenantId(2)],
            0
        );
        assert_eq!(
            rest.divide(&[guessed], (SPAN, 1000), 0)[&TenantId(2)],
            0,
            "it is owed"
        );
        assert!(rest.divide(&[much], (SPAN, 1000), 0).is_empty());
        assert_eq!(
            rest.divide(&[guessed], (SPAN, 1000), 0)[&TenantId(2)],
            SPAN.0
        );
    }
}
