//! One connection's talk: greeting, then requests of a client or of a command.

use std::io;
use std::os::unix::net::UnixStream;

use gpushare_core::{ContainerId, Nanos, ProcessId};
use gpushare_protocol::wire::{
    Control, ControlReply, ErrorCode, FrameError, Hello, MAGIC, MAJOR, Reply, Request, WireError,
    decode,
};
use nix::unistd::geteuid;

use super::folder::Folder;
use crate::connection::{Closed, Connection};
use crate::node::{Client, ConnId, Node};
use crate::peer::{Peer, identify};

/// Bytes read from one connection before others get their turn.
const TURN: usize = 64 * 1024;

/// On whose socket a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A process of this container.
    Client(ContainerId),
    /// A command.
    Command,
}

/// A connection and what is known of its other end.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) role: Role,
    pub(super) since: Nanos,
    /// Whether the poller waits for room to write, not for bytes to read.
    pub(super) polled_for_room: bool,
    greeted: bool,
    process: Option<ProcessId>,
}

impl Session {
    pub(super) fn new(socket: UnixStream, role: Role, since: Nanos) -> io::Result<Self> {
        Ok(Self {
            connection: Connection::new(socket)?,
            role,
            since,
            polled_for_room: false,
            greeted: false,
            process: None,
        })
    }

    /// Whether it has not yet said who it is.
    pub(super) fn is_silent(&self) -> bool {
        match self.role {
            Role::Client(_) => self.process.is_none(),
            Role::Command => !self.greeted,
        }
    }

    /// Reads and answers what has arrived, and sends what waits.
    pub(super) fn exchange(
        &mut self,
        now: Nanos,
        id: ConnId,
        node: &mut Node,
        folder: &Folder,
    ) -> Result<(), Closed> {
        self.connection.flush()?;
        if self.connection.wants_to_write() {
            return Ok(());
        }
        let read = self.connection.receive(TURN);
        while let Some((request, body)) = self.connection.next_frame()? {
            if self.greeted {
                self.heard(now, (id, request), &body, node)?;
            } else {
                self.greet(request, &body, node, folder)?;
            }
        }
        read
    }

    fn greet(
        &mut self,
        request: u32,
        body: &[u8],
        node: &Node,
        folder: &Folder,
    ) -> Result<(), Closed> {
        let theirs: Hello = decode(request, body)?;
        if theirs.magic != MAGIC {
            return Err(FrameError::Unknown { id: request }.into());
        }
        self.connection
            .send(0, &Hello::of_this_build(node.instance()), Vec::new())?;
        if theirs.major != MAJOR {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        }
        if self.role == Role::Command || folder.is_private() {
            let peer = identify(self.connection.socket())?;
            let own = geteuid().as_raw();
            if peer.uid != own && peer.uid != 0 {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied).into());
            }
        }
        self.greeted = true;
        Ok(())
    }

    fn heard(
        &mut self,
        now: Nanos,
        (id, request): (ConnId, u32),
        body: &[u8],
        node: &mut Node,
    ) -> Result<(), Closed> {
        match self.role {
            Role::Command => match decode::<Control>(request, body) {
                Ok(command) => node.command(now, id, request, &command),
                Err(_) => return self.unknown(request, ControlReply::Error),
            },
            Role::Client(container) => {
                let client = Client {
                    connection: id,
                    container,
                    process: self.process,
                };
                match decode::<Request>(request, body) {
                    Ok(Request::Register(register)) => {
                        let peer: Peer = identify(self.connection.socket())?;
                        let page = register
                            .presents_page
                            .then(|| self.connection.take_descriptor())
                            .flatten();
                        let process = node.register(now, client, (request, &register), peer, page);
                        self.process = self.process.or(process);
                    }
                    Ok(other) => node.request(now, client, request, &other),
                    Err(_) => return self.unknown(request, Reply::Error),
                }
            }
        }
        Ok(())
    }

    fn unknown<R: serde::Serialize>(
        &mut self,
        request: u32,
        reply: impl Fn(WireError) -> R,
    ) -> Result<(), Closed> {
        let text = "this daemon does not know that request; is it older than the caller?";
        let error = WireError::new(ErrorCode::UnknownRequest, text);
        self.connection.send(request, &reply(error), Vec::new())
    }

    /// The connection is over.
    pub(super) fn ended(self, now: Nanos, id: ConnId, node: &mut Node) {
        match self.role {
            Role::Command => node.command_ended(now, id),
            Role::Client(container) => {
                node.disconnected(
                    now,
                    Client {
                        connection: id,
                        container,
                        process: self.process,
                    },
                );
            }
        }
    }
}
