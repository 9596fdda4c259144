//! Connections: admission, service, what they pay, and closing.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use gpushare_core::{Nanos, TenantId};

use super::budget::Payer;
use super::buffer_budget::Weight;
use super::crowd::Admittance;
use super::doors::{has_left, lacks};
use super::owners::{Caller, Place};
use super::poller::Source;
use super::session::{Extra, Role, Session};
use super::{Server, clock};
use crate::connection::Closed;
use crate::foreign::Accepted;
use crate::node::ConnId;

/// Former connections that are closed at once where there is no room.
const AT_ONCE: usize = 64;

/// How long after a look that found no command to close there is no other.
const LOOKS: Nanos = Nanos::secs(1);

/// How long a connection may stay unidentified.
const GREETING: Nanos = Nanos::secs(5);

impl Server {
    pub(super) fn accept(&mut self, tenant: Option<TenantId>) {
        let began = clock::now();
        let accepted = self.doors.accept(tenant);
        let role = tenant.map_or(Role::Command, Role::Client);
        self.accepted(began, accepted, role);
    }

    /// Accepts a connection at the socket of a class.
    pub(super) fn accept_in_class(&mut self, at: u64) {
        let began = clock::now();
        let accepted = self.classes.accept(at);
        self.accepted(began, accepted, Role::Class(at));
    }

    fn accepted(&mut self, began: Nanos, accepted: Option<io::Result<UnixStream>>, role: Role) {
        match accepted {
            Some(Ok(socket)) => self.came(began, socket, role),
            Some(Err(error)) if lacks(&error) => self.close_doors(&error),
            // The caller has left already.
            Some(Err(error)) if has_left(&error) => {}
            // A rule of the system's, mostly. The caller stays in line: the loop would do nothing
            // else.
            Some(Err(error)) => {
                tracing::error!(%error, "no connection can be accepted; it is tried again");
                self.close_all();
            }
            None => {}
        }
    }

    fn close_doors(&mut self, error: &io::Error) {
        tracing::error!(%error, "no descriptor is left, so no client can connect until another disconnects; raise the limit of open files (LimitNOFILE)");
        self.close_all();
    }

    /// No socket is polled until the next second.
    fn close_all(&mut self) {
        self.doors.close(&self.poller);
        self.classes.close(&self.poller);
    }

    pub(super) fn came(&mut self, began: Nanos, socket: UnixStream, role: Role) {
        // The maker first: it may end at any time.
        let maker = (self.doors.maker)(socket.as_fd());
        let taken = maker.and_then(|maker| {
            let caller = Caller::of(&socket, role, &self.node)?;
            let lane = self.node.lanes().lane(caller.owner());
            let socket = Accepted::new(socket, &lane)?;
            self.take(Session::new(socket, (caller, maker), began))
        });
        match taken {
            Ok(Some(id)) => self.charge(began, id),
            Ok(None) => {}
            Err(error) if lacks(&error) => self.close_doors(&error),
            Err(error) => tracing::warn!(%error, "a connection could not be taken"),
        }
    }

    /// Serves this connection from now on, unless there are too many like it.
    fn take(&mut self, session: Session) -> io::Result<Option<u64>> {
        let (place, user) = (session.caller.place(), session.caller.user());
        match self.crowd.admits(place, user) {
            Admittance::Free => {}
            Admittance::Of(most) if self.send_away(place, most) => {}
            Admittance::Of(_) | Admittance::None => return Ok(None),
        }
        let number = session
            .connection
            .socket()
            .as_raw_fd()
            .unsigned_abs()
            .into();
        match self.users_crowd.admits(session.caller.over_all(), number) {
            Admittance::Free => {}
            Admittance::Of(user) if self.part_with_former(user) => {}
            Admittance::Of(_) | Admittance::None => {
                let caller = session.caller;
                tracing::warn!(
                    ?caller,
                    "no place for a connection: its user, or all, have as many as may be"
                );
                return Ok(None);
            }
        }
        self.next += 1;
        self.expected = false;
        let id = self.next;
        let socket = session.connection.socket();
        self.poller.add(socket, Source::Session(id))?;
        self.crowd.came(place, user, id);
        self.users_crowd.came(session.caller.over_all(), id);
        self.sessions.insert(id, session);
        Ok(Some(id))
    }

    /// Closes this user's oldest connection there that has not identified itself, or else the
    /// oldest command that nobody needs. Returns whether there was one.
    fn send_away(&mut self, place: Place, user: u32) -> bool {
        let silent = |id: &u64| self.sessions.get(id).is_some_and(Session::is_silent);
        let oldest = self.crowd.of(place, user).find(silent);
        let oldest = oldest.or_else(|| match place {
            Place::Socket(Role::Command) => self.idle_command(user),
            Place::Socket(_) | Place::InClass { .. } => None,
        });
        if let Some(oldest) = oldest {
            self.close(oldest, &Closed::Crowd);
        }
        oldest.is_some()
    }

    /// The oldest connection of this user's commands that nobody needs. A look that found none is
    /// not repeated at once.
    fn idle_command(&mut self, user: u32) -> Option<u64> {
        let now = clock::now();
        if self.found_none_idle.is_some_and(|at| now < at + LOOKS) {
            return None;
        }
        let needed = self.node.needed_commands();
        let place = Place::Socket(Role::Command);
        let mut theirs = self.crowd.of(place, user);
        let idle = theirs.find(|id| !needed.contains(&ConnId(*id)));
        self.found_none_idle = idle.is_none().then_some(now);
        idle
    }

