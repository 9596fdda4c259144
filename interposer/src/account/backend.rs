//! The backend of a tenant's page: a file among processes of one user, or a daemon.
//!
//! The two differ in which processes count as live, and in how much credit may be had in all. The
//! steps before a charge is refused are in [`room`](super::room).

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use gpushare_protocol::page::{NO_LIMIT, units_within};

use super::file::{self, UsageFile};
use super::lock_file::Lockable;
use crate::session::{Deadline, Session};

/// See the module's page.
#[derive(Debug)]
pub(crate) enum Backend {
    /// A file; its locks show the live processes.
    File(UsageFile),
    /// A daemon, which knows the live processes, clears the slots of dead ones and grants memory.
    Daemon(&'static Session),
}

impl Lockable for Backend {
    fn open_again(&self) -> io::Result<OwnedFd> {
        match self {
            Self::File(file) => file.open_again(),
            Self::Daemon(session) => {
                let (path, identity) = session.usage()?;
                file::open_page(&path, identity)
            }
        }
    }

    fn needs_name(&self) -> bool {
        match self {
            Self::File(file) => file.needs_name(),
            Self::Daemon(_) => false,
        }
    }
}

impl Backend {
    /// Whether a daemon keeps the page.
    pub(crate) fn is_daemons(&self) -> bool {
        matches!(self, Self::Daemon(_))
    }

    /// Whether the process of a taken slot lives, as far as it is our business.
    pub(crate) fn is_alive(&self, slot: usize) -> bool {
        match self {
            Self::File(file) => file.is_alive(slot),
            Self::Daemon(_) => true,
        }
    }

    /// Units of credit that all processes may hold on a device together; `None` without an end.
    pub(super) fn ceiling(&self, device_index: usize, limit: u64) -> Option<u64> {
        match self {
            Self::File(_) if limit == NO_LIMIT => None,
            Self::File(_) => Some(units_within(limit)),
            Self::Daemon(session) => Some(units_within(limit.min(session.grant(device_index)))),
        }
    }

    /// How much the tenant's charges could come to if it asked now.
    pub(crate) fn reach(&self, device_index: usize) -> Option<u64> {
        match self {
            Self::File(_) => None,
            Self::Daemon(session) => session.reach(device_index),
        }
    }

    /// Whether a release must be reported beyond the page.
    pub(super) fn freed(&self, device_index: usize) {
        if let Self::Daemon(session) = self {
            session.freed(device_index);
        }
    }

    /// How long one call may wait for the tenant's lock.
    pub(super) fn lock_patience(&self, call: &Deadline) -> Duration {
        call.lock_patience(match self {
            Self::File(_) => Duration::MAX,
            Self::Daemon(session) => session.longest_wait(),
        })
    }
}
