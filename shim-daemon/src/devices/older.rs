//! Drivers before R510. Their NVML lacks the functions that nvml-wrapper calls.
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
        Err(lacking @ Wrapped::FailedToLoadSymbol(_)) => first_memory(device).ok_or(lacking),
        Err(error) => Err(error),
    }
}

fn first_memory(device: &Device<'_>) -> Option<Memory> {
    let mut memory = MemoryV1::default();
    // SAFETY: NVML is loaded and initialised already; the handle is of it and alive as long as
    // `device`; the result lives through the call.
    let answer = unsafe {
        let library = Library::new("libnvidia-ml.so.1").ok()?;
        let get = library
            .get::<GetMemory>(b"nvmlDeviceGetMemoryInfo\0")
            .ok()?;
        get(device.handle().cast(), &raw mut memory)
    };
    (answer == 0).then_some(Memory {
        usable: Bytes(memory.total),
        used: Bytes(memory.used),
        free: Bytes(memory.free),
    })
}

/// The processes that compute on a device.
pub(super) fn compute(device: &Device<'_>) -> Result<Vec<ProcessInfo>, Wrapped> {
    match device.running_compute_processes() {
        Err(Wrapped::FailedToLoadSymbol(_)) => device.running_compute_processes_v2(),
        answer => answer,
    }
}

/// The processes that draw on a device.
pub(super) fn graphics(device: &Device<'_>) -> Result<Vec<ProcessInfo>, Wrapped> {
    match device.running_graphics_processes() {
        Err(Wrapped::FailedToLoadSymbol(_)) => device.running_graphics_processes_v2(),
        answer => answer,
    }
}
