//! `swap`: move tenants off the card that allow it. They come back when they next run.
//!
//! Victims, in this order: tenants above their request, then the longest idle, then lower priority,
//! then the largest residency so far, then the smallest cost. A tenant that works stays eleven
//! times as long as its moves take; towards an asker of higher priority or within its request only
//! three times as long. A tenant within its request moves only while it is idle.

use super::{Case, Resolve, Verdict};
use crate::ids::TenantId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::cmp::Reverse;

/// A tenant that could be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mover {
    pub(crate) tenant: TenantId,
    pub(crate) priority: u16,
    /// It holds more than its request. Otherwise it is idle.
    pub(crate) loan: bool,
    /// Since when it is idle.
    pub(crate) idle: Option<Nanos>,
    /// The memory that the device gets back.
    pub(crate) gives: Bytes,
    /// The host memory that it needs.
    pub(crate) host: Bytes,
    /// The part of that which the store has not given it yet.
    pub(crate) more: Bytes,
    /// Its residency so far.
    pub(crate) used: u64,
    /// When its stay is over, towards equals and towards better askers.
    pub(crate) stays: (Nanos, Nanos),
    /// It did not leave when it was asked: until then it is not asked again.
    pub(crate) backs_off: Option<Nanos>,
}

impl Mover {
    /// When it may be moved for this asker.
    fn at(&self, case: &Case<'_>) -> Nanos {
        let (normal, urgent) = self.stays;
        let outranked = case.guaranteed || case.priority > self.priority;
        let over = if outranked { urgent } else { normal };
        over.max(self.backs_off.unwrap_or_default())
    }
}

pub(super) struct Swap;

impl Resolve for Swap {
    fn resolve(&self, case: &Case<'_>) -> Verdict {
        if case.borrowed {
            choose(case)
        } else {
            Verdict::Pass
        }
    }
}

/// The tenants to move, or when some may be moved. It passes if all of them together would not give
/// enough, or if the host has no room for them.
pub(super) fn choose(case: &Case<'_>) -> Verdict {
    if case.short.is_zero() {
        return Verdict::Move(Vec::new());
    }
    let may = |by: Nanos| {
        let movers = case.movers.iter().filter(move |mover| mover.at(case) <= by);
        picked(movers.copied().collect(), case)
    };
    let mut times: Vec<Nanos> = case.movers.iter().map(|mover| mover.at(case)).collect();
    times.sort_unstable();
    if let Some(victims) = may(case.now) {
        return Verdict::Move(victims);
    }
    let mut later = times.into_iter().filter(|at| *at > case.now);
    match later.find(|at| may(*at).is_some()) {
        Some(at) => Verdict::Turn {
            at: Some(at),
            certain: steady(case, at),
        },
        // Better askers need the memory first: its turn comes after theirs.
        None if case.alone => Verdict::Turn {
            at: None,
            certain: case.movers.iter().all(|mover| mover.backs_off.is_none()),
        },
        None => Verdict::Pass,
    }
}

/// Whether the victims at that time are tenants that left whenever they were asked.
fn steady(case: &Case<'_>, at: Nanos) -> bool {
    let movers = case.movers.iter().filter(|mover| mover.at(case) <= at);
    let willing = movers.filter(|mover| mover.backs_off.is_none());
    picked(willing.copied().collect(), case).is_some()
}

/// Takes the preferred ones until there is enough, then spares those that are not needed, the least
/// preferred first. Where the host is short, a preferred one may leave no room there for the one
/// that gives enough: it is left out then.
fn picked(mut movers: Vec<Mover>, case: &Case<'_>) -> Option<Vec<TenantId>> {
    movers.sort_by_key(|mover| {
        let idle = (mover.idle.is_none(), mover.idle);
        (
            !mover.loan,
            idle,
            mover.priority,
            Reverse(mover.used),
            mover.host,
            mover.tenant,
        )
    });
    let mut chosen = first_set(&movers, case.short, (case.host, case.room))?;
    let mut given: Bytes = chosen.iter().map(|mover| mover.gives).sum();
    chosen.reverse();
    chosen.retain(|mover| {
        let spared = given - mover.gives >= case.short;
        if spared {
            given -= mover.gives;
        }
        !spared
    });
    Some(chosen.into_iter().map(|mover| mover.tenant).collect())
}

/// Whether some of these give `short` and fit the host together.
pub(crate) fn are_enough(mut movers: Vec<Mover>, short: Bytes, host: Bytes) -> bool {
    movers.sort_by_key(|mover| Reverse(mover.gives));
    first_set(&movers, short, (host, Bytes::MAX)).is_some()
}

/// The most sets that are looked at for one decision: all there are of eleven tenants, and of more
/// those that leave out the least preferred.
const MOST_SETS: u32 = 1 << 11;

