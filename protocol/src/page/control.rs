//! The control page: the daemon's orders to the processes of one tenant, in memory they can only
//! read.
//!
//! One page a tenant, made by the daemon and mapped read-only by clients. It holds the
//! tenant's grant on each device, so that a process learns of a raised or lowered grant without
//! a message, its turn there ([`lease`](super::lease)), and the daemon's heartbeat. It lives as
//! long as its daemon; the next daemon issues a new one.
//!
//! # Safety
//! [`ControlPage::from_mapping`] is the only unsafe item of this file. Every field is an atomic.
//! Where the memory can only be read, Rust defines no atomic accesses but relaxed loads, so what
//! runs in a client acquires by a fence behind one.
#![allow(
    unsafe_code,
    reason = "a shared mapping becomes a typed page here and nowhere else"
)]

use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::layout::{MAX_DEVICES, PageError};

/// First eight bytes of a control page: `gpsh-ctl` in memory order.
pub const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"gpsh-ctl");
/// Pages of another major version are refused.
pub const CONTROL_MAJOR: u16 = 2;
/// Grows when reserved space gets a meaning.
pub const CONTROL_MINOR: u16 = 0;
/// Size of the page and of its memfd.
pub const CONTROL_BYTES: usize = 8192;

/// Values for the whole tenant.
#[repr(C)]
#[derive(Debug)]
pub struct ControlHeader {
    /// [`CONTROL_MAGIC`].
    pub magic: AtomicU64,
    /// Major version in the upper 16 bits, minor in the lower.
    pub version: AtomicU32,
    /// [`CONTROL_BYTES`].
    pub size: AtomicU32,
    /// The daemon instance that issued the page.
    pub instance: AtomicU64,
    /// `CLOCK_MONOTONIC` in nanoseconds when the daemon last said that it lives.
    pub heartbeat: AtomicU64,
    /// A futex word: rises with each change of the page that a process may wait for. The daemon
    /// wakes all waiters after it raises it.
    pub changes: AtomicU32,
    padding: AtomicU32,
    /// How long an allocation above the tenant's request may wait, in milliseconds.
    pub wait_ms: AtomicU64,
    /// How long an ask within its request may take, in milliseconds: until borrowed memory has been
    /// taken back.
    pub guarantee_ms: AtomicU64,
    /// Whether the tenant's memory may leave the device, a
    /// [`Movability`](super::residency::Movability); read by [`ControlPage::movability`]. The
    /// daemon stores it before it answers a registration, and never changes it.
    pub(super) movability: AtomicU32,
    padding_after_movability: AtomicU32,
    /// `CLOCK_MONOTONIC` in nanoseconds: until then an ask whose own time is over is still waited
    /// for, because its turn in the rotation of memory is certain. The daemon's own answer comes
    /// earlier; this bounds the wait for a daemon that is gone.
    pub extended: AtomicU64,
    /// Nonzero while host memory is short: a process of the tenant that is out has the bytes of its
    /// ranges stored in a file (`HostStore`) and drops the ranges. Another number is another
    /// request: a process that was refused asks again.
    pub spill: AtomicU32,
    padding_after_spill: AtomicU32,
    reserved: [AtomicU64; 118],
}

/// Values for one device; the index is that of the usage page.
#[repr(C)]
#[derive(Debug)]
pub struct ControlDevice {
    /// Bytes the tenant's processes may hold as credit together.
    pub grant: AtomicU64,
    /// Bytes the daemon found taken beside the charges.
    pub overhead: AtomicU64,
    /// Nonzero while some tenant waits for memory of this device: a process that frees then
    /// reports it.
    pub waiters: AtomicU32,
    padding: AtomicU32,
    /// The bytes that the tenant's charges could reach if it asked now. Programs see the rest as
    /// free.
    pub reach: AtomicU64,
    /// The tenant's lease, a [`LeaseWord`](super::lease::LeaseWord); this and what follows is
    /// read and written by [`ControlDevice::turn`] and [`ControlDevice::publish`].
    pub lease: AtomicU64,
    /// See [`Turn::deadline`](super::lease::Turn::deadline).
    pub deadline: AtomicU64,
    /// See [`Turn::window`](super::lease::Turn::window).
    pub window: AtomicU64,
    /// See [`Turn::contended`](super::lease::Turn::contended).
    pub contended: AtomicU32,
    /// See [`Turn::cap`](super::lease::Turn::cap).
    pub cap: AtomicU32,
    /// See [`Turn::idle_after`](super::lease::Turn::idle_after).
    pub idle_after: AtomicU64,
    /// See [`Turn::slice`](super::lease::Turn::slice).
    pub slice: AtomicU64,
    /// Where the tenant's memory shall be, an [`OrderWord`](super::residency::OrderWord); this and
    /// the next are read and written by [`ControlDevice::order`] and [`ControlDevice::command`].
    pub(super) residency: AtomicU64,
    /// See [`Orders::drain_ms`](super::residency::Orders::drain_ms).
    pub(super) drain_ms: AtomicU32,
    padding_after_drain: AtomicU32,
    /// See [`Orders::withheld`](super::residency::Orders::withheld).
    pub(super) withheld: AtomicU64,
    /// The time slice, in nanoseconds, that the device's driver gives one context while others have
    /// work, as the node's settings say. A launch reads it when it comes: it may change without
    /// `changes` rising.
    pub driver_slice: AtomicU64,
    /// See [`Orders::booked`](super::residency::Orders::booked).
    pub(super) booked: AtomicU64,
    reserved: [AtomicU64; 17],
}

