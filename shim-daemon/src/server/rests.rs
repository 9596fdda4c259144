//! Throttled sessions: each rests until its budget is repaid, and is served in its turn. A crowd of
//! them delays neither turns on devices nor the daemon's second.

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

impl Server {
    /// Neither reads nor polls a session for a while: until the last time given. It is removed from
    /// the poller altogether, because a poller reports a hang-up whatever it polls for.
    pub(super) fn rest(&mut self, id: u64, until: Nanos) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        let before = self.resting.get(&id).copied();
        if before.is_none() {
            self.poller.remove(session.connection.socket());
        }
        self.resting
            .insert(id, before.map_or(until, |at| at.max(until)));
    }

    /// Resumes throttled sessions, which may have unserved requests in their buffers. Those served
    /// longest ago come first, so a user's sessions that wait for the same budget have turns.
    /// Sessions beyond `AT_A_TIME` are served the next time.
    ///
    /// # Errors
    /// If polling itself fails.
    pub(super) fn end_rests(&mut self) -> io::Result<()> {
        for id in self.rested(clock::now()) {
            self.resting.remove(&id);
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
        let rested = self.resting.iter().filter(|(_, until)| **until <= now);
        let served = |id: u64| self.sessions.get(&id).map(|session| session.served);
        let mut rested: Vec<_> = rested.map(|(id, _)| (served(*id), *id)).collect();
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
