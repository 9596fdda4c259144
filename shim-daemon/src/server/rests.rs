//! Throttled sessions: each rests until its budget is repaid, and is served in its turn. A crowd of
//! them delays neither turns on devices nor the daemon's second.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use gpushare_core::Nanos;

use super::poller::Source;
use super::{Server, clock};
use crate::connection::Closed;

/// How often a session is served for which the poller has no place: it is not told when the other
/// end writes.
const UNPOLLED: Nanos = Nanos::millis(100);

/// Rested sessions that are served before the poller's sources are: as many as those are at a time.
const AT_A_TIME: usize = 256;

/// Rested sessions that are compared by when they were served, those first that were to rest the
/// shortest. As many of a user's as wait for one budget are fewer: a socket takes 1,024.
const COMPARED: usize = 4096;

/// Sessions that have had their turn, and when they are polled again.
#[derive(Debug, Default)]
pub(super) struct Resting {
    sessions: BTreeMap<u64, Nanos>,
    /// The same, by time.
    times: BTreeSet<(Nanos, u64)>,
}

impl Resting {
    /// It rests until this time, or as long as it already does, if that is longer. Returns whether
    /// it already does.
    fn put_off(&mut self, id: u64, until: Nanos) -> bool {
        let before = self.sessions.get(&id).copied();
        if before.is_none_or(|at| at < until) {
            self.remove(id);
            self.sessions.insert(id, until);
            self.times.insert((until, id));
        }
        before.is_some()
    }

    /// It rests no more.
    pub(super) fn remove(&mut self, id: u64) {
        if let Some(until) = self.sessions.remove(&id) {
            self.times.remove(&(until, id));
        }
    }

    /// Whether it rests.
    pub(super) fn contains(&self, id: u64) -> bool {
        self.sessions.contains_key(&id)
    }

    /// When the first is to be polled again.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.times.first().map(|(until, _)| *until)
    }

    /// Those that have rested by then, in the order of their times.
    fn until(&self, now: Nanos) -> impl Iterator<Item = u64> {
        let rested = self.times.range(..=(now, u64::MAX));
        rested.map(|(_, id)| *id)
    }

    /// All of them, with their times.
    #[cfg(test)]
    pub(super) fn all(&self) -> &BTreeMap<u64, Nanos> {
        &self.sessions
    }
}

impl Server {
    /// Neither reads nor polls a session for a while: until the last time given. It is removed from
    /// the poller altogether, because a poller reports a hang-up whatever it polls for.
    pub(super) fn rest(&mut self, id: u64, until: Nanos) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        if !self.resting.put_off(id, until) {
            self.poller.remove(session.connection.socket());
        }
    }

    /// Resumes throttled sessions, which may have unserved requests in their buffers. Those served
    /// longest ago come first, so a user's sessions that wait for the same budget have turns.
    /// Sessions beyond `AT_A_TIME` are served the next time.
    ///
    /// # Errors
    /// If polling itself fails.
    pub(super) fn end_rests(&mut self) -> io::Result<()> {
        for id in self.rested(clock::now()) {
            self.resting.remove(id);
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            session.polled_for_room = false;
            let socket = session.connection.socket();
            match self.poller.add(socket, Source::Session(id)) {
                Ok(()) => self.talk(id),
                // All watches of the user are taken, or the kernel has no memory.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::ENOMEM)) => {
                    self.talk(id);
                    self.rest(id, clock::now() + UNPOLLED);
                }
                Err(error) => self.close(id, &Closed::Io(error)),
            }
            self.carry_out();
            self.keep_time()?;
        }
        Ok(())
    }

    /// The sessions that are served now, in order.
    fn rested(&self, now: Nanos) -> Vec<u64> {
        let served = |id: u64| self.sessions.get(&id).map(|session| session.served);
        let rested = self.resting.until(now).take(COMPARED);
        let mut rested: Vec<_> = rested.map(|id| (served(id), id)).collect();
        if rested.len() > AT_A_TIME {
            rested.select_nth_unstable(AT_A_TIME);
            rested.truncate(AT_A_TIME);
        }
        rested.sort_unstable();
        rested.into_iter().map(|(_, id)| id).collect()
    }

    /// Turns on devices do not wait for the rest of a crowd.
    pub(super) fn keep_turns(&mut self) {
        let now = clock::now();
        if self.node.next_timeout().is_some_and(|at| at <= now) {
            self.node.advance(now);
            self.carry_out();
        }
    }

    /// The node's second. A tenant may have hundreds of processes whose rows are read: what is due
    /// to turns comes between tenants.
    pub(super) fn node_second(&mut self, now: Nanos) {
        self.node.begin_tick(now);
        while self.node.beat_next(clock::now()) {
            self.keep_turns();
        }
        self.node.end_tick(clock::now());
    }

    /// Neither does the daemon's second, with the heartbeat for all programs.
    fn keep_time(&mut self) -> io::Result<()> {
        if clock::now() < self.next_tick {
            self.keep_turns();
            return Ok(());
        }
        self.pass_time()?;
        self.carry_out();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
