//! Messages between a client (a process with the interposer) and the daemon.
//!
//! A connection begins with [`Hello`] in both directions (request id 0). The socket a client came
//! through names its tenant; nothing in a message does. Replies carry the id of their request
//! and may come in any order: an [`Request::Ask`] that waits is answered when it is settled, other
//! requests meanwhile.

use std::cmp::Ordering;

use super::error::WireError;
use super::residency::{Obstacle, Residency};
use serde::{Deserialize, Serialize};

/// The first frame in each direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`super::MAGIC`].
    pub magic: u32,
    /// The speaker's major version.
    pub major: u16,
    /// The speaker's minor version.
    pub minor: u16,
    /// Bits for capabilities beyond the minor version, such as [`Hello::GATED`]; unknown bits are
    /// ignored.
    pub capabilities: u64,
    /// From the daemon: which instance it is, new at every start. From a client: 0, which no daemon
    /// reads.
    pub instance: u64,
}

impl Hello {
    /// From a client: its GPU work passes a gate that follows the control page's lease, so it can
    /// be made to wait for its turn. A client without this bit runs at any time and counts as
    /// drained.
    pub const GATED: u64 = 1;
    /// From a client without [`Self::GATED`]: it is an MPS client, whose compute MPS shares.
    pub const MPS: u64 = 1 << 1;
    /// From a client: it can seal itself and move its memory by the control page's orders, where
    /// the device allows that.
    pub const MOVABLE: u64 = 1 << 2;

    /// Whether `this`, a library or a command, can talk to the daemon that greets so.
    ///
    /// # Errors
    /// Why it cannot, and what to do: one line.
    pub fn check(&self, this: &str) -> Result<(), String> {
        if self.magic != super::MAGIC {
            return Err("what listens there is no gpushared".to_owned());
        }
        let (ours, theirs) = (super::MAJOR, self.major);
        let what = match theirs.cmp(&ours) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => "update the daemon, and restart it".to_owned(),
            Ordering::Greater => format!("update {this}, and start programs that run again"),
        };
        Err(format!(
            "the daemon speaks protocol {theirs}, {this} speaks {ours}: {what}"
        ))
    }

    /// This build's greeting, as this instance.
    #[must_use]
    pub fn of_this_build(instance: u64) -> Self {
        Self {
            magic: super::MAGIC,
            major: super::MAJOR,
            minor: super::MINOR,
            capabilities: 0,
            instance,
        }
    }
}

