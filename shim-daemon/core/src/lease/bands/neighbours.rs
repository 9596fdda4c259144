//! Whether gangs' neighbours are held on all devices.
//!
//! Gangs of one class that work beside each other on a device are decided for as one, on all their
//! devices: the holds of one and of another would fall at different moments, and in each of them
//! kernels of both would wait for peers beside an open neighbour.

use super::super::shared::{Neighbours, Part};
use crate::ids::DeviceId;
use std::collections::BTreeMap;

/// A band's neighbours as they were decided for last, and the facts of its devices now.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) now: Neighbours,
    /// The band's gates are open, and it is not loose.
    pub(super) open: bool,
    /// It is decided for as one with others like it.
    pub(super) steady: bool,
    pub(super) parts: Vec<(DeviceId, Part)>,
}

/// Whether a band works beside as many neighbours on each device on which it works, of weights that
/// differ by no more than a half. Where the devices' rounds differ, holds at once take more than
/// they give (ADR 250).
pub(super) fn are_alike(parts: &[Part]) -> bool {
    let beside = || {
        let works = parts.iter().filter(|part| part.works);
        works.map(|part| part.beside)
    };
    let weights = beside().map(|one| one.weight);
    let (Some(least), Some(most)) = (weights.clone().min(), weights.max()) else {
        return false;
    };
    let many = beside().map(|one| one.many);
    many.clone().min() == many.max() && most * 2 <= least * 3
}

/// Decides how each band's neighbours are held from now on, in the order of `all`.
pub(super) fn decide(all: &[Looked]) -> Vec<Neighbours> {
    let mut next = vec![Neighbours::Apart; all.len()];
    let crossed = |at: usize| {
        let mut others = all.iter().enumerate();
        others.any(|(other, one)| other != at && all[at].is_crossed_by(one))
    };
    for group in groups(all) {
        let several = group.len() > 1;
        let decides = group.into_iter();
        let decides: Vec<usize> = decides
            .filter(|at| all[*at].decides() && !crossed(*at))
            .collect();
        let looked: Vec<&Looked> = decides.iter().map(|at| &all[*at]).collect();
        let decided = match looked[..] {
            [alone] if !several => alone.decided(),
            _ => decided_for_all(&looked),
        };
        for at in decides {
            next[at] = decided;
        }
    }
    next
}

/// The bands by number, in groups of those that are decided for as one.
fn groups(all: &[Looked]) -> Vec<Vec<usize>> {
    let mut rest: Vec<usize> = (0..all.len()).collect();
    let mut groups = Vec::new();
    while let Some(first) = rest.pop() {
        let mut group = vec![first];
        let mut known = 0;
        while known < group.len() {
            let (beside, others) = rest
                .iter()
                .partition(|other| all[group[known]].is_beside(&all[**other]));
            group.extend::<Vec<usize>>(beside);
            rest = others;
            known += 1;
        }
        groups.push(group);
    }
    groups
}

impl Looked {
    /// Its parts on the devices of the other, each with one of the other's that works there.
    fn beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Part, &'a Part)> {
        self.parts.iter().flat_map(|(device, part)| {
            let works = other.parts.iter().filter(|(_, other)| other.works);
            let here = works.filter(move |(one, _)| one == device);
            here.map(move |(_, other)| (part, other))
        })
    }

    /// Whether both are decided for as one: they work side by side.
    fn is_beside(&self, other: &Self) -> bool {
        let mut beside = self.beside(other);
        let is_one = self.steady && other.steady;
        is_one && beside.any(|(part, other)| part.works && part.class == other.class)
    }

    /// Whether the other's holds would fall at moments of their own.
    fn is_crossed_by(&self, other: &Self) -> bool {
        let is_one = self.is_beside(other);
        let mut beside = self.beside(other);
        beside.any(|(part, other)| !is_one || part.class != other.class)
    }

    /// Whether its neighbours may be held on all its devices.
    fn decides(&self) -> bool {
        let asks = self.parts.iter().any(|(_, part)| part.lag.is_some());
        self.open && asks && !self.parts.iter().any(|(_, part)| part.apart)
    }

    /// The sum of its lags, and of the lags from which others are helped.
    fn lag(&self) -> (i64, i64) {
        let lags = self.parts.iter().filter_map(|(_, part)| part.lag);
        lags.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// For a band beside which no other works. Its neighbours are held once the mean of its lags is
    /// as much as others are helped from, until it is nothing.
    fn decided(&self) -> Neighbours {
        let (lag, least) = self.lag();
        match self.now {
            Neighbours::Held | Neighbours::Kept if lag > 0 => Neighbours::Held,
            _ if lag >= least => Neighbours::Held,
            _ => Neighbours::Open,
        }
    }
}

