//! Asking NVML who has memory on a device.
//!
//! # Safety
//! `unsafe` loads NVML and calls it by the signatures of `nvml.h`, with buffers that outlive the calls.
#![allow(unsafe_code, reason = "loads NVML and calls it")]

use core::ffi::{CStr, c_char, c_void};
use std::ffi::CString;
use std::mem::transmute_copy;

use gpushare_cuda_abi::nvml::{nvmlMemory_t, nvmlProcessInfo_v2_t};
use gpushare_protocol::uuid::Uuid;

/// A process in NVML's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// As NVML gives it: the machine's pid, or ours where they are the same.
    pub(crate) pid: u32,
    /// Bytes it holds; all ones where NVML does not know.
    pub(crate) bytes: u64,
}

/// NVML's "the array is too small".
const INSUFFICIENT_SIZE: u32 = 7;
/// Entries asked for at first.
const ROOM: usize = 64;

type Plain = unsafe extern "C" fn() -> u32;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> u32;
type Memory = unsafe extern "C" fn(*mut c_void, *mut nvmlMemory_t) -> u32;
type Processes = unsafe extern "C" fn(*mut c_void, *mut u32, *mut nvmlProcessInfo_v2_t) -> u32;

/// NVML, started. Starting it takes tens of milliseconds on a node with several devices, so it is done when somebody died with memory
/// charged, once for as many looks as that takes, and never to start CUDA.
#[derive(Debug)]
pub(crate) struct Watch {
    by_uuid: ByUuid,
    compute: Processes,
    graphics: Option<Processes>,
    shutdown: Plain,
}

impl Watch {
    /// Starts NVML, `None` if it cannot be asked.
    pub(crate) fn start() -> Option<Self> {
        let nvml = Library::open(libc::RTLD_LAZY)?;
        // SAFETY: NVML's own names and signatures.
        let (init, watch) = unsafe {
            (
                nvml.function::<Plain>(c"nvmlInit_v2")?,
                Self {
                    by_uuid: nvml.function(c"nvmlDeviceGetHandleByUUID")?,
                    compute: nvml.function(c"nvmlDeviceGetComputeRunningProcesses_v3")?,
                    graphics: nvml.function(c"nvmlDeviceGetGraphicsRunningProcesses_v3"),
                    shutdown: nvml.function(c"nvmlShutdown")?,
                },
            )
        };
        // SAFETY: takes nothing.
        if unsafe { init() } == 0 {
            Some(watch)
        } else {
            // Not started, so nothing is to be ended.
            core::mem::forget(watch);
            None
        }
    }

    /// The processes with a context on a device, `None` if NVML cannot say.
    pub(crate) fn processes(&self, uuid: &[u8; 16]) -> Option<Vec<Listed>> {
        let device = device(self.by_uuid, uuid)?;
        let mut all = list(self.compute, device)?;
        let graphics = self.graphics.and_then(|graphics| list(graphics, device));
        all.extend(graphics.unwrap_or_default());
        Some(all)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: balances the start; the program's own use of NVML is counted apart.
        unsafe { (self.shutdown)() };
    }
}

/// A device whose free memory can be read, as long as the program keeps NVML started.
#[derive(Debug)]
pub(crate) struct Gauge {
    device: *mut c_void,
    memory: Memory,
}

impl Gauge {
    /// For a program that has started NVML itself; `None` otherwise.
    pub(crate) fn open(uuid: &[u8; 16]) -> Option<Self> {
        let nvml = Library::open(libc::RTLD_LAZY | libc::RTLD_NOLOAD)?;
        // SAFETY: NVML's own names and signatures.
        let (by_uuid, memory) = unsafe {
            (
                nvml.function::<ByUuid>(c"nvmlDeviceGetHandleByUUID")?,
                nvml.function::<Memory>(c"nvmlDeviceGetMemoryInfo")?,
            )
        };
        let device = device(by_uuid, uuid)?;
        Some(Self { device, memory })
    }

    /// Free memory in bytes.
    pub(crate) fn free(&self) -> Option<u64> {
        let mut info = nvmlMemory_t {
            total: 0,
            free: 0,
            used: 0,
        };
        // SAFETY: a device of NVML's, and an out parameter that outlives the call; where the program has ended NVML meanwhile, it says so.
        (unsafe { (self.memory)(self.device, &raw mut info) } == 0).then_some(info.free)
    }
}

/// The device of a UUID. The driver does not say whether it is a MIG instance's, so both spellings are tried.
fn device(by_uuid: ByUuid, uuid: &[u8; 16]) -> Option<*mut c_void> {
    let gpu = Uuid(*uuid).to_string();
    let bare = gpu.trim_start_matches("GPU-");
    [gpu.clone(), format!("MIG-{bare}")]
        .into_iter()
        .find_map(|name| {
            let name = CString::new(name).ok()?;
            let mut device = core::ptr::null_mut();
            // SAFETY: a C string and an out parameter that outlive the call.
            (unsafe { by_uuid(name.as_ptr(), &raw mut device) } == 0).then_some(device)
        })
}

fn list(processes: Processes, device: *mut c_void) -> Option<Vec<Listed>> {
    let none = nvmlProcessInfo_v2_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let mut room = ROOM;
    for _ in 0..4 {
        let mut infos = vec![none; room];
        let mut count = u32::try_from(room).ok()?;
        // SAFETY: `count` says how many entries `infos` has.
        match unsafe { processes(device, &raw mut count, infos.as_mut_ptr()) } {
            0 => {
                infos.truncate(count as usize);
                return Some(
                    infos
                        .iter()
                        .map(|info| Listed {
                            pid: info.pid,
                            bytes: info.usedGpuMemory,
                        })
                        .collect(),
                );
            }
            INSUFFICIENT_SIZE => room = room.max(count as usize) * 2,
            _ => return None,
        }
    }
    None
}

/// NVML, loaded; kept for the life of the process, because unloading a driver's library is asking for trouble.
struct Library(*mut c_void);

impl Library {
    fn open(mode: i32) -> Option<Self> {
        // SAFETY: a static C string.
        let handle = unsafe { libc::dlopen(c"libnvidia-ml.so.1".as_ptr(), mode) };
        (!handle.is_null()).then_some(Self(handle))
    }

    /// # Safety
    /// `F` is the C type of the function `name`.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let dlsym = crate::driver::real::real_dlsym()?;
        // SAFETY: a live handle and a C string.
        let address = unsafe { dlsym(self.0, name.as_ptr()) };
        // SAFETY: the caller vouches for the type; a function pointer has the size of an address.
        (!address.is_null()).then(|| unsafe { transmute_copy(&address) })
    }
}
