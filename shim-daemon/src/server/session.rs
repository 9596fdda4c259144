//! One connection's talk: greeting, then requests of a client or of a command.

mod telling;

use std::io;
use std::os::fd::OwnedFd;

use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::wire::{
    Control, ControlReply, ErrorCode, FrameError, Hello, MAGIC, MAJOR, Register, Reply, Request,
    WireError, decode,
};

use super::budget::Budget;
use super::folder::Folder;
use super::later::Later;
use super::owners::{Caller, may_do_everything};
use crate::connection::{Closed, Connection};
use crate::foreign::{Accepted, Foreign};
use crate::groups::Groups;
use crate::node::{Client, ConnId, Node, Silent};
use crate::pages::PagesError;
use crate::peer::{Maker, Peer, identify};

/// Bytes read from one connection before the next connection is served.
const TURN: usize = 64 * 1024;
/// Requests of one connection served before the next connection is served.
const REQUESTS: usize = 32;
/// The same for commands, each of which may have much to tell; a greeting before it does not count.
const COMMANDS: usize = 1;

/// How long a connection with descriptors is not read once as many wait as may. Where they wait
/// for a file that does not answer, this is repeated until it does.
const PUT_OFF: Nanos = Nanos::millis(100);

/// The socket that a connection came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// A process of this tenant.
    Client(TenantId),
    /// A command.
    Command,
    /// A process of a container of a class: of the class of this place.
    Class(u64),
}

/// A connection and the facts about its peer.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) caller: Caller,
    pub(super) maker: Maker,
    pub(super) since: Nanos,
    /// When it was last served; initially, when it connected.
    pub(super) served: Nanos,
    /// Whether the poller waits for room to write, not for bytes to read.
    pub(super) polled_for_room: bool,
    greeted: bool,
    /// Whether its process can be made to wait for turns on devices.
    gated: bool,
    /// Whether it says that it is an MPS client.
    mps: bool,
    /// Whether the client can move its memory by orders.
    moves: bool,
    process: Option<ProcessId>,
    /// The tenant, once a process that came by a class has registered.
    member: Option<TenantId>,
    budget: Budget,
    /// What it asked for that its account does not count, since the last look at it.
    extra: Extra,
    /// Whether it has asked to be registered.
    has_asked: bool,
    /// Messages queued until earlier ones have been read.
    later: Later,
    groups: Groups,
    /// Why the process of a command cannot be told, if so: the answer to all its requests.
    unseen: Option<WireError>,
    /// How it ended, while requests that came before are still to be served.
    ended: Option<Closed>,
}

/// Requests beside those of a process over its connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    /// Of an unregistered connection: refused, or a registration again.
    pub(super) refusals: u32,
    /// Over a former connection of a process.
    pub(super) former: u32,
}

impl Session {
    pub(super) fn new(socket: Accepted, (caller, maker): (Caller, Maker), since: Nanos) -> Self {
        Self {
            connection: Connection::new(socket),
            caller,
            maker,
            since,
            served: since,
            polled_for_room: false,
            greeted: false,
            gated: false,
            mps: false,
            moves: false,
            process: None,
            member: None,
            budget: Budget::default(),
            extra: Extra::default(),
            has_asked: false,
            later: Later::default(),
            groups: Groups::default(),
            unseen: None,
            ended: None,
        }
    }

    /// What was counted since the last call, whatever the time.
    pub(super) fn take_extra(&mut self) -> Extra {
        std::mem::take(&mut self.extra)
    }

    /// Whether the peer has not identified itself yet.
    pub(super) fn is_silent(&self) -> bool {
        match self.caller.role {
            Role::Client(_) | Role::Class(_) => self.process.is_none(),
            Role::Command => !self.greeted,
        }
    }

    /// Reads and answers a part of the received data, and sends waiting data. If its budget is used
    /// up, returns the time at which it may continue: until then other sessions are served and
    /// nothing is read from this one.
    pub(super) fn exchange(
        &mut self,
        now: Nanos,
        id: ConnId,
        node: &mut Node,
        (folder, class): (&Folder, Option<&str>),
    ) -> Result<Option<Nanos>, Closed> {
        self.catch_up()?;
        if self.connection.wants_to_write() {
            return Ok(None);
        }
        let mut received = None;
        let most = match self.caller.role {
            Role::Client(_) | Role::Class(_) => REQUESTS,
            Role::Command => COMMANDS + usize::from(!self.greeted),
        };
        for served in 0..most {
            let (request, body) = loop {
                if let Some(frame) = self.connection.next_frame()? {
                    break frame;
                }
                if let Some(end) = self.ended.take() {
                    return Err(self.connection.ended(end));
                }
                if let Some(bytes) = received {
                    let is_part = served == 0 && bytes > 0;
                    return Ok(is_part.then(|| self.brought_part(now, id, node)).flatten());
                }
                if self.connection.is_put_off() {
                    return Ok(Some(now + PUT_OFF));
                }
                match self.connection.receive(TURN) {
                    Ok(bytes) => received = Some(bytes),
                    Err(end) => (self.ended, received) = (Some(end), Some(0)),
                }
            };
            if self.greeted {
                self.heard(now, (id, request), &body, node, class)?;
            } else {
                self.greet((id, request), &body, node, folder)?;
            }
            if self.caller.role != Role::Command
                && let Some(rested) = self.budget.spend(now)
            {
                return Ok(Some(rested));
            }
        }
        Ok(Some(now))
    }

