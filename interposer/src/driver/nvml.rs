//! NVML's functions that this library calls for itself: each NVML's own, never a hook.
//!
//! Without NVML in the process each answers as if it could not say. [`load`] brings it in.
//!
//! # Safety
//! As in [`calls`](super::calls): each pointer passed is to a local, or to a slice with its length.
//! A device is a number that NVML gave; NVML refuses all others.
#![allow(unsafe_code, reason = "declares and calls C functions")]

use core::ffi::{CStr, c_char};

use gpushare_cuda_abi::nvml::*;

use super::calls::driver;
pub(crate) use super::real::load_nvml as load;

driver! {
    fn nvmlInit_v2() -> nvmlReturn_t;
    fn nvmlShutdown() -> nvmlReturn_t;
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t;
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t;
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t;
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t;
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: nvmlDevice_t, count: *mut u32, infos: *mut nvmlProcessInfo_v2_t) -> nvmlReturn_t;
    fn nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: *mut u32, pids: *mut u32) -> nvmlReturn_t;
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut u32) -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t;
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: u32) -> nvmlReturn_t;
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: u32) -> nvmlReturn_t;
}

/// Starts NVML, once more where it is started already. Whether it is.
pub(crate) fn start() -> bool {
    // SAFETY: takes nothing.
    unsafe { nvmlInit_v2() }.is_success()
}

/// Ends what [`start`] began; the program's own use of NVML is counted apart.
pub(crate) fn end() {
    // SAFETY: takes nothing.
    let _ = unsafe { nvmlShutdown() };
}

/// The device of this UUID, `None` if NVML knows none or is not started.
pub(crate) fn by_uuid(uuid: &CStr) -> Option<nvmlDevice_t> {
    let mut device = nvmlDevice_t::NULL;
    // SAFETY: a C string and a local that outlive the call.
    let answer = unsafe { nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut device) };
    answer.is_success().then_some(device)
}

/// A device's UUID as NVML spells it.
pub(crate) fn uuid(device: nvmlDevice_t) -> Option<String> {
    // SAFETY: writes to a place of the stated size, which outlives the call.
    text(|place, length| unsafe { nvmlDeviceGetUUID(device, place, length) })
}

/// The text that a function writes to a place of that length.
fn text(write: impl FnOnce(*mut c_char, u32) -> nvmlReturn_t) -> Option<String> {
    let mut text = [0 as c_char; 96];
    if !write(text.as_mut_ptr(), 96).is_success() {
        return None;
    }
    let bytes = text.map(c_char::cast_unsigned);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?;
    text.to_str().ok().map(str::to_owned)
}

/// The newest lists of processes (`_v3`) have entries of 32 bytes, with the memory that is
/// protected: those of [`nvmlProcessDetail_v1_t`]. Only [`wide`] makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide(());

/// Whether this driver's are so: from 535.43 to 535.86. 535.98 lacks the functions, and later
/// drivers have them with entries of 24 bytes.
pub(crate) fn wide() -> Option<Wide> {
    // SAFETY: writes to a place of the stated size, which outlives the call.
    let version = text(|place, length| unsafe { nvmlSystemGetDriverVersion(place, length) })?;
    is_wide(&version).then_some(Wide(()))
}

fn is_wide(version: &str) -> bool {
    let mut parts = version.split('.').map(str::parse);
    let (Some(Ok(535_u32)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        return false;
    };
    (43..98_u32).contains(&minor)
}

/// A device's index, `None` where NVML does not say.
pub(crate) fn index(device: nvmlDevice_t) -> Option<u32> {
    let mut index = 0;
    // SAFETY: writes to a local that outlives the call.
    let answer = unsafe { nvmlDeviceGetIndex(device, &raw mut index) };
    answer.is_success().then_some(index)
}

/// A device's memory, `None` where NVML does not say.
pub(crate) fn memory(device: nvmlDevice_t) -> Option<nvmlMemory_t> {
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: writes to a local that outlives the call.
    let answer = unsafe { nvmlDeviceGetMemoryInfo(device, &raw mut memory) };
    answer.is_success().then_some(memory)
}

/// The bytes of a device that programs can have, which is what CUDA calls its total: NVML's total
/// without what the driver keeps for itself. A driver before R510 does not tell these apart.
pub(crate) fn usable(device: nvmlDevice_t) -> Option<u64> {
    let mut memory = nvmlMemory_v2_t {
        version: struct_version::<nvmlMemory_v2_t>(2),
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: writes to a local of the stated version, which outlives the call.
    let answer = unsafe { nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory) };
    if answer.is_success() {
        Some(memory.total.saturating_sub(memory.reserved))
    } else {
        self::memory(device).map(|memory| memory.total)
    }
}

/// A process's use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Compute.
    Compute,
    /// Graphics.
    Graphics,
}

/// Fills `list` with the processes that use a device; `Ok` is how many there are, `Err` NVML's
/// answer and how many it has.
pub(crate) fn processes(
    device: nvmlDevice_t,
    by: Use,
    list: &mut [nvmlProcessInfo_v2_t],
) -> Result<usize, (nvmlReturn_t, usize)> {
    let mut count = u32::try_from(list.len()).unwrap_or(u32::MAX);
    let (at, room) = (list.as_mut_ptr(), &raw mut count);
    let answer = match wide() {
        Some(_) => nvmlReturn_t::FUNCTION_NOT_FOUND,
        // SAFETY: `count` says how many entries of 24 bytes there is room for; both outlive the
        // call.
        None => unsafe {
            match by {
                Use::Compute => nvmlDeviceGetComputeRunningProcesses_v3(device, room, at),
                Use::Graphics => nvmlDeviceGetGraphicsRunningProcesses_v3(device, room, at),
            }
        },
    };
    // Drivers before R510 and 535.98 have no newer list than this one.
    let answer = match answer {
        // SAFETY: as above; the entries of these functions always have 24 bytes.
        nvmlReturn_t::FUNCTION_NOT_FOUND => unsafe {
            match by {
                Use::Compute => nvmlDeviceGetComputeRunningProcesses_v2(device, room, at),
                Use::Graphics => nvmlDeviceGetGraphicsRunningProcesses_v2(device, room, at),
            }
        },
        answer => answer,
    };
    match answer.ok() {
        Ok(()) => Ok(count as usize),
        Err(why) => Err((why, count as usize)),
    }
}

/// Fills `list` with the pids of the processes that accounting knows, also ended ones; `Ok` and
/// `Err` as of [`processes`].
pub(crate) fn accounted(
    device: nvmlDevice_t,
    list: &mut [u32],
) -> Result<usize, (nvmlReturn_t, usize)> {
    let mut count = u32::try_from(list.len()).unwrap_or(u32::MAX);
    // SAFETY: `count` says how many pids there is room for; both outlive the call.
    let answer = unsafe { nvmlDeviceGetAccountingPids(device, &raw mut count, list.as_mut_ptr()) };
    match answer.ok() {
        Ok(()) => Ok(count as usize),
        Err(why) => Err((why, count as usize)),
    }
}

#[cfg(test)]
mod tests {
    use super::is_wide;

    #[test]
    fn only_the_first_drivers_of_r535_have_wide_entries() {
        for version in ["535.43.02", "535.54.03", "535.86.10"] {
            assert!(is_wide(version), "{version}");
        }
        for version in ["535.98", "535.104.05", "530.54.03", "545.54", "535", ""] {
            assert!(!is_wide(version), "{version}");
        }
    }
}
