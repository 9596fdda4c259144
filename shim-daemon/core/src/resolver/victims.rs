//! The choice of victims: enough memory, no victim too many, and the fewest bytes destroyed.

use super::Candidate;
use crate::ids::TenantId;
use gpushare_protocol::units::Bytes;
use std::cmp::Reverse;

/// Up to this many candidates every subset is weighed; above it a greedy choice is.
const EXACT: usize = 10;

/// The victims, or `None` if all candidates together do not give `short` bytes. Among equals the
/// lowest priority, then the idle, then the youngest.
pub(super) fn fewest_bytes(candidates: &[Candidate], short: Bytes) -> Option<Vec<TenantId>> {
    if candidates
        .iter()
        .map(|candidate| candidate.gives)
        .sum::<Bytes>()
        < short
    {
        return None;
    }
    let mut sorted = candidates.to_vec();
    sorted.sort_by_key(|candidate| {
        (
            candidate.priority,
            !candidate.idle,
            Reverse(candidate.tenant),
        )
    });
    let chosen = if sorted.len() <= EXACT {
        weigh_all(&sorted, short)
    } else {
        greedy(&sorted, short)
    };
    Some(
        chosen
            .into_iter()
            .map(|candidate| candidate.tenant)
            .collect(),
    )
}

/// The best of all subsets. The first of equals wins; preferred candidates have the low bits, so
/// theirs comes first.
fn weigh_all(sorted: &[Candidate], short: Bytes) -> Vec<Candidate> {
    let members = |set: u32| {
        let in_set = move |(bit, candidate): (usize, &Candidate)| {
            (set >> bit & 1 == 1).then_some(*candidate)
        };
        sorted.iter().enumerate().filter_map(in_set)
    };
    let best = (0..1u32 << sorted.len())
        .filter(|set| {
            members(*set)
                .map(|candidate| candidate.gives)
                .sum::<Bytes>()
                >= short
        })
        .min_by_key(|set| {
            (
                members(*set)
                    .map(|candidate| candidate.destroys)
                    .sum::<Bytes>(),
                set.count_ones(),
            )
        })
        .unwrap_or_default();
    members(best).collect()
}

/// Takes the cheapest per byte first until there is enough, then spares unneeded victims, dearest
/// first. Or takes a single victim that is enough alone, if that destroys less.
fn greedy(sorted: &[Candidate], short: Bytes) -> Vec<Candidate> {
    let cost_per_byte = |candidate: &Candidate| {
        (u128::from(candidate.destroys.0) << 32) / u128::from(candidate.gives.0.max(1))
    };
    let mut by_cost = sorted.to_vec();
    by_cost.sort_by_key(cost_per_byte);
    let mut given = Bytes::ZERO;
    let mut chosen: Vec<Candidate> = Vec::new();
    for candidate in by_cost {
        if given >= short {
            break;
        }
        given += candidate.gives;
        chosen.push(candidate);
    }
    chosen.sort_by_key(|candidate| Reverse(candidate.destroys));
    chosen.retain(|candidate| {
        let spared = given - candidate.gives >= short;
        if spared {
            given -= candidate.gives;
        }
        !spared
    });
    let destroyed: Bytes = chosen.iter().map(|candidate| candidate.destroys).sum();
    let alone = sorted
        .iter()
        .filter(|candidate| candidate.gives >= short)
        .min_by_key(|candidate| candidate.destroys);
    match alone {
        Some(alone) if !short.is_zero() && alone.destroys < destroyed => vec![*alone],
        _ => chosen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(id: u64, gives: u64, destroys: u64) -> Candidate {
        Candidate {
            tenant: TenantId(id),
            priority: 500,
            idle: false,
            gives: Bytes(gives),
            destroys: Bytes(destroys),
        }
    }

    fn ids(ids: &[u64]) -> Option<Vec<TenantId>> {
        Some(ids.iter().map(|id| TenantId(*id)).collect())
    }

    #[test]
    fn one_small_victim_is_taken_where_a_large_one_would_do_too() {
        let candidates = [candidate(1, 100, 100), candidate(2, 30, 30)];
        assert_eq!(fewest_bytes(&candidates, Bytes(20)), ids(&[2]));
        assert_eq!(fewest_bytes(&candidates, Bytes(40)), ids(&[1]));
    }

    #[test]
    fn of_equal_costs_the_lower_goes_then_the_idle_then_the_younger() {
        let (a, b) = (candidate(1, 50, 50), candidate(2, 50, 50));
        assert_eq!(fewest_bytes(&[a, b], Bytes(50)), ids(&[2]));
        assert_eq!(
            fewest_bytes(&[Candidate { idle: true, ..a }, b], Bytes(50)),
            ids(&[1])
        );
        let lower = Candidate { priority: 1, ..b };
        assert_eq!(
            fewest_bytes(&[Candidate { idle: true, ..a }, lower], Bytes(50)),
            ids(&[2])
        );
    }

    #[test]
    fn nobody_is_chosen_when_nothing_is_missing_or_all_are_not_enough() {
        assert_eq!(fewest_bytes(&[candidate(1, 9, 9)], Bytes::ZERO), ids(&[]));
        assert_eq!(fewest_bytes(&[candidate(1, 9, 9)], Bytes(10)), None);
    }

    proptest! {
        #[test]
        fn no_victim_can_be_spared(
            sizes in proptest::collection::vec((1u64..1000, 0u64..1000), 0..24),
            short in 0u64..8000,
        ) {
            let candidates: Vec<Candidate> =
                (0..).zip(&sizes).map(|(id, (gives, more))| candidate(id, *gives, gives + more)).collect();
            let gives = |id: &TenantId| candidates.iter().find(|c| c.tenant == *id).unwrap().gives;
            let all: Bytes = candidates.iter().map(|c| c.gives).sum();
            match fewest_bytes(&candidates, Bytes(short)) {
                None => prop_assert!(all < Bytes(short)),
                Some(chosen) => {
                    let total: Bytes = chosen.iter().map(gives).sum();
                    prop_assert!(total >= Bytes(short));
                    for victim in &chosen {
                        prop_assert!(total - gives(victim) < Bytes(short), "{victim:?} could be spared");
                    }
                }
            }
        }
    }
}
