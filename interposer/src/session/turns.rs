//! The tenant's leases on its devices: read from the control page, and reported to the daemon.

use std::sync::atomic::{AtomicU32, Ordering};

use gpushare_protocol::page::control::ControlDevice;
use gpushare_protocol::page::lease::{HEARTBEAT_STALE, Turn};
use gpushare_protocol::report::Report;
use gpushare_protocol::wire::Request;

use super::Session;

impl Session {
    /// The turn on a device.
    pub(crate) fn turn(&self, device_index: usize) -> Turn {
        let device = self.control().devices.get(device_index);
        device.map_or_else(Turn::default, |device| device.turn())
    }

    /// The control page's line of a device.
    pub(crate) fn device(&self, device_index: usize) -> Option<&'static ControlDevice> {
        self.control().devices.get(device_index)
    }

    /// The futex word on which a thread sleeps until the next change of the control page. It is
    /// another word under another daemon.
    pub(crate) fn changes(&self) -> &'static AtomicU32 {
        &self.control().header.changes
    }

    /// The daemon last met.
    pub(crate) fn instance(&self) -> u64 {
        self.instance.load(Ordering::Relaxed)
    }

    /// The number of the last connection. What was said before it may be lost, also where the
    /// daemon is the same: it is said again.
    pub(crate) fn connection(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// Whether the daemon's heartbeat is recent, at `now` on `CLOCK_MONOTONIC` (ns). Otherwise its
    /// turns do not count.
    pub(crate) fn daemon_alive(&self, now: u64) -> bool {
        self.beats(now) && self.line().is_some()
    }

    /// Whether the heartbeat is recent, of a daemon that may be gone since.
    pub(super) fn beats(&self, now: u64) -> bool {
        let heartbeat = self.control().header.heartbeat.load(Ordering::Relaxed);
        now.saturating_sub(heartbeat) < HEARTBEAT_STALE
    }

    /// Tells the daemon about a turn. Lost where there is none.
    pub(crate) fn tell(&self, device_index: usize, report: Report, epoch: u64) {
        let Ok(device_index) = u8::try_from(device_index) else {
            return;
        };
        let request = Request::reporting(report, device_index, epoch);
        let line = self.line();
        self.send(line.as_ref(), self.asks.number(), &request);
    }
}
