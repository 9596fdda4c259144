//! Where everything lies in the page, and the one place that turns mapped memory into it.
//!
//! # Safety
//! [`Page::from_mapping`] is the only unsafe item of this file, and
//! [`ControlPage::from_mapping`](super::control::ControlPage::from_mapping) the only other one of
//! this crate. Every field is an atomic, so a
//! page that another process writes to, honest or not, can be read and written without undefined
//! behaviour.
#![allow(
    unsafe_code,
    reason = "a shared mapping becomes a typed page here and nowhere else"
)]

#[cfg(not(loom))]
use std::mem::{align_of, offset_of, size_of};
use std::{
    fmt,
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::token::Token;
use super::watch::Watch;
use super::word::Word;

/// First eight bytes of a finished page: `gpushare` in memory order. Written last, so a page that
/// has it is whole.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpushare");
/// Pages of another major version are refused.
pub const MAJOR: u16 = 2;
/// Grows when reserved space gets a meaning; older and newer minors share a page.
pub const MINOR: u16 = 0;
/// Devices a tenant can use.
pub const MAX_DEVICES: usize = 16;
/// Processes a tenant can have on the GPU at once.
pub const MAX_SLOTS: usize = 512;
/// Longest rendering of the limits, in bytes.
pub const TEXT_MAX: usize = 7168;
/// Size of the page and of its file.
pub const PAGE_BYTES: usize = 569_344;
/// [`Device::limit`] of a device without a limit.
pub const NO_LIMIT: u64 = u64::MAX;

/// The first 8 KiB of the page. Written under the tenant lock.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`] once the page is initialised, else zero.
    pub magic: AtomicU64,
    /// Major version in the upper 16 bits, minor in the lower.
    pub version: AtomicU32,
    /// [`PAGE_BYTES`].
    pub size: AtomicU32,
    /// [`MAX_SLOTS`].
    pub slots: AtomicU32,
    /// [`MAX_DEVICES`].
    pub devices: AtomicU32,
    /// Rises by one with each claimed slot.
    pub generation: AtomicU64,
    /// Process that founded the tenant.
    pub founder_pid: AtomicU32,
    /// Bytes of `text` in use.
    pub text_bytes: AtomicU32,
    /// When the founder started, in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub founder_start: AtomicU64,
    reserved: [AtomicU64; 122],
    /// The limits as text, eight bytes a word, little end first.
    text: [AtomicU64; TEXT_MAX / 8],
}

/// One device of the tenant. Written under the tenant lock, but for `paid_until` and `empty_at`,
/// which say how much of the cap is used that the tenant's processes keep together without a
/// daemon, and the token: those are changed by compare-and-swap, without a lock.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    /// The device's UUID in memory order, sixteen bytes.
    pub uuid: [AtomicU64; 2],
    /// Nonzero once a process has claimed this index.
    pub claimed: AtomicU32,
    /// Nonzero where programs see the request (`GPUSHARE_MEM_VIEW=request`): the free memory that a
    /// process sees then never rises because of other processes.
    pub by_request: AtomicU32,
    /// Most bytes all processes together may have charged, or [`NO_LIMIT`].
    pub limit: AtomicU64,
    /// Bytes guaranteed.
    pub request: AtomicU64,
    /// The total that programs see, in bytes.
    pub view_total: AtomicU64,
    /// Physical bytes of the device.
    pub capacity: AtomicU64,
    /// The tenant's hard cap in thousandths of the device's time, 0 for none. Without a daemon;
    /// with one the control page says it.
    pub cap: AtomicU32,
    padding_after_cap: AtomicU32,
    /// `CLOCK_MONOTONIC` in nanoseconds up to which the time that any process held the device is
    /// paid for: each holder moves it forward and pays for the part it moved.
    pub paid_until: AtomicU64,
    /// `CLOCK_MONOTONIC` in nanoseconds at which the tenant's time was or will be used up: the
    /// inflow since then, at `cap` nanoseconds a microsecond, is left. In the future it is debt.
    pub empty_at: AtomicU64,
    /// Under a daemon: the bytes that the tenant's charges may come to whatever the device has
    /// free, because room for that much is made. 0 without a daemon.
    pub assured: AtomicU64,
    reserved_before_token: [AtomicU64; 5],
    /// Which of the tenant's processes submits while they yield. On a line of its own.
    pub token: Token,
    /// Whether a remembered sum of all charges is still right. On a line that nothing else writes.
    pub watch: Watch,
    reserved: [AtomicU64; 7],
}

