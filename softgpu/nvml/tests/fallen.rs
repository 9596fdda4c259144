//! A device that is off the bus, in a machine of two.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]
#![allow(unsafe_code, reason = "calls the library as C programs do")]

use std::ffi::c_char;

use gpushare_cuda_abi::nvml::{nvmlDevice_t, nvmlMemory_t, nvmlReturn_t};
use softgpu_nvml as _;

/// One call of the C library.
macro_rules! c {
    ($call:expr) => {{
        // SAFETY: every pointer points to a local as large as the call is told.
        unsafe { $call }
    }};
}

unsafe extern "C" {
    fn nvmlInit_v2() -> nvmlReturn_t;
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut nvmlDevice_t) -> nvmlReturn_t;
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) -> nvmlReturn_t;
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, len: u32) -> nvmlReturn_t;
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t;
}

/// Whether a handle answers: its UUID, and its memory.
fn asked(device: nvmlDevice_t) -> ([c_char; 80], [nvmlReturn_t; 2]) {
    let mut uuid = [0; 80];
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    let results = [
        c!(nvmlDeviceGetUUID(device, uuid.as_mut_ptr(), 80)),
        c!(nvmlDeviceGetMemoryInfo(device, &raw mut memory)),
    ];
    (uuid, results)
}

fn by_index(index: u32) -> (nvmlDevice_t, nvmlReturn_t) {
    let mut device = nvmlDevice_t::NULL;
    let result = c!(nvmlDeviceGetHandleByIndex_v2(index, &raw mut device));
    (device, result)
}

fn by_uuid(uuid: &[c_char]) -> nvmlReturn_t {
    let mut device = nvmlDevice_t::NULL;
    c!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut device))
}

#[test]
fn of_a_lost_device_its_own_calls_fail_and_all_lookups_by_uuid() {
    const GOOD: nvmlReturn_t = nvmlReturn_t::SUCCESS;
    const LOST: nvmlReturn_t = nvmlReturn_t::GPU_IS_LOST;
    let name = format!("softgpu-fallen-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let fallen = format!("1:CUDA_ERROR_UNKNOWN:{}", file.display());
    // SAFETY: the only test of this process; nothing else reads the environment now.
    unsafe {
        std::env::set_var("SOFTGPU", "mem=1GiB,count=2");
        std::env::set_var("SOFTGPU_FALLEN", fallen);
    }
    assert_eq!(c!(nvmlInit_v2()), GOOD);
    let [first, second] = [0, 1].map(|index| by_index(index).0);
    let uuids = [first, second].map(|device| asked(device).0);
    std::fs::write(&file, "").unwrap();
    assert_eq!(asked(first).1, [GOOD; 2]);
    assert_eq!(asked(second).1, [LOST; 2]);
    assert_eq!([by_index(0).1, by_index(1).1], [GOOD, LOST]);
    assert_eq!(uuids.map(|uuid| by_uuid(&uuid)), [LOST; 2]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(asked(second).1, [GOOD; 2]);
    assert_eq!(uuids.map(|uuid| by_uuid(&uuid)), [GOOD; 2]);
}
