//! Messages between the commands (`run`, `ps`, `set`, `events`, `devices`) and the daemon, on its
//! control socket.

use super::error::WireError;
use super::injection::Injection;
use super::page::{Cursor, Listing, Rows};
use super::record::EventRecord;
use serde::{Deserialize, Serialize};

/// Requests of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Control {
    /// Register a tenant that lives as long as this connection or a process of it does. Answered
    /// by [`ControlReply::Created`], after a [`ControlReply::Queued`] where it has to wait for
    /// room.
    Create {
        /// The name wanted, or `None` for one the daemon makes. An equal name joins if the limits
        /// are equal.
        name: Option<String>,
        /// The variables that say its limits, as `(name, value)`.
        environment: Vec<(String, String)>,
        /// The devices it may use, in the order its programs see them; empty means all.
        devices: Vec<[u8; 16]>,
    },
    /// Change a tenant's limits now: `(variable, value)` as in the environment; the other variables
    /// keep their values.
    Set {
        /// The tenant's name.
        tenant: String,
        /// The changes.
        changes: Vec<(String, String)>,
    },
    /// Send [`ControlReply::Event`] for everything from now on, under this request's id, until the
    /// connection ends.
    Follow {
        /// How many past events to send first, at most those that the daemon keeps.
        past: u32,
    },
    /// Keep an existing tenant, as its creator does, and be told of its end: for a `run` that
    /// reconnects to a new daemon. Answered as [`Control::Create`].
    Attach {
        /// The tenant's name.
        tenant: String,
    },
    /// A list of any length, a page at a time. Answered by [`ControlReply::Page`].
    Page {
        /// The list.
        of: Listing,
        /// Where the page begins.
        from: Cursor,
    },
    /// Moves a tenant's memory to the host and keeps it there until [`Control::Resume`], or until
    /// a call of the tenant touches a device. Answered by [`ControlReply::Done`]
    /// once all of it is away.
    Suspend {
        /// The tenant's name.
        tenant: String,
    },
    /// Brings a suspended tenant's memory back. Answered by [`ControlReply::Done`]
    /// once all of it is back.
    Resume {
        /// The tenant's name.
        tenant: String,
    },
    /// Register a container that is being created. Answered by [`ControlReply::Created`],
    /// never queued.
    Inject(Injection),
    /// The program for which this connection keeps a tenant has ended. Not answered.
    Ended {
        /// Its exit status as a shell gives it: 128 and the signal's number if a signal ended it.
        status: u8,
    },
    /// End a tenant's processes by a signal. Answered by [`ControlReply::Done`].
    End {
        /// The tenant's name.
        tenant: String,
        /// By `SIGKILL` instead of `SIGTERM`.
        kill: bool,
    },
    /// As [`Control::Suspend`], and stores the memory in a file instead of the host's memory. Two
    /// descriptors of one file without a name travel with it: one to read and write, one to read.
    /// Answered by [`ControlReply::Done`] once all of it is there.
    SuspendTo {
        /// The tenant's name.
        tenant: String,
    },
    /// A container that is being created has a GPU and asks for nothing: what becomes of it? The
    /// fields are as those of [`Control::Inject`]. Answered by [`ControlReply::Unlimited`], or by
    /// an error where it must not start. The pidfd of its init travels with this message as a
    /// descriptor.
    Unlimited {
        /// Its id.
        id: String,
        /// Its devices.
        devices: Vec<String>,
        /// Facts for the node's rules, and as `scheduler` an annotation of a scheduler's.
        labels: Vec<(String, String)>,
    },
}

impl Control {
    /// The file systems for the file of [`Control::SuspendTo`], beside that of the node's own
    /// folder: no other machine and no process serves them, so that a read never waits for one.
    pub const FILE_SYSTEMS: &str = "ext2, ext3, ext4, xfs, btrfs, f2fs, bcachefs or zfs";
}

/// Replies to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ControlReply {
    /// To [`Control::Create`].
    Created {
        /// The tenant's name.
        name: String,
        /// The folder that holds the tenant's socket, for `GPUSHARE_SOCKET`.
        folder: String,
    },
    /// The tenant waits for admission; another reply to the same request follows.
    Queued {
        /// The reason why it waits, with the numbers.
        why: String,
    },
    /// The tenant of this connection is to end: pass the signal on to its processes.
    End {
        /// `SIGTERM` or `SIGKILL`.
        signal: i32,
        /// The reason, the requester, and the bytes.
        why: String,
    },
    /// To [`Control::Follow`]: one event.
    Event(EventRecord),
    /// To requests that need no more than that.
    Done,
    /// The request failed.
    Error(WireError),
    /// The tenant of this connection will be ended unless something changes.
    EndsSoon {
        /// By what, and when.
        why: String,
    },
    /// To [`Control::Page`].
    Page {
        /// The rows.
        rows: Rows,
        /// Where the next page begins, if there is one.
        next: Option<Cursor>,
    },
    /// To [`Control::Unlimited`].
    Unlimited {
        /// Whether it is to be registered with the maxima as its limits; else it may run as it is.
        takes_maxima: bool,
    },
}

/// A tenant as `ps` shows it: one row a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// Bytes guaranteed.
    pub request: u64,
    /// Bytes at most.
    pub limit: u64,
    /// Bytes its processes hold as credit at most.
    pub grant: u64,
    /// Bytes its processes charged.
    pub charged: u64,
    /// Bytes the driver took beside the charges.
    pub overhead: u64,
    /// Bytes of its dead processes that the driver has not yet given back.
    pub limbo: u64,
    /// Its processes on this device.
    pub processes: Vec<ProcessRow>,
}

