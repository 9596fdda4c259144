//! Tries to take device memory by every way that a program has, so that the caller can see whether
//! a limit holds for each of them.
//!
//! # Safety
//! It loads `libcuda.so.1` and `libnvidia-ml.so.1` and calls functions by their public signatures.
//! Addresses and handles come from the driver and are used on the thread that made the context.
//! The caller runs this in a process of its own, so that a driver that crashes takes nothing with
//! it.
#![allow(unsafe_code, reason = "calling a C library needs it")]

use crate::devices::DRIVER;
use libloading::Library;
use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

/// NVML's file name.
const NVML: &str = "libnvidia-ml.so.1";
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: c_int = 1;
/// The version by which functions are asked for.
const VERSION: c_int = 11_020;

type Handle = *mut c_void;
type Alloc = extern "C" fn(*mut u64, usize) -> c_int;

/// A program with a context, on its first device.
#[derive(Debug)]
pub struct Program {
    driver: Library,
}

/// A CUDA result; 0 is success, 2 out-of-memory.
pub type Answer = c_int;

impl Program {
    /// Starts CUDA and makes the first device's primary context current.
    ///
    /// # Errors
    /// A sentence with CUDA's number.
    pub fn start() -> Result<Self, String> {
        // SAFETY: loading the driver runs its initialisers, which is what any CUDA program does.
        let driver = unsafe { Library::new(DRIVER) };
        let driver = driver.map_err(|error| format!("{DRIVER} cannot be loaded: {error}"))?;
        let program = Self { driver };
        let init: extern "C" fn(c_uint) -> c_int = program.function("cuInit")?;
        checked("cuInit", init(0))?;
        let (mut device, mut context) = (0, null_mut());
        let get: extern "C" fn(*mut c_int, c_int) -> c_int = program.function("cuDeviceGet")?;
        checked("cuDeviceGet", get(&raw mut device, 0))?;
        let retain: extern "C" fn(*mut Handle, c_int) -> c_int =
            program.function("cuDevicePrimaryCtxRetain")?;
        checked("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
        let current: extern "C" fn(Handle) -> c_int = program.function("cuCtxSetCurrent")?;
        checked("cuCtxSetCurrent", current(context))?;
        Ok(program)
    }

    /// A function of the driver by `dlsym` on its handle. `T` has to be its public signature.
    fn function<T: Copy>(&self, name: &str) -> Result<T, String> {
        // SAFETY: every caller in this file names a driver function with its public signature.
        let found = unsafe { self.driver.get::<T>(name) };
        found
            .map(|symbol| *symbol)
            .map_err(|_| format!("{DRIVER} has no {name}"))
    }

    /// By the function that a program linked with the driver calls: the first of that name among
    /// all libraries of the process, of which the driver is one then.
    ///
    /// # Errors
    /// If there is none.
    pub fn linked(&self, bytes: usize) -> Result<Answer, String> {
        // SAFETY: it is loaded already; this makes its names visible to all.
        let global = unsafe { Opened::open(Some(DRIVER), RTLD_NOW | RTLD_GLOBAL) };
        let _global = global.map_err(|error| format!("{DRIVER} cannot be loaded: {error}"))?;
        // SAFETY: the signature is the public one.
        let found = unsafe { Opened::this().get::<Alloc>(b"cuMemAlloc_v2\0") };
        match found {
            Ok(symbol) => Ok(self.kept(*symbol, bytes)),
            Err(_) => Err("no library of the process has cuMemAlloc_v2".to_owned()),
        }
    }

    /// By `dlsym`.
    ///
    /// # Errors
    /// If the driver has no such function.
    pub fn by_dlsym(&self, bytes: usize) -> Result<Answer, String> {
        Ok(self.kept(self.function("cuMemAlloc_v2")?, bytes))
    }

    /// By `cuGetProcAddress`, as the CUDA runtime binds it.
    ///
    /// # Errors
    /// If the driver has no such function.
    pub fn by_proc_address(&self, bytes: usize) -> Result<Answer, String> {
        let get: extern "C" fn(*const c_char, *mut *const c_void, c_int, u64) -> c_int =
            self.function("cuGetProcAddress")?;
        let name = CString::new("cuMemAlloc").map_err(|error| error.to_string())?;
        let mut found = null();
        let answer = get(name.as_ptr(), &raw mut found, VERSION, 0);
        checked("cuGetProcAddress", answer)?;
        if found.is_null() {
            return Err("cuGetProcAddress does not know cuMemAlloc".to_owned());
        }
        // SAFETY: the driver gave it for that name, whose signature is public.
        let alloc = unsafe { std::mem::transmute::<*const c_void, Alloc>(found) };
        Ok(self.kept(alloc, bytes))
    }

    /// From the device's pool, in stream order.
    ///
    /// # Errors
    /// If the driver has no pools.
    pub fn in_stream_order(&self, bytes: usize) -> Result<Answer, String> {
        let alloc: extern "C" fn(*mut u64, usize, Handle) -> c_int =
            self.function("cuMemAllocAsync")?;
        let free: extern "C" fn(u64, Handle) -> c_int = self.function("cuMemFreeAsync")?;
        let mut address = 0;
        let answer = alloc(&raw mut address, bytes, null_mut());
        if answer == 0 {
            let _ = free(address, null_mut());
            self.settle()?;
        }
        Ok(answer)
    }

    /// By the launch of a graph that allocates.
    ///
    /// # Errors
    /// If the graph cannot be made.
    pub fn in_a_graph(&self, bytes: usize) -> Result<Answer, String> {
        let create: extern "C" fn(*mut Handle, c_uint) -> c_int =
            self.function("cuStreamCreate")?;
        let begin: extern "C" fn(Handle, c_int) -> c_int =
            self.function("cuStreamBeginCapture_v2")?;
        let end: extern "C" fn(Handle, *mut Handle) -> c_int =
            self.function("cuStreamEndCapture")?;
        let alloc: extern "C" fn(*mut u64, usize, Handle) -> c_int =
            self.function("cuMemAllocAsync")?;
        let free: extern "C" fn(u64, Handle) -> c_int = self.function("cuMemFreeAsync")?;
        let instantiate: extern "C" fn(*mut Handle, Handle, u64) -> c_int =
            self.function("cuGraphInstantiateWithFlags")?;
        let launch: extern "C" fn(Handle, Handle) -> c_int = self.function("cuGraphLaunch")?;
        let (mut stream, mut graph, mut exec) = (null_mut(), null_mut(), null_mut());
        let mut address = 0;
        checked("cuStreamCreate", create(&raw mut stream, 1))?;
        checked("cuStreamBeginCapture", begin(stream, THREAD_LOCAL))?;
        let allocated = alloc(&raw mut address, bytes, stream);
        if allocated == 0 {
            let _ = free(address, stream);
        }
        checked("cuStreamEndCapture", end(stream, &raw mut graph))?;
        if allocated != 0 {
            return Ok(allocated);
        }
        let made = instantiate(&raw mut exec, graph, 0);
        if made != 0 {
            return Ok(made);
        }
        let answer = launch(exec, stream);
        self.settle()?;
        Ok(answer)
    }

    /// Takes memory and keeps it.
    ///
    /// # Errors
    /// If the driver has no such function.
    pub fn hold(&self, bytes: usize) -> Result<Answer, String> {
        let alloc: Alloc = self.function("cuMemAlloc_v2")?;
        let mut address = 0;
        Ok(alloc(&raw mut address, bytes))
    }

    /// The device's memory, in bytes, as the driver tells the program.
    ///
    /// # Errors
    /// If it does not.
    pub fn told_by_the_driver(&self) -> Result<u64, String> {
        let info: extern "C" fn(*mut usize, *mut usize) -> c_int =
            self.function("cuMemGetInfo_v2")?;
        let (mut free, mut total) = (0, 0);
        checked("cuMemGetInfo", info(&raw mut free, &raw mut total))?;
        Ok(total as u64)
    }

    /// The same, as NVML tells the program of the first device.
    ///
    /// # Errors
    /// If there is no NVML, or it does not tell.
    pub fn told_by_nvml(&self) -> Result<u64, String> {
        // SAFETY: loading NVML runs its initialisers, as in any program that monitors.
        let nvml = unsafe { Library::new(NVML) };
        let nvml = nvml.map_err(|error| format!("{NVML} cannot be loaded: {error}"))?;
        let missing = |name: &str| format!("{NVML} has no {name}");
        // SAFETY: these are the functions' public signatures.
        let (init, handle, info) = unsafe {
            (
                nvml.get::<extern "C" fn() -> c_int>("nvmlInit_v2")
                    .map_err(|_| missing("nvmlInit_v2"))?,
                nvml.get::<extern "C" fn(c_uint, *mut Handle) -> c_int>(
                    "nvmlDeviceGetHandleByIndex_v2",
                )
                .map_err(|_| missing("nvmlDeviceGetHandleByIndex_v2"))?,
                nvml.get::<extern "C" fn(Handle, *mut [u64; 3]) -> c_int>(
                    "nvmlDeviceGetMemoryInfo",
                )
                .map_err(|_| missing("nvmlDeviceGetMemoryInfo"))?,
            )
        };
        let (mut device, mut memory) = (null_mut(), [0; 3]);
        nvml_checked("nvmlInit", init())?;
        nvml_checked("nvmlDeviceGetHandleByIndex", handle(0, &raw mut device))?;
        nvml_checked("nvmlDeviceGetMemoryInfo", info(device, &raw mut memory))?;
        Ok(memory[0])
    }

    /// Allocates, and gives back at once what it got.
    fn kept(&self, alloc: Alloc, bytes: usize) -> Answer {
        let mut address = 0;
        let answer = alloc(&raw mut address, bytes);
        if answer == 0
            && let Ok(free) = self.function::<extern "C" fn(u64) -> c_int>("cuMemFree_v2")
        {
            let _ = free(address);
        }
        answer
    }

    /// Waits for the device.
    fn settle(&self) -> Result<(), String> {
        let wait: extern "C" fn() -> c_int = self.function("cuCtxSynchronize")?;
        checked("cuCtxSynchronize", wait())
    }
}

fn checked(what: &str, answer: c_int) -> Result<(), String> {
    match answer {
        0 => Ok(()),
        error => Err(crate::devices::failed(what, error)),
    }
}

fn nvml_checked(what: &str, answer: c_int) -> Result<(), String> {
    match answer {
        0 => Ok(()),
        error => Err(format!("{what} returned NVML error {error}")),
    }
}

/// The version of CUDA that the driver supports, as 12080 for 12.8.
///
/// # Errors
/// If there is no driver.
pub fn cuda_version() -> Result<u32, String> {
    // SAFETY: as in `Program::start`.
    let driver = unsafe { Library::new(DRIVER) };
    let driver = driver.map_err(|error| format!("{DRIVER} cannot be loaded: {error}"))?;
    // SAFETY: the signature is the public one.
    let get = unsafe { driver.get::<extern "C" fn(*mut c_int) -> c_int>("cuDriverGetVersion") };
    let get = get.map_err(|_| format!("{DRIVER} has no cuDriverGetVersion"))?;
    let mut version = 0;
    checked("cuDriverGetVersion", get(&raw mut version))?;
    u32::try_from(version).map_err(|_| format!("the driver says version {version}"))
}

/// Modes of a device that NVML tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Modes {
    /// Whether the driver stays loaded while no program uses it.
    pub persistence: Option<bool>,
    /// 0: any process; 1 and 3: one process; 2: none.
    pub compute: Option<u32>,
    /// Whether the device is split into MIG instances.
    pub mig: Option<bool>,
}

