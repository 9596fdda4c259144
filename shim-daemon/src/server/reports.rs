//! What threads tell the loop of the work that they did for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use gpushare_core::{ProcessId, TenantId};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::foreign::Lane;
use crate::node::{Row, Seen};
use crate::spill::{Done, Inspected};

/// Work that was done.
#[derive(Debug)]
pub(super) enum Report {
    /// Host memory was allocated or copied.
    Copied(Done),
    /// A file was looked at.
    Inspected(Inspected),
    /// A process was looked at.
    Seen(ProcessId, Option<Seen>),
    /// Rows of a tenant's page were looked at: those whose processes have ended.
    Rows(TenantId, Vec<Row>),
}

/// The loop's end.
#[derive(Debug)]
pub(super) struct Reports {
    tells: Sender<Report>,
    told: Receiver<Report>,
    bell: Arc<EventFd>,
}

impl Reports {
    /// # Errors
    /// If there is no descriptor for it.
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let (tells, told) = channel();
        Ok(Self {
            tells,
            told,
            bell: Arc::new(EventFd::from_flags(flags)?),
        })
    }

    /// Becomes readable when there is a report.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Has work done on a lane, and its report told.
    pub(super) fn want(&self, lane: &Lane, work: impl FnOnce() -> Report + Send + 'static) {
        let (tells, bell) = (self.tells.clone(), Arc::clone(&self.bell));
        lane.run(move || {
            // A daemon that ends waits for neither.
            if tells.send(work()).is_ok() {
                let _ = bell.write(1);
            }
        });
    }

    /// The reports since the last call.
    pub(super) fn all(&self) -> Vec<Report> {
        // Nothing to read means that a wake-up was spurious; the channel tells either way.
        let _ = self.bell.read();
        self.told.try_iter().collect()
    }
}
