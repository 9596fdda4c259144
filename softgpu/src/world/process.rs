//! This process's part of the machine: the devices it sees, and its state: not initialised, ready,
//! forked or ended.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gpushare_cuda_abi::cuda::{CUdevice, CUresult};

use super::device::{Device, uuid, uuid_text};
use super::event::SharedEvent;
use super::machine::{Machine, Part};
use super::{sys, visible};
use crate::error::Result;
use crate::spec::{Exit, Spec};
use crate::{fallen, memory};

static PROCESS: OnceLock<Process> = OnceLock::new();

/// [`FRESH`], then [`READY`]; then [`FORKED`] in a child, or [`ENDED`] once the process exits.
static STAGE: AtomicU8 = AtomicU8::new(FRESH);
const FRESH: u8 = 0;
const READY: u8 = 1;
const FORKED: u8 = 2;
const ENDED: u8 = 3;

/// A process that has called `cuInit`.
#[derive(Debug)]
pub struct Process {
    machine: Arc<Machine>,
    devices: Vec<Arc<Device>>,
}

/// The initialised process.
///
/// # Errors
/// `NOT_INITIALIZED` before `cuInit`, and in a child forked after it, where the driver never works
/// again; `DEINITIALIZED` while the process exits.
pub fn process() -> Result<&'static Process> {
    match STAGE.load(Ordering::Acquire) {
        READY => PROCESS.get().ok_or(CUresult::NOT_INITIALIZED),
        ENDED => Err(CUresult::DEINITIALIZED),
        _ => Err(CUresult::NOT_INITIALIZED),
    }
}

/// Refuses a call of the function `symbol` after the driver's teardown at process exit. Such a call
/// is undefined for a real driver. So the process aborts with a line that names the function; with
/// `exit=refuse` in SPEC the call returns the error that real drivers have been seen to return.
/// # Errors
/// `DEINITIALIZED`, with `exit=refuse`.
pub fn still_there(symbol: &str) -> Result {
    if STAGE.load(Ordering::Acquire) != ENDED {
        return Ok(());
    }
    let refuses = PROCESS
        .get()
        .is_some_and(|process| process.spec().exit == Exit::Refuse);
    if refuses {
        return Err(CUresult::DEINITIALIZED);
    }
    let name = sys::thread_name();
    eprintln!(
        "softgpu: thread `{name}` called {symbol} after the driver's teardown at process exit"
    );
    std::process::abort()
}

/// Initialises the process: opens the machine that SPEC describes. Later calls do nothing.
///
/// # Errors
/// `INVALID_VALUE` if SPEC is not accepted or contradicts the machine of its name (with a line on
/// stderr), `NO_DEVICE` if no device is visible, `NOT_INITIALIZED` in a child forked after
/// initialisation, `DEINITIALIZED` while the process exits, `DEVICE_UNAVAILABLE` if all slots are
/// taken, `SYSTEM_NOT_READY` if the shared state cannot be opened.
pub fn init() -> Result {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if STAGE.load(Ordering::Acquire) != FRESH {
        return process().map(|_| ());
    }
    let complain = |error: &dyn std::fmt::Display| eprintln!("softgpu: {error}");
    let spec = Spec::from_env().map_err(|error| {
        complain(&error);
        CUresult::INVALID_VALUE
    })?;
    let uuids: Vec<String> = (0..spec.count)
        .map(|index| uuid_text(uuid(&spec, index)))
        .collect();
    let listed = std::env::var_os(visible::VARIABLE);
    let seen = visible::visible(
        listed
            .as_ref()
            .map(|text| text.to_string_lossy())
            .as_deref(),
        &uuids,
    );
    if seen.is_empty() {
        return Err(CUresult::NO_DEVICE);
    }
    let machine = Machine::open(&spec, Part::Process).map_err(|error| {
        complain(&error);
        error.result()
    })?;
    let machine = Arc::new(machine);
    let devices = seen
        .iter()
        .zip(0..)
        .map(|(index, ordinal)| Arc::new(Device::new(Arc::clone(&machine), ordinal, *index)));
    let devices = devices.collect();
    if PROCESS.set(Process { machine, devices }).is_ok() {
        sys::on_fork_and_exit(forked, ended);
        STAGE.store(READY, Ordering::Release);
    }
    Ok(())
}

/// A forked child has the memory of an initialised process and no device. Real drivers refuse every
/// call there.
extern "C" fn forked() {
    let _ = STAGE.compare_exchange(READY, FORKED, Ordering::AcqRel, Ordering::Relaxed);
}

/// A normal exit leaves the machine. Other processes find a killed process. The driver's threads
/// run on until the kernel ends the process. Other processes get the memory before that, so no
/// bytes move from here on.
extern "C" fn ended() {
    if STAGE
        .compare_exchange(READY, ENDED, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
        && let Some(process) = PROCESS.get()
    {
        memory::close();
        process.machine.leave();
    }
}

impl Process {
    /// The description of the machine.
    pub fn spec(&self) -> &Spec {
        self.machine.spec()
    }

    /// The devices this process sees, by ordinal.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Its number, which no other process of the machine ever has.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM` if the machine's lock is lost.
    pub(crate) fn number(&self) -> Result<u32> {
        self.machine.number()
    }

    /// Makes an event for several processes.
    pub(crate) fn create_event(&self) -> Result<Arc<SharedEvent>> {
        SharedEvent::create(&self.machine).map(Arc::new)
    }

    /// Opens another process's event by its name.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if it is gone.
    pub(crate) fn open_event(&self, name: [u32; 2]) -> Result<Arc<SharedEvent>> {
        SharedEvent::open(&self.machine, name).map(Arc::new)
    }

    /// The device with this ordinal.
    ///
    /// # Errors
    /// `INVALID_DEVICE` if there is none; that of a fallen one.
    pub fn device(&self, ordinal: CUdevice) -> Result<&Arc<Device>> {
        let device = usize::try_from(ordinal)
            .ok()
            .and_then(|index| self.devices.get(index))
            .ok_or(CUresult::INVALID_DEVICE)?;
        fallen::check(device.ordinal())?;
        Ok(device)
    }
}
