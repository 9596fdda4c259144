//! Older drivers. The NVML of those before R510 lacks functions that nvml-wrapper calls; in that of
//! the first ones of R535 they have another layout.
//!
//! # Safety
//! One function is called through a pointer that the dynamic linker found under its name, whose
//! prototype never changed; with a handle of the same NVML, initialised and alive, and a structure
//! of its layout that lives through the call.
#![allow(
    unsafe_code,
    reason = "a function of NVML without a wrapper: dlsym, and a call through the pointer"
)]

use std::ffi::c_int;

use gpushare_protocol::units::Bytes;
use libloading::Library;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError as Wrapped;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

/// A device's memory at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Memory that processes can use. Older drivers do not report reserved memory apart from used
    /// memory.
    pub(super) usable: Bytes,
    pub(super) used: Bytes,
    pub(super) free: Bytes,
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct MemoryV1 {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlDevice_t`.
type Handle = *mut std::ffi::c_void;
type GetMemory = unsafe extern "C" fn(Handle, *mut MemoryV1) -> c_int;

/// The memory of a device.
pub(super) fn memory(device: &Device<'_>) -> Result<Memory, Wrapped> {
    match device.memory_info() {
        Ok(memory) => Ok(Memory {
            usable: Bytes(memory.total - memory.reserved.min(memory.total)),
            used: Bytes(memory.used),
            free: Bytes(memory.free),
        }),
        Err(lacking @ Wrapped::FailedToLoadSymbol(_)) => match first_memory(device) {
            Ok(memory) => Ok(memory),
            Err(Some(NOT_SUPPORTED)) => Err(Wrapped::NotSupported),
            Err(_) => Err(lacking),
        },
        Err(error) => Err(error),
    }
}

/// `NVML_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 3;

/// The error is NVML's, if it has the function.
fn first_memory(device: &Device<'_>) -> Result<Memory, Option<c_int>> {
    let mut memory = MemoryV1::default();
    // SAFETY: NVML is loaded and initialised already; the handle is of it and alive as long as
    // `device`; the result lives through the call.
    let answer = unsafe {
        let library = Library::new("libnvidia-ml.so.1").map_err(|_| None)?;
        let get = library
            .get::<GetMemory>(b"nvmlDeviceGetMemoryInfo\0")
            .map_err(|_| None)?;
        get(device.handle().cast(), &raw mut memory)
    };
    match answer {
        0 => Ok(Memory {
            usable: Bytes(memory.total),
            used: Bytes(memory.used),
            free: Bytes(memory.free),
        }),
        error => Err(Some(error)),
    }
}

/// The processes that compute on a device. `wide`: [`has_wide_rows`] of its driver.
pub(super) fn compute(device: &Device<'_>, wide: bool) -> Result<Vec<ProcessInfo>, Wrapped> {
    let newest = (!wide).then(|| device.running_compute_processes());
    match newest {
        None | Some(Err(Wrapped::FailedToLoadSymbol(_))) => device.running_compute_processes_v2(),
        Some(answer) => answer,
    }
}

/// The processes that draw on a device.
pub(super) fn graphics(device: &Device<'_>, wide: bool) -> Result<Vec<ProcessInfo>, Wrapped> {
    let newest = (!wide).then(|| device.running_graphics_processes());
    match newest {
        None | Some(Err(Wrapped::FailedToLoadSymbol(_))) => device.running_graphics_processes_v2(),
        Some(answer) => answer,
    }
}

/// Whether the newest lists of processes of a driver of this version (`535.54.03`) have rows of 32
/// bytes. nvml-wrapper reads rows of 24. So were they from 535.43 to 535.86; 535.98 lacks the
/// functions, and later drivers have them with rows of 24 bytes.
pub(super) fn has_wide_rows(version: &str) -> bool {
    let mut parts = version.split('.').map(str::parse);
    let (Some(Ok(535_u32)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
        return false;
    };
    (43..98_u32).contains(&minor)
}

#[cfg(test)]
mod tests {
    use super::has_wide_rows;

    #[test]
    fn only_the_first_drivers_of_r535_have_wide_rows() {
        for version in ["535.43.02", "535.54.03", "535.86.10"] {
            assert!(has_wide_rows(version), "{version}");
        }
        for version in ["535.98", "535.104.05", "530.54.03", "545.54", "535", ""] {
            assert!(!has_wide_rows(version), "{version}");
        }
    }
}
