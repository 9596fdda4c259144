//! The second stream of a tenant that computes and copies: a thread with its own stream that copies
//! pinned host memory to the device at an even pace, like a data loader.

use super::clock;
use super::tenant::{COPY_EVERY, Tenant, ns};
use super::worker::Moments;
use gpushare_sys::cuda::Gpu;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// A complete copy: the time, and the number of bytes.
pub(crate) type Copied = (u64, u64);

/// A thread that copies.
#[derive(Debug)]
pub(crate) struct Copies {
    order: Sender<Moments>,
    thread: JoinHandle<Result<Vec<Copied>, String>>,
}

impl Copies {
    /// Starts the thread, if the tenant has a second stream. Returns when it is ready.
    pub(crate) fn start(tenant: &Tenant, device: u32) -> Result<Option<Self>, String> {
        if tenant.copy == 0 || tenant.launch_ns() == 0 {
            return Ok(None);
        }
        let (order, told) = channel();
        let (say, ready) = channel();
        let bytes = tenant.copy;
        // The thread has its own name, because gpushare's threads are recognised by theirs.
        let named = thread::Builder::new().name("bench copies".to_owned());
        let thread = named
            .spawn(move || copy(device, bytes, &say, &told))
            .map_err(|error| format!("no thread: {error}"))?;
        match ready.recv() {
            Ok(()) => Ok(Some(Self { order, thread })),
            Err(_) => Err(finished(thread).err().unwrap_or_default()),
        }
    }

    /// Lets the thread work until the end of these moments.
    pub(crate) fn go(&self, moments: Moments) {
        // A thread that has ended gives the reason in `finish`.
        let _ = self.order.send(moments);
    }

    /// The copies that the thread made.
    pub(crate) fn finish(self) -> Result<Vec<Copied>, String> {
        finished(self.thread)
    }
}

fn finished(thread: JoinHandle<Result<Vec<Copied>, String>>) -> Result<Vec<Copied>, String> {
    let ended = thread.join();
    ended.map_err(|_| "the thread that copies panicked".to_owned())?
}

fn copy(
    device: u32,
    bytes: u64,
    ready: &Sender<()>,
    told: &Receiver<Moments>,
) -> Result<Vec<Copied>, String> {
    let gpu = Gpu::open(device)?;
    let stream = gpu.stream()?;
    let cargo = gpu.cargo(usize::try_from(bytes).map_err(|error| error.to_string())?)?;
    let event = gpu.event()?;
    let once = || {
        stream.copy(&cargo)?;
        stream.record(&event)?;
        event.wait()
    };
    once()?;
    let _ = ready.send(());
    let mut copied = Vec::new();
    let Ok(moments) = told.recv() else {
        return Ok(copied);
    };
    let mut due = clock::now();
    while due < moments.end {
        clock::sleep_until(due);
        once()?;
        copied.push((clock::now(), bytes));
        due = (due + ns(COPY_EVERY)).max(clock::now());
    }
    Ok(copied)
}