/// A process as `ps` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// The process id in the daemon's pid namespace.
    pub pid: u32,
    /// Bytes charged.
    pub charged: u64,
    /// Bytes the driver took beside the charges.
    pub overhead: u64,
    /// Its state.
    pub state: ProcessState,
}

/// The state of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ProcessState {
    /// It used the device lately.
    Running,
    /// It has not used the device for this many milliseconds.
    Idle {
        /// Milliseconds since its last work.
        for_ms: u64,
    },
    /// Its allocation waits.
    Waiting(Want),
}

/// The bytes that a waiting allocation asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// Bytes wanted.
    pub bytes: u64,
    /// Milliseconds waited so far.
    pub since_ms: u64,
}

/// A tenant that will be ended, by the current state, or that is being ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRow {
    /// Its name.
    pub name: String,
    /// Milliseconds until it is told to end; of one that was told, until its processes are killed,
    /// and 0 once they were.
    pub in_ms: u64,
    /// By what.
    pub by: EndsBy,
    /// It was told to end: it is being ended, and gets no new memory.
    pub told: bool,
}

/// The cause of a tenant's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum EndsBy {
    /// Its idle end.
    IdleEnd,
    /// Its run limit.
    RunLimit,
    /// Another tenant that gets its memory.
    Collision,
}

/// A tenant and the gang it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangRow {
    /// Its name.
    pub name: String,
    /// The gang's name, among those of the tenant's owner.
    pub gang: String,
}

/// A device as `devices` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its name.
    pub name: String,
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes kept back from tenants.
    pub reserve: u64,
    /// Sum of the grants, as far as they are booked on the device: without memory that is away.
    pub granted: u64,
    /// Overhead reserved.
    pub overhead: u64,
    /// Bytes of dead processes not yet given back.
    pub limbo: u64,
    /// Bytes of processes that gpushare does not manage.
    pub unmanaged: u64,
    /// Capabilities of the device and driver, by name; [`Self::LOST`] is one.
    pub capabilities: Vec<String>,
}

impl DeviceRow {
    /// Among the capabilities: the device does not answer any more. It keeps its place in the list,
    /// so that those behind it keep theirs, and nothing is held there or can be.
    pub const LOST: &str = "lost";

    /// Whether the device does not answer any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.capabilities.iter().any(|word| word == Self::LOST)
    }
}

/// A tenant's part of a device's time, as `ps` shows it. Parts are in thousandths of the
/// device's time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRow {
    /// The tenant's name.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// The part it gets while all tenants of its priority or a higher one want the device, whether
    /// or not it wants it now. 0: a higher priority leaves it nothing, or it has no process there.
    pub weight: u32,
    /// The guarantee it asked for, if it asked for one.
    pub request: Option<u32>,
    /// Its hard cap, if it has one.
    pub cap: Option<u32>,
    /// The part of the last `over_ms` that it held.
    pub held: u32,
    /// Over how many milliseconds `held` is counted; 0 when nothing was counted yet.
    pub over_ms: u64,
    /// Its state.
    pub state: ShareState,
    /// Turns it was given.
    pub turns: u64,
    /// Times it had not drained when it should have, and another ran beside it.
    pub overruns: u64,
    /// Processes of it that run whenever they like, because they have no gate.
    pub ungated: u32,
    /// Its time lately while it was alone there. `None` where NVML does not tell.
    pub alone: Option<Alone>,
    /// Why it is [`ShareState::Yielding`] or [`ShareState::Held`].
    pub steered: Option<Steered>,
}

/// Why a tenant yields or is held, and for which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steered {
    /// Why.
    pub cause: SteeredBy,
    /// The name of the other tenant, if it is one that is still there.
    pub tenant: Option<String>,
}

/// The reason for which a tenant yields or is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SteeredBy {
    /// Another is behind its share, and it is ahead of its own.
    Share,
    /// Another has a request that is due.
    Request,
    /// Another is of a higher priority.
    Priority,
    /// They take turns, and it is the other's.
    Turn,
    /// Its gang is closed on all its devices, for a tenant on one of them.
    Gang,
}

/// The time that a tenant had lately while it was alone on a device, by NVML's samples of its
/// kernels: in that time nothing is billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {
    /// The part of the last `over_ms` in which its kernels ran while it was alone, in thousandths.
    /// Its bills of the rest of that time are [`ShareRow::held`].
    pub part: u32,
    /// Over how many milliseconds that is counted; 0 when nothing was counted yet.
    pub over_ms: u64,
}

/// The state of a tenant on a device. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ShareState {
    /// It is alone and uncapped: nothing is counted.
    Free,
    /// It neither has nor wants the device.
    Idle,
    /// It has the device.
    Holding {
        /// For how long.
        for_us: u64,
    },
    /// It was ordered to stop and has not finished its submitted work.
    Draining {
        /// For how long.
        for_us: u64,
    },
    /// It wants the device.
    Waiting {
        /// For how long.
        for_us: u64,
    },
    /// It wants the device and its cap is used up.
    Capped {
        /// For how long.
        for_us: u64,
    },
    /// It works beside other tenants unrestricted.
    Sharing {
        /// For how long.
        for_us: u64,
    },
    /// It works beside other tenants and submits in slices, because one of them is behind its
    /// share.
    Yielding {
        /// For how long.
        for_us: u64,
    },
    /// It is closed for another: one that is behind its share, of higher priority, or whose request
    /// is due; or its gang is closed.
    Held {
        /// For how long.
        for_us: u64,
    },
}
