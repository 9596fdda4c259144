//! Managed memory: the host accesses it at the same address as the device. Its 2 MiB pages count as
//! device memory while they are resident there.
//!
//! The bytes are always in a file mapped at the address itself; only *residency* moves. A page
//! becomes resident by a device's first touch or by a prefetch. When a device is full, the oldest
//! pages are evicted to the host. So managed memory never causes an out-of-memory error in this
//! process, neither for itself nor for another allocation.

mod advice;
mod file;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gpushare_cuda_abi::cuda::CUresult;

pub use advice::{Location, advise, range_attribute};

use super::blocks::{GRANULE, round_up};
use super::phys::{Noted, Pages, Reserved};
use super::table::{self, Record, What};
use crate::Result;
use crate::context::Context;
use crate::spec::PAGE;
use crate::va::{self, Backing, Range};
use crate::world::{Device, Kind, process};
use advice::Advice;

/// The legal attach flags of an allocation: `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
const ATTACH: [u32; 2] = [0x1, 0x2];

/// The location of a page.
#[derive(Debug)]
enum Residence {
    /// Never touched.
    Nowhere,
    /// On the host.
    Host,
    /// On the device with this ordinal, with the device page it takes.
    Device(
        u32,
        #[expect(dead_code, reason = "held for its drop")] Pages,
    ),
}

/// One managed allocation.
#[derive(Debug)]
pub(crate) struct Managed {
    addresses: Reserved,
    pages: Mutex<Vec<Residence>>,
    advice: Mutex<Vec<Advice>>,
    _noted: Noted,
}

/// Resident pages of this process, oldest first.
static RESIDENT: Mutex<VecDeque<(Weak<Managed>, usize, u32)>> = Mutex::new(VecDeque::new());

