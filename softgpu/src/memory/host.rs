//! Pinned host memory: allocated by the driver or registered by the application. Device and host
//! use the same address.
//!
//! # Safety
//! Memory is allocated and freed with the same layout, stored in [`Owned`]. Registered memory is
//! never accessed here; `madvise` populates pages and changes no byte. Copies reach the pages that
//! were there when it was registered ([`pinned`](super::pinned)).
#![allow(
    unsafe_code,
    reason = "allocates memory that the application frees by address"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::pinned::Pinned;
use super::table::{self, Record, What};
use crate::Result;
use crate::context::Context;
use crate::exec;
use crate::va::Range;

/// Flags of `cuMemHostAlloc`: portable, device-mapped, write-combined.
const ALLOC_FLAGS: u32 = 0x1 | 0x2 | 0x4;
/// Flags of `cuMemHostRegister`: portable, device-mapped, I/O memory, read-only.
const REGISTER_FLAGS: u32 = 0x1 | 0x2 | 0x4 | 0x8;
/// Registering I/O memory; no I/O memory exists here.
const REGISTER_IOMEMORY: u32 = 0x4;
/// Registering memory that the device reads only.
const REGISTER_READ_ONLY: u32 = 0x8;
/// Alignment of large allocations.
const ALIGN: usize = 4096;
/// Allocations of at least this size are aligned to pages, smaller ones to 512 bytes.
const PAGED: usize = 4096;

/// One range of pinned memory.
#[derive(Debug)]
pub(crate) struct HostMemory {
    /// The flags of the request.
    pub(crate) flags: u32,
    /// The memory if the driver allocated it; `None` for registered memory.
    owned: Option<Owned>,
    /// The pages of registered memory, if they are a part of a shared mapping.
    pages: Option<Pinned>,
}

impl HostMemory {
    /// Memory that an application registers, for tests.
    #[cfg(test)]
    pub(super) fn of_the_application() -> Self {
        Self {
            flags: 0,
            owned: None,
            pages: None,
        }
    }

    /// Whether the file has lost a page of this part that was pinned.
    pub(super) fn has_hole(&self, address: u64, len: u64) -> bool {
        let pages = self.pages.as_ref();
        pages.is_some_and(|pages| pages.has_hole(address, len))
    }

    /// Whether the application registered the memory.
    pub(crate) fn is_registered(&self) -> bool {
        self.owned.is_none()
    }
}

#[derive(Debug)]
struct Owned {
    at: usize,
    layout: Layout,
}

impl Owned {
    fn new(size: u64) -> Result<Self> {
        let size = usize::try_from(size).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        let align = if size >= PAGED { ALIGN } else { 512 };
        let layout = Layout::from_size_align(size, align).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        // SAFETY: the layout is not empty, because callers refuse zero bytes.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        Ok(Self {
            at: at.expose_provenance(),
            layout,
        })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(self.at), self.layout) };
    }
}

/// Pinned memory of a pool.
#[derive(Debug)]
pub(crate) struct OfPool(Owned);

impl OfPool {
    /// # Errors
    /// `OUT_OF_MEMORY` if the host lacks the memory.
    pub(crate) fn new(bytes: u64) -> Result<Self> {
        Owned::new(bytes).map(Self)
    }

    /// Its first address.
    pub(crate) fn base(&self) -> u64 {
        self.0.at as u64
    }
}

impl Drop for OfPool {
    fn drop(&mut self) {
        // Nothing copies from it or to it when it goes.
        drop(table::exclusive());
    }
}

/// Allocates pinned host memory; its device address is the same. 0 bytes are at no address.
///
/// # Errors
/// `INVALID_VALUE` for unknown flags, `OUT_OF_MEMORY` if the host lacks the memory.
pub fn alloc(context: &Context, size: u64, flags: u32) -> Result<u64> {
    if flags & !ALLOC_FLAGS != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if size == 0 {
        return Ok(0);
    }
    let owned = Owned::new(size)?;
    pins(context, size);
    let base = owned.at as u64;
    enter(
        context,
        base,
        size,
        HostMemory {
            flags,
            owned: Some(owned),
            pages: None,
        },
    )?;
    Ok(base)
}

/// Waits as long as pinning takes.
fn pins(context: &Context, size: u64) {
    let rate = context.device().spec().pin;
    if rate > 0 {
        exec::host_waits(exec::nanoseconds(size, rate));
    }
}

