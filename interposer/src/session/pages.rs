//! The daemon's two pages in this process.
//!
//! # Safety
//! `unsafe` maps memfds whose size the daemon sealed, for ever, and views them as the protocol's
//! pages of atomics.
#![allow(unsafe_code, reason = "maps the daemon's pages")]

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io;

use gpushare_protocol::page::control::{CONTROL_BYTES, ControlPage};
use gpushare_protocol::page::{PAGE_BYTES, Page};

use crate::guest::descriptor::Descriptor;
use crate::guest::sys;

/// Maps a usage page to read and write.
///
/// # Errors
/// If it is too short, could be cut short later, or is no page of this version.
pub(super) fn usage(file: &Descriptor) -> io::Result<&'static Page> {
    let base = map(file, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: at least PAGE_BYTES bytes by `map`, never unmapped.
    let page = unsafe { Page::from_mapping(base) };
    page.check().map_err(io::Error::other)?;
    Ok(page)
}

/// Maps a control page to read.
///
/// # Errors
/// As for [`usage`].
pub(super) fn control(file: &Descriptor) -> io::Result<&'static ControlPage> {
    let base = map(file, CONTROL_BYTES, libc::PROT_READ)?;
    // SAFETY: at least CONTROL_BYTES bytes by `map`, never unmapped.
    let page = unsafe { ControlPage::from_mapping(base) };
    page.check().map_err(io::Error::other)?;
    Ok(page)
}

/// A file that can shrink would fault the program that reads it: only sealed ones are mapped.
fn map(file: &Descriptor, bytes: usize, protection: c_int) -> io::Result<NonNull<u8>> {
    let seals = sys::seals(file.number());
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(io::Error::other("a page that is not sealed"));
    }
    let length = usize::try_from(sys::status(file.number())?.st_size).unwrap_or(0);
    if length < bytes {
        return Err(io::Error::other("a page that is too short"));
    }
    // SAFETY: a fresh mapping at an address the kernel chooses; the length was checked against the
    // file, which cannot shrink.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_SHARED,
            file.number(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast::<u8>()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The control page that is in force now.
pub(super) fn in_force(current: &AtomicPtr<ControlPage>) -> &'static ControlPage {
    // SAFETY: only ever set from pages that `control` mapped for ever.
    unsafe { &*current.load(Ordering::Acquire) }
}
