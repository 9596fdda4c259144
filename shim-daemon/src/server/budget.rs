//! How much of the daemon's time one process may ask for, and the commands of one user.
//!
//! All connections are served by one thread, and turns on devices change hands within milliseconds: a process that floods
//! the daemon has to wait, not its neighbours. An honest one sends a handful of requests for each turn it gets. What a command
//! takes depends on how much there is to tell, so commands pay by time. Connecting to containers' sockets is paid for as well: by the
//! container, for its own programs, and by the user who is another.

use std::collections::BTreeMap;

use gpushare_core::{ContainerId, Nanos};

/// Requests a process may send for long: one each 100 µs.
const EVERY: Nanos = Nanos::micros(100);
/// What it may have saved up: requests it sends at once, such as one of each of its threads.
const BURST: u64 = 256;
/// A user's commands may take one part in so many of the daemon's time for long.
const PART: u64 = 20;
/// The daemon's time that a user may have saved up for commands.
const SAVED: Nanos = Nanos::millis(50);

/// Connections to containers' sockets that one payer may make for long: one each 5 ms.
const CONNECT_EVERY: Nanos = Nanos::millis(5);
/// Connections saved up: twice as many as a container has processes, which all come back when a daemon is followed by another.
const CONNECT_BURST: u64 = 1024;

/// A process's account of requests.
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

/// What the machine's users have taken of the daemon's time by their commands, all their connections together.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<u32, Budget>);

impl Users {
    /// Counts time that a user's command took until now. Returns when that user's next may be served, if that is not now.
    pub(super) fn took(&mut self, now: Nanos, user: u32, time: Nanos) -> Option<Nanos> {
        let (price, saved) = (Nanos(time.0 * PART), Nanos(SAVED.0 * PART));
        self.0.entry(user).or_default().pay(now, price, saved)
    }

    /// Until when a user has to wait, if it has.
    pub(super) fn rests(&self, now: Nanos, user: u32) -> Option<Nanos> {
        let rested = self.0.get(&user)?.owed_until - Nanos(SAVED.0 * PART);
        (rested > now).then_some(rested)
    }

    /// Forgets who owes nothing.
    pub(super) fn tidy(&mut self, now: Nanos) {
        self.0.retain(|_, budget| budget.owed_until > now);
    }
}

/// Who pays for a connection to a container's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payer {
    /// The container, for those its socket is for.
    Container(ContainerId),
    /// Any other user.
    User(u32),
}

/// What everybody has connected lately.
#[derive(Debug, Default)]
pub(super) struct Connects(BTreeMap<Payer, Budget>);

impl Connects {
    /// Counts a connection, or a request on one that is nobody's yet. Returns from when on it is heard, if that is not now.
    pub(super) fn count(&mut self, now: Nanos, payer: Payer) -> Option<Nanos> {
        let saved = Nanos(CONNECT_EVERY.0 * CONNECT_BURST);
        let budget = self.0.entry(payer).or_default();
        budget.pay(now, CONNECT_EVERY, saved)
    }

    /// Forgets who owes nothing.
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
        let (loops, other) = (Payer::User(1001), Payer::Container(ContainerId(1)));
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
        // A twentieth of 100 s, and what was saved up.
        assert!((5_000..=5_055).contains(&served), "{served}");
    }

    #[test]
    fn who_asks_now_and_then_never_waits_and_is_forgotten() {
        let mut users = Users::default();
        for second in 0..100 {
            let now = Nanos::secs(second);
            assert_eq!(users.took(now, 1000, Nanos::millis(40)), None);
        }
        users.tidy(Nanos::secs(99));
        assert!(!users.0.is_empty());
        users.tidy(Nanos::secs(100));
        assert!(users.0.is_empty());
    }
}