/// The owner of a slot. Written by its claimer under the tenant lock, after the slot's lock byte
/// is held.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Slot {
    /// Nonzero while the slot is taken; it is dead if no process holds its [`lock_byte`]. Written
    /// last.
    pub taken: AtomicU32,
    /// Process id in the process's own namespace.
    pub pid: AtomicU32,
    /// When the process started, in clock ticks since boot.
    pub start: AtomicU64,
    /// The header's generation at the claim: tells two owners of one slot apart.
    pub generation: AtomicU64,
    /// Inode of the pid namespace, `/proc/self/ns/pid`; 0 where the process has not said it.
    pub pid_namespace: AtomicU64,
    /// The process's pid in a namespace further out, the machine's if that can be seen, 0 where
    /// none can. Under a daemon that is what `generation` says.
    pub outer_pid: AtomicU64,
    /// The largest allocation refused since the daemon read it last, a
    /// [`RefusedWord`](super::refused::RefusedWord). Only shown.
    pub largest_refused: AtomicU64,
    reserved: [AtomicU64; 2],
}

/// One process on one device: a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line {
    /// {charged, credit}.
    pub word: Word,
    /// Estimated bytes the driver took beside the charges: contexts, modules, workspaces.
    pub overhead: AtomicU64,
    /// Nanoseconds of device time that completed operations take when they run alone, by estimate,
    /// all streams added. Only grows. The daemon reads it as a claim, not as a fact.
    pub service: AtomicU64,
    /// Last epoch of a lease whose work the process has finished. Only shown: the daemon uses the
    /// message.
    pub drained: AtomicU64,
    /// Charges refused.
    pub refused: AtomicU64,
    /// Nanoseconds in which work was pending: submitted and not known to be complete, or a launch
    /// waiting for the gate or for room. Only grows; currently pending work is counted when it
    /// ends.
    pub busy: AtomicU64,
    /// Work submitted, in operations; published now and then, not with each.
    pub submitted: AtomicU64,
    /// Since when work is pending now, a [`PendingWord`](super::pending::PendingWord).
    pub pending: AtomicU64,
}

/// The whole page.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// The kind of page.
    pub header: Header,
    /// Devices.
    pub devices: [Device; MAX_DEVICES],
    /// Rows.
    pub slots: [Slot; MAX_SLOTS],
    lines: [[Line; MAX_DEVICES]; MAX_SLOTS],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 8192 && offset_of!(Header, text) == 1024);
    assert!(size_of::<Device>() == 256);
    assert!(offset_of!(Device, capacity) == 48 && offset_of!(Device, cap) == 56);
    assert!(offset_of!(Device, paid_until) == 64 && offset_of!(Device, empty_at) == 72);
    assert!(offset_of!(Device, assured) == 80);
    assert!(offset_of!(Slot, pid_namespace) == 24 && offset_of!(Slot, outer_pid) == 32);
    assert!(offset_of!(Slot, largest_refused) == 40);
    assert!(offset_of!(Device, by_request) == 20 && offset_of!(Device, watch) == 192);
    assert!(offset_of!(Device, token) == 128 && size_of::<Token>() == 64);
    assert!(size_of::<Slot>() == 64 && size_of::<Line>() == 64);
    assert!(offset_of!(Page, devices) == 8192);
    assert!(offset_of!(Page, slots) == 12_288);
    assert!(offset_of!(Page, lines) == 45_056);
    assert!(size_of::<Page>() == PAGE_BYTES && align_of::<Page>() == 64);
    // Both sides refuse a page of another length, and a program keeps the page of its start
    // through upgrades and downgrades: only another major has another length (ADR 269).
    assert!(MAJOR != 2 || PAGE_BYTES == 569_344);
};

