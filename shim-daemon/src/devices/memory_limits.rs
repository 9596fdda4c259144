//! `nvmlDeviceSetMemoryLimits_v1` and its `Get`, new in NVML 615 (CUDA 13.4), which nvml-wrapper
//! does not have yet. **Never run on hardware.**
//!
//! Sources: `nvml.h` of 13.5.37; NVIDIA's "MPS v3 Memory Partitioning"; `memacct.c` of the kernel
//! module 615.71.09.
//!
//! # Safety
//! The two functions are called through pointers that the dynamic linker found under their
//! versioned names, whose prototypes are fixed; with a handle of the same NVML, initialised and
//! alive; with structures of their layout that live through the call.
#![allow(
    unsafe_code,
    reason = "two functions of NVML without a wrapper: dlsym, and calls through the pointers"
)]

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gpushare_protocol::units::Bytes;
use libloading::Library;
use nvml_wrapper::Device;

use super::{DriverLimit, FenceError};

/// `NVML_DEVICE_MEMORY_LIMIT_MAX`: no hard limit.
const NO_LIMIT: u64 = u64::MAX;

/// `nvmlSetMemoryLimits_v1_t`.
#[repr(C)]
struct SetLimits {
    name_space: *const c_char,
    soft: u64,
    hard: u64,
}

/// `nvmlGetMemoryLimits_v1_t`.
#[repr(C)]
struct GetLimits {
    name_space: *const c_char,
    soft: u64,
    hard: u64,
    used: u64,
}

const _: () = assert!(size_of::<SetLimits>() == 24 && size_of::<GetLimits>() == 32);

/// `nvmlDevice_t`.
type Handle = *mut std::ffi::c_void;
type Set = unsafe extern "C" fn(Handle, *mut SetLimits) -> c_int;
type Get = unsafe extern "C" fn(Handle, *mut GetLimits) -> c_int;

/// The two functions, where NVML has both.
#[derive(Debug)]
pub(super) struct MemoryLimits {
    set: Set,
    get: Get,
    /// Keeps the library that the pointers lead into.
    _library: Option<Library>,
}

impl MemoryLimits {
    /// Looks for them in the NVML that is loaded under its SONAME.
    pub(super) fn find() -> Option<Self> {
        // SAFETY: NVML is loaded already (the caller has initialised it), so that no initialiser
        // runs; the types are the header's.
        unsafe {
            let library = Library::new("libnvidia-ml.so.1").ok()?;
            let set = *library.get::<Set>(b"nvmlDeviceSetMemoryLimits_v1\0").ok()?;
            let get = *library.get::<Get>(b"nvmlDeviceGetMemoryLimits_v1\0").ok()?;
            Some(Self {
                set,
                get,
                _library: Some(library),
            })
        }
    }

    pub(super) fn set(
        &self,
        device: &Device<'_>,
        cgroup: &Path,
        hard: Option<Bytes>,
    ) -> Result<(), FenceError> {
        // SAFETY: a handle of the NVML these functions are of, alive as long as `device`.
        unsafe { self.set_by_handle(device.handle().cast(), cgroup, hard) }
    }

    pub(super) fn get(
        &self,
        device: &Device<'_>,
        cgroup: &Path,
    ) -> Result<DriverLimit, FenceError> {
        // SAFETY: as above.
        unsafe { self.get_by_handle(device.handle().cast(), cgroup) }
    }

    /// # Safety
    /// `device` is a handle of the NVML the functions are of.
    unsafe fn set_by_handle(
        &self,
        device: Handle,
        cgroup: &Path,
        hard: Option<Bytes>,
    ) -> Result<(), FenceError> {
        let name = name(cgroup)?;
        let mut limits = SetLimits {
            name_space: name.as_ptr(),
            // Nothing is reserved for it by the driver: requests are the daemon's business, and a
            // reservation outlives its cgroup.
            soft: 0,
            hard: hard.map_or(NO_LIMIT, |hard| hard.0),
        };
        // SAFETY: of this layout, alive through the call, as is the text it points to.
        answer(unsafe { (self.set)(device, &raw mut limits) })
    }

    /// # Safety
    /// `device` is a handle of the NVML the functions are of.
    unsafe fn get_by_handle(
        &self,
        device: Handle,
        cgroup: &Path,
    ) -> Result<DriverLimit, FenceError> {
        let name = name(cgroup)?;
        let mut limits = GetLimits {
            name_space: name.as_ptr(),
            soft: 0,
            hard: NO_LIMIT,
            used: 0,
        };
        // SAFETY: of this layout, alive through the call, as is the text it points to.
        answer(unsafe { (self.get)(device, &raw mut limits) })?;
        Ok(DriverLimit {
            hard: (limits.hard != NO_LIMIT).then_some(Bytes(limits.hard)),
            used: Bytes(limits.used),
        })
    }
}

