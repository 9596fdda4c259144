//! How much of the daemon's time one process may ask for, and the commands of one user.
//!
//! One thread serves all connections, and turns on devices change within milliseconds. A process
//! that floods the daemon must wait itself, and its neighbours must not. An honest process sends a
//! handful of requests per turn. The cost of a command depends on the length of its answer, so
//! commands are charged by time. Connections to tenants' sockets are charged too: to the tenant for
//! its own programs; for other programs to their container, or to the user at that socket.
//!
//! A registered process has one connection, which has its account. It keeps the connections that
//! this one has replaced: all of a payer together have what one process has.

use std::collections::BTreeMap;

use gpushare_core::{Nanos, TenantId};

use super::session::Role;

/// Requests a process may send for long: one each 100 µs.
const EVERY: Nanos = Nanos::micros(100);
/// The largest saved budget: requests sent at once, such as one by each thread.
const BURST: u64 = 256;
/// A user's commands may take one part in so many of the daemon's time for long.
const PART: u64 = 20;
/// The commands of all users but root may take one part in so many of it together: users'
/// containers have numbers of users without end (`/etc/subuid`).
const PART_OF_ALL: u64 = 5;
/// The daemon's time that a user may have saved up for commands.
const SAVED: Nanos = Nanos::millis(50);
/// What all users together have saved up when none has sent anything: four times as much of the
/// daemon's time, as a debt.
const SAVED_OF_ALL: Nanos = Nanos::millis(4 * 50 * PART_OF_ALL);

/// The sustained rate of connections to tenants' sockets per payer: one each 5 ms.
const CONNECT_EVERY: Nanos = Nanos::millis(5);
/// Connections saved up: twice as many as a tenant has processes, which all come back when a
/// daemon is followed by another.
const CONNECT_BURST: u64 = 1024;

/// A process's account of requests, which is its connection's.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// When all it sent would have been due, had it kept to the rate.
    owed_until: Nanos,
}

impl Budget {
    /// Counts a request. Returns when the next may be served, if that is not now.
    pub(super) fn spend(&mut self, now: Nanos) -> Option<Nanos> {
        self.pay(now, EVERY, Nanos(EVERY.0 * BURST))
    }

    /// Pays by waiting, with `saved` in hand. Until when.
    fn pay(&mut self, now: Nanos, price: Nanos, saved: Nanos) -> Option<Nanos> {
        self.owed_until = self.owed_until.max(now) + price;
        let rested = self.owed_until - saved;
        (rested > now).then_some(rested)
    }
}

/// The daemon's time that commands took, by user, over all connections of the user.
#[derive(Debug, Default)]
pub(super) struct Users {
    each: BTreeMap<u32, Budget>,
    all: Budget,
}

impl Users {
    /// Counts time that a user's command took until now. Returns when that user's next may be
    /// served, if that is not now.
    pub(super) fn took(&mut self, now: Nanos, user: u32, time: Nanos) -> Option<Nanos> {
        let own = self.each.entry(user).or_default();
        own.pay(now, Nanos(time.0 * PART), Nanos(SAVED.0 * PART));
        let price = Nanos(time.0 * PART_OF_ALL);
        self.all.pay(now, price, SAVED_OF_ALL);
        self.rests(now, user)
    }

    /// Until when a user has to wait, if it has.
    pub(super) fn rests(&self, now: Nanos, user: u32) -> Option<Nanos> {
        let own = self
            .each
            .get(&user)
            .map_or(Nanos::ZERO, |own| own.owed_until);
        let rested = (own - Nanos(SAVED.0 * PART)).max(self.all.owed_until - SAVED_OF_ALL);
        (rested > now).then_some(rested)
    }

    /// Forgets users without debt.
    pub(super) fn tidy(&mut self, now: Nanos) {
        self.each.retain(|_, budget| budget.owed_until > now);
    }
}

/// The payer of a connection to a tenant's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payer {
    /// The tenant, for those its socket is for.
    Tenant(TenantId),
    /// All tenants of this user, for what one process can do at all of them.
    Owner(u32),
    /// A container, for all its other programs.
    Container(u64),
    /// Any other user at this socket. Not over all sockets: programs of many containers have one
    /// user.
    User(Role, u32),
}

/// Recent connections by payer.
#[derive(Debug, Default)]
pub(super) struct Connects(BTreeMap<Payer, Budget>);

impl Connects {
    /// Counts a connection, or a request on an unregistered connection. Returns the time from which
    /// on it is served, if that is later than now.
    pub(super) fn count(&mut self, now: Nanos, payer: Payer) -> Option<Nanos> {
        let saved = Nanos(CONNECT_EVERY.0 * CONNECT_BURST);
        let budget = self.0.entry(payer).or_default();
        budget.pay(now, CONNECT_EVERY, saved)
    }

