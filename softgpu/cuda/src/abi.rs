//! Reading and writing through the pointers a C caller passes.
//!
//! # Safety
//! Every function here relies on the caller's obligations in the CUDA documentation: a pointer that
//! is not NULL points to as many values as the function's contract says, aligned, for the length of
//! the call. A NULL pointer is never dereferenced.
#![allow(
    unsafe_code,
    reason = "the C boundary: the caller guarantees its pointers"
)]

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::BorrowedFd;

use gpushare_cuda_abi::cuda::CUresult;
use softgpu::Result;
use softgpu::module::{self, Image};

/// Writes a result; the caller must provide memory for it.
///
/// # Errors
/// `INVALID_VALUE` for NULL.
pub(crate) fn out<T>(at: *mut T, value: T) -> Result {
    if at.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not NULL, and the caller guarantees memory for one T.
    unsafe { at.write(value) };
    Ok(())
}

/// `INVALID_VALUE` for NULL, to refuse a call before it does anything.
pub(crate) fn required<T>(at: *const T) -> Result {
    if at.is_null() {
        Err(CUresult::INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// Writes an optional result; the pointer may be NULL.
pub(crate) fn out_if<T>(at: *mut T, value: T) {
    let _ = out(at, value);
}

/// Reads one value.
///
/// # Errors
/// `INVALID_VALUE` for NULL.
pub(crate) fn input<T: Copy>(at: *const T) -> Result<T> {
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees one T.
    Ok(unsafe { at.read() })
}

/// Reads `count` values; with a count of 0 the pointer is not checked.
///
/// # Errors
/// `INVALID_VALUE` for NULL.
pub(crate) fn inputs<T: Copy>(at: *const T, count: usize) -> Result<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees `count` values.
    Ok(unsafe { std::slice::from_raw_parts(at, count) }.to_vec())
}

/// Writes as many of `values` as fit into `room` elements.
///
/// # Errors
/// `INVALID_VALUE` for NULL if there are values to write.
pub(crate) fn outputs<T: Copy>(at: *mut T, room: usize, values: &[T]) -> Result {
    let count = room.min(values.len());
    if count == 0 {
        return Ok(());
    }
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees memory for `room` >= `count` values.
    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), at, count) };
    Ok(())
}

/// The image at an address. Only an ELF file's and a PTX text's length is known. Of any
/// other image only the bytes are read that show that it is neither.
pub(crate) fn image_at(at: *const c_void) -> Image {
    let at = at.cast::<u8>();
    let mut next = 0;
    let read = || {
        next += 1;
        // SAFETY: the caller guarantees an image; this byte follows bytes that begin a PTX text,
        // which ends with a NUL, and none is read after it.
        unsafe { at.add(next - 1).read() }
    };
    // SAFETY: the caller guarantees an image. One that begins as a PTX text ends with a NUL. One
    // that begins with an ELF file's bytes, read one by one, is an ELF file: it has a header, and
    // reaches as far as the header says.
    let file = unsafe {
        if module::is_ptx(read) {
            CStr::from_ptr(at.cast()).to_bytes()
        } else {
            let is_elf = b"\x7fELF"
                .iter()
                .enumerate()
                .all(|(i, byte)| at.add(i).read() == *byte);
            let length = is_elf.then(|| module::length(&at.cast::<[u8; 64]>().read()));
            std::slice::from_raw_parts(at, length.flatten().unwrap_or(0))
        }
    };
    Image::read(file)
}

/// The file descriptor in a pointer's value.
///
/// # Errors
/// `INVALID_VALUE` for a value that cannot be a descriptor.
pub(crate) fn descriptor<'a>(value: *const c_void) -> Result<BorrowedFd<'a>> {
    let number = i32::try_from(value.addr()).map_err(|_| CUresult::INVALID_VALUE)?;
    // SAFETY: not -1, because it was converted from an address; the caller guarantees that it is
    // open during the call.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Reads a NUL-terminated string.
///
/// # Errors
/// `INVALID_VALUE` for NULL or a string that is not UTF-8.
pub(crate) fn text(at: *const c_char) -> Result<String> {
    required(at)?;
    // SAFETY: not NULL, and the caller guarantees a NUL-terminated string.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str()
        .map(str::to_owned)
        .map_err(|_| CUresult::INVALID_VALUE)
}

/// Writes `value` and its NUL into `room` bytes, truncated if necessary.
///
/// # Errors
/// `INVALID_VALUE` for NULL or a `room` of 0.
pub(crate) fn out_text(at: *mut c_char, room: usize, value: &str) -> Result {
    let kept = value
        .len()
        .min(room.checked_sub(1).ok_or(CUresult::INVALID_VALUE)?);
    outputs(
        at.cast::<u8>(),
        room,
        &[&value.as_bytes()[..kept], &[0]].concat(),
    )
}