/// Asks NVML for the modes of all devices; what it does not tell is `None`.
///
/// # Errors
/// If there is no NVML.
pub fn modes() -> Result<Vec<Modes>, String> {
    // SAFETY: as in `Program::told_by_nvml`.
    let nvml = unsafe { Library::new(NVML) };
    let nvml = nvml.map_err(|error| format!("{NVML} cannot be loaded: {error}"))?;
    let missing = |name: &str| format!("{NVML} has no {name}");
    // SAFETY: these are the functions' public signatures.
    let (init, count, handle) = unsafe {
        (
            nvml.get::<extern "C" fn() -> c_int>("nvmlInit_v2")
                .map_err(|_| missing("nvmlInit_v2"))?,
            nvml.get::<extern "C" fn(*mut c_uint) -> c_int>("nvmlDeviceGetCount_v2")
                .map_err(|_| missing("nvmlDeviceGetCount_v2"))?,
            nvml.get::<extern "C" fn(c_uint, *mut Handle) -> c_int>(
                "nvmlDeviceGetHandleByIndex_v2",
            )
            .map_err(|_| missing("nvmlDeviceGetHandleByIndex_v2"))?,
        )
    };
    nvml_checked("nvmlInit", init())?;
    let mut devices = 0;
    nvml_checked("nvmlDeviceGetCount", count(&raw mut devices))?;
    let one = |device: Handle, name: &str| -> Option<c_uint> {
        // SAFETY: each name below is a query with this public signature.
        let get = unsafe { nvml.get::<extern "C" fn(Handle, *mut c_uint) -> c_int>(name) }.ok()?;
        let mut value = 0;
        (get(device, &raw mut value) == 0).then_some(value)
    };
    let mig = |device: Handle| -> Option<bool> {
        // SAFETY: the signature is the public one.
        let get = unsafe {
            nvml.get::<extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int>(
                "nvmlDeviceGetMigMode",
            )
        };
        let (mut now, mut next) = (0, 0);
        (get.ok()?(device, &raw mut now, &raw mut next) == 0).then_some(now == 1)
    };
    let mut all = Vec::new();
    for index in 0..devices {
        let mut device = null_mut();
        if handle(index, &raw mut device) != 0 {
            continue;
        }
        all.push(Modes {
            persistence: one(device, "nvmlDeviceGetPersistenceMode").map(|on| on == 1),
            compute: one(device, "nvmlDeviceGetComputeMode"),
            mig: mig(device),
        });
    }
    Ok(all)
}
