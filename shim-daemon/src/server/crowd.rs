//! Counts the connections at each door, and decides whether to accept one more. A door is a socket,
//! or a container at the socket of a class.
//!
//! A socket's intended users (a tenant's own user at its socket, unrestricted users at the control
//! socket) are counted apart from all other users. These have the remaining places, of which one
//! user has at most half, and so have all users together of whom a program may have very many. A
//! user who comes when all places are taken gets one of the user who has most, if a connection of
//! that user can go: one that has not identified itself, or that nobody needs (ADR 264).

use std::collections::{BTreeMap, BTreeSet};

use crate::node::CHOSEN;

/// The most concurrent connections at one door of its intended users, or of all other users. A
/// process needs one.
const MOST: usize = 1024;
/// The most connections of one of the other users at one door. A tenant has at most 512
/// processes, and a user 256 tenants, each kept by a connection.
const MOST_OF_A_USER: usize = 512;
/// The most of the other users from [`CHOSEN`] on together.
const MOST_OF_CHOSEN: usize = MOST / 2;

/// Connections at a door.
#[derive(Debug, Default)]
struct Callers {
    /// Of those it is for.
    own: usize,
    /// Connections of other users, by user, oldest first.
    others: BTreeMap<u32, BTreeSet<u64>>,
}

/// All connections, by door.
#[derive(Debug)]
pub(super) struct Crowd<Door>(BTreeMap<Door, Callers>);

/// Whether one more is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admittance {
    /// There is room.
    Free,
    /// A place becomes free if a connection of this user, who has the most, is closed.
    Of(u32),
    /// There is none.
    None,
}

impl<Door> Default for Crowd<Door> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Door: Ord + Copy> Crowd<Door> {
    /// Whether a connection at this door is accepted: of an intended user, or of another `user`.
    pub(super) fn admits(&self, door: Door, user: Option<u32>) -> Admittance {
        let Some(callers) = self.0.get(&door) else {
            return Admittance::Free;
        };
        let Some(user) = user else {
            return match callers.own < MOST {
                true => Admittance::Free,
                false => Admittance::None,
            };
        };
        let theirs = callers.others.get(&user).map_or(0, BTreeSet::len);
        if theirs >= MOST_OF_A_USER {
            return Admittance::None;
        }
        let many_from = |first: u32| {
            let others = callers.others.range(first..);
            others.map(|(_, all)| all.len()).sum::<usize>()
        };
        let chosen_are_full = user >= CHOSEN && many_from(CHOSEN) >= MOST_OF_CHOSEN;
        if many_from(0) < MOST && !chosen_are_full {
            return Admittance::Free;
        }
        let among = callers
            .others
            .range(if chosen_are_full { CHOSEN } else { 0 }..);
        let most = among.max_by_key(|(_, all)| all.len());
        match most {
            Some((most, all)) if all.len() > theirs + 1 => Admittance::Of(*most),
            _ => Admittance::None,
        }
    }

    /// A user's connections at a door, oldest first.
    pub(super) fn of(&self, door: Door, user: u32) -> impl Iterator<Item = u64> {
        let callers = self.0.get(&door);
        let all = callers.and_then(|callers| callers.others.get(&user));
        all.into_iter().flatten().copied()
    }

    /// It was taken.
    pub(super) fn came(&mut self, door: Door, user: Option<u32>, id: u64) {
        let callers = self.0.entry(door).or_default();
        match user {
            None => callers.own += 1,
            Some(user) => drop(callers.others.entry(user).or_default().insert(id)),
        }
    }

    /// It has ended.
    pub(super) fn left(&mut self, door: Door, user: Option<u32>, id: u64) {
        let Some(callers) = self.0.get_mut(&door) else {
            return;
        };
        match user {
            None => callers.own = callers.own.saturating_sub(1),
            Some(user) => {
                if let Some(theirs) = callers.others.get_mut(&user) {
                    theirs.remove(&id);
                    if theirs.is_empty() {
                        callers.others.remove(&user);
                    }
                }
            }
        }
        if callers.own == 0 && callers.others.is_empty() {
            self.0.remove(&door);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many of a user's as are taken; where another's has to go for it, it goes.
    fn fill(crowd: &mut Crowd<u8>, user: Option<u32>, ids: std::ops::Range<u64>) -> u64 {
        let mut taken = 0;
        for id in ids {
            match crowd.admits(0, user) {
                Admittance::Free => {}
                Admittance::Of(other) => {
                    let oldest = crowd.of(0, other).next().unwrap();
                    crowd.left(0, Some(other), oldest);
                }
                Admittance::None => continue,
            }
            crowd.came(0, user, id);
            taken += 1;
        }
        taken
    }

    #[test]
    fn a_user_takes_no_place_of_those_a_door_is_for() {
        let mut crowd = Crowd::default();
        assert_eq!(fill(&mut crowd, Some(1001), 0..5000), 512);
        assert_eq!(fill(&mut crowd, None, 5000..10_000), 1024);
        assert_eq!(crowd.admits(0, None), Admittance::None);
        assert_eq!(
            crowd.admits(1, Some(1001)),
            Admittance::Free,
            "of another door"
        );
    }

    #[test]
    fn many_users_together_leave_a_place_for_the_next() {
        let mut crowd = Crowd::default();
        for user in 0..20 {
            let first = u64::from(user) * 1000;
            fill(&mut crowd, Some(user), first..first + 600);
        }
        assert!(fill(&mut crowd, Some(77), 100_000..100_600) >= 40);
        let most = (0..20).map(|user| crowd.of(0, user).count()).max();
        assert!(most <= Some(60), "{most:?}");
    }

    #[test]
    fn users_of_a_range_leave_half_of_the_places_to_people() {
        let mut crowd = Crowd::default();
        let first = fill(&mut crowd, Some(100_000), 0..1000);
        let second = fill(&mut crowd, Some(100_001), 1000..2000);
        assert!(first == 512 && second >= 256, "{first} {second}");
        let theirs = [100_000, 100_001].map(|user| crowd.of(0, user).count());
        assert_eq!(theirs, [256; 2]);
        let next = crowd.admits(0, Some(100_002));
        assert!(
            matches!(next, Admittance::Of(100_000 | 100_001)),
            "{next:?}"
        );
        for person in [1000, 1001] {
            assert_eq!(crowd.admits(0, Some(person)), Admittance::Free);
            fill(
                &mut crowd,
                Some(person),
                u64::from(person) * 10..u64::from(person) * 10 + 200,
            );
            assert_eq!(crowd.of(0, person).count(), 200);
        }
    }

    #[test]
    fn who_has_left_is_counted_no_more() {
        let mut crowd = Crowd::default();
        assert_eq!(fill(&mut crowd, Some(1001), 0..600), 512);
        assert_eq!(fill(&mut crowd, None, 1000..1010), 10);
        for id in 0..512 {
            crowd.left(0, Some(1001), id);
        }
        (0..10).for_each(|at| crowd.left(0, None, 1000 + at));
        assert!(crowd.0.is_empty());
        assert_eq!(fill(&mut crowd, Some(1001), 0..600), 512);
    }
}
