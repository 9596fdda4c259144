//! `CUDA_INJECTION64_PATH`: the library of a tool (a profiler, a checker). The driver loads it
//! during initialisation and calls its function `InitializeInjection` once. As with a real driver,
//! a missing library or function is ignored.
//!
//! # Safety
//! Loads a library and calls a function of it, as the user who set the variable requests.
#![allow(unsafe_code, reason = "loads a library and calls a function of it")]

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable that holds the path.
const VARIABLE: &str = "CUDA_INJECTION64_PATH";

/// Loads and calls the tool at the first call. The tool may itself initialise the driver meanwhile.
pub(crate) fn inject() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    let path = std::env::var_os(VARIABLE).and_then(|path| CString::new(path.into_vec()).ok());
    let Some(path) = path else { return };
    // SAFETY: a NUL-terminated path; the library is never unloaded; the function takes no arguments
    // and returns a number.
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
