//! Initialisation, shutdown, versions, result names.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::sync::LazyLock;

use gpushare_cuda_abi::nvml::{NVML_INIT_FLAG_NO_ATTACH, NVML_INIT_FLAG_NO_GPUS, nvmlReturn_t};
use softgpu::facts;

use crate::abi::{out, out_text};
use crate::library::{close, monitor, open};

nvml! {
    early fn nvmlInit() { open() }
    early fn nvmlInit_v2() { open() }
    early fn nvmlInitWithFlags(flags: u32) {
        if flags & !(NVML_INIT_FLAG_NO_ATTACH | NVML_INIT_FLAG_NO_GPUS) != 0 {
            return Err(nvmlReturn_t::INVALID_ARGUMENT);
        }
        open()
    }
    early fn nvmlShutdown() { close() }
    fn nvmlSystemGetDriverVersion(version: *mut c_char, len: u32) {
        out_text(version, len, facts::driver_release(monitor()?.spec().driver))
    }
    /// NVML's own version: its major version, then the driver's version.
    fn nvmlSystemGetNVMLVersion(version: *mut c_char, len: u32) {
        let driver = monitor()?.spec().driver;
        out_text(version, len, &format!("{}.{}", driver / 1000, facts::driver_release(driver)))
    }
    fn nvmlSystemGetCudaDriverVersion(version: *mut i32) { cuda_version(version) }
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut i32) { cuda_version(version) }
    fn nvmlSystemGetProcessName(pid: u32, name: *mut c_char, len: u32) {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| nvmlReturn_t::NOT_FOUND)?;
        let text = String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        out_text(name, len, &text)
    }
}

fn cuda_version(version: *mut i32) -> crate::library::Result {
    out(
        version,
        i32::try_from(monitor()?.spec().driver).expect("SPEC bounds the version"),
    )
}

/// It returns a string, not a result, so it is not an item of `nvml!`.
#[allow(
    unsafe_code,
    reason = "the symbol is the C function of this name and signature"
)]
// SAFETY: the name is NVML's, and nothing else in this library defines it.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let known = DESCRIPTIONS
        .get(&result.0)
        .or_else(|| DESCRIPTIONS.get(&nvmlReturn_t::UNKNOWN.0));
    known.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// A description of each result: its name in lower case without the prefix.
static DESCRIPTIONS: LazyLock<BTreeMap<u32, CString>> = LazyLock::new(|| {
    let words = |name: &str| {
        let words = name
            .trim_start_matches("NVML_ERROR_")
            .trim_start_matches("NVML_")
            .to_ascii_lowercase()
            .replace('_', " ");
        words[..1].to_ascii_uppercase() + &words[1..]
    };
    let described = |(number, name): &(u32, &std::ffi::CStr)| {
        (
            *number,
            CString::new(words(&name.to_string_lossy())).expect("a name holds no NUL"),
        )
    };
    nvmlReturn_t::NAMES.iter().map(described).collect()
});