/// Requests of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Request {
    /// Be known as a process of this socket's tenant. Answered by [`Reply::Registered`] with two
    /// descriptors: the control page, the usage page.
    Register(Register),
    /// The process is about to make a context on a device: what that takes is set aside first.
    /// Answered as an ask.
    Open {
        /// The device's index in the tenant's pages.
        device_index: u8,
    },
    /// The tenant's grant on a device is too small by at least these bytes. Answered by
    /// [`Reply::Granted`] or [`Reply::Refused`], at once or after a wait.
    Ask(Ask),
    /// The asker gave up (a signal, its own deadline). The ask is answered [`Refusal::Cancelled`]
    /// if still open.
    Cancel {
        /// The request id of the ask.
        ask: u32,
    },
    /// Bytes were freed while the control page said that a tenant waits.
    Freed {
        /// The device's index in the tenant's pages.
        device_index: u8,
    },
    /// The driver had no memory although the grant had: the ledger and the device disagree.
    /// Answered as an ask; a grant means that the driver may be asked again.
    DriverRefused(Ask),
    /// The client maps the current control page and has dropped an older one.
    Adopted {
        /// The instance whose control page is mapped.
        instance: u64,
    },
    /// A call waits at the closed gate; sent once for each time it closes. Neither this
    /// nor the three that follow are answered, and an invalid one is ignored.
    Wanted {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the lease that is closed, or whose deadline has passed.
        epoch: u64,
    },
    /// The gate is closed and all that was submitted before is complete: after a close by the
    /// daemon, or by the process itself at the deadline. It does not open again under that epoch.
    Drained {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the lease.
        epoch: u64,
    },
    /// The gate is open, nothing is in flight, and nothing was submitted for the idle threshold.
    Idle {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the lease.
        epoch: u64,
    },
    /// After an [`Request::Idle`]: work was submitted again under the same lease.
    Busy {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the lease.
        epoch: u64,
    },
    /// The process's first context on a device is complete, so that a look at the device shows its
    /// memory. Not answered, and an invalid one is ignored.
    ContextMade {
        /// The device's index in the tenant's pages.
        device_index: u8,
    },
    /// The process's whole state on a device: for each device after it has adopted a control page,
    /// and when its movable bytes have changed much. This and the requests that follow, up to
    /// [`Request::WantIn`], are not answered, and an invalid one is ignored.
    Residency(Residency),
    /// No call of the process that can touch device memory is in the driver, and all its submitted
    /// work is complete; it stays so until the next order.
    Sealed {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the order.
        epoch: u32,
    },
    /// It did not drain before the deadline, and is open again. The order is not tried again.
    SealBusy {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the order.
        epoch: u32,
        /// Why.
        why: Obstacle,
        /// When it is worth ordering again, in milliseconds; doubles with each refusal in a row.
        retry_ms: u32,
    },
    /// Progress of a move, told at most every 64 MiB or 50 ms.
    Moved {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the order.
        epoch: u32,
        /// Bytes that are on the host now.
        away: u64,
    },
    /// All that can move is on the host, and is given back to the driver.
    Away {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the order.
        epoch: u32,
        /// Bytes on the host.
        away: u64,
        /// Bytes that stay on the device, as charged.
        residue: u64,
    },
    /// All memory is on the device, and the process is open.
    Back {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the order.
        epoch: u32,
    },
    /// The move could not be made, and is undone: on the way out for want of host memory or because
    /// a copy failed, on the way back for want of device memory. The process is where it was
    /// before, and stays sealed where that was the host.
    NoRoom {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The epoch of the order.
        epoch: u32,
        /// Bytes that were to be had and were not.
        bytes: u64,
    },
    /// A call that touches the device waits, and the process is sealed: told once for each time it
    /// seals.
    WantIn {
        /// The device's index in the tenant's pages.
        device_index: u8,
    },
    /// The process's movable memory needs so much more of the host store. Answered by
    /// [`Reply::HostRange`] and a descriptor, or [`Reply::Refused`]. The daemon may give less, and
    /// is asked again for the rest.
    HostRange {
        /// The device of the memory.
        device_index: u8,
        /// Bytes.
        bytes: u64,
    },
    /// A range is used no more: its bytes may be given back. Not answered.
    HostDrop {
        /// Its first byte.
        offset: u64,
        /// Its length, as it was given.
        bytes: u64,
    },
    /// Memory of the process is away in a range, and nothing writes to it: the daemon may store its
    /// bytes in a file. Sent while the control page asks for it
    /// ([`spill`](crate::page::control::ControlHeader::spill)). Answered by [`Reply::HostStored`],
    /// or [`Reply::Refused`]; the range stays valid until it is dropped.
    HostStore {
        /// Its first byte.
        offset: u64,
        /// Its length, as it was given.
        bytes: u64,
    },
    /// Stored bytes are wanted in memory. Answered by [`Reply::HostRange`] and a descriptor once
    /// they are there and their checksum is right; by [`Refusal::DataLost`] if it is not; by
    /// [`Refusal::NoMemory`] where there is no room for them now.
    HostFetch(Stored),
    /// Stored bytes are wanted no more. [`Stored::all_of`]: none of that file are, and it is
    /// closed. Not answered.
    HostForget(Stored),
    /// The process holds this file with stored bytes, which a previous daemon made. The file's
    /// descriptor travels with the message. Not answered.
    HostFile {
        /// The file's number.
        file: u64,
    },
    /// The memory file in which a previous daemon gave ranges to the process. Its descriptor
    /// travels with the message, before any other message about ranges. Not answered.
    HostMemory,
    /// The program asked to share memory that can move (legacy IPC, or a handle for a range of
    /// addresses), and was told that this is not supported. Sent once for each process, and heeded
    /// once; not answered, and an invalid one is ignored.
    Unshared {
        /// The device's index in the tenant's pages.
        device_index: u8,
    },
    /// Of the spots from `from` on and before `until`, the process has only these. Sent on each new
    /// connection, after the files and before any other message about its memory: what it gave up
    /// before may not have been heard. Not answered.
    Has {
        /// Where that begins.
        from: Spot,
        /// Where it ends.
        until: Spot,
        /// What the process has.
        spots: Vec<Spot>,
    },
    /// As [`Request::Open`], for a context beside those that the process has, or has had, on the
    /// device: what that takes is set aside too. Answered as an ask. A request of the same id,
    /// repeated on another connection, is for the same context.
    OpenMore {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The rest of the call's time to wait, in milliseconds; at most the tenant's own timeout.
        /// Zero: it may not wait.
        patience_ms: Option<u64>,
    },
    /// The call for which [`Request::OpenMore`] was asked has returned, with a context or without
    /// one, so that a look at the device shows which. Not answered, and an invalid one is ignored.
    OpenDone {
        /// The device's index in the tenant's pages.
        device_index: u8,
        /// The request id of the ask.
        ask: u32,
    },
    /// The process has no context on a device any more, and no call that makes one is under way.
    /// Not answered, and an invalid one is ignored.
    NoContext {
        /// The device's index in the tenant's pages.
        device_index: u8,
    },
    /// A call is under way for which [`Request::OpenMore`] of this id was granted, over another
    /// connection and perhaps by the previous daemon. Answered as an ask.
    OpenAgain {
        /// The device's index in the tenant's pages.
        device_index: u8,
    },
}