/// Allocates managed memory. It takes no device memory before a device touches it.
///
/// # Errors
/// `INVALID_VALUE` for 0 bytes or flags other than one of the two, `OUT_OF_MEMORY` if no addresses
/// are left.
pub fn alloc(context: &Context, size: u64, flags: u32) -> Result<u64> {
    if size == 0 || !ATTACH.contains(&flags) {
        return Err(CUresult::INVALID_VALUE);
    }
    let device = context.device();
    let asked = round_up(size, GRANULE).ok_or(CUresult::OUT_OF_MEMORY)?;
    let len = round_up(size, PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
    let addresses = Reserved::new(len)?;
    let base = addresses.base();
    va::map(
        base,
        len,
        Backing::File(file::file()?, file::offset(base)),
        true,
    )?;
    let count = usize::try_from(len / PAGE).map_err(|_| CUresult::OUT_OF_MEMORY)?;
    let managed = Managed {
        addresses,
        pages: Mutex::new((0..count).map(|_| Residence::Nowhere).collect()),
        advice: Mutex::new(vec![Advice::default(); count]),
        _noted: Noted::new(device, Kind::Managed, asked),
    };
    let ordinal = device.ordinal();
    let record = Record {
        size,
        id: table::fresh_id(),
        device: ordinal,
        context: context.id(),
        what: What::Managed(Arc::new(managed)),
    };
    let range = Range {
        readers: !0,
        writers: !0,
        peers: false,
        ..Range::on_device(ordinal, size)
    };
    table::insert(base, record, range)?;
    Ok(base)
}

impl Managed {
    /// Handles a touch of `len` bytes from `offset` by the device with this ordinal: pages that are
    /// not resident there become resident, as far as memory is available.
    pub(crate) fn touch(self: &Arc<Self>, ordinal: u32, offset: u64, len: u64) {
        let Ok(device) =
            process().and_then(|process| process.device(i32::try_from(ordinal).unwrap_or(-1)))
        else {
            return;
        };
        for page in self.pages_of(offset, len) {
            self.bring(device, page);
        }
    }

    /// Makes one page resident on the device, or leaves it in place if no memory can be freed for
    /// it.
    fn bring(self: &Arc<Self>, device: &Arc<Device>, page: usize) {
        let ordinal = device.ordinal();
        let here =
            |residence: &Residence| matches!(residence, Residence::Device(at, _) if *at == ordinal);
        if self.lock().get(page).is_none_or(here) {
            return;
        }
        // Taken without the lock: eviction looks at other pages, also of this allocation.
        let taken = Pages::take(device, Kind::Managed, PAGE);
        let mut pages = self.lock();
        let Some(residence) = pages.get_mut(page) else {
            return;
        };
        match taken {
            Ok(_) if here(residence) => {}
            Ok(taken) => {
                let before = std::mem::replace(residence, Residence::Device(ordinal, taken));
                drop(pages);
                drop(before);
                let mut resident = RESIDENT.lock().unwrap_or_else(PoisonError::into_inner);
                resident.push_back((Arc::downgrade(self), page, ordinal));
            }
            Err(_) if matches!(residence, Residence::Nowhere) => *residence = Residence::Host,
            Err(_) => {}
        }
    }

    /// Moves pages to the host.
    fn send_home(&self, offset: u64, len: u64) {
        for page in self.pages_of(offset, len) {
            self.evict(page, None);
        }
    }

    /// Evicts one page to the host. False if it is on no device, or on another device than
    /// `ordinal`.
    fn evict(&self, page: usize, ordinal: Option<u32>) -> bool {
        let mut pages = self.lock();
        let Some(residence) = pages.get_mut(page) else {
            return false;
        };
        match residence {
            Residence::Device(at, _) if ordinal.is_none_or(|ordinal| ordinal == *at) => {
                let before = std::mem::replace(residence, Residence::Host);
                drop(pages);
                drop(before);
                true
            }
            Residence::Nowhere if ordinal.is_none() => {
                *residence = Residence::Host;
                false
            }
            _ => false,
        }
    }

    /// The advice and the last prefetch of each page.
    fn advice(&self) -> std::sync::MutexGuard<'_, Vec<Advice>> {
        self.advice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Residence>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages_of(&self, offset: u64, len: u64) -> std::ops::Range<usize> {
        let index = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let end = offset.saturating_add(len).min(self.addresses.len());
        index(offset / PAGE)..index(end.div_ceil(PAGE))
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        file::forget(self.addresses.base(), self.addresses.len());
    }
}

/// Evicts up to `pages` pages of this process from a device, oldest first; false if none was
/// evicted.
pub(crate) fn evict(device: &Device, pages: u64) -> bool {
    let mut left = pages;
    let mut kept = VecDeque::new();
    while left > 0 {
        let next = RESIDENT
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let Some((managed, page, ordinal)) = next else {
            break;
        };
        let Some(alive) = managed.upgrade() else {
            continue;
        };
        if ordinal != device.ordinal() {
            kept.push_back((managed, page, ordinal));
        } else if alive.evict(page, Some(ordinal)) {
            left -= 1;
        }
    }
    RESIDENT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(kept);
    left < pages
}

/// Moves a range to a device or the host: the effect of a prefetch in stream order.
pub fn prefetch(address: u64, len: u64, to: Location) {
    let Ok((base, managed)) = find(address, len) else {
        return;
    };
    let offset = address - base;
    match to {
        Location::Device(ordinal) => managed.touch(ordinal, offset, len),
        Location::Host => managed.send_home(offset, len),
    }
    let pages = managed.pages_of(offset, len);
    for advice in &mut managed.advice()[pages] {
        advice.prefetched = Some(to);
    }
}

/// The managed allocation that contains the whole range, with its base.
///
/// # Errors
/// `INVALID_VALUE` if no managed allocation contains it.
pub(crate) fn find(address: u64, len: u64) -> Result<(u64, Arc<Managed>)> {
    match table::find(address) {
        Some((
            base,
            Record {
                size,
                what: What::Managed(managed),
                ..
            },
        )) if len > 0 && address - base <= size && len <= size - (address - base) => {
            Ok((base, managed))
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Checks the range of a prefetch before it is submitted.
///
/// # Errors
/// `INVALID_VALUE` for a range that is not managed memory.
pub fn check(address: u64, len: u64) -> Result {
    find(address, len).map(|_| ())
}
