//! The two windows of address space, and the reservations in the first.
//!
//! # Safety
//! `mmap` with `MAP_FIXED` replaces existing mappings. It is called only for ranges inside the two
//! windows, which this file reserved and no other code maps into. Callers check the range with
//! [`Window::inside`] first.
#![allow(
    unsafe_code,
    reason = "mapping memory at chosen addresses inside the reserved windows"
)]

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use crate::error::Result;
use crate::spec::PAGE;

/// The size of each window. Programs reserve more addresses than a device has memory (each growing
/// segment takes 9/8 of it).
const WINDOW: u64 = 16 << 40;

/// The window of device addresses; the shadow follows it.
#[derive(Debug)]
pub(super) struct Window {
    base: u64,
    reserved: Mutex<Reserved>,
}

#[derive(Debug)]
struct Reserved {
    /// Base to length.
    taken: BTreeMap<u64, u64>,
    /// The start of the next search, so that released addresses are reused last, or first.
    cursor: u64,
}

impl Window {
    /// The window of this process, reserved on first use.
    pub(super) fn get() -> Result<&'static Self> {
        static CELL: OnceLock<Option<Window>> = OnceLock::new();
        CELL.get_or_init(Self::new)
            .as_ref()
            .ok_or(CUresult::OUT_OF_MEMORY)
    }

    fn new() -> Option<Self> {
        let len = usize::try_from(2 * WINDOW + PAGE).ok()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        let base = (at.addr() as u64).next_multiple_of(PAGE);
        Some(Self {
            base,
            reserved: Mutex::new(Reserved {
                taken: BTreeMap::new(),
                cursor: base,
            }),
        })
    }

    /// Whether an address is in the window or its shadow.
    pub(super) const fn holds(&self, addr: u64) -> bool {
        addr >= self.base && addr < self.base + 2 * WINDOW
    }

    /// The distance from a device address to its byte in the shadow.
    pub(super) const fn shift(&self) -> u64 {
        WINDOW
    }

    pub(super) fn reserve(&self, len: u64, align: u64, near: Option<u64>) -> Result<u64> {
        let align = align.max(PAGE);
        if len == 0 || !len.is_multiple_of(PAGE) || !align.is_power_of_two() {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let (low, high) = (self.base, self.base + WINDOW);
        let wished =
            near.filter(|at| at.is_multiple_of(align) && reserved.fits(*at, len, low, high));
        let at = wished
            .or_else(|| reserved.search(reserved.cursor, high, len, align))
            .or_else(|| reserved.search(low, high, len, align))
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        reserved.taken.insert(at, len);
        if wished.is_none() {
            reserved.cursor = at + len;
        }
        Ok(at)
    }

    /// Releases a whole reservation. With `again` its addresses are among the next to be given.
    pub(super) fn release(&self, addr: u64, len: u64, again: bool) -> Result {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.taken.get(&addr) != Some(&len) {
            return Err(CUresult::INVALID_VALUE);
        }
        self.unback(addr, len)?;
        reserved.taken.remove(&addr);
        if again {
            reserved.cursor = reserved.cursor.min(addr);
        }
        Ok(())
    }

    pub(super) fn reservation(&self, addr: u64) -> Option<(u64, u64)> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let (base, len) = reserved.taken.range(..=addr).next_back()?;
        (addr - base < *len).then_some((*base, *len))
    }

    /// Checks that `addr..addr+len` are whole pages of one reservation.
    pub(super) fn inside(&self, addr: u64, len: u64) -> Result {
        let whole = addr.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0;
        let inside = self
            .reservation(addr)
            .is_some_and(|(base, held)| addr - base <= held && len <= held - (addr - base));
        if whole && inside {
            Ok(())
        } else {
            Err(CUresult::INVALID_VALUE)
        }
    }

    /// Maps `len` bytes of a file into the shadow of `addr`, and at `addr` itself if `host`.
    pub(super) fn back(&self, addr: u64, len: u64, file: RawFd, offset: u64, host: bool) -> Result {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let offset = i64::try_from(offset).map_err(|_| CUresult::INVALID_VALUE)?;
        fixed(addr + WINDOW, len, rw, libc::MAP_SHARED, file, offset)?;
        if host {
            fixed(addr, len, rw, libc::MAP_SHARED, file, offset)?;
        }
        Ok(())
    }

    /// Returns both windows at `addr` to the reserved, inaccessible state.
    pub(super) fn unback(&self, addr: u64, len: u64) -> Result {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        fixed(addr, len, libc::PROT_NONE, flags, -1, 0)?;
        fixed(addr + WINDOW, len, libc::PROT_NONE, flags, -1, 0)
    }
}