/// Where a range of a process's memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Spot {
    /// The number of its file; 0 for the memory file.
    pub file: u64,
    /// Where it begins there.
    pub at: u64,
}

impl Spot {
    /// Before all others.
    pub const FIRST: Self = Self { file: 0, at: 0 };
    /// Behind all others.
    pub const END: Self = Self {
        file: u64::MAX,
        at: u64::MAX,
    };

    /// A place in the memory file.
    #[must_use]
    pub const fn memory(at: u64) -> Self {
        Self { file: 0, at }
    }
}

/// Bytes of a range that lie in a file, as [`Reply::HostStored`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The file's number.
    pub file: u64,
    /// Where they begin in the file.
    pub at: u64,
    /// How many they are.
    pub bytes: u64,
    /// Their checksum (XXH3, 64 bits).
    pub sum: u64,
}

impl Stored {
    /// All bytes of a file, for [`Request::HostForget`].
    #[must_use]
    pub const fn all_of(file: u64) -> Self {
        Self {
            file,
            at: u64::MAX,
            bytes: u64::MAX,
            sum: 0,
        }
    }

    /// Where they begin.
    #[must_use]
    pub const fn spot(&self) -> Spot {
        Spot {
            file: self.file,
            at: self.at,
        }
    }

    /// Whether these are all bytes of their file.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.at == u64::MAX
    }
}

/// See [`Request::Register`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The process id as the process itself sees it; only shown, never trusted.
    pub pid: u32,
    /// Whether a usage page of an earlier daemon travels with this message as a descriptor.
    pub presents_page: bool,
    /// The slot held in that page, if one is presented.
    pub slot: Option<u16>,
}

/// See [`Reply::Registered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The tenant's name, for messages.
    pub tenant: String,
    /// The process's slot in the usage page.
    pub slot: u16,
    /// The UUIDs of the devices of both pages, in order.
    pub device_uuids: Vec<[u8; 16]>,
}

/// See [`Request::Ask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The device's index in the tenant's pages.
    pub device_index: u8,
    /// The charges of all processes of the tenant, as seen under the tenant's lock.
    pub held: u64,
    /// Bytes of the allocation.
    pub bytes: u64,
    /// The rest of the asker's time to wait, in milliseconds, if it waited before; at most the
    /// tenant's own timeout.
    pub patience_ms: Option<u64>,
}

/// Replies to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Reply {
    /// To [`Request::Register`].
    Registered(Registered),
    /// To [`Request::Ask`]: the control page holds the new grant already.
    Granted {
        /// The tenant's whole grant on the device in bytes.
        grant: u64,
    },
    /// To [`Request::Ask`]: the allocation gets an out-of-memory.
    Refused(Refusal),
    /// To requests that need no more than that.
    Done,
    /// The request failed.
    Error(WireError),
    /// To [`Request::HostRange`], with the descriptor of a memory file that cannot shrink. The
    /// range is the process's until it drops it or ends, whatever becomes of the daemon.
    HostRange {
        /// Its first byte in that file, a multiple of the page size.
        offset: u64,
        /// Its length: what was asked for, or less.
        bytes: u64,
    },
    /// To [`Request::HostStore`], with a descriptor by which the file can only be read. The file
    /// has no name: it lives as long as a process or a daemon has it open.
    HostStored(Stored),
}

/// Why an ask ended without a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// It would exceed the tenant's limit.
    OverLimit {
        /// The limit in bytes.
        limit: u64,
    },
    /// No tenant could or may give way, and policy does not wait.
    NoMemory,
    /// It waited as long as it may.
    TimedOut {
        /// Milliseconds waited.
        waited_ms: u64,
    },
    /// It was the lowest and youngest of a circle of waiters.
    BrokeCycle,
    /// The asker gave up.
    Cancelled,
    /// The tenant may not use that device.
    NoQuota,
    /// The tenant is being ended.
    Ending,
    /// The process has too many asks waiting.
    TooMany,
    /// The device fell off the bus.
    DeviceLost,
    /// Stored bytes cannot be read, or are not those that were stored.
    DataLost,
}
