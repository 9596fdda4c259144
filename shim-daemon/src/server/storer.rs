//! Copies of tenants' memory to files and back, on a thread of their own: a disk may take its time,
//! the loop may not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};

use crate::spill::{Done, Job};

/// The thread, from the loop's side. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Storer {
    wanted: Sender<Job>,
    finished: Receiver<Done>,
    wake: Arc<EventFd>,
}

impl Storer {
    pub(super) fn start() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let (wanted, asked) = channel::<Job>();
        let (ended, finished) = channel();
        let bell = Arc::clone(&wake);
        let thread = std::thread::Builder::new().name("storer".to_owned());
        thread.spawn(move || {
            // A file that may not grow further is an error like a full disk, not the daemon's end.
            let mut too_long = SigSet::empty();
            too_long.add(Signal::SIGXFSZ);
            let _ = too_long.thread_block();
            for job in asked {
                if ended.send(job.carry_out()).is_err() || bell.write(1).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            wanted,
            finished,
            wake,
        })
    }

    /// Becomes readable when a copy has ended.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn want(&self, job: Job) {
        if let Err(lost) = self.wanted.send(job) {
            tracing::error!(?lost, "the thread for files is gone");
        }
    }

    /// The copies that have ended since the last call.
    pub(super) fn finished(&self) -> Vec<Done> {
        // Nothing to read means that a wake-up was spurious; the channel tells either way.
        let _ = self.wake.read();
        self.finished.try_iter().collect()
    }
}
