//! Whose memory goes from the host to files first, where the host budget is used up.
//!
//! Tenants that do not wait to return go first: of those the lowest priority, and of equals the one
//! that has been out for the longest time. Tenants that wait to return follow, the last one of the
//! line first. So the tenant that returns next is the last choice: its memory would be read
//! back at once. It is chosen only where no other memory is on the host, because without room on
//! the host no tenant could leave for it.

use crate::ids::TenantId;
use crate::time::Nanos;
use std::cmp::Reverse;

/// The place of a return in the line of its device, the least first: whether it is within a request
/// and its priority, its residency so far, and since when it waits.
pub(crate) type Rank = (Reverse<(bool, u16)>, u64, Nanos);

/// A tenant all of whose memory is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Which.
    pub(crate) tenant: TenantId,
    /// Its priority.
    pub(crate) priority: u16,
    /// Since when its memory is away.
    pub(crate) since: Nanos,
    /// Its place in the line, if it waits to return: the best one of its devices.
    pub(crate) returns: Option<Rank>,
}

/// The candidates in the order in which their memory is stored in files.
pub(crate) fn order(mut candidates: Vec<Candidate>) -> Vec<TenantId> {
    candidates.sort_by_key(|one| {
        let rests = one.returns.is_none();
        let rests = rests.then_some((one.priority, one.since));
        (rests.is_none(), rests, Reverse(one.returns), one.tenant)
    });
    let order = candidates.into_iter();
    order.map(|one| one.tenant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(tenant: u64, priority: u16, since: u64, returns: Option<(u64, u64)>) -> Candidate {
        let rank = |(used, at)| (Reverse((false, priority)), used, Nanos::secs(at));
        Candidate {
            tenant: TenantId(tenant),
            priority,
            since: Nanos::secs(since),
            returns: returns.map(rank),
        }
    }

    #[test]
    fn the_lowest_priority_goes_first_and_then_the_longest_out() {
        let all = vec![
            one(1, 500, 3, None),
            one(2, 100, 9, None),
            one(3, 500, 2, None),
        ];
        assert_eq!(order(all), [2, 3, 1].map(TenantId));
    }

    #[test]
    fn the_tenant_that_returns_next_is_the_last_choice() {
        // The first in the line has the highest priority, and of equals it had least, or waits
        // longest.
        let all = vec![
            one(1, 100, 1, Some((5, 7))),
            one(2, 900, 1, Some((9, 9))),
            one(3, 100, 1, Some((5, 8))),
            one(4, 900, 5, None),
            one(5, 100, 1, Some((4, 9))),
        ];
        assert_eq!(order(all), [4, 3, 1, 5, 2].map(TenantId));
        assert_eq!(order(vec![one(1, 1, 1, Some((0, 1)))]), [TenantId(1)]);
    }

    /// Every list of up to four tenants of two priorities, two times and two ranks.
    #[test]
    fn no_tenant_is_chosen_before_another_that_should_go_first() {
        let mut kinds = Vec::new();
        for returns in [None, Some((20, 1)), Some((30, 1))] {
            for (priority, since) in [(100, 10), (200, 10), (100, 11), (200, 11)] {
                kinds.push((priority, since, returns));
            }
        }
        for number in 0..12_usize.pow(4) {
            let picks = (0..4).map(|place| kinds[number / 12_usize.pow(place) % 12]);
            let all: Vec<Candidate> = (1..)
                .zip(picks)
                .map(|(tenant, (priority, since, returns))| one(tenant, priority, since, returns))
                .collect();
            let sorted = order(all.clone());
            assert_eq!(sorted.len(), all.len());
            let of = |tenant: &TenantId| all.iter().find(|one| one.tenant == *tenant);
            for pair in sorted.windows(2) {
                let (Some(first), Some(next)) = (of(&pair[0]), of(&pair[1])) else {
                    panic!("a tenant that was not there")
                };
                assert!(first.returns.is_none() || next.returns.is_some());
                if first.returns.is_none() == next.returns.is_none() {
                    assert!(first.priority <= next.priority);
                    let equal = first.priority == next.priority;
                    assert!(!equal || first.returns.is_some() || first.since <= next.since);
                    assert!(!equal || first.returns.is_none() || first.returns >= next.returns);
                }
            }
        }
    }
}