/// The byte of the file whose lock shows that slot `slot` is alive.
///
/// The lock belongs to the open file description of the process that claimed the slot
/// (`F_OFD_SETLK`). Byte 0 is the tenant lock.
pub const fn lock_byte(slot: usize) -> u64 {
    1024 + slot as u64
}

/// Bytes of the file that a slot's lines take, to be allocated before they are touched.
pub const fn slot_range(slot: usize) -> Range<u64> {
    let bytes = (MAX_DEVICES * 64) as u64;
    let start = 45_056 + slot as u64 * bytes;
    start..start + bytes
}

/// Why a page cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// Not a usage page, or not yet written.
    NotAPage,
    /// Written by a version that lays it out differently.
    Version {
        /// Its major version.
        major: u16,
    },
    /// The size does not belong to the version.
    Size {
        /// Its size in bytes.
        bytes: u64,
    },
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPage => write!(f, "not a gpushare usage page"),
            Self::Version { major } => {
                write!(f, "usage page of version {major}, this is version {MAJOR}")
            }
            Self::Size { bytes } => {
                write!(f, "usage page of {bytes} bytes instead of {PAGE_BYTES}")
            }
        }
    }
}

impl std::error::Error for PageError {}

impl Page {
    /// Views a mapping as a page. Any bytes are a valid page; [`Page::check`] says whether it is
    /// one of ours.
    ///
    /// # Safety
    /// `base` points to [`PAGE_BYTES`] bytes, page-aligned, readable and writable, which stay
    /// mapped for `'a` and are accessed only through atomics.
    pub unsafe fn from_mapping<'a>(base: NonNull<u8>) -> &'a Self {
        // SAFETY: the caller vouches for size, alignment and lifetime; every field is an atomic
        // integer, for which all bit patterns are valid.
        unsafe { base.cast::<Self>().as_ref() }
    }

    /// Whether the header is one this version can work with.
    ///
    /// # Errors
    /// [`PageError`] if it is not.
    pub fn check(&self) -> Result<(), PageError> {
        if self.header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(PageError::NotAPage);
        }
        let version = self.header.version.load(Ordering::Relaxed);
        let major = (version >> 16) as u16;
        if major != MAJOR {
            return Err(PageError::Version { major });
        }
        let bytes = u64::from(self.header.size.load(Ordering::Relaxed));
        if bytes != PAGE_BYTES as u64 {
            return Err(PageError::Size { bytes });
        }
        Ok(())
    }

    /// Makes an all-zero page a page of this version. For the tenant lock's holder.
    pub fn found(&self, pid: u32, start: u64) {
        let header = &self.header;
        header
            .version
            .store(u32::from(MAJOR) << 16 | u32::from(MINOR), Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "constants that fit")]
        {
            header.size.store(PAGE_BYTES as u32, Ordering::Relaxed);
            header.slots.store(MAX_SLOTS as u32, Ordering::Relaxed);
            header.devices.store(MAX_DEVICES as u32, Ordering::Relaxed);
        }
        header.founder_pid.store(pid, Ordering::Relaxed);
        header.founder_start.store(start, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// The lines of process slot `slot`, one a device, if there is such a slot.
    pub fn row(&self, slot: usize) -> Option<&[Line; MAX_DEVICES]> {
        self.lines.get(slot)
    }

    /// The line of process slot `slot` and device index `device`, if there are such.
    pub fn line(&self, slot: usize, device: usize) -> Option<&Line> {
        self.lines.get(slot)?.get(device)
    }
}

impl Header {
    /// Offset of the limits' text in the page.
    pub(super) const TEXT_AT: usize = 1024;

