//! Reading and writing through the pointers a C caller passes.
//!
//! # Safety
//! Every function here relies on the caller's obligations in NVML's documentation: a pointer that
//! is not NULL points to as many values as the function's contract says, aligned, for the length of
//! the call. A NULL pointer is never dereferenced.
#![allow(
    unsafe_code,
    reason = "the C boundary: the caller guarantees its pointers"
)]

use std::ffi::{CStr, c_char};

use gpushare_cuda_abi::nvml::nvmlReturn_t;

use crate::library::Result;

/// `INVALID_ARGUMENT` for NULL, to refuse a call before it does anything.
pub(crate) fn required<T>(at: *const T) -> Result {
    if at.is_null() {
        Err(nvmlReturn_t::INVALID_ARGUMENT)
    } else {
        Ok(())
    }
}

/// Writes a result; the caller must provide memory for it.
pub(crate) fn out<T>(at: *mut T, value: T) -> Result {
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees memory for one T.
    unsafe { at.write(value) };
    Ok(())
}

/// Reads one value.
pub(crate) fn input<T: Copy>(at: *const T) -> Result<T> {
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees one T.
    Ok(unsafe { at.read() })
}

/// Reads `count` values.
pub(crate) fn inputs<T: Copy>(at: *const T, count: usize) -> Result<Vec<T>> {
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees `count` values.
    Ok(unsafe { std::slice::from_raw_parts(at, count) }.to_vec())
}

/// Writes all of `values`; the caller guarantees memory for them.
pub(crate) fn outputs<T: Copy>(at: *mut T, values: &[T]) -> Result {
    if values.is_empty() {
        return Ok(());
    }
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees memory for the values.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), at, values.len()) };
    Ok(())
}

/// Reads a NUL-terminated string.
pub(crate) fn text(at: *const c_char) -> Result<String> {
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees a NUL-terminated string.
    Ok(unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
}

/// Writes a string and its NUL.
///
/// # Errors
/// `INSUFFICIENT_SIZE` if `room` bytes are too few.
pub(crate) fn out_text(at: *mut c_char, room: u32, value: &str) -> Result {
    required(at)?;
    if value.len() >= room as usize {
        return Err(nvmlReturn_t::INSUFFICIENT_SIZE);
    }
    outputs(at.cast::<u8>(), &[value.as_bytes(), &[0]].concat())
}

/// A string as a fixed array of C characters, truncated to fit with its NUL.
pub(crate) fn array<const N: usize>(value: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().take(N - 1).zip(value.bytes()) {
        *place = byte.cast_signed();
    }
    array
}