fn name(cgroup: &Path) -> Result<CString, FenceError> {
    CString::new(cgroup.as_os_str().as_bytes())
        .map_err(|_| FenceError::Failed("a path with a zero in it".to_owned()))
}

/// `nvmlReturn_t` as far as the header says what these two answer.
fn answer(code: c_int) -> Result<(), FenceError> {
    match code {
        0 => Ok(()),
        3 | 13 => Err(FenceError::NotSupported),
        4 => Err(FenceError::NotPermitted),
        // NVML_ERROR_NOT_FOUND, or NVML_ERROR_OPERATING_SYSTEM, the answer for a path that cannot
        // be opened.
        6 | 17 => Err(FenceError::NotFound),
        2 => Err(FenceError::Failed(
            "NVML says invalid argument: above the device, or below the memory in use".to_owned(),
        )),
        other => Err(FenceError::Failed(format!("NVML's error {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::sync::Mutex;

    /// (device, cgroup, soft, hard) as the double was called.
    static CALLS: Mutex<Vec<(usize, String, u64, u64)>> = Mutex::new(Vec::new());

    unsafe extern "C" fn set(device: Handle, limits: *mut SetLimits) -> c_int {
        // SAFETY: the code under test passes one, with a text that ends.
        let (limits, name) = unsafe {
            let limits = &*limits;
            (limits, CStr::from_ptr(limits.name_space))
        };
        let name = name.to_str().unwrap().to_owned();
        CALLS
            .lock()
            .unwrap()
            .push((device.addr(), name, limits.soft, limits.hard));
        0
    }

    unsafe extern "C" fn get(device: Handle, limits: *mut GetLimits) -> c_int {
        // SAFETY: the code under test passes one.
        let limits = unsafe { &mut *limits };
        (limits.hard, limits.used) = match device.addr() {
            1 => (NO_LIMIT, 5),
            2 => (7, 6),
            _ => return 3,
        };
        0
    }

    fn double() -> MemoryLimits {
        MemoryLimits {
            set,
            get,
            _library: None,
        }
    }

    #[test]
    fn a_limit_reserves_nothing_and_the_largest_number_removes_it() {
        let device = std::ptr::without_provenance_mut(0x123);
        let group = Path::new("/sys/fs/cgroup/a b");
        // SAFETY: the double takes any handle.
        unsafe {
            double()
                .set_by_handle(device, group, Some(Bytes(1 << 30)))
                .unwrap();
            double().set_by_handle(device, group, None).unwrap();
        }
        let group = "/sys/fs/cgroup/a b".to_owned();
        assert_eq!(
            *CALLS.lock().unwrap(),
            [
                (0x123, group.clone(), 0, 1 << 30),
                (0x123, group, 0, u64::MAX)
            ]
        );
    }

    #[test]
    fn a_limit_reads_back_and_the_largest_number_is_none() {
        let get = |device: usize, path: &str| {
            // SAFETY: the double takes any handle.
            unsafe {
                double().get_by_handle(std::ptr::without_provenance_mut(device), Path::new(path))
            }
        };
        let limit = |hard, used| DriverLimit {
            hard,
            used: Bytes(used),
        };
        assert_eq!(get(1, "/a"), Ok(limit(None, 5)));
        assert_eq!(get(2, "/a"), Ok(limit(Some(Bytes(7)), 6)));
        assert_eq!(get(3, "/a"), Err(FenceError::NotSupported));
        assert!(matches!(get(1, "/a\0b"), Err(FenceError::Failed(_))));
    }

    #[test]
    fn each_answer_that_the_header_names_is_told_apart() {
        assert_eq!(answer(0), Ok(()));
        assert_eq!(answer(13), Err(FenceError::NotSupported));
        assert_eq!(answer(4), Err(FenceError::NotPermitted));
        assert_eq!(answer(6), Err(FenceError::NotFound));
        assert_eq!(answer(17), Err(FenceError::NotFound));
        assert!(matches!(answer(2), Err(FenceError::Failed(_))));
        assert!(matches!(answer(999), Err(FenceError::Failed(text)) if text.contains("999")));
    }
}
