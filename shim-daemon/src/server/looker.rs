//! All that is asked of devices, on a thread of their own: NVML may take its time, the loop may
//! not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use gpushare_core::Nanos;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::clock;
use crate::devices::{self, Devices, Look, LookError, Order, Outcome};
use crate::node::FenceKey;

/// An order for a device.
#[derive(Debug)]
pub(super) enum Job {
    /// A look at the device of this index.
    Look(usize),
    /// A limit kept by the driver.
    Fence {
        key: FenceKey,
        path: PathBuf,
        order: Order,
    },
}

/// A job that has ended.
#[derive(Debug)]
pub(super) enum Finished {
    /// The result of a look at a device, and its time.
    Look {
        device: usize,
        taken: Nanos,
        look: Result<Look, LookError>,
    },
    /// The outcome of an order to a fence.
    Fence { key: FenceKey, outcome: Outcome },
}

/// The thread, from the loop's side. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Looker {
    wanted: Sender<Job>,
    finished: Receiver<Finished>,
    wake: Arc<EventFd>,
}

impl Looker {
    pub(super) fn start(mut devices: Box<dyn Devices>) -> io::Result<Self> {
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?);
        let (wanted, asked) = channel::<Job>();
        let (ended, finished) = channel();
        let bell = Arc::clone(&wake);
        std::thread::Builder::new()
            .name("devices".to_owned())
            .spawn(move || {
                for job in asked {
                    let finished = carry_out(devices.as_mut(), job);
                    if ended.send(finished).is_err() || bell.write(1).is_err() {
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

    pub(super) fn want(&self, job: Job) {
        if let Err(lost) = self.wanted.send(job) {
            tracing::error!(?lost, "the device thread is gone");
        }
    }

    /// The jobs that have finished since the last call.
    pub(super) fn finished(&self) -> Vec<Finished> {
        // Nothing to read means that a wake-up was spurious; the channel tells either way.
        let _ = self.wake.read();
        self.finished.try_iter().collect()
    }
}

fn carry_out(devices: &mut dyn Devices, job: Job) -> Finished {
    match job {
        Job::Look(device) => {
            // Taken before the look: charges before this time are in the look, later ones may be.
            let taken = clock::now();
            Finished::Look {
                device,
                taken,
                look: devices.look(device),
            }
        }
        Job::Fence { key, path, order } => {
            let outcome = devices::carry_out(devices, key.device, &path, order);
            Finished::Fence { key, outcome }
        }
    }
}