/// The first set in the order of `movers` that gives `short` and for which the host has room: of
/// two sets that which has the earlier one of the first two that differ.
fn first_set(movers: &[Mover], short: Bytes, room: (Bytes, Bytes)) -> Option<Vec<Mover>> {
    let mut sums: Vec<Bytes> = vec![Bytes::ZERO];
    for mover in movers.iter().rev() {
        sums.push(sums[sums.len() - 1] + mover.gives);
    }
    sums.reverse();
    let mut search = Search {
        movers,
        sums,
        left: MOST_SETS + u32::try_from(movers.len()).unwrap_or(0),
        chosen: Vec::new(),
    };
    search.finds(0, short, room).then_some(search.chosen)
}

/// The search for a set.
struct Search<'a> {
    movers: &'a [Mover],
    /// What each one and all behind it give.
    sums: Vec<Bytes>,
    /// How many steps are left.
    left: u32,
    chosen: Vec<Mover>,
}

impl Search<'_> {
    /// Whether those from `at` on have a set that gives `short` in this `room`: on the host, and
    /// from its store. It is added to those chosen then.
    fn finds(&mut self, at: usize, short: Bytes, room: (Bytes, Bytes)) -> bool {
        if short.is_zero() {
            return true;
        }
        let Some(mover) = self.movers.get(at) else {
            return false;
        };
        if self.left == 0 || self.sums[at] < short {
            return false;
        }
        self.left -= 1;
        if mover.host <= room.0 && mover.more <= room.1 {
            self.chosen.push(*mover);
            let rest = (room.0 - mover.host, room.1 - mover.more);
            if self.finds(at + 1, short - mover.gives, rest) {
                return true;
            }
            self.chosen.pop();
        }
        self.finds(at + 1, short, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mover(id: u64) -> Mover {
        Mover {
            tenant: TenantId(id),
            priority: 500,
            loan: true,
            idle: None,
            gives: Bytes::gib(4),
            host: Bytes::gib(4),
            more: Bytes::gib(4),
            used: 0,
            stays: (Nanos::secs(10), Nanos::secs(4)),
            backs_off: None,
        }
    }

    fn verdict(movers: &[Mover], change: impl FnOnce(&mut Case<'_>)) -> Verdict {
        let mut case = Case {
            priority: 500,
            short: Bytes::gib(4),
            borrowed: true,
            patience: Nanos::secs(30),
            ladder: Nanos::secs(15),
            candidates: &[],
            movers,
            guaranteed: false,
            now: Nanos::secs(10),
            host: Bytes::gib(64),
            room: Bytes::gib(64),
            alone: false,
        };
        change(&mut case);
        Swap.resolve(&case)
    }

    fn moved(ids: &[u64]) -> Verdict {
        Verdict::Move(ids.iter().map(|id| TenantId(*id)).collect())
    }

    #[test]
    fn a_tenant_whose_stay_is_over_moves() {
        assert_eq!(verdict(&[mover(1)], |_| ()), moved(&[1]));
    }

    #[test]
    fn a_tenant_is_waited_for_until_its_stay_is_over() {
        let turn = |at, certain| Verdict::Turn {
            at: Some(Nanos::secs(at)),
            certain,
        };
        let early = verdict(&[mover(1)], |case| case.now = Nanos::secs(3));
        assert_eq!(early, turn(10, true));
        let better = verdict(&[mover(1)], |case| {
            (case.now, case.priority) = (Nanos::secs(3), 900);
        });
        assert_eq!(better, turn(4, true));
        let guaranteed = verdict(&[mover(1)], |case| {
            (case.now, case.guaranteed) = (Nanos::secs(4), true);
        });
        assert_eq!(guaranteed, moved(&[1]));
        let stuck = Mover {
            backs_off: Some(Nanos::secs(12)),
            ..mover(1)
        };
        assert_eq!(verdict(&[stuck], |_| ()), turn(12, false));
        assert_eq!(verdict(&[stuck, mover(2)], |_| ()), moved(&[2]));
    }

    #[test]
    fn loans_move_first_then_the_longest_idle_then_the_lower() {
        let idle = |id, since| Mover {
            idle: Some(Nanos::secs(since)),
            ..mover(id)
        };
        let own = Mover {
            loan: false,
            ..idle(1, 1)
        };
        let lower = Mover {
            priority: 100,
            ..mover(2)
        };
        let (long, short) = (idle(3, 2), idle(4, 5));
        let all = [own, lower, long, short, mover(5)];
        for left in 0..all.len() {
            let order = [3, 4, 2, 5, 1];
            let gone = &order[..left];
            let left: Vec<Mover> = all
                .iter()
                .filter(|one| !gone.contains(&one.tenant.0))
                .copied()
                .collect();
            assert_eq!(verdict(&left, |_| ()), moved(&[order[gone.len()]]));
        }
    }

    #[test]
    fn the_most_resident_of_equals_moves_and_no_victim_too_many() {
        let long = Mover {
            used: 9,
            ..mover(2)
        };
        assert_eq!(verdict(&[mover(1), long], |_| ()), moved(&[2]));
        let small = Mover {
            gives: Bytes::gib(1),
            used: 99,
            ..mover(3)
        };
        assert_eq!(verdict(&[small, mover(1)], |_| ()), moved(&[1]));
    }

    #[test]
    fn of_two_alike_that_moves_which_takes_less_of_the_host() {
        let less = Mover {
            host: Bytes::gib(3),
            ..mover(2)
        };
        assert_eq!(verdict(&[mover(1), less], |_| ()), moved(&[2]));
        assert_eq!(verdict(&[mover(1), mover(2)], |_| ()), moved(&[1]));
        let busier = Mover {
            used: 1,
            ..mover(1)
        };
        assert_eq!(verdict(&[busier, less], |_| ()), moved(&[1]));
    }

    #[test]
    fn one_that_gives_enough_moves_where_a_preferred_one_fills_the_host() {
        let preferred = Mover {
            gives: Bytes::gib(1),
            used: 9,
            stays: (Nanos::secs(9), Nanos::secs(4)),
            ..mover(1)
        };
        let enough = Mover {
            stays: (Nanos::secs(8), Nanos::secs(4)),
            ..mover(2)
        };
        let full = verdict(&[preferred, enough], |case| case.host = Bytes::gib(4));
        assert_eq!(full, moved(&[2]));
    }

    #[test]
    fn a_preferred_one_stays_where_it_would_fill_the_host_in_vain() {
        let of = |id, gib| Mover {
            gives: Bytes::gib(gib),
            host: Bytes::gib(gib),
            more: Bytes::ZERO,
            ..mover(id)
        };
        let idle = Mover {
            idle: Some(Nanos::secs(1)),
            ..of(1, 30)
        };
        let case = |movers: &[Mover], short, host| {
            verdict(movers, |case| {
                (case.short, case.host) = (Bytes::gib(short), Bytes::gib(host));
            })
        };
        assert_eq!(case(&[idle, of(2, 50)], 40, 70), moved(&[2]));
        // Both fit: the idle one goes first, and the other alone is enough then.
        assert_eq!(case(&[idle, of(2, 50)], 60, 80), moved(&[2, 1]));
        // The one in the middle is left out.
        let three = [of(1, 10), of(2, 20), of(3, 45)];
        assert_eq!(case(&three, 50, 56), moved(&[3, 1]));
        assert_eq!(case(&[idle, of(2, 50)], 60, 70), Verdict::Pass);
    }

    #[test]
    fn among_many_tenants_a_choice_takes_a_bounded_time() {
        let many: Vec<Mover> = (1..=500)
            .map(|id| Mover {
                host: Bytes::gib(4 + id % 7),
                more: Bytes::ZERO,
                ..mover(id)
            })
            .collect();
        // No set is enough: a third of them fits.
        let none = verdict(&many, |case| {
            (case.short, case.host) = (Bytes::gib(1500), Bytes::gib(1400));
        });
        assert_eq!(none, Verdict::Pass);
        let Verdict::Move(some) = verdict(&many, |case| {
            (case.short, case.host) = (Bytes::gib(400), Bytes::gib(1000));
        }) else {
            panic!("a hundred of them are enough");
        };
        assert_eq!(some.len(), 100);
    }

    #[test]
    fn it_passes_where_moves_cannot_help() {
        let all = [mover(1), mover(2)];
        let more = verdict(&all, |case| case.short = Bytes::gib(9));
        let promised = verdict(&all, |case| case.borrowed = false);
        let full = verdict(&all, |case| case.host = Bytes::gib(3));
        assert_eq!(
            (more, promised, full),
            (Verdict::Pass, Verdict::Pass, Verdict::Pass)
        );
        let later = verdict(&all, |case| {
            (case.short, case.alone) = (Bytes::gib(9), true);
        });
        let turn = Verdict::Turn {
            at: None,
            certain: true,
        };
        assert_eq!(later, turn, "it is behind others");
        let given = verdict(&all, |case| case.room = Bytes::gib(3));
        assert_eq!(given, Verdict::Pass, "the store gave it to others");
        let has_it = Mover {
            more: Bytes::ZERO,
            ..mover(2)
        };
        let has = verdict(&[mover(1), has_it], |case| case.room = Bytes::gib(3));
        assert_eq!(has, moved(&[2]));
        let room_for_one = verdict(&all, |case| case.host = Bytes::gib(4));
        assert_eq!(room_for_one, moved(&[1]));
        let enough = verdict(&[], |case| case.short = Bytes::ZERO);
        assert_eq!(enough, moved(&[]), "the bytes on their way are enough");
    }
}
