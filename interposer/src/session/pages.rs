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

/// Maps a range of the host store, for ever. Returns its address. A forked child does not have it:
/// nothing there uses it, and its pages would stay allocated for as long as the child lives.
///
/// # Errors
/// As for [`usage`], and for a range that does not lie in the file or at no page of it.
pub(super) fn host_range(file: &Descriptor, offset: u64, bytes: u64) -> io::Result<usize> {
    let is_page = |number: u64| number.is_multiple_of(4096);
    let end = offset.checked_add(bytes);
    let (Some(end), true) = (end, bytes > 0 && is_page(offset) && is_page(bytes)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    check(file, usize::try_from(end).map_err(io::Error::other)?)?;
    let (length, offset) = (
        usize::try_from(bytes).map_err(io::Error::other)?,
        libc::off_t::try_from(offset).map_err(io::Error::other)?,
    );
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let base = map_at(file, length, protection, offset)?;
    let address = base.as_ptr().expose_provenance();
    sys::keep_from_children(address, length);
    Ok(address)
}

/// A file that can shrink would fault the program that reads it: only sealed ones are mapped.
fn map(file: &Descriptor, bytes: usize, protection: c_int) -> io::Result<NonNull<u8>> {
    check(file, bytes)?;
    map_at(file, bytes, protection, 0)
}

fn check(file: &Descriptor, bytes: usize) -> io::Result<()> {
    let seals = sys::seals(file.number());
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(io::Error::other("a page that is not sealed"));
    }
    let length = usize::try_from(sys::status(file.number())?.st_size).unwrap_or(0);
    if length < bytes {
        return Err(io::Error::other("a page that is too short"));
    }
    Ok(())
}

/// Maps a part of a file that [`check`] has found to be long enough for ever.
fn map_at(
    file: &Descriptor,
    bytes: usize,
    protection: c_int,
    offset: libc::off_t,
) -> io::Result<NonNull<u8>> {
    // SAFETY: a fresh mapping at an address the kernel chooses; the length was checked against the
    // file, which cannot shrink.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            protection,
            libc::MAP_SHARED,
            file.number(),
            offset,
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

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 2 << 20;

    /// What the system says of the mapping at an address.
    fn flags(address: usize) -> String {
        let all = std::fs::read_to_string("/proc/self/smaps").expect("readable");
        let begins = format!("{address:08x}-");
        let mut lines = all.lines().skip_while(|line| !line.starts_with(&begins));
        let flags = lines.find(|line| line.starts_with("VmFlags:"));
        flags.expect("a mapping").to_owned()
    }

    fn file() -> Descriptor {
        // SAFETY: a name that lasts.
        let number = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING) };
        // SAFETY: no memory is involved.
        unsafe {
            libc::ftruncate(number, 2 * BYTES.cast_signed());
            libc::fcntl(number, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK);
        }
        Descriptor::new(number).expect("memory")
    }

    /// Bytes of memory that a file has.
    fn taken(file: &Descriptor) -> i64 {
        sys::status(file.number()).expect("a file").st_blocks * 512
    }

    #[test]
    fn range_that_is_given_back_takes_no_memory_whatever_else_maps_it() {
        let file = file();
        let [one, other] = [(); 2].map(|()| host_range(&file, 0, BYTES).expect("in the file"));
        let first = ptr::with_exposed_provenance_mut::<u8>(one);
        // SAFETY: the mapping made above.
        unsafe { first.write_volatile(1) };
        assert!(taken(&file) > 0);
        sys::give_back(one, 2 << 20);
        assert_eq!(taken(&file), 0);
        sys::unmap(other, 2 << 20);
    }

    /// `dc`: not copied on fork.
    #[test]
    fn forked_child_does_not_have_the_ranges_and_has_the_pages() {
        let file = file();
        let range = host_range(&file, BYTES, BYTES).expect("it lies in the file");
        assert!(flags(range).contains(" dc"), "{}", flags(range));
        let page = map(&file, PAGE_BYTES.min(4096), libc::PROT_READ).expect("it lies in the file");
        let page = page.as_ptr().expose_provenance();
        assert!(!flags(page).contains(" dc"), "{}", flags(page));
        sys::unmap(range, 2 << 20);
        sys::unmap(page, 4096);
    }
}