/// For bands beside each other: the same by the one of them that is behind most, unless the
/// neighbours of all are behind themselves, in the mean.
fn decided_for_all(all: &[&Looked]) -> Neighbours {
    let mut devices = BTreeMap::new();
    for (device, part) in all.iter().flat_map(|one| &one.parts) {
        if let Some((_, least)) = part.lag {
            devices.insert(device, (part.beside.lag, part.beside.many * least));
        }
    }
    let beside = devices.values();
    let beside = beside.fold((0, 0), |sum: (i64, i64), one| {
        (sum.0 + one.0, sum.1 + one.1)
    });
    let behind = |(lag, least): (i64, i64)| lag >= least;
    // The hold for one of them goes on where another comes.
    let held = |one: &&Looked| matches!(one.now, Neighbours::Held | Neighbours::Kept);
    let holds = match all.iter().any(held) {
        true => all.iter().any(|one| one.lag().0 > 0) && !behind(beside),
        // Half of it is what the driver's own slices make tenants lag by.
        false => all.iter().any(|one| behind(one.lag())) && !behind((beside.0, beside.1 / 2)),
    };
    match holds {
        true => Neighbours::Kept,
        false => Neighbours::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Neighbours::{Apart, Held, Kept, Open};

    /// A device with this lag of the gang, of which two are the least at which others are helped.
    fn part(lag: Option<i64>) -> Part {
        let part = Part {
            wish: None,
            behind: true,
            lag: lag.map(|lag| (lag, 2)),
            apart: false,
            works: true,
            class: 500,
            beside: Default::default(),
            used: true,
            asks: true,
        };
        beside(part, 1, 300)
    }

    /// Beside so many neighbours of this weight.
    fn beside(mut part: Part, many: i64, weight: u64) -> Part {
        (part.beside.many, part.beside.weight) = (many, weight);
        part
    }

    /// A band on these devices.
    fn band(now: Neighbours, parts: &[(u64, Part)]) -> Looked {
        let parts = parts
            .iter()
            .map(|(device, part)| (DeviceId(*device), *part));
        Looked {
            now,
            open: true,
            steady: true,
            parts: parts.collect(),
        }
    }

    fn next(now: Neighbours, lags: [Option<i64>; 3]) -> Neighbours {
        let [one, two, three] = lags.map(part);
        decide(&[band(now, &[(1, one), (2, two), (3, three)])])[0]
    }

    #[test]
    fn the_mean_lag_holds_a_gangs_neighbours_until_it_is_nothing() {
        let [less, enough] = [[Some(1), Some(2), None], [Some(1), Some(3), None]];
        assert_eq!(next(Apart, less), Open);
        assert_eq!(next(Open, enough), Held);
        assert_eq!(next(Held, less), Held);
        assert_eq!(next(Held, [Some(1), Some(-1), None]), Open);
    }

    #[test]
    fn where_no_neighbour_is_each_device_steers_by_itself() {
        assert_eq!(next(Held, [None; 3]), Apart);
    }

    #[test]
    fn a_gang_that_is_closed_or_silent_ends_the_hold() {
        let held = || band(Held, &[(1, part(Some(5))), (2, part(Some(5)))]);
        assert_eq!(decide(&[held()]), [Held]);
        let shut = Looked {
            open: false,
            ..held()
        };
        assert_eq!(decide(&[shut]), [Apart]);
        let mut silent = held();
        silent.parts[1].1.apart = true;
        assert_eq!(decide(&[silent]), [Apart]);
    }

    /// Two gangs on these devices; the neighbour of each device lags by so much.
    fn two(now: Neighbours, lags: [i64; 2], neighbours: i64) -> [Looked; 2] {
        lags.map(|lag| {
            let mut part = part(Some(lag));
            part.beside.lag = neighbours;
            band(now, &[(1, part), (2, part)])
        })
    }

    #[test]
    fn of_two_gangs_the_one_further_behind_holds_the_neighbours_of_both() {
        assert_eq!(decide(&two(Open, [1, -5], 0)), [Open; 2]);
        assert_eq!(decide(&two(Open, [2, -5], 0)), [Kept; 2]);
        assert_eq!(decide(&two(Kept, [1, -5], 0)), [Kept; 2]);
        assert_eq!(decide(&two(Kept, [0, -5], 0)), [Open; 2]);
    }

    #[test]
    fn two_gangs_neighbours_open_once_they_are_behind_in_the_mean() {
        assert_eq!(decide(&two(Open, [5, -5], 1)), [Open; 2]);
        assert_eq!(decide(&two(Kept, [5, -5], 1)), [Kept; 2]);
        assert_eq!(decide(&two(Kept, [5, -5], 2)), [Open; 2]);
        // One of them, on one device.
        let mut both = two(Kept, [5, -5], 0);
        for one in &mut both {
            one.parts[0].1.beside.lag = 2;
        }
        assert_eq!(decide(&both), [Kept; 2]);
    }

    #[test]
    fn a_closed_gang_leaves_the_decision_to_the_other() {
        let mut both = two(Kept, [1, 5], 0);
        both[1].open = false;
        assert_eq!(decide(&both), [Kept, Apart]);
        both[0].open = false;
        assert_eq!(decide(&both), [Apart; 2]);
    }

    #[test]
    fn a_gang_that_pauses_beside_another_leaves_each_device_to_itself() {
        for pauses in [0, 1] {
            let mut both = two(Kept, [5, 5], 0);
            both[pauses].steady = false;
            assert_eq!(decide(&both), [Apart; 2]);
            // It has no work now.
            for (_, part) in &mut both[pauses].parts {
                (part.works, part.lag) = (false, None);
            }
            let mut one = [Held; 2];
            one[pauses] = Apart;
            assert_eq!(decide(&both), one);
        }
    }

    #[test]
    fn gangs_are_decided_for_as_one_only_where_they_work_side_by_side() {
        let on = |devices: [u64; 2], lag| {
            let [one, two] = devices.map(|device| (device, part(Some(lag))));
            band(Open, &[one, two])
        };
        let chain = [on([1, 2], 5), on([3, 4], 0), on([2, 3], 0)];
        assert_eq!(decide(&chain), [Kept; 3]);
        let apart = [on([1, 2], 5), on([3, 4], 0)];
        assert_eq!(decide(&apart), [Held, Open]);
        let mut lower = [on([1, 2], 5), on([2, 3], 0)];
        lower[1].parts[0].1.class = 100;
        assert_eq!(decide(&lower), [Apart; 2]);
    }

    #[test]
    fn as_many_neighbours_of_one_weight_on_each_device_are_alike() {
        let alike = |all: [(i64, u64); 2]| {
            are_alike(&all.map(|(many, weight)| beside(part(None), many, weight)))
        };
        assert!(alike([(1, 300), (1, 300)]));
        assert!(alike([(1, 300), (1, 200)]));
        assert!(!alike([(1, 300), (1, 199)]));
        assert!(!alike([(1, 300), (2, 300)]));
        // A device on which the gang has no work does not count.
        let mut idle = beside(part(None), 2, 300);
        idle.works = false;
        assert!(are_alike(&[part(None), idle]));
        assert!(!are_alike(&[idle]));
    }
}