    /// What came is a part of a message and nothing else. The read costs as much as a request: a
    /// program sends its messages whole, and long ones in pieces of many kilobytes.
    fn brought_part(&mut self, now: Nanos, id: ConnId, node: &Node) -> Option<Nanos> {
        if self.caller.role == Role::Command {
            return None;
        }
        match self.client(id) {
            Some(client) if client.process.is_some() => {
                self.extra.former += u32::from(node.is_former(client));
            }
            _ => self.extra.refusals += 1,
        }
        self.budget.spend(now)
    }

    fn greet(
        &mut self,
        (id, request): (ConnId, u32),
        body: &[u8],
        node: &mut Node,
        folder: &Folder,
    ) -> Result<(), Closed> {
        let theirs: Hello = decode(request, body)?;
        if theirs.magic != MAGIC {
            return Err(FrameError::Unknown { id: request }.into());
        }
        self.connection
            .send(0, &Hello::of_this_build(node.instance()), Vec::new())?;
        if theirs.major != MAJOR {
            let theirs = theirs.major;
            if self.caller.role != Role::Command
                && let Ok(peer) = identify(self.connection.socket(), &self.maker)
            {
                node.speaks_otherwise(self.tenant(), peer.pid, theirs);
            }
            return Err(Closed::Version { theirs });
        }
        if self.caller.role == Role::Command || folder.is_private() {
            match identify(self.connection.socket(), &self.maker) {
                Err(error)
                    if error.kind() == io::ErrorKind::Unsupported && !folder.is_private() =>
                {
                    self.unseen = Some(unknown_peer(&error));
                }
                Ok(peer) if folder.is_private() && !may_do_everything(peer.uid) => {
                    return Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
                }
                Ok(peer) if self.caller.role == Role::Command => {
                    node.command_came(id, &peer.cgroup, self.caller.commander());
                    node.command_is(id, peer.pid);
                    self.groups = peer.groups;
                }
                found => drop(found?),
            }
        }
        self.greeted = true;
        self.gated = theirs.capabilities & Hello::GATED != 0;
        self.moves = theirs.capabilities & Hello::MOVABLE != 0;
        self.mps = !self.gated && theirs.capabilities & Hello::MPS != 0;
        Ok(())
    }

    fn heard(
        &mut self,
        now: Nanos,
        (id, request): (ConnId, u32),
        body: &[u8],
        node: &mut Node,
        class: Option<&str>,
    ) -> Result<(), Closed> {
        if let Some(error) = self.unseen.clone() {
            drop(self.connection.take_descriptor());
            let reply = ControlReply::Error(error);
            return self.connection.send(request, &reply, Vec::new());
        }
        if let Role::Class(_) = self.caller.role {
            self.enter(now, request, body, node, class.unwrap_or_default())?;
        }
        match self.caller.role {
            Role::Class(_) if self.member.is_none() => return Ok(()),
            Role::Command => match decode::<Control>(request, body) {
                Ok(Control::Inject(injection)) => {
                    let pidfd = self.connection.take_descriptor();
                    let named = (pidfd, self.groups.clone());
                    node.name_container(now, (id, request), injection, named);
                }
                Ok(Control::Unlimited {
                    id: container,
                    devices,
                    labels,
                }) => {
                    let silent = Silent {
                        id: container,
                        devices,
                        labels,
                    };
                    let named = (self.connection.take_descriptor(), self.groups.clone());
                    node.judge_container(now, (id, request), silent, named);
                }
                Ok(Control::SuspendTo { tenant }) => {
                    let files = [(); 2].map(|()| self.connection.take_descriptor());
                    node.suspend_to(now, (id, request), &tenant, files);
                }
                Ok(command) => node.command(now, id, request, &command),
                Err(_) => return self.unknown(request, ControlReply::Error),
            },
            Role::Client(_) | Role::Class(_) => {
                let Some(client) = self.client(id) else {
                    return Ok(());
                };
                let asked = decode::<Request>(request, body);
                let registers = matches!(asked, Ok(Request::Register(_)));
                let is_refused = client.process.is_none() && !registers;
                self.extra.refusals += u32::from(is_refused);
                self.extra.former += u32::from(node.is_former(client));
                match asked {
                    Ok(Request::Register(register)) if client.process.is_none() => {
                        let peer: Peer = match identify(self.connection.socket(), &self.maker) {
                            Ok(peer) => peer,
                            Err(error) => {
                                self.extra.refusals += 1;
                                // A page that came with the request is not wanted.
                                drop(self.connection.take_descriptor());
                                let reply = Reply::Error(unknown_peer(&error));
                                return self.connection.send(request, &reply, Vec::new());
                            }
                        };
                        let is_again = std::mem::replace(&mut self.has_asked, true);
                        let is_refused = is_again || node.bars(client.tenant, &peer);
                        self.extra.refusals += u32::from(is_refused);
                        let page = match self.page_of(&register) {
                            Ok(page) => page,
                            Err(error) => {
                                self.extra.refusals += 1;
                                let reply = Reply::Error(error);
                                return self.connection.send(request, &reply, Vec::new());
                            }
                        };
                        let process = node.register(now, client, (request, &register), peer, page);
                        self.process = self.process.or(process);
                        if let Some(process) = process.filter(|_| self.mps) {
                            node.is_mps_client(process);
                        }
                    }
                    Ok(Request::HostFile { file }) => {
                        let kept = self.connection.take_descriptor();
                        node.present_file(now, client, file, kept);
                    }
                    Ok(Request::HostMemory) => {
                        let kept = self.connection.take_descriptor();
                        node.present_memory(client, kept);
                    }
                    Ok(other) => {
                        if registers {
                            // Not again. A page that came with it is not wanted.
                            drop(self.connection.take_descriptor());
                        }
                        node.request(now, client, request, &other);
                    }
                    Err(_) => return self.unknown(request, Reply::Error),
                }
            }
        }
        Ok(())
    }

