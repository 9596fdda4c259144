//! All that is asked of devices, on a thread of their own: NVML may take its time, the loop may
//! not.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

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

impl Job {
    /// The index of its device.
    fn device(&self) -> usize {
        match self {
            Self::Look(device) => *device,
            Self::Fence { key, .. } => key.device,
        }
    }
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

/// The device of the job that is carried out now, by its index, and since when. Jobs follow one
/// another: where one does not end, all others wait behind it.
type At = Option<(usize, Nanos)>;

/// The thread of the devices, from the loop's side.
#[derive(Debug)]
pub(super) struct Looker {
    worker: Worker<Job, Finished>,
    at: Arc<Mutex<At>>,
}

impl Looker {
    /// As [`Worker::wake`].
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.worker.wake()
    }

    /// As [`Worker::want`].
    pub(super) fn want(&self, job: Job) {
        self.worker.want(job);
    }

    /// As [`Worker::finished`].
    pub(super) fn finished(&self) -> Vec<Finished> {
        self.worker.finished()
    }

    /// The device that is asked now, by its index, and since when. `None`: none.
    pub(super) fn at(&self) -> At {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread of the devices.
///
/// # Errors
/// As [`Worker::start`].
pub(super) fn start(mut devices: Box<dyn Devices>) -> io::Result<Looker> {
    let at = Arc::new(Mutex::new(None));
    let told = Arc::clone(&at);
    let is_at = move |at: At| *told.lock().unwrap_or_else(PoisonError::into_inner) = at;
    let worker = Worker::start(
        "devices",
        || {},
        move |job: Job| {
            is_at(Some((job.device(), clock::now())));
            let finished = carry_out(devices.as_mut(), job);
            is_at(None);
            finished
        },
    )?;
    Ok(Looker { worker, at })
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::devices::Device;

    /// Devices that say which is asked, and answer once they may.
    struct Slow {
        asked: Sender<usize>,
        answers: Receiver<()>,
    }

    impl Devices for Slow {
        fn list(&mut self) -> Result<Vec<Device>, String> {
            Ok(Vec::new())
        }

        fn look(&mut self, index: usize) -> Result<Look, LookError> {
            self.asked.send(index).expect("the test listens");
            self.answers.recv().expect("the test answers");
            Err(LookError::Failed("it is none".to_owned()))
        }
    }

    #[test]
    fn it_is_told_which_device_is_asked_now_and_none_between() {
        let ((asked, asks), (answer, answers)) = (channel(), channel());
        let looker = start(Box::new(Slow { asked, answers })).expect("a thread");
        assert_eq!(looker.at(), None);
        let before = clock::now();
        [1, 0]
            .into_iter()
            .for_each(|device| looker.want(Job::Look(device)));
        for device in [1, 0] {
            assert_eq!(asks.recv(), Ok(device));
            let (at, since) = looker.at().expect("it is asked");
            assert_eq!(at, device);
            assert!(since >= before && since <= clock::now());
            answer.send(()).expect("the thread lives");
        }
        // Both have ended once both results are there.
        let mut ended = 0;
        while ended < 2 {
            let mut ready = [nix::poll::PollFd::new(
                looker.wake(),
                nix::poll::PollFlags::POLLIN,
            )];
            nix::poll::poll(&mut ready, nix::poll::PollTimeout::NONE).expect("a wait");
            ended += looker.finished().len();
        }
        assert_eq!(looker.at(), None);
    }
}
