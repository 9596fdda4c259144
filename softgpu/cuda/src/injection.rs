//! `CUDA_INJECTION64_PATH`: the library of a tool (a profiler, a checker) that the driver loads
//! while it is initialised, and whose function `InitializeInjection` it calls once. As with a real
//! driver nothing is said where there is no such library or function.
//!
//! # Safety
//! Loads a library and calls a function of it, as the setter of the variable asks.
#![allow(unsafe_code, reason = "loads a library and calls a function of it")]

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The variable the path is read from.
const VARIABLE: &str = "CUDA_INJECTION64_PATH";

/// Lets the tool in, the first time. It may itself initialise the driver meanwhile.
pub(crate) fn inject() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    let path = std::env::var_os(VARIABLE).and_then(|path| CString::new(path.into_vec()).ok());
    let Some(path) = path else { return };
    // SAFETY: a path with its NUL; the library is never unloaded; the function takes nothing and
    // answers a number.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            return;
        }
        let found = libc::dlsym(library, c"InitializeInjection".as_ptr());
        if !found.is_null() {
            let begin =
                std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> libc::c_int>(found);
            begin();
        }
    }
}