    /// The page that comes with a registration.
    fn page_of(&mut self, register: &Register) -> Result<Option<OwnedFd>, WireError> {
        let page = register
            .presents_page
            .then(|| self.connection.take_descriptor())
            .flatten();
        let page = page.map(Foreign::into_memory).transpose();
        page.map_err(|_| WireError::new(ErrorCode::BadPage, PagesError::Unsealed.to_string()))
    }

    /// The other end of a tenant's connection, with what it has said of itself.
    pub(super) fn client(&self, id: ConnId) -> Option<Client> {
        Some(Client {
            connection: id,
            tenant: self.tenant()?,
            process: self.process,
            gated: self.gated,
            moves: self.moves,
        })
    }

    /// The tenant of a process.
    fn tenant(&self) -> Option<TenantId> {
        match self.caller.role {
            Role::Client(tenant) => Some(tenant),
            Role::Class(_) => self.member,
            Role::Command => None,
        }
    }

    /// A process came by a class: which container it is of is found out before anything else.
    fn enter(
        &mut self,
        now: Nanos,
        request: u32,
        body: &[u8],
        node: &mut Node,
        class: &str,
    ) -> Result<(), Closed> {
        if self.member.is_some() {
            return Ok(());
        }
        let entered = match decode::<Request>(request, body) {
            Ok(Request::Register(register)) => identify(self.connection.socket(), &self.maker)
                .map_err(|error| unknown_peer(&error))
                .and_then(|peer| node.enter_class(now, (class, register.presents_page), &peer)),
            _ => Err(WireError::new(ErrorCode::OutOfOrder, "register first")),
        };
        match entered {
            Ok(tenant) => {
                self.member = Some(tenant);
                Ok(())
            }
            Err(error) => {
                self.extra.refusals += 1;
                // A page that came with the request is not wanted.
                drop(self.connection.take_descriptor());
                self.connection
                    .send(request, &Reply::Error(error), Vec::new())
            }
        }
    }

    fn unknown<R: serde::Serialize>(
        &mut self,
        request: u32,
        reply: impl Fn(WireError) -> R,
    ) -> Result<(), Closed> {
        let text = "this daemon does not know that request: it is older than the caller";
        let error = WireError::new(ErrorCode::UnknownRequest, text);
        self.connection.send(request, &reply(error), Vec::new())
    }

    /// The connection is over.
    pub(super) fn ended(self, now: Nanos, id: ConnId, node: &mut Node) {
        match self.caller.role {
            Role::Command => node.command_ended(now, id),
            Role::Client(_) | Role::Class(_) => {
                if let Some(client) = self.client(id) {
                    node.disconnected(now, client);
                }
            }
        }
    }
}

/// Why the peer process cannot be registered. A lack of the daemon's resources may be temporary.
fn unknown_peer(error: &io::Error) -> WireError {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
            WireError::retry(ErrorCode::Full, error.to_string())
        }
        _ => WireError::new(ErrorCode::NotFound, error.to_string()),
    }
}
