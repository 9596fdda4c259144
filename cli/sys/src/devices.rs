//! The GPUs a CUDA program started in this environment would see, asked of the driver itself.
//!
//! # Safety
//! It loads `libcuda.so.1` and calls seven of its functions, whose signatures below are those of
//! the public driver API and have not changed since they were introduced. No context is made. The
//! caller runs this in a process of its own, so that a driver that crashes or hangs takes nothing
//! with it.
#![allow(unsafe_code, reason = "calling a C library needs it")]

use libloading::{Library, Symbol};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint};

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The program's ordinal.
    pub ordinal: u32,
    /// Its identity, in the driver's byte order.
    pub uuid: [u8; 16],
    /// The driver's name.
    pub name: String,
    /// Its memory, in bytes.
    pub memory: u64,
    /// Whether memory can be mapped at chosen addresses, without which it cannot be moved.
    pub vmm: bool,
    /// Whether managed memory can be more than the device has, and moves by pages.
    pub managed: bool,
}

/// The driver's file name, as CUDA programs ask for it.
pub const DRIVER: &str = "libcuda.so.1";

/// Asks the driver.
///
/// # Errors
/// One sentence: the library cannot be loaded, lacks a function, or a call failed, with CUDA's
/// number.
pub fn list() -> Result<Vec<Device>, String> {
    // SAFETY: loading the driver runs its initialisers, which is what any CUDA program in this
    // environment does.
    let driver = unsafe { Library::new(DRIVER) }.map_err(|error| cannot_load(&error))?;
    let driver = Driver(driver);
    driver.init()?;
    (0..driver.count()?)
        .map(|ordinal| driver.device(ordinal))
        .collect()
}

/// The dynamic linker's own words say which file is missing.
fn cannot_load(error: &dyn Error) -> String {
    let why = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    format!("{DRIVER} cannot be loaded: {why}")
}

struct Driver(Library);

impl Driver {
    fn symbol<T>(&self, name: &str) -> Result<Symbol<'_, T>, String> {
        // SAFETY: every caller below names a driver function together with its public signature.
        unsafe { self.0.get(name) }.map_err(|_| format!("{DRIVER} has no {name}"))
    }

    fn init(&self) -> Result<(), String> {
        let init: Symbol<'_, extern "C" fn(c_uint) -> c_int> = self.symbol("cuInit")?;
        check("cuInit", init(0))
    }

    fn count(&self) -> Result<c_int, String> {
        let get: Symbol<'_, extern "C" fn(&mut c_int) -> c_int> =
            self.symbol("cuDeviceGetCount")?;
        let mut count = 0;
        check("cuDeviceGetCount", get(&mut count)).map(|()| count)
    }

    fn device(&self, ordinal: c_int) -> Result<Device, String> {
        let get: Symbol<'_, extern "C" fn(&mut c_int, c_int) -> c_int> =
            self.symbol("cuDeviceGet")?;
        // Where the driver has `_v2`, that names the MIG instance rather than the card it is part
        // of.
        let get_uuid: Symbol<'_, extern "C" fn(&mut [u8; 16], c_int) -> c_int> = self
            .symbol("cuDeviceGetUuid_v2")
            .or_else(|_| self.symbol("cuDeviceGetUuid"))?;
        let get_memory: Symbol<'_, extern "C" fn(&mut usize, c_int) -> c_int> =
            self.symbol("cuDeviceTotalMem_v2")?;
        let (mut device, mut uuid, mut memory) = (0, [0; 16], 0);
        check("cuDeviceGet", get(&mut device, ordinal))?;
        check("cuDeviceGetUuid", get_uuid(&mut uuid, device))?;
        check("cuDeviceTotalMem", get_memory(&mut memory, device))?;
        let ordinal =
            u32::try_from(ordinal).map_err(|_| format!("the driver has {ordinal} devices"))?;
        Ok(Device {
            ordinal,
            uuid,
            name: self.name(device)?,
            memory: memory as u64,
            vmm: self.has(VMM, device),
            managed: self.has(CONCURRENT_MANAGED, device),
        })
    }

    /// A driver that does not know the attribute has none.
    fn has(&self, attribute: c_int, device: c_int) -> bool {
        type Get = extern "C" fn(&mut c_int, c_int, c_int) -> c_int;
        let mut value = 0;
        let get: Result<Symbol<'_, Get>, String> = self.symbol("cuDeviceGetAttribute");
        get.is_ok_and(|get| get(&mut value, attribute, device) == 0 && value == 1)
    }

    fn name(&self, device: c_int) -> Result<String, String> {
        let get: Symbol<'_, extern "C" fn(*mut c_char, c_int, c_int) -> c_int> =
            self.symbol("cuDeviceGetName")?;
        let mut text = [0_u8; 256];
        check(
            "cuDeviceGetName",
            get(text.as_mut_ptr().cast(), 256, device),
        )?;
        Ok(CStr::from_bytes_until_nul(&text)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default())
    }
}

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const VMM: c_int = 102;
/// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`.
const CONCURRENT_MANAGED: c_int = 89;

fn check(what: &str, result: c_int) -> Result<(), String> {
    if result == 0 {
        Ok(())
    } else {
        Err(failed(what, result))
    }
}

/// The driver's error by its name, and why no GPU is there where the environment says it.
pub(crate) fn failed(what: &str, result: c_int) -> String {
    const NAMES: [(c_int, &str); 9] = [
        (2, "CUDA_ERROR_OUT_OF_MEMORY"),
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (34, "CUDA_ERROR_STUB_LIBRARY"),
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        (NO_DEVICE, "CUDA_ERROR_NO_DEVICE"),
        (101, "CUDA_ERROR_INVALID_DEVICE"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (999, "CUDA_ERROR_UNKNOWN"),
    ];
    let name = NAMES.iter().find(|(number, _)| *number == result);
    let error = match name {
        Some((number, name)) => format!("{name} ({number})"),
        None => format!("CUDA error {result}"),
    };
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES").filter(|_| result == NO_DEVICE);
    let why = visible.map(|visible| format!(": CUDA_VISIBLE_DEVICES={visible:?} shows no GPU"));
    format!("{what} returned {error}{}", why.unwrap_or_default())
}

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: c_int = 100;
