//! Connections: admission, service, what they pay, and closing.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gpushare_core::{Nanos, TenantId};

use super::budget::Payer;
use super::crowd::Admittance;
use super::doors::{has_left, lacks};
use super::owners::{Caller, Place};
use super::poller::Source;
use super::session::{Extra, Role, Session};
use super::{Server, clock};
use crate::connection::Closed;
use crate::foreign::Accepted;
use crate::node::ConnId;

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
        self.next += 1;
        self.expected = false;
        let id = self.next;
        let socket = session.connection.socket();
        self.poller.add(socket, Source::Session(id))?;
        self.crowd.came(place, user, id);
        self.sessions.insert(id, session);
        Ok(Some(id))
    }

    /// Closes this user's oldest connection there that has not identified itself. Returns whether
    /// there was one.
    fn send_away(&mut self, place: Place, user: u32) -> bool {
        let silent = |id: &u64| self.sessions.get(id).is_some_and(Session::is_silent);
        let oldest = self.crowd.of(place, user).find(silent);
        if let Some(oldest) = oldest {
            self.close(oldest, &Closed::Crowd);
        }
        oldest.is_some()
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
        let session = self.sessions.get_mut(&id);
        let held = session.map_or(0, Session::held);
        if let Some(largest) = self.buffer_budget.note(id, held) {
            self.close(largest, &Closed::BufferBudget);
        }
    }

    /// Polls a session for its possible next operation. A session that does not read its replies is
    /// not read either; once it has, it is served as after a rest, whatever made the room.
    pub(super) fn mind(&mut self, id: u64) {
        if self.resting.contains_key(&id) {
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
            session.is_silent() && now - session.since > GREETING && !self.resting.contains_key(id)
        };
        let silent = self.sessions.iter().filter(silent);
        for id in silent.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.close(id, &Closed::Io(io::ErrorKind::TimedOut.into()));
        }
    }

    pub(super) fn close(&mut self, id: u64, end: &Closed) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        let caller = session.caller;
        self.crowd.left(caller.place(), caller.user(), id);
        self.resting.remove(&id);
        let _ = self.buffer_budget.note(id, 0);
        self.poller.remove(session.connection.socket());
        if matches!(end, Closed::InFlight) {
            self.node.cannot_pass(clock::now());
        }
        if !matches!(end, Closed::Ended) {
            tracing::info!(connection = id, user = caller.user(), %end, "cut off");
        }
        session.ended(clock::now(), ConnId(id), &mut self.node);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::os::fd::BorrowedFd;
    use std::path::Path;

    use gpushare_protocol::wire::{Hello, Register, Request, encode};
    use nix::errno::Errno;

    use super::*;
    use crate::node::Settings;
    use crate::peer::Maker;
    use crate::server::CONTROL;
    use crate::server::still::{followed, joins, made, server, tenant};

    const ROLE: Role = Role::Client(TenantId(1));

    /// Until when the next connection waits after many that made so many requests without a
    /// registration, and said at once that nothing more comes.
    fn next_waits(requests: u32) -> Option<Nanos> {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        let mut words = Vec::new();
        encode(0, &Hello::of_this_build(0), &mut words).unwrap();
        for id in 0..requests {
            encode(id + 1, &Request::Freed { device_index: 0 }, &mut words).unwrap();
        }
        let mut payer = None;
        for _ in 0..200 {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            payer = Caller::of(&theirs, ROLE, &server.node).unwrap().payer();
            ours.write_all(&words).unwrap();
            ours.shutdown(Shutdown::Write).unwrap();
            server.came(clock::now(), theirs, ROLE);
            server.talk(server.next);
            assert!(server.sessions.is_empty(), "it is over");
        }
        server.connects.count(clock::now(), payer.unwrap())
    }

    #[test]
    fn requests_of_a_connection_that_hangs_up_at_once_cost_the_next_one() {
        // 1,024 connections and requests are saved up. As many requests as are served at a time
        // would not be over with the first look at the connection.
        assert!(next_waits(30).is_some());
        assert_eq!(next_waits(0), None);
    }

    /// Until when something waits; `None`: for nothing.
    #[derive(Debug)]
    struct Owed {
        /// The next connection.
        connects: Option<Nanos>,
        /// The next request over a former connection.
        asks: Option<Nanos>,
        /// The first and the last of the former connections.
        rests: [Option<Nanos>; 2],
    }

    /// What the server owes its payer after this process has registered over so many connections,
    /// one after the other, and has then asked so often over each. From the start on.
    fn after(connections: usize, requests: u32) -> Owed {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        let tenant = tenant(&mut server);
        let mut crowd: Vec<(u64, UnixStream)> = (0..connections)
            .map(|_| {
                let ours = joins(&mut server, tenant, &[]);
                (server.next, ours)
            })
            .collect();
        let mut words = Vec::new();
        for id in 0..requests {
            encode(id + 2, &Request::Freed { device_index: 0 }, &mut words).unwrap();
        }
        let began = clock::now();
        for (id, ours) in &mut crowd {
            ours.write_all(&words).unwrap();
            server.talk(*id);
            server.carry_out();
        }
        let [first, .., last] = &crowd[..] else {
            panic!("some")
        };
        // The last one is registered.
        let former = last.0 - 1;
        let rests = [first.0, former].map(|id| server.resting.get(&id).copied());
        let since = |at: Option<Nanos>| at.map(|at| at - began);
        let payer = Payer::Tenant(tenant);
        Owed {
            connects: since(server.connects.count(began, payer)),
            asks: since(server.formers.count(began, payer, 0)),
            rests: rests.map(since),
        }
    }

    #[test]
    fn former_connections_of_a_process_send_together_what_one_may() {
        // 9,600 requests, of which 256 are saved up: 100 us each.
        let owed = after(301, 32);
        assert!(owed.asks > Some(Nanos::millis(900)), "{owed:?}");
        assert_eq!(owed.connects, None, "new connections do not pay for it");
    }

    #[test]
    fn a_few_requests_over_former_connections_wait_for_nothing() {
        let owed = after(4, 31);
        assert_eq!((owed.connects, owed.rests), (None, [None, None]));
    }

    #[test]
    fn a_flood_over_former_connections_leaves_the_registered_one_its_rate() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        let tenant = tenant(&mut server);
        let _former = joins(&mut server, tenant, &[]);
        let freed = vec![Request::Freed { device_index: 0 }; 30];
        let _ours = joins(&mut server, tenant, &freed);
        let began = clock::now();
        let payer = Payer::Tenant(tenant);
        assert!(server.formers.count(began, payer, 10_000).is_some());
        server.rest(server.next, Nanos::ZERO);
        server.end_rests().unwrap();
        assert!(!server.resting.contains_key(&server.next));
    }

    #[test]
    fn former_connections_at_all_tenants_of_a_user_count_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        let (command, user) = (ConnId(7), nix::unistd::geteuid().as_raw());
        let machines = tenant(&mut server);
        server.node.command_came(command, "", Some(user));
        for (name, id) in [("a", TenantId(2)), ("b", TenantId(3))] {
            made(&mut server, command, name);
            assert_eq!(server.node.owner(id), Some(user), "{name}");
            let payer = server.payer_of_former(Payer::Tenant(id));
            assert_eq!(payer, Payer::Owner(user));
        }
        for other in [Payer::Tenant(machines), Payer::Container(2)] {
            assert_eq!(server.payer_of_former(other), other);
        }
    }

    /// Until when the next connection waits after 200 that asked so often to be registered, each
    /// time before processes of the previous daemon are counted.
    fn waits_after_tries(tries: usize) -> Option<Nanos> {
        let folder = tempfile::tempdir().unwrap();
        let mut server = followed(folder.path());
        let tenant = TenantId(1);
        let again = Request::Register(Register {
            pid: std::process::id(),
            presents_page: false,
            slot: None,
        });
        let again = vec![again; tries - 1];
        let began = clock::now();
        let crowd: Vec<_> = (0..200)
            .map(|_| joins(&mut server, tenant, &again))
            .collect();
        let silent = server.sessions.values().filter(|one| one.is_silent());
        assert_eq!(silent.count(), crowd.len(), "none is registered");
        server.connects.count(began, Payer::Tenant(tenant))
    }

    #[test]
    fn a_connection_that_asks_again_and_again_to_be_registered_pays_for_it() {
        assert!(waits_after_tries(30).is_some());
        assert_eq!(waits_after_tries(1), None);
    }

    /// A server, and a connection that came to it, whose maker is taken so.
    fn reached(take: fn(BorrowedFd<'_>) -> io::Result<Maker>) -> (tempfile::TempDir, Server) {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), Settings::default());
        server.doors.maker = take;
        let (_ours, theirs) = UnixStream::pair().unwrap();
        server.came(clock::now(), theirs, Role::Command);
        (folder, server)
    }

    #[test]
    fn a_connection_keeps_the_maker_that_it_had_when_it_was_accepted() {
        // As before Linux 6.5.
        let (_folder, server) =
            reached(|socket| Maker::by(Path::new("/proc"), socket, Err(Errno::ENOPROTOOPT.into())));
        let session = &server.sessions[&server.next];
        assert!(matches!(session.maker, Maker::Kept(_)), "{session:?}");
    }

    /// Whether the server hears of a connection to its control socket.
    fn is_open(folder: &Path, server: &mut Server) -> bool {
        let _knocks = UnixStream::connect(folder.join(CONTROL)).unwrap();
        let heard = server.poller.wait(Nanos::ZERO, Nanos::ZERO).unwrap();
        heard.iter().any(|heard| matches!(heard, Source::Control))
    }

    #[test]
    fn new_connections_wait_once_no_descriptor_is_left_for_a_maker() {
        let (folder, mut server) = reached(|_| Err(Errno::EMFILE.into()));
        assert!(!is_open(folder.path(), &mut server));
        let lane = server.node.lanes().own();
        let tended = server.doors.tend(&server.folder, &server.poller, &lane);
        assert!(!tended.unwrap(), "the folder is as it was");
        assert!(is_open(folder.path(), &mut server));
    }

    #[test]
    fn new_connections_are_heard_of_after_one_whose_maker_is_not_known() {
        let (folder, mut server) = reached(|_| Err(io::ErrorKind::Other.into()));
        assert!(server.sessions.is_empty());
        assert!(is_open(folder.path(), &mut server));
    }
}
