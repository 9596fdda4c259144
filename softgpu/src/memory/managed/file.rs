//! The file that stores managed memory: one per process, sparse; each allocation is at the offset
//! of its address.
//!
//! # Safety
//! System calls that std does not wrap, on a descriptor that this file owns.
#![allow(
    unsafe_code,
    reason = "memfd_create and fallocate have no safe wrapper in std"
)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::sync::OnceLock;

use gpushare_cuda_abi::cuda::CUresult;

use crate::Result;

/// The length of the file: larger than every user address of a 64-bit machine with 47-bit user
/// addresses.
const LEN: u64 = 1 << 47;

static FILE: OnceLock<Option<File>> = OnceLock::new();

/// The file.
///
/// # Errors
/// `OUT_OF_MEMORY` if the host cannot create it.
pub(super) fn file() -> Result<BorrowedFd<'static>> {
    let file = FILE.get_or_init(|| {
        // SAFETY: the name is a NUL-terminated literal.
        let fd = unsafe { libc::memfd_create(c"softgpu-managed".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        // SAFETY: a new descriptor without another owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(LEN).ok()?;
        Some(file)
    });
    file.as_ref()
        .map(AsFd::as_fd)
        .ok_or(CUresult::OUT_OF_MEMORY)
}

/// The file offset of an address.
pub(super) fn offset(address: u64) -> u64 {
    address % LEN
}

/// Returns the bytes of a range to the host.
pub(super) fn forget(address: u64, len: u64) {
    let Some(Some(file)) = FILE.get() else { return };
    let signed = |value: u64| i64::try_from(value).unwrap_or(0);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: an open descriptor; no memory is passed. On failure the bytes stay until the process
    // ends, which is harmless.
    unsafe { libc::fallocate(file.as_raw_fd(), mode, signed(offset(address)), signed(len)) };
}
