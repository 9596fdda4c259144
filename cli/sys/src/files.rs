//! Extended attributes of files, for which the standard library has no function.
//!
//! # Safety
//! One call of the C library on two C strings that outlive it, without a buffer.
#![allow(
    unsafe_code,
    reason = "extended attributes need a call of the C library"
)]

use nix::libc;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether the file has capabilities of its own, capabilities(7), which a program started from it
/// gains.
#[must_use]
pub fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: two C strings that outlive the call. A size of 0 asks for the length alone.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}
