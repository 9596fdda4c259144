//! All that is asked of devices, on a thread of their own: NVML may take its time, the loop may
//! not.

use std::io;
use std::path::PathBuf;

use gpushare_core::Nanos;

use super::clock;
use super::worker::Worker;
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

/// The thread of the devices.
pub(super) type Looker = Worker<Job, Finished>;

/// Starts the thread of the devices.
///
/// # Errors
/// As [`Worker::start`].
pub(super) fn start(mut devices: Box<dyn Devices>) -> io::Result<Looker> {
    Worker::start(
        "devices",
        || {},
        move |job| carry_out(devices.as_mut(), job),
    )
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
