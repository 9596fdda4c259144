//! The MIG instances of a GPU, which nvml-wrapper does not enumerate. **Never run on hardware.**
//!
//! # Safety
//! Two functions are called through pointers that the dynamic linker found under their names, whose
//! prototypes are fixed since NVML 450; with a handle of the same NVML, initialised and alive.
#![allow(
    unsafe_code,
    reason = "two functions of NVML without a wrapper: dlsym, and calls through the pointers"
)]

use std::ffi::{c_int, c_uint};

use libloading::Library;
use nvml_wrapper::{Device, Nvml};

/// `NVML_DEVICE_MIG_ENABLE`.
const ENABLED: u32 = 1;

/// `nvmlDevice_t`.
type Handle = *mut std::ffi::c_void;
type Count = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(Handle, c_uint, *mut Handle) -> c_int;

/// The two functions, where NVML has both.
#[derive(Debug)]
pub(super) struct Instances {
    count: Count,
    by_index: ByIndex,
    /// Keeps the library that the pointers lead into.
    _library: Library,
}

impl Instances {
    /// Looks for them in the NVML that is loaded under its SONAME.
    pub(super) fn find() -> Option<Self> {
        // SAFETY: NVML is loaded already (the caller has initialised it), so that no initialiser
        // runs; the types are the header's.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1").ok()?;
            let count = *library
                .get::<Count>(b"nvmlDeviceGetMaxMigDeviceCount\0")
                .ok()?;
            let by_index = *library
                .get::<ByIndex>(b"nvmlDeviceGetMigDeviceHandleByIndex\0")
                .ok()?;
            Some(Self {
                count,
                by_index,
                _library: library,
            })
        }
    }

    /// The instances of `device` that can compute (those with a compute instance), or `None` if it
    /// is not in MIG mode.
    pub(super) fn of<'n>(&self, nvml: &'n Nvml, device: &Device<'n>) -> Option<Vec<Device<'n>>> {
        if device.mig_mode().ok()?.current != ENABLED {
            return None;
        }
        let mut most = 0;
        // SAFETY: a handle of the NVML these functions are of, alive as long as `device`; the
        // result lives through the call.
        let answer = unsafe { (self.count)(device.handle().cast(), &raw mut most) };
        if answer != 0 {
            return Some(Vec::new());
        }
        let instance = |index| {
            let mut handle: Handle = std::ptr::null_mut();
            // SAFETY: as above. The handle that comes back is of this NVML and stays one until it
            // is shut down.
            unsafe {
                let answer = (self.by_index)(device.handle().cast(), index, &raw mut handle);
                // Not every index up to the most has an instance.
                (answer == 0).then(|| Device::new(handle.cast(), nvml))
            }
        };
        Some((0..most).filter_map(instance).collect())
    }
}
