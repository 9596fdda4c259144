//! What the node wants done: answers, events, and work that may wait.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use gpushare_core::{ProcessId, TenantId};
use gpushare_protocol::wire::{ControlReply, EventRecord, Reply};

#[cfg(doc)]
use super::Node;
use super::{ConnId, Container, FenceKey, Follower, Registration, Row};
use crate::connection::Passed;
use crate::devices::Order;
use crate::foreign::Lane;
use crate::spill;

/// Something for the server to do.
#[derive(Debug)]
pub enum Effect {
    /// Answer a client's request.
    Client {
        /// The recipient.
        to: ConnId,
        /// The request's id.
        id: u32,
        /// The answer.
        reply: Reply,
        /// Descriptors that go with it.
        descriptors: Vec<Passed>,
    },
    /// Answer a command.
    Command {
        /// The recipient.
        to: ConnId,
        /// The request's id.
        id: u32,
        /// The answer.
        reply: ControlReply,
    },
    /// Write an event down if it is new, and send it to its followers.
    Event {
        /// The recipients.
        to: Vec<Follower>,
        /// The event.
        record: Arc<EventRecord>,
        /// Whether it happened just now; a follower that comes later is told of it again.
        is_new: bool,
    },
    /// Tell when this process ends.
    Watch {
        /// The process.
        process: ProcessId,
        /// Becomes readable at its end.
        pidfd: OwnedFd,
    },
    /// Stop watching this process's end: it registered anew and is watched under its new id.
    Unwatch {
        /// The process.
        process: ProcessId,
    },
    /// Tell when the container of this tenant ends.
    WatchContainer {
        /// The tenant.
        tenant: TenantId,
        /// Becomes readable at its end.
        pidfd: OwnedFd,
    },
    /// Accept clients of this tenant on a socket of its own, and store the registration for the
    /// next daemon.
    Listen {
        /// The tenant.
        tenant: TenantId,
        /// The registration to store.
        registration: Box<Registration>,
    },
    /// The tenant has ended: close its socket and delete its registration.
    Unlisten {
        /// The tenant.
        tenant: TenantId,
        /// Its name.
        name: String,
    },
    /// Store these containers, which rules allow to run without limits, for the next daemon: all
    /// that there are.
    KeepAllowed(Vec<Container>),
    /// Delete what is stored of a tenant that was not restored.
    Forget {
        /// Its name.
        name: String,
    },
    /// The same of one whose container runs: its folder stays, under another name.
    SetAside {
        /// Its name.
        name: String,
    },
    /// Have the driver hold a cgroup to so much, and tell with [`Node::fenced`].
    Fence {
        /// The fence.
        key: FenceKey,
        /// The cgroup's folder.
        path: PathBuf,
        /// The limit that it shall have.
        order: Order,
    },
    /// Allocate memory of a process on the host or copy it, on the lane of its file, and tell with
    /// [`Node::copied`].
    Copy(Box<spill::Job>),
    /// Look at a file that was presented, on its lane, and tell with [`Node::inspected`].
    Inspect(Box<spill::Inspection>),
    /// Look at a process on this lane, and tell with [`Node::identified`].
    Identify {
        /// The process.
        process: ProcessId,
        /// Its pid.
        pid: i32,
        /// The lane.
        lane: Lane,
    },
    /// See which of these rows' processes have ended, on this lane, and tell with
    /// [`Node::rows_seen`].
    LookAtRows {
        /// Whose page it is.
        tenant: TenantId,
        /// The rows.
        rows: Vec<Row>,
        /// The lane.
        lane: Lane,
    },
    /// Look at the device of this index now.
    Look {
        /// Its index in the node.
        device: usize,
    },
}
