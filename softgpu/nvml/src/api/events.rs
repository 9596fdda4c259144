//! Sets of events to wait for. No event ever occurs, so every wait ends at its time limit. (A real
//! driver reports an XID where a kernel faults.)

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpushare_cuda_abi::nvml::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventType, nvmlReturn_t,
};

use crate::abi::{out, required};
use crate::library::{Result, index};

/// The kinds of event of a device with error correction. Newer kinds are not offered.
const KINDS: u64 = nvmlEventType::SingleBitEccError.0
    | nvmlEventType::DoubleBitEccError.0
    | nvmlEventType::PState.0
    | nvmlEventType::XidCriticalError.0
    | nvmlEventType::Clock.0;

/// The sets that exist, by handle, and the last handle.
static SETS: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0x5d02_0000_0000));

nvml! {
    fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, kinds: *mut u64) { index(device)?; out(kinds, KINDS) }
    fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) {
        required(set)?;
        let mut sets = sets();
        sets.1 += 0x10;
        let handle = sets.1;
        sets.0.insert(handle);
        out(set, nvmlEventSet_t(std::ptr::without_provenance_mut(handle)))
    }
    fn nvmlEventSetFree(set: nvmlEventSet_t) {
        if sets().0.remove(&set.0.addr()) { Ok(()) } else { Err(nvmlReturn_t::INVALID_ARGUMENT) }
    }
    fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, kinds: u64, set: nvmlEventSet_t) {
        index(device)?;
        known(set)?;
        match kinds {
            0 => Err(nvmlReturn_t::INVALID_ARGUMENT),
            kinds if kinds & !KINDS != 0 => Err(nvmlReturn_t::NOT_SUPPORTED),
            _ => Ok(()),
        }
    }
    fn nvmlEventSetWait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, milliseconds: u32) { wait(set, data, milliseconds) }
    fn nvmlEventSetWait_v2(set: nvmlEventSet_t, data: *mut nvmlEventData_t, milliseconds: u32) { wait(set, data, milliseconds) }
}

fn sets() -> MutexGuard<'static, (BTreeSet<usize>, usize)> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn known(set: nvmlEventSet_t) -> Result {
    if sets().0.contains(&set.0.addr()) {
        Ok(())
    } else {
        Err(nvmlReturn_t::INVALID_ARGUMENT)
    }
}

/// Waits for the whole time, holding nothing.
fn wait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, milliseconds: u32) -> Result {
    required(data)?;
    known(set)?;
    std::thread::sleep(Duration::from_millis(milliseconds.into()));
    Err(nvmlReturn_t::TIMEOUT)
}