    /// Forgets payers without debt.
    pub(super) fn tidy(&mut self, now: Nanos) {
        self.0.retain(|_, budget| budget.owed_until > now);
    }
}

/// Requests over former connections, by payer: of processes that have ended, or have registered
/// anew over another connection.
#[derive(Debug, Default)]
pub(super) struct Formers(BTreeMap<Payer, Budget>);

impl Formers {
    /// Counts these requests. Returns when the next over one of these connections may be served, if
    /// that is not now.
    pub(super) fn count(&mut self, now: Nanos, payer: Payer, requests: u32) -> Option<Nanos> {
        let price = Nanos(EVERY.0 * u64::from(requests));
        let budget = self.0.entry(payer).or_default();
        budget.pay(now, price, Nanos(EVERY.0 * BURST))
    }

    /// Forgets payers without debt.
    pub(super) fn tidy(&mut self, now: Nanos) {
        self.0.retain(|_, budget| budget.owed_until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_connects_in_a_loop_is_heard_at_the_rate_and_others_at_once() {
        let mut connects = Connects::default();
        let (loops, other) = (
            Payer::User(Role::Class(0), 1001),
            Payer::Tenant(TenantId(1)),
        );
        let (mut now, mut heard) = (Nanos::secs(1), 0_u64);
        while now < Nanos::secs(101) {
            now = connects.count(now, loops).unwrap_or(now + Nanos(1));
            heard += 1;
        }
        assert!((20_000..=21_100).contains(&heard), "{heard}");
        for _ in 0..CONNECT_BURST {
            assert_eq!(
                connects.count(now, other),
                None,
                "all its processes at once"
            );
        }
        assert!(connects.count(now, other).is_some());
        connects.tidy(now + Nanos::secs(10));
        assert!(connects.0.is_empty());
    }

    #[test]
    fn a_burst_is_served_at_once_and_a_flood_at_the_rate() {
        let mut budget = Budget::default();
        let now = Nanos::secs(1);
        for sent in 0..BURST {
            assert_eq!(budget.spend(now), None, "request {sent}");
        }
        assert_eq!(budget.spend(now), Some(now + EVERY));
        assert_eq!(budget.spend(now + EVERY), Some(now + EVERY + EVERY));
    }

    #[test]
    fn one_that_keeps_to_the_rate_never_waits() {
        let mut budget = Budget::default();
        for at in 0..10_000 {
            assert_eq!(budget.spend(Nanos(EVERY.0 * at)), None);
        }
    }

    #[test]
    fn a_users_commands_take_a_twentieth_and_anothers_do_not_wait() {
        let (mut users, one) = (Users::default(), Nanos::millis(1));
        let (mut now, mut served) = (Nanos::secs(1), 0_u64);
        while now < Nanos::secs(101) {
            now = users.rests(now, 1000).unwrap_or(now) + one;
            served += 1;
            let rests = users.took(now, 1000, one);
            assert_eq!(rests, users.rests(now, 1000));
            assert_eq!(users.rests(now, 1001), None);
        }
        // A twentieth of 100 s, and the saved budget.
        assert!((5_000..=5_055).contains(&served), "{served}");
    }

    #[test]
    fn the_commands_of_many_users_take_a_fifth_together() {
        let (mut users, one) = (Users::default(), Nanos::millis(1));
        let (mut now, mut served) = (Nanos::secs(1), 0_u64);
        while now < Nanos::secs(101) {
            let ready = (1000..1040).find(|user| users.rests(now, *user).is_none());
            match ready {
                Some(user) => {
                    now = now + one;
                    users.took(now, user, one);
                    served += 1;
                }
                None => now = now + one,
            }
        }
        assert!((19_000..=20_500).contains(&served), "{served} of 100,000");
        // Four that do as much as each may do not wait for each other.
        let mut users = Users::default();
        for second in 0..100 {
            let now = Nanos::secs(second);
            let rests = (0..4).map(|user| users.took(now, user, Nanos::millis(50)));
            assert_eq!(rests.flatten().next(), None);
        }
    }

    #[test]
    fn who_asks_now_and_then_never_waits_and_is_forgotten() {
        let mut users = Users::default();
        for second in 0..100 {
            let now = Nanos::secs(second);
            assert_eq!(users.took(now, 1000, Nanos::millis(40)), None);
        }
        users.tidy(Nanos::secs(99));
        assert!(!users.each.is_empty());
        users.tidy(Nanos::secs(100));
        assert!(users.each.is_empty());
    }
}
