//! A worker's log: its work, piece by piece, on the clock of the host.

use serde::{Deserialize, Serialize};

/// Work that was seen to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// When the first launch of it was called.
    pub(crate) sent: u64,
    /// When the device completed it, by an event of the driver.
    pub(crate) end: u64,
    /// When the process knew.
    pub(crate) known: u64,
    /// Its device time: launches times their length.
    pub(crate) ns: u64,
}

/// The first moments of a process that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Visit {
    /// The time at which it started work.
    pub(crate) from: u64,
    /// Device time that its requests of the first 100 ms ask for (ns).
    pub(crate) asked: f64,
    /// Device time that it had by their end (ns).
    pub(crate) got_ns: u64,
}

/// The work of one process on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Log {
    pub(crate) pid: u32,
    /// Which of the GPUs, as tenants name them.
    pub(crate) gpu: u32,
    /// In the order of their ends.
    pub(crate) pieces: Vec<Piece>,
    /// Periods without a request, for a tenant with pauses.
    #[serde(default)]
    pub(crate) missed: u64,
    /// Copies that were seen to be complete: when, and how many bytes.
    #[serde(default)]
    pub(crate) copies: Vec<(u64, u64)>,
    /// For a tenant that comes and goes: of this process.
    #[serde(default)]
    pub(crate) visits: Vec<Visit>,
    /// Processor time of the whole process between the first and the last moment of its measurement
    /// (ns); reported once, with its first GPU.
    pub(crate) cpu_ns: u64,
    /// Of that, what gpushare's own threads took.
    pub(crate) own_cpu_ns: u64,
}
