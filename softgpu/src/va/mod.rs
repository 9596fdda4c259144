//! Device addresses of this process.
//!
//! One large window of address space is reserved and never accessible, so that the host faults on a
//! device pointer exactly as with a real GPU. The bytes are in a second window, the *shadow*, at a
//! fixed distance. A table of published ranges decides which addresses are accessible, before any
//! access: [`check`] and [`bytes`] return a [`Fault`] and never cause a signal.
//!
//! There are three layers, each with its opposite: [`reserve`]/[`release`] for addresses,
//! [`map`]/[`unmap`] for memory at whole pages of them, [`publish`]/[`retract`] for access, to the
//! byte. Host memory known to the driver (pinned, registered) has only the last layer.

mod ranges;
mod window;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use gpushare_cuda_abi::cuda::CUresult;

use crate::error::Result;
use crate::handle;
use crate::spec::PAGE;
use crate::world::{Device, PageRun};
use ranges::Ranges;
use window::Window;

pub use ranges::{Access, Fault, Range};

/// The memory that is mapped at addresses.
#[derive(Debug, Clone, Copy)]
pub enum Backing<'a> {
    /// Physical pages of a device.
    Pages(&'a Device, &'a [PageRun]),
    /// A file (managed memory resident on the host), from a byte offset that is a multiple of the
    /// host's page size.
    File(BorrowedFd<'a>, u64),
}

static RANGES: RwLock<Ranges> = RwLock::new(Ranges::new());
/// Whether the process has left the machine: no byte is found any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Ends all accesses to bytes, for good: [`bytes`] finds none from now on.
pub(crate) fn close() {
    CLOSED.store(true, Ordering::SeqCst);
}

/// Whether [`close`] was called.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::SeqCst)
}

/// Reserves `len` bytes of addresses, aligned to `align` (a power of two, at least 2 MiB; 0 for the
/// default). Released addresses are reused last; with `reuse=lifo` in SPEC they are the next where
/// they suffice.
///
/// # Errors
/// `INVALID_VALUE` if `len` is not a positive multiple of 2 MiB or `align` is not a power of two,
/// `OUT_OF_MEMORY` if no such range is free.
pub fn reserve(len: u64, align: u64) -> Result<u64> {
    Window::get()?.reserve(len, align, None)
}

/// As [`reserve`], at exactly `at` if that range is free, else anywhere.
///
/// # Errors
/// As [`reserve`].
pub fn reserve_near(at: u64, len: u64, align: u64) -> Result<u64> {
    Window::get()?.reserve(len, align, Some(at))
}

/// Releases a whole reservation.
///
/// # Errors
/// `INVALID_VALUE` if `addr` and `len` are not exactly one reservation.
pub fn release(addr: u64, len: u64) -> Result {
    Window::get()?.release(addr, len, handle::is_reused())
}

/// The reservation that contains `addr`: its base and length.
pub fn reservation(addr: u64) -> Option<(u64, u64)> {
    Window::get().ok()?.reservation(addr)
}

/// Whether `addr` is inside the windows of device addresses, reserved or not.
pub fn is_device(addr: u64) -> bool {
    Window::get().is_ok_and(|window| window.holds(addr))
}

/// Maps memory at the reserved addresses from `addr`, a multiple of 2 MiB, for `len` bytes. If
/// `host`, the host may access the addresses too (managed memory). It publishes nothing.
///
/// # Errors
/// `INVALID_VALUE` if the range is not inside one reservation or the backing is shorter,
/// `OPERATING_SYSTEM` if the kernel refuses.
pub fn map(addr: u64, len: u64, backing: Backing<'_>, host: bool) -> Result {
    let window = Window::get()?;
    window.inside(addr, len)?;
    match backing {
        Backing::File(file, offset) => window.back(addr, len, file.as_raw_fd(), offset, host),
        Backing::Pages(device, runs) => {
            let held: u64 = runs.iter().map(PageRun::bytes).sum();
            if held < len {
                return Err(CUresult::INVALID_VALUE);
            }
            let mut at = addr;
            for run in runs {
                let part = run.bytes().min(addr + len - at);
                if part == 0 {
                    break;
                }
                window.back(
                    at,
                    part,
                    device.data_fd(),
                    u64::from(run.first) * PAGE,
                    host,
                )?;
                at += part;
            }
            Ok(())
        }
    }
}

/// Unmaps the memory at `addr..addr+len`; the addresses stay reserved. The caller retracts
/// published ranges first.
///
/// # Errors
/// `INVALID_VALUE` if the range is not inside one reservation.
pub fn unmap(addr: u64, len: u64) -> Result {
    let window = Window::get()?;
    window.inside(addr, len)?;
    window.unback(addr, len)
}

/// Makes `base..base+len` accessible as `range` says. For host memory `range.host` is set and the
/// bytes are at `base` itself, or `range.shift` beyond it.
///
/// # Errors
/// `INVALID_VALUE` if the range is empty, or a part of it is published already.
pub fn publish(base: u64, range: Range) -> Result {
    RANGES
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(base, range)
}

/// Ends the publication of the range that starts at `base`; returns the range, if there was one.
pub fn retract(base: u64) -> Option<Range> {
    RANGES
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(base)
}

/// Changes the access rights of the published range that starts at `base`; false if there is none.
pub fn set_access(base: u64, readers: u32, writers: u32) -> bool {
    RANGES
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .set_access(base, readers, writers)
}

/// The published range that contains `addr`: its base and its properties.
pub fn find(addr: u64) -> Option<(u64, Range)> {
    RANGES
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .find(addr)
}

/// Whether work on the device with this ordinal may access all `len` bytes from `addr`.
///
/// # Errors
/// The first address that it may not access, and the reason.
pub fn check(ordinal: u32, addr: u64, len: u64, access: Access) -> std::result::Result<(), Fault> {
    RANGES
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .check(Some(ordinal), addr, len, access)
}

/// The host address of the `len` bytes at device address `addr`, whatever the access rights. The
/// pointer is valid until the range is retracted. Code that retracts a range first makes sure that
/// no remaining work uses it.
///
/// # Errors
/// The first address that is not published; `addr` after the driver's teardown.
pub fn bytes(addr: u64, len: u64) -> std::result::Result<*mut u8, Fault> {
    if is_closed() {
        return Err(Fault { addr, absent: true });
    }
    let ranges = RANGES.read().unwrap_or_else(PoisonError::into_inner);
    ranges.check(None, addr, len, Access::Read)?;
    let shift = ranges.shift(addr, len);
    drop(ranges);
    let shift = shift.unwrap_or_else(|| Window::get().map(Window::shift).unwrap_or(0));
    let at = usize::try_from(addr.wrapping_add(shift)).expect("addresses are 64 bits here");
    Ok(std::ptr::with_exposed_provenance_mut(at))
}
