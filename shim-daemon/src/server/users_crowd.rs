//! Counts connections over the sockets of all tenants of users, by user, and
//! decides whether to accept one more. The bounds of each socket (`crowd.rs`) are none for a user
//! with many tenants: 256 times 1,024 connections take the whole table of descriptors ([ADR
//! 266](../../../docs/adr/0266-a-user-is-bounded-over-all-sockets.md)).
//!
//! A process needs one connection. One that registers anew over another leaves a *former* one
//! behind, which makes room where there is none.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_core::Nanos;

use super::crowd::Admittance;
use crate::node::CHOSEN;

/// The most connections of one user at such tenants: of eight tenants with all their processes.
const OF_A_USER: usize = 4096;
/// The most of all users together.
const OF_ALL: usize = 1 << 16;
/// The most of users from [`CHOSEN`] on together.
const OF_CHOSEN: usize = OF_ALL / 2;
/// A user has at most so many while descriptors are scarce.
const WHILE_SCARCE: usize = 512;
/// Descriptors of a table of which the last eighth is worth keeping back.
const SMALL: u64 = 4096;
/// How long after a look that found no former connection of a user there is no other: a look goes
/// through all of them.
const LOOKS: Nanos = Nanos::secs(1);

/// Who connects, as far as it counts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A command that may do everything.
    Root,
    /// A program of this user's at a tenant of a user's.
    OfUser(u32),
    /// Any other. The socket counts it.
    Other,
}

/// Connections of a user.
#[derive(Debug, Default)]
struct Theirs {
    /// Oldest first.
    ids: BTreeSet<u64>,
    /// When a look found no former connection among them.
    looked: Option<Nanos>,
}

/// See the module's page.
#[derive(Debug)]
pub(super) struct UsersCrowd {
    users: BTreeMap<u32, Theirs>,
    /// Of users from [`CHOSEN`] on.
    chosen: usize,
    all: usize,
    /// Descriptors that this process may have. A new one has the lowest free number, so its number
    /// says how many there are at least.
    table: u64,
    of_a_user: usize,
}

impl UsersCrowd {
    /// With a table of so many descriptors. Of a small one nothing is kept back.
    pub(super) fn new(table: u64) -> Self {
        Self {
            users: BTreeMap::new(),
            chosen: 0,
            all: 0,
            table: if table < SMALL { u64::MAX } else { table },
            of_a_user: OF_A_USER,
        }
    }

    /// For tests: a user has at most so many.
    #[cfg(test)]
    pub(super) fn set_most(&mut self, of_a_user: usize) {
        self.of_a_user = of_a_user;
    }

    /// Whether a connection is accepted, whose socket has this number. [`Admittance::Of`]: if a
    /// former connection of this user is closed for it.
    pub(super) fn admits(&self, caller: Caller, number: u64) -> Admittance {
        // The last sixteenth is for root's commands, and containers' hooks.
        let is_full = number >= self.table - self.table / 16;
        let is_scarce = number >= self.table - self.table / 8;
        let user = match caller {
            Caller::Root => return Admittance::Free,
            Caller::Other if is_full => return self.of_most(0),
            Caller::Other => return Admittance::Free,
            Caller::OfUser(user) => user,
        };
        let theirs = self.count(user);
        if theirs >= self.of_a_user {
            return Admittance::Of(user);
        }
        let chosen_are_full = user >= CHOSEN && self.chosen >= OF_CHOSEN;
        if is_full || self.all >= OF_ALL || chosen_are_full || is_scarce && theirs >= WHILE_SCARCE {
            return self.of_most(if chosen_are_full { CHOSEN } else { 0 });
        }
        Admittance::Free
    }

    /// Where the user that has most, of those from this number on, makes room.
    fn of_most(&self, from: u32) -> Admittance {
        let users = self.users.range(from..);
        let most = users.max_by_key(|(_, theirs)| theirs.ids.len());
        most.map_or(Admittance::None, |(user, _)| Admittance::Of(*user))
    }

    fn count(&self, user: u32) -> usize {
        self.users.get(&user).map_or(0, |theirs| theirs.ids.len())
    }

    /// The connections among which one that makes room is looked for, oldest first; none soon after
    /// a look that found none.
    pub(super) fn looked_through(&self, now: Nanos, user: u32) -> impl Iterator<Item = u64> {
        let theirs = self.users.get(&user);
        let theirs = theirs.filter(|one| one.looked.is_none_or(|at| now >= at + LOOKS));
        theirs
            .into_iter()
            .flat_map(|theirs| theirs.ids.iter().copied())
    }

    /// A look found none.
    pub(super) fn found_none(&mut self, now: Nanos, user: u32) {
        if let Some(theirs) = self.users.get_mut(&user) {
            let last = theirs.looked.filter(|at| now < *at + LOOKS);
            theirs.looked = last.or(Some(now));
        }
    }

