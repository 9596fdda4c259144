//! The MIG instances of a GPU, which nvml-wrapper does not enumerate: **never run on hardware**;
//! and the handles of devices, which it does not keep.
//!
//! # Safety
//! A handle stays one until NVML is shut down. Three functions are called through pointers that the
//! dynamic linker found under their names, whose prototypes are fixed since NVML 450; with a handle
//! of the same NVML, initialised and alive.
#![allow(
    unsafe_code,
    reason = "three functions of NVML without a wrapper: dlsym, and calls through the pointers; \
              handles that are kept"
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

/// `nvmlDeviceGetGpuInstanceId`.
type Whole = unsafe extern "C" fn(Handle, *mut c_uint) -> c_int;

/// A device's handle, for as long as NVML is initialised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept(usize);

impl Kept {
    pub(super) fn of(device: &Device<'_>) -> Self {
        // SAFETY: it is used for a device of the same NVML alone.
        let handle = unsafe { device.handle() };
        Self(handle.expose_provenance())
    }

    /// The device again. `nvml` is that of which the handle is.
    pub(super) fn device<'n>(self, nvml: &'n Nvml) -> Device<'n> {
        let handle = std::ptr::with_exposed_provenance_mut(self.0);
        // SAFETY: the handle is of this NVML, which is initialised while it lives. The library
        // checks its handles, also of an instance that is no more.
        unsafe { Device::new(handle, nvml) }
    }
}

/// A MIG device: a compute instance of a GPU instance, whose memory it has.
#[derive(Debug)]
pub(super) struct Instance<'n> {
    pub(super) device: Device<'n>,
    /// The number of its GPU instance on that GPU, where NVML says it.
    whole: Option<u32>,
}

/// Whether one of these shares its memory with another of them, so that no books could hold.
pub(super) fn shares(one: &Instance<'_>, all: &[Instance<'_>]) -> bool {
    let same = all.iter().filter(|other| other.whole == one.whole);
    one.whole.is_some() && same.count() > 1
}

/// The functions, where NVML has the first two.
#[derive(Debug)]
pub(super) struct Instances {
    count: Count,
    by_index: ByIndex,
    whole: Option<Whole>,
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
            let whole = library.get::<Whole>(b"nvmlDeviceGetGpuInstanceId\0");
            Some(Self {
                count,
                by_index,
                whole: whole.ok().map(|found| *found),
                _library: library,
            })
        }
    }

    /// The instances of `device` that can compute (those with a compute instance), or `None` if it
    /// is not in MIG mode.
    pub(super) fn of<'n>(&self, nvml: &'n Nvml, device: &Device<'n>) -> Option<Vec<Instance<'n>>> {
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
                (answer == 0).then(|| Instance {
                    device: Device::new(handle.cast(), nvml),
                    whole: self.whole_of(handle),
                })
            }
        };
        Some((0..most).filter_map(instance).collect())
    }

    fn whole_of(&self, instance: Handle) -> Option<u32> {
        let mut id = 0;
        // SAFETY: a handle that this NVML has just given; the result lives through the call.
        let answer = unsafe { (self.whole?)(instance, &raw mut id) };
        (answer == 0).then_some(id)
    }
}
