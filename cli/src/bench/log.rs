//! A worker's log: its work, piece by piece, on the clock of the host.

use serde::{Deserialize, Serialize};

/// Work that is known to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// The time of its first launch call.
    pub(crate) sent: u64,
    /// The time at which the last of its launch calls had returned.
    pub(crate) submitted: u64,
    /// The time at which the device completed it, from a driver event.
    pub(crate) end: u64,
    /// The time at which the process noticed its completion.
    pub(crate) known: u64,
    /// Its device time: the number of launches times their length.
    pub(crate) ns: u64,
}

/// The first moments of a process of a tenant that starts and stops.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Visit {
    /// The time at which it started work.
    pub(crate) from: u64,
    /// Device time that its requests take within the first 100 ms if they are served at once (ns).
    pub(crate) asked: f64,
    /// Device time that it had within them (ns).
    pub(crate) got_ns: u64,
    /// The same of its second 100 ms. `None` where it ended sooner, or has its requests at longer
    /// intervals.
    #[serde(default)]
    pub(crate) second: Option<(f64, u64)>,
}

/// The work of one process on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Log {
    pub(crate) pid: u32,
    /// The GPU, in the tenants' numbering.
    pub(crate) gpu: u32,
    /// In order of completion.
    pub(crate) pieces: Vec<Piece>,
    /// Periods without a request, for a tenant with pauses.
    #[serde(default)]
    pub(crate) missed: u64,
    /// For random arrivals: how long those requests had waited at the end of the work that were due
    /// within the span and had not been made (ns).
    #[serde(default)]
    pub(crate) in_line: Vec<u64>,
    /// Complete copies: the time, and the number of bytes.
    #[serde(default)]
    pub(crate) copies: Vec<(u64, u64)>,
    /// For a tenant that starts and stops: the first moments of this process.
    #[serde(default)]
    pub(crate) visits: Vec<Visit>,
    /// Processor time of the whole process between the first and the last moment of its measurement
    /// (ns); reported once, with its first GPU.
    pub(crate) cpu_ns: u64,
    /// The part of `cpu_ns` that gpushare's own threads used.
    pub(crate) own_cpu_ns: u64,
}