    /// It was taken.
    pub(super) fn came(&mut self, caller: Caller, id: u64) {
        if let Caller::OfUser(user) = caller
            && self.users.entry(user).or_default().ids.insert(id)
        {
            self.all += 1;
            self.chosen += usize::from(user >= CHOSEN);
        }
    }

    /// It has ended.
    pub(super) fn left(&mut self, caller: Caller, id: u64) {
        let Caller::OfUser(user) = caller else { return };
        let Some(theirs) = self.users.get_mut(&user) else {
            return;
        };
        if theirs.ids.remove(&id) {
            self.all -= 1;
            self.chosen -= usize::from(user >= CHOSEN);
        }
        if theirs.ids.is_empty() {
            self.users.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: u64 = 524_288;
    const NOW: Nanos = Nanos::secs(5);

    /// So many connections of this user.
    fn fill(crowd: &mut UsersCrowd, user: u32, many: usize) -> usize {
        let caller = Caller::OfUser(user);
        let first = u64::from(user) << 32;
        let ids = (first..).take(many);
        ids.take_while(|id| {
            let admits = crowd.admits(caller, 100) == Admittance::Free;
            if admits {
                crowd.came(caller, *id);
            }
            admits
        })
        .count()
    }

    #[test]
    fn a_user_has_4096_connections_at_all_its_tenants_together() {
        let mut crowd = UsersCrowd::new(TABLE);
        assert_eq!(fill(&mut crowd, 1000, 100_000), 4096);
        let more = crowd.admits(Caller::OfUser(1000), 100);
        assert_eq!(more, Admittance::Of(1000), "its own makes room");
        for other in [Caller::OfUser(1001), Caller::Other, Caller::Root] {
            assert_eq!(crowd.admits(other, 100), Admittance::Free);
        }
        crowd.left(Caller::OfUser(1000), 1000 << 32);
        assert_eq!(fill(&mut crowd, 1000, 1), 1);
    }

    #[test]
    fn users_without_end_leave_places_to_people_and_to_root() {
        let mut crowd = UsersCrowd::new(TABLE);
        let all = (100_000..)
            .take(20)
            .map(|user| fill(&mut crowd, user, 9999));
        assert_eq!(all.sum::<usize>(), OF_CHOSEN);
        let more = crowd.admits(Caller::OfUser(165_000), 100);
        assert!(
            matches!(more, Admittance::Of(user) if user >= 100_000),
            "{more:?}"
        );
        assert_eq!(fill(&mut crowd, 1000, 9999), 4096);
        let people = (1001..).take(20).map(|user| fill(&mut crowd, user, 9999));
        assert_eq!(people.sum::<usize>(), OF_CHOSEN - 4096);
        assert_eq!(crowd.admits(Caller::Root, 100), Admittance::Free);
        assert_eq!(crowd.admits(Caller::Other, 100), Admittance::Free);
    }

    #[test]
    fn the_last_descriptors_are_for_users_with_few_and_then_for_root() {
        let mut crowd = UsersCrowd::new(TABLE);
        fill(&mut crowd, 1000, 600);
        fill(&mut crowd, 1001, 500);
        let admits = |caller| {
            [1, 7, 15].map(|part| crowd.admits(caller, TABLE / 16 * part) == Admittance::Free)
        };
        assert_eq!(admits(Caller::OfUser(1000)), [true, true, false]);
        assert_eq!(admits(Caller::OfUser(1001)), [true, true, false]);
        assert_eq!(admits(Caller::Other), [true, true, false]);
        assert_eq!(admits(Caller::Root), [true; 3]);
        let scarce = |user| crowd.admits(Caller::OfUser(user), TABLE / 8 * 7);
        assert_eq!(scarce(1000), Admittance::Of(1000));
        assert_eq!(scarce(1001), Admittance::Free);
        let full = crowd.admits(Caller::Other, TABLE - 1);
        assert_eq!(full, Admittance::Of(1000), "who has most makes room");
    }

    #[test]
    fn a_look_that_found_nothing_is_not_repeated_at_once() {
        let mut crowd = UsersCrowd::new(TABLE);
        fill(&mut crowd, 1000, 3);
        let looks = |crowd: &UsersCrowd, now| crowd.looked_through(now, 1000).count();
        assert_eq!(looks(&crowd, NOW), 3);
        crowd.found_none(NOW, 1000);
        assert_eq!(looks(&crowd, NOW), 0);
        crowd.found_none(NOW + Nanos::millis(900), 1000);
        assert_eq!(looks(&crowd, NOW + LOOKS), 3);
    }

    #[test]
    fn users_whose_connections_have_ended_are_forgotten() {
        let mut crowd = UsersCrowd::new(TABLE);
        fill(&mut crowd, 100_000, 3);
        for id in 0..3 {
            crowd.left(Caller::OfUser(100_000), (100_000 << 32) + id);
        }
        assert!(crowd.users.is_empty());
        assert_eq!((crowd.all, crowd.chosen), (0, 0));
    }
}
