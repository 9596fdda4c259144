//! A thread that carries out jobs which may take their time, as the loop may not.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The thread, from the loop's side. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Worker<Job, Done> {
    name: &'static str,
    wanted: Sender<Job>,
    finished: Receiver<Done>,
    wake: Arc<EventFd>,
}

impl<Job: Debug + Send + 'static, Done: Send + 'static> Worker<Job, Done> {
    /// Starts the thread. It calls `begin`, and `carry_out` for each job in the order in which they
    /// are wanted.
    ///
    /// # Errors
    /// If there is no descriptor or no thread for it.
    pub(super) fn start(
        name: &'static str,
        begin: impl FnOnce() + Send + 'static,
        mut carry_out: impl FnMut(Job) -> Done + Send + 'static,
    ) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let (wanted, asked) = channel::<Job>();
        let (ended, finished) = channel();
        let bell = Arc::clone(&wake);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            begin();
            for job in asked {
                if ended.send(carry_out(job)).is_err() || bell.write(1).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            name,
            wanted,
            finished,
            wake,
        })
    }

    /// Becomes readable when a job has ended.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Has the thread carry out a job.
    pub(super) fn want(&self, job: Job) {
        if let Err(lost) = self.wanted.send(job) {
            tracing::error!(thread = self.name, ?lost, "a thread of the daemon is gone");
        }
    }

    /// The jobs that have ended since the last call.
    pub(super) fn finished(&self) -> Vec<Done> {
        // Nothing to read means that a wake-up was spurious; the channel tells either way.
        let _ = self.wake.read();
        self.finished.try_iter().collect()
    }
}
