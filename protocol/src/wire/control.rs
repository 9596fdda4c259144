//! What the commands (`run`, `ps`, `set`, `events`, `devices`) say to the daemon on its control socket.

use super::error::WireError;
use serde::{Deserialize, Serialize};

/// What a command asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Control {
    /// Register a container that lives as long as this connection or a process of it does. Answered by
    /// [`ControlReply::Created`], after a [`ControlReply::Queued`] where it has to wait for room.
    Create {
        /// The name wanted, or `None` for one the daemon makes. An equal name joins if the limits are equal.
        name: Option<String>,
        /// The variables that say its limits, as `(name, value)`.
        environment: Vec<(String, String)>,
        /// The devices it may use, in the order its programs see them; empty means all.
        devices: Vec<[u8; 16]>,
    },
    /// All containers. Answered by [`ControlReply::Containers`].
    List,
    /// The devices. Answered by [`ControlReply::Devices`].
    Devices,
    /// Change a container's limits now: `(variable, value)` as in the environment; others keep their value.
    Set {
        /// The container's name.
        container: String,
        /// What changes.
        changes: Vec<(String, String)>,
    },
    /// Send [`ControlReply::Event`] for everything from now on, under this request's id, until the connection ends.
    Follow {
        /// How many past events to send first, at most what the daemon keeps.
        past: u32,
    },
}

/// What the daemon answers a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ControlReply {
    /// To [`Control::Create`].
    Created {
        /// The container's name.
        name: String,
        /// The folder that holds the container's socket, for `GPUSHARE_SOCKET`.
        folder: String,
    },
    /// The container waits for admission; another reply to the same request follows.
    Queued {
        /// What it waits for, with the numbers.
        why: String,
    },
    /// The container of this connection is to end: pass the signal on to its processes.
    End {
        /// `SIGTERM` or `SIGKILL`.
        signal: i32,
        /// Why, by whom, how many bytes.
        why: String,
    },
    /// To [`Control::List`].
    Containers(Vec<ContainerRow>),
    /// To [`Control::Devices`].
    Devices(Vec<DeviceRow>),
    /// One thing that happened.
    Event(EventRow),
    /// To requests that need no more than that.
    Done,
    /// The request failed.
    Error(WireError),
}

/// A container as `ps` shows it: one row a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRow {
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
    /// What it is doing.
    pub state: ProcessState,
}

/// What a process is doing.
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

/// What a waiting allocation wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    /// Bytes wanted.
    pub bytes: u64,
    /// Milliseconds waited so far.
    pub since_ms: u64,
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
    /// Bytes kept back from containers.
    pub reserve: u64,
    /// Sum of the grants.
    pub granted: u64,
    /// Overhead reserved.
    pub overhead: u64,
    /// Bytes of dead processes not yet given back.
    pub limbo: u64,
    /// Bytes of processes that gpushare does not manage.
    pub unmanaged: u64,
    /// What the device and driver can do, by name.
    pub capabilities: Vec<String>,
}

/// Something that happened, for `events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// A stable short name, such as `refused` or `killed`.
    pub kind: String,
    /// The container it is about, if one.
    pub container: Option<String>,
    /// The device it is about, if one.
    pub device: Option<[u8; 16]>,
    /// One sentence with the numbers.
    pub text: String,
}
