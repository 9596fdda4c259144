//! The tenant's turns at its devices, as the daemon gives them and hears of them.

use std::sync::atomic::{AtomicU32, Ordering};

use gpushare_protocol::page::control::ControlDevice;
use gpushare_protocol::page::lease::{HEARTBEAT_STALE, Turn};
use gpushare_protocol::wire::Request;

use super::Session;

/// The first minor version of the protocol that has turns.
const SINCE: u16 = 1;

/// A report to the daemon about a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A call waits at the closed gate.
    Wanted,
    /// The gate is closed and all that was submitted is complete.
    Drained,
    /// The gate is open and nothing is under way.
    Idle,
    /// After [`Notice::Idle`]: there is work again.
    Busy,
}

impl Session {
    /// The turn on a device.
    pub(crate) fn turn(&self, column: usize) -> Turn {
        let device = self.control().devices.get(column);
        device.map_or_else(Turn::default, |device| device.turn())
    }

    /// The control page's line of a device.
    pub(crate) fn device(&self, column: usize) -> Option<&'static ControlDevice> {
        self.control().devices.get(column)
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

    /// Whether the daemon's heartbeat is recent, at `now` on `CLOCK_MONOTONIC` (ns). Otherwise its
    /// turns do not count.
    pub(crate) fn daemon_alive(&self, now: u64) -> bool {
        let heartbeat = self.control().header.heartbeat.load(Ordering::Relaxed);
        let is_fresh = now.saturating_sub(heartbeat) < HEARTBEAT_STALE;
        is_fresh && self.line().is_some()
    }

    /// Tells the daemon about a turn. Lost where there is none, or an older one.
    pub(crate) fn tell(&self, column: usize, notice: Notice, epoch: u64) {
        let Ok(column) = u8::try_from(column) else {
            return;
        };
        if self.minor.load(Ordering::Relaxed) < SINCE {
            return;
        }
        let request = match notice {
            Notice::Wanted => Request::Wanted { column, epoch },
            Notice::Drained => Request::Drained { column, epoch },
            Notice::Idle => Request::Idle { column, epoch },
            Notice::Busy => Request::Busy { column, epoch },
        };
        let line = self.line();
        self.send(line.as_ref(), self.asks.number(), &request);
    }
}