/// Takes the host's pages of a range, as pinning does: they count against the caller from then on,
/// and the range has no hole.
///
/// # Errors
/// `INVALID_VALUE` if a page is not mapped, lies beyond the end of a file, or may not be written
/// (read, with `read_only`); `OUT_OF_MEMORY` if the host lacks the memory.
fn populate(address: u64, size: u64, read_only: bool) -> Result {
    let page = ALIGN as u64;
    let first = address - address % page;
    let last = (address + size).next_multiple_of(page);
    let wide = |value: u64| usize::try_from(value).map_err(|_| CUresult::INVALID_VALUE);
    let (at, len) = (wide(first)?, wide(last - first)?);
    let advice = if read_only {
        libc::MADV_POPULATE_READ
    } else {
        libc::MADV_POPULATE_WRITE
    };
    // SAFETY: populating changes no byte and no mapping.
    let answer = unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(at), len, advice) };
    if answer == 0 {
        return Ok(());
    }
    // Linux gives ENOMEM for a hole, too.
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOMEM) if is_mapped(at, len) => Err(CUresult::OUT_OF_MEMORY),
        Some(libc::EINVAL) if !knows_populate() => Ok(()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Whether all pages of a range are mapped.
fn is_mapped(at: usize, len: usize) -> bool {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: it changes no byte and no mapping (`msync` only reports holes with this flag).
    unsafe { libc::msync(at, len, libc::MS_ASYNC) == 0 }
}

/// Whether the host's kernel can populate pages (Linux 5.14).
fn knows_populate() -> bool {
    // SAFETY: an empty range.
    unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_READ) == 0 }
}

fn enter(context: &Context, base: u64, size: u64, memory: HostMemory) -> Result {
    let reads = memory.is_registered() && memory.flags & REGISTER_READ_ONLY != 0;
    let range = Range::on_host(size);
    let range = Range {
        writers: if reads { 0 } else { range.writers },
        shift: memory.pages.as_ref().map_or(0, Pinned::shift),
        ..range
    };
    let record = Record {
        size,
        id: table::fresh_id(),
        device: context.device().ordinal(),
        context: context.id(),
        what: What::Host(Arc::new(memory)),
    };
    table::insert(base, record, range)
}

/// Frees memory that [`alloc`] returned, after all work on its device.
///
/// # Errors
/// `INVALID_VALUE` for a pointer that [`alloc`] did not return.
pub fn free(address: u64) -> Result {
    take(address, CUresult::INVALID_VALUE, |memory| {
        !memory.is_registered()
    })
}

/// Pins memory of the application.
///
/// # Errors
/// `INVALID_VALUE` for address 0, 0 bytes or unknown flags, and for a range with a page that is not
/// there or may not be written (read, if the flags say that the device only reads it),
/// `OUT_OF_MEMORY` if the host lacks the memory, `HOST_MEMORY_ALREADY_REGISTERED` if part of it is
/// pinned already, `NOT_PERMITTED` for I/O memory.
pub fn register(context: &Context, address: u64, size: u64, flags: u32) -> Result {
    if address == 0 || size == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if flags & REGISTER_IOMEMORY != 0 {
        return Err(CUresult::NOT_PERMITTED);
    }
    let end = address.checked_add(size);
    // One page more: the range's last page is whole.
    end.and_then(|end| end.checked_add(ALIGN as u64))
        .ok_or(CUresult::INVALID_VALUE)?;
    populate(address, size, flags & REGISTER_READ_ONLY != 0)?;
    pins(context, size);
    let memory = HostMemory {
        flags,
        owned: None,
        pages: Pinned::new(address, size),
    };
    enter(context, address, size, memory).map_err(|_| CUresult::HOST_MEMORY_ALREADY_REGISTERED)
}

/// Unpins memory that [`register`] pinned, after all work on its device.
///
/// # Errors
/// `INVALID_VALUE` if the address is inside a registered range but not its start,
/// `HOST_MEMORY_NOT_REGISTERED` if it is in none.
pub fn unregister(address: u64) -> Result {
    let inside = pinned(address).is_ok_and(|memory| memory.is_registered());
    let unknown = if inside {
        CUresult::INVALID_VALUE
    } else {
        CUresult::HOST_MEMORY_NOT_REGISTERED
    };
    take(address, unknown, HostMemory::is_registered)
}

fn take(address: u64, unknown: CUresult, which: impl Fn(&HostMemory) -> bool) -> Result {
    let chosen = |record: &Record| matches!(&record.what, What::Host(memory) if which(memory));
    let record = table::at(address).filter(&chosen).ok_or(unknown)?;
    exec::drain_device(record.device);
    let removed = table::remove_if(address, |now| now.id == record.id).ok_or(unknown)?;
    drop(record);
    drop(table::exclusive());
    drop(removed);
    Ok(())
}

/// The device address of pinned memory; it equals the host address.
///
/// # Errors
/// `INVALID_VALUE` for memory that is not pinned.
pub fn device_pointer(address: u64) -> Result<u64> {
    pinned(address).map(|_| address)
}

/// The flags that pinned memory was allocated or registered with.
///
/// # Errors
/// `INVALID_VALUE` for memory that is not pinned.
pub fn flags(address: u64) -> Result<u32> {
    pinned(address).map(|memory| memory.flags)
}

fn pinned(address: u64) -> Result<Arc<HostMemory>> {
    match table::find(address) {
        Some((
            _,
            Record {
                what: What::Host(memory),
                ..
            },
        )) => Ok(memory),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
