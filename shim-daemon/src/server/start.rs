//! The inputs of a daemon's start.

use std::os::fd::OwnedFd;

use gpushare_core::Nanos;

use super::Folder;
use crate::journal::Journal;
use crate::node::Settings;

/// How often a daemon reads pages and looks at devices.
pub const TICK: Nanos = Nanos::secs(1);

/// How the daemon's file is read again.
pub struct Reload {
    /// Becomes readable when it is to be.
    pub bell: OwnedFd,
    /// Empties `bell` and reads the file. `None` if there is none, which it has said; the error
    /// describes the fault.
    pub read: Box<dyn FnMut() -> Result<Option<Settings>, String> + Send>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload")
            .field("bell", &self.bell)
            .finish_non_exhaustive()
    }
}

/// The inputs of a server's start.
#[derive(Debug)]
pub struct Start {
    /// Where its sockets lie.
    pub folder: Folder,
    /// The node's settings.
    pub settings: Settings,
    /// How often pages are read and devices looked at: [`TICK`], except in tests.
    pub tick: Nanos,
    /// Becomes readable when the daemon is to stop.
    pub stop: OwnedFd,
    /// How the daemon's file is read again, if it has one.
    pub reload: Option<Reload>,
    /// Exit when the last client and tenant are gone.
    pub transient: bool,
    /// Closed by the starter of a transient daemon, at the latest by its death. No client is
    /// expected after that.
    pub starter: Option<OwnedFd>,
    /// Where events are written.
    pub journal: Option<Journal>,
}