    /// Closes former connections at this user's tenants, the oldest first and a few at a time.
    /// Returns whether there were any.
    fn part_with_former(&mut self, user: u32) -> bool {
        let now = clock::now();
        let is_former = |id: &u64| {
            let client = self
                .sessions
                .get(id)
                .and_then(|one| one.client(ConnId(*id)));
            client.is_some_and(|client| self.node.is_former(client))
        };
        let theirs = self.users_crowd.looked_through(now, user);
        let former: Vec<u64> = theirs.filter(is_former).take(AT_ONCE).collect();
        if former.is_empty() {
            self.users_crowd.found_none(now, user);
        }
        for id in &former {
            self.close(*id, &Closed::Former);
        }
        !former.is_empty()
    }

    /// A connection that was just taken waits with its first words until it is paid for.
    fn charge(&mut self, began: Nanos, id: u64) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        if let Some(user) = session.caller.commander() {
            self.pay(began, user, Some(id));
        } else if let Some(payer) = session.caller.payer()
            && let Some(until) = self.connects.count(began, payer)
        {
            self.rest(id, until);
        }
    }

    /// A refused request on an unregistered connection costs as much as a connection. All requests
    /// over former connections have the rate of one process. A connection that has ended costs it
    /// too: the next one waits instead.
    fn charge_extra(&mut self, now: Nanos, (id, caller): (u64, Caller), extra: Extra) {
        let Some(payer) = caller.payer() else {
            return;
        };
        let refused = (0..extra.refusals).filter_map(|_| self.connects.count(now, payer));
        let mut until = refused.last();
        if extra.former > 0 {
            let payer = self.payer_of_former(payer);
            until = until.max(self.formers.count(now, payer, extra.former));
        }
        if let Some(until) = until {
            self.rest(id, until);
        }
    }

    /// A process may leave connections at all tenants of its user, one after the other.
    fn payer_of_former(&self, payer: Payer) -> Payer {
        let owner = match payer {
            Payer::Tenant(tenant) => self.node.owner(tenant),
            _ => None,
        };
        owner.map_or(payer, Payer::Owner)
    }

    /// A user's commands took the time from `began` until now. The connection that is new waits
    /// with its first words, if they have to.
    fn pay(&mut self, began: Nanos, user: u32, fresh: Option<u64>) {
        let done = clock::now();
        let rested = self.users.took(done, user, done - began);
        if let (Some(id), Some(until)) = (fresh, rested) {
            self.rest(id, until);
        }
    }

    pub(super) fn talk(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let now = clock::now();
        let user = session.caller.commander();
        if let Some(until) = user.and_then(|user| self.users.rests(now, user)) {
            return self.rest(id, until);
        }
        session.served = now;
        let name = match session.caller.role {
            Role::Class(at) => self.classes.name(at),
            _ => None,
        };
        let exchanged = session.exchange(now, ConnId(id), &mut self.node, (&self.folder, name));
        let (extra, caller) = (session.take_extra(), session.caller);
        match exchanged {
            Ok(None) => self.mind(id),
            Ok(Some(until)) => self.rest(id, until),
            Err(end) => self.close(id, &end),
        }
        self.weigh(id);
        self.charge_extra(now, (id, caller), extra);
        if let Some(user) = user {
            // With all that the command led to.
            self.carry_out();
            self.pay(now, user, None);
        }
    }

    /// Updates the daemon's memory that a connection holds.
    pub(super) fn weigh(&mut self, id: u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let (weight, changes) = session.held();
        let holder = session.caller.holder();
        self.buffer_budget.change(changes);
        if let Some(largest) = self.buffer_budget.note(id, holder, weight) {
            self.close(largest, &Closed::BufferBudget);
        }
    }

    /// Polls a session for its possible next operation. A session that does not read its replies is
    /// not read either; once it has, it is served as after a rest, whatever made the room.
    pub(super) fn mind(&mut self, id: u64) {
        if self.resting.contains(id) {
            return;
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            let writes = session.connection.wants_to_write();
            if std::mem::replace(&mut session.polled_for_room, writes) == writes {
                return;
            }
            if !writes {
                // Requests may have been read that were not served meanwhile: no poller names them.
                return self.rest(id, clock::now());
            }
            self.poller
                .await_room(session.connection.socket(), Source::Session(id));
        }
    }

    /// Closes connections that stay unidentified. A throttled one may have sent its greeting
    /// unread.
    pub(super) fn close_silent(&mut self, now: Nanos) {
        let silent = |(id, session): &(&u64, &Session)| {
            session.is_silent() && now - session.since > GREETING && !self.resting.contains(**id)
        };
        let silent = self.sessions.iter().filter(silent);
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.close(id, &Closed::Io(io::ErrorKind::TimedOut.into()));
        }
    }

    pub(super) fn close(&mut self, id: u64, end: &Closed) {
        let Some(mut session) = self.sessions.remove(&id) else {
            return;
        };
        let caller = session.caller;
        self.crowd.left(caller.place(), caller.user(), id);
        self.users_crowd.left(caller.over_all(), id);
        self.resting.remove(id);
        self.buffer_budget.change(session.forget_later());
        let nothing = Weight::default();
        let _ = self.buffer_budget.note(id, caller.holder(), nothing);
        self.poller.remove(session.connection.socket());
        if matches!(end, Closed::InFlight) {
            self.node.cannot_pass(clock::now());
        }
        match end {
            Closed::Ended => {}
            // A library tries again once a second.
            Closed::Version { .. } => tracing::debug!(connection = id, %end, "cut off"),
            _ => tracing::info!(connection = id, user = caller.user(), %end, "cut off"),
        }
        session.ended(clock::now(), ConnId(id), &mut self.node);
    }
}

#[cfg(test)]
mod tests;
