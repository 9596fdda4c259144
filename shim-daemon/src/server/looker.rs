//! Looks at devices on a thread of their own: NVML may take its time, the loop may not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use gpushare_core::Nanos;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::clock;
use crate::devices::{Devices, Look, LookError};

/// A look that has ended: device, when it was taken, what was seen.
pub(super) type Finished = (usize, Nanos, Result<Look, LookError>);

/// The thread, from the loop's side. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Looker {
    wanted: Sender<usize>,
    finished: Receiver<Finished>,
    wake: Arc<EventFd>,
}

impl Looker {
    pub(super) fn start(mut devices: Box<dyn Devices>) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (wanted, asked) = channel::<usize>();
        let (ended, finished) = channel();
        let bell = Arc::clone(&wake);
        std::thread::Builder::new()
            .name("devices".to_owned())
            .spawn(move || {
                for device in asked {
                    // Before the look: what is charged meanwhile may be in it, what was charged before is.
                    let taken = clock::now();
                    let look = devices.look(device);
                    if ended.send((device, taken, look)).is_err() || bell.write(1).is_err() {
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

    /// Becomes readable when a look has ended.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn look(&self, device: usize) {
        if self.wanted.send(device).is_err() {
            tracing::error!(device, "the device thread is gone");
        }
    }

    /// The looks that have ended since.
    pub(super) fn finished(&self) -> Vec<Finished> {
        // Nothing to read means that a wake-up was spurious; the channel tells either way.
        let _ = self.wake.read();
        self.finished.try_iter().collect()
    }
}