    /// Stores the limits' text; cut at [`TEXT_MAX`], which the callers keep to. For the tenant
    /// lock's holder.
    pub fn set_text(&self, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(TEXT_MAX)];
        for (word, chunk) in self.text.iter().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
        self.text_bytes
            .store(u32::try_from(bytes.len()).unwrap_or(0), Ordering::Release);
    }

    /// The limits' text. Bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        let length = (self.text_bytes.load(Ordering::Acquire) as usize).min(TEXT_MAX);
        let words = self.text.iter().take(length.div_ceil(8));
        let mut bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        bytes.truncate(length);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Device {
    /// The UUID of a claimed index.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        (self.claimed.load(Ordering::Acquire) != 0).then(|| {
            let mut uuid = [0; 16];
            uuid[..8].copy_from_slice(&self.uuid[0].load(Ordering::Relaxed).to_le_bytes());
            uuid[8..].copy_from_slice(&self.uuid[1].load(Ordering::Relaxed).to_le_bytes());
            uuid
        })
    }

    /// Gives the index to a device. For the tenant lock's holder.
    pub fn claim(&self, uuid: &[u8; 16]) {
        let half = |range: Range<usize>| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&uuid[range]);
            u64::from_le_bytes(eight)
        };
        self.uuid[0].store(half(0..8), Ordering::Relaxed);
        self.uuid[1].store(half(8..16), Ordering::Relaxed);
        self.claimed.store(1, Ordering::Release);
    }

    /// Gives the index back: no process uses the device. For the tenant lock's holder.
    pub fn vacate(&self) {
        self.claimed.store(0, Ordering::Release);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// An all-zero page, as a fresh file maps.
    fn blank() -> &'static Page {
        let memory = vec![0_u64; PAGE_BYTES / 8 + 8].leak();
        let base = NonNull::from(&mut *memory).cast::<u8>();
        let aligned = base.align_offset(64);
        // SAFETY: leaked zeroed memory, 64 bytes larger than the page, aligned by hand.
        unsafe { Page::from_mapping(base.add(aligned)) }
    }

    #[test]
    fn a_blank_file_is_not_a_page_until_it_is_founded() {
        let page = blank();
        assert_eq!(page.check(), Err(PageError::NotAPage));
        page.found(7, 9);
        assert_eq!(page.check(), Ok(()));
    }

    #[test]
    fn a_page_of_another_major_version_is_refused_and_a_newer_minor_is_not() {
        let page = blank();
        page.found(7, 9);
        page.header
            .version
            .store(u32::from(MAJOR) << 16 | 99, Ordering::Relaxed);
        assert_eq!(page.check(), Ok(()));
        for major in [1, 3] {
            let version = u32::from(major) << 16;
            page.header.version.store(version, Ordering::Relaxed);
            assert_eq!(page.check(), Err(PageError::Version { major }));
        }
    }

    #[test]
    fn a_page_that_says_another_length_is_refused() {
        let page = blank();
        page.found(7, 9);
        let own = page.header.size.load(Ordering::Relaxed);
        for (size, is_page) in [(own - 64, false), (own, true), (own + 64, false)] {
            page.header.size.store(size, Ordering::Relaxed);
            assert_eq!(page.check().is_ok(), is_page, "{size}");
        }
    }

    #[test]
    fn text_and_uuid_come_back_as_they_were_stored() {
        let page = blank();
        page.header.set_text("mem=4294967296 é");
        assert_eq!(page.header.text(), "mem=4294967296 é");
        page.header.set_text("short");
        assert_eq!(page.header.text(), "short");
        let uuid = *b"0123456789abcdef";
        assert_eq!(page.devices[3].uuid(), None);
        page.devices[3].claim(&uuid);
        assert_eq!(page.devices[3].uuid(), Some(uuid));
    }

    #[test]
    fn there_is_no_line_beyond_the_table() {
        let page = blank();
        assert!(page.line(MAX_SLOTS - 1, MAX_DEVICES - 1).is_some());
        assert!(page.line(MAX_SLOTS, 0).is_none());
        assert!(page.line(0, MAX_DEVICES).is_none());
    }
}
