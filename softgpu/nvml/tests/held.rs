//! Calls of a function that is held, and of another one meanwhile.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]
#![allow(unsafe_code, reason = "calls the library as C programs do")]

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use gpushare_cuda_abi::nvml::nvmlReturn_t;
use softgpu_nvml as _;

/// A call of the C library.
macro_rules! c {
    ($call:expr) => {{
        // SAFETY: every pointer points to a local as large as the call is told.
        unsafe { $call }
    }};
}

unsafe extern "C" {
    fn nvmlInit_v2() -> nvmlReturn_t;
    fn nvmlDeviceGetCount_v2(count: *mut u32) -> nvmlReturn_t;
    fn nvmlSystemGetCudaDriverVersion(version: *mut i32) -> nvmlReturn_t;
}

#[test]
fn a_call_of_a_held_function_waits_and_another_does_not() {
    const GOOD: nvmlReturn_t = nvmlReturn_t::SUCCESS;
    let name = format!("softgpu-held-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, "").unwrap();
    let hold = format!("nvmlDeviceGetCount:{}", file.display());
    // SAFETY: the only test of this process; nothing else reads the environment now.
    unsafe {
        std::env::set_var("SOFTGPU", "mem=1GiB");
        std::env::set_var("SOFTGPU_HOLD", hold);
    }
    assert_eq!(c!(nvmlInit_v2()), GOOD);
    let (answers, answer) = channel();
    let held = std::thread::spawn(move || {
        let mut count = 0;
        let result = c!(nvmlDeviceGetCount_v2(&raw mut count));
        answers.send((result, count)).unwrap();
    });
    while std::fs::read(&file).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let mut version = 0;
    let other = c!(nvmlSystemGetCudaDriverVersion(&raw mut version));
    assert_eq!(other, GOOD);
    let waits = answer.recv_timeout(Duration::from_millis(5));
    assert_eq!(waits, Err(RecvTimeoutError::Timeout));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(answer.recv().unwrap(), (GOOD, 1));
    held.join().unwrap();
}