impl Reserved {
    /// Whether `at..at+len` is free and inside `low..high`.
    fn fits(&self, at: u64, len: u64, low: u64, high: u64) -> bool {
        let Some(end) = at.checked_add(len) else {
            return false;
        };
        let before = self.taken.range(..end).next_back();
        at >= low && end <= high && before.is_none_or(|(base, held)| base + held <= at)
    }

    /// The first free range of `len` bytes in `low..high`.
    fn search(&self, low: u64, high: u64, len: u64, align: u64) -> Option<u64> {
        let before = self
            .taken
            .range(..=low)
            .next_back()
            .map_or(low, |(base, held)| base + held);
        let mut at = before.max(low).next_multiple_of(align);
        for (base, held) in self.taken.range(low..) {
            if at.checked_add(len)? <= *base {
                break;
            }
            at = at.max((base + held).next_multiple_of(align));
        }
        (at.checked_add(len)? <= high).then_some(at)
    }
}

fn fixed(addr: u64, len: u64, protection: i32, flags: i32, file: RawFd, offset: i64) -> Result {
    let at = usize::try_from(addr).map_err(|_| CUresult::INVALID_VALUE)?;
    let len = usize::try_from(len).map_err(|_| CUresult::INVALID_VALUE)?;
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the range is inside one of the two windows (see the top of this file).
    let got = unsafe { libc::mmap(at, len, protection, flags | libc::MAP_FIXED, file, offset) };
    if got == libc::MAP_FAILED {
        Err(CUresult::OPERATING_SYSTEM)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_addresses_are_reused_only_after_the_whole_window() {
        let window = Window::get().unwrap();
        let first = window.reserve(PAGE, 0, None).unwrap();
        window.release(first, PAGE, false).unwrap();
        for _ in 0..100 {
            let next = window.reserve(PAGE, 0, None).unwrap();
            assert_ne!(next, first);
            window.release(next, PAGE, false).unwrap();
        }
    }

    #[test]
    fn released_addresses_are_given_again_where_that_is_asked_for() {
        let window = Window::get().unwrap();
        // Far above those of the other tests, which run beside this one.
        let far = window.base + WINDOW - 64 * PAGE;
        let at = window.reserve(PAGE, 0, Some(far)).unwrap();
        window.release(at, PAGE, true).unwrap();
        assert!(window.reserved.lock().unwrap().cursor <= at);
    }

    #[test]
    fn releasing_reservations_prevents_running_out_of_addresses() {
        let window = Window::get().unwrap();
        for _ in 0..40 {
            let at = window.reserve(WINDOW / 8, 0, None).unwrap();
            window.release(at, WINDOW / 8, false).unwrap();
        }
    }

    #[test]
    fn a_reservation_keeps_its_alignment_and_is_released_whole() {
        let window = Window::get().unwrap();
        let at = window.reserve(3 * PAGE, 1 << 30, None).unwrap();
        assert!(at.is_multiple_of(1 << 30));
        assert_eq!(
            window.release(at, PAGE, false),
            Err(CUresult::INVALID_VALUE)
        );
        assert_eq!(
            window.reserve(PAGE + 1, 0, None),
            Err(CUresult::INVALID_VALUE)
        );
        assert_eq!(window.reservation(at + 3 * PAGE - 1), Some((at, 3 * PAGE)));
        window.release(at, 3 * PAGE, false).unwrap();
        assert_eq!(
            window.release(at, 3 * PAGE, false),
            Err(CUresult::INVALID_VALUE)
        );
    }
}