/// The whole page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ControlPage {
    /// The tenant.
    pub header: ControlHeader,
    /// Its devices.
    pub devices: [ControlDevice; MAX_DEVICES],
}

const _: () = {
    assert!(size_of::<ControlHeader>() == 1024);
    assert!(size_of::<ControlDevice>() == 256);
    assert!(offset_of!(ControlDevice, reach) == 24);
    assert!(offset_of!(ControlDevice, lease) == 32);
    assert!(offset_of!(ControlDevice, deadline) == 40);
    assert!(offset_of!(ControlDevice, window) == 48);
    assert!(offset_of!(ControlDevice, contended) == 56);
    assert!(offset_of!(ControlDevice, cap) == 60);
    assert!(offset_of!(ControlDevice, idle_after) == 64);
    assert!(offset_of!(ControlDevice, slice) == 72);
    assert!(offset_of!(ControlDevice, residency) == 80);
    assert!(offset_of!(ControlDevice, drain_ms) == 88);
    assert!(offset_of!(ControlDevice, withheld) == 96);
    assert!(offset_of!(ControlDevice, driver_slice) == 104);
    assert!(offset_of!(ControlDevice, booked) == 112);
    assert!(offset_of!(ControlHeader, movability) == 56);
    assert!(offset_of!(ControlHeader, extended) == 64);
    assert!(offset_of!(ControlHeader, spill) == 72);
    assert!(offset_of!(ControlPage, devices) == 1024);
    assert!(size_of::<ControlPage>() == CONTROL_BYTES);
    // A library refuses a page of another length, and libraries of other minors may have been
    // loaded long before: only another major has another length (ADR 269).
    assert!(CONTROL_MAJOR != 2 || CONTROL_BYTES == 8192);
};

impl ControlPage {
    /// Views a mapping as a control page. Any bytes are one; [`ControlPage::check`] says whether it
    /// is one of ours.
    ///
    /// # Safety
    /// `base` points to [`CONTROL_BYTES`] bytes, page-aligned and readable, which stay mapped for
    /// `'a` and are accessed only through atomics. A process that did not map it writable makes
    /// relaxed loads only.
    pub unsafe fn from_mapping<'a>(base: NonNull<u8>) -> &'a Self {
        // SAFETY: the caller vouches for size, alignment and lifetime; every field is an atomic
        // integer.
        unsafe { base.cast::<Self>().as_ref() }
    }

    /// Makes an all-zero page one of this version, issued by the daemon `instance`.
    pub fn found(&self, instance: u64) {
        let header = &self.header;
        header.version.store(
            u32::from(CONTROL_MAJOR) << 16 | u32::from(CONTROL_MINOR),
            Ordering::Relaxed,
        );
        #[expect(clippy::cast_possible_truncation, reason = "a constant that fits")]
        header.size.store(CONTROL_BYTES as u32, Ordering::Relaxed);
        header.instance.store(instance, Ordering::Relaxed);
        header.magic.store(CONTROL_MAGIC, Ordering::Release);
    }

    /// Whether the header is one this version can work with.
    ///
    /// # Errors
    /// [`PageError`] if it is not.
    pub fn check(&self) -> Result<(), PageError> {
        if self.header.magic.load(Ordering::Relaxed) != CONTROL_MAGIC {
            return Err(PageError::NotAPage);
        }
        fence(Ordering::Acquire);
        let major = (self.header.version.load(Ordering::Relaxed) >> 16) as u16;
        if major != CONTROL_MAJOR {
            return Err(PageError::Version { major });
        }
        let bytes = u64::from(self.header.size.load(Ordering::Relaxed));
        if bytes != CONTROL_BYTES as u64 {
            return Err(PageError::Size { bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An all-zero page, as a fresh file maps.
    pub(in crate::page) fn blank() -> &'static ControlPage {
        let memory = vec![0_u8; 2 * CONTROL_BYTES].leak();
        let base = NonNull::from(&mut *memory).cast::<u8>();
        // SAFETY: leaked zeroed memory, one page larger than needed, aligned by hand.
        unsafe { ControlPage::from_mapping(base.add(base.align_offset(4096))) }
    }

    #[test]
    fn zeroed_memory_is_no_control_page_until_it_is_founded() {
        let page = blank();
        assert_eq!(page.check(), Err(PageError::NotAPage));
        page.found(42);
        assert_eq!(page.check(), Ok(()));
        assert_eq!(page.header.instance.load(Ordering::Relaxed), 42);
    }

    #[test]
    fn a_control_page_that_says_another_length_is_refused() {
        let page = blank();
        page.found(1);
        let own = page.header.size.load(Ordering::Relaxed);
        for (size, is_page) in [(own - 64, false), (own, true), (own + 64, false)] {
            page.header.size.store(size, Ordering::Relaxed);
            assert_eq!(page.check().is_ok(), is_page, "{size}");
        }
    }

    #[test]
    fn a_newer_minor_is_read_and_another_major_is_not() {
        let page = blank();
        page.found(1);
        page.header
            .version
            .store(u32::from(CONTROL_MAJOR) << 16 | 9, Ordering::Relaxed);
        assert_eq!(page.check(), Ok(()));
        for major in [1, 3] {
            let version = u32::from(major) << 16;
            page.header.version.store(version, Ordering::Relaxed);
            assert_eq!(page.check(), Err(PageError::Version { major }));
        }
    }
}
