//! Managed memory: the host accesses it at the same address as the device. Its 2 MiB pages count as
//! device memory while they are resident there.
//!
//! The bytes are always in a file mapped at the address itself; only *residency* moves
//! ([`residence`]). A page becomes resident when an operation that accesses it begins, or by a
//! prefetch. What a prefetch sends to the host leaves its device memory taken, which other memory
//! is given first (`home=kept`). Any process's allocation and any other managed page evicts it
//! ([`world::Resident`](crate::world::Resident)). So managed memory never causes an out-of-memory
//! error, neither for itself nor for another allocation. With `managed=fixed` an allocation is on
//! its device as a whole, and stays there.

mod advice;
mod file;
mod residence;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

pub use advice::{Location, advise, range_attribute};
pub use residence::{Moved, places};

use super::blocks::{GRANULE, round_up};
use super::phys::{Noted, Pages, Reserved};
use super::table::{self, Record, What};
use crate::Result;
use crate::context::Context;
use crate::exec::Touch;
use crate::spec::{HomeMemory, ManagedAccess, PAGE};
use crate::va::{self, Backing, Range};
use crate::world::{Device, Kind, process};
use advice::Advice;
use residence::Page;

/// The legal attach flags of an allocation: `CU_MEM_ATTACH_GLOBAL` and `CU_MEM_ATTACH_HOST`.
const ATTACH: [u32; 2] = [0x1, 0x2];

/// How an operation accesses a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It reads: the pages come to the device, unless they are advised to stay on the host.
    Read,
    /// It writes: as reading, and no other copy of the pages is kept.
    Write,
    /// A copy engine reads the pages where they are.
    CopyFrom,
    /// A prefetch brings them, whatever was advised.
    Prefetch,
}

/// A range that an operation accesses: address, bytes, manner.
pub type Accessed = (u64, u64, Manner);

/// One managed allocation.
#[derive(Debug)]
pub(crate) struct Managed {
    addresses: Reserved,
    pages: Mutex<Vec<Page>>,
    advice: Mutex<Vec<Advice>>,
    /// All of its memory, where it stays on its device.
    fixed: Option<Pages>,
    /// What becomes of its device memory when it goes to the host.
    home: HomeMemory,
    /// The application's request, until it frees it.
    noted: Mutex<Option<Noted>>,
}

/// Allocations of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Whether the process has managed memory.
pub(crate) fn exists() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// Allocates managed memory. It takes no device memory before a device touches it, except where it
/// cannot move.
///
/// # Errors
/// `INVALID_VALUE` for 0 bytes or flags other than one of the two, `OUT_OF_MEMORY` if no addresses
/// are left, or for memory that cannot move if the device lacks it.
pub fn alloc(context: &Context, size: u64, flags: u32) -> Result<u64> {
    if size == 0 || !ATTACH.contains(&flags) {
        return Err(CUresult::INVALID_VALUE);
    }
    let device = context.device();
    let asked = round_up(size, GRANULE).ok_or(CUresult::OUT_OF_MEMORY)?;
    let len = round_up(size, PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
    let fixed = match device.spec().managed {
        ManagedAccess::Concurrent => None,
        ManagedAccess::Fixed if len > device.capacity() => return Err(CUresult::OUT_OF_MEMORY),
        ManagedAccess::Fixed => Some(Pages::take(device, Kind::Managed, len)?),
    };
    let managed = Managed::new(device, asked, len, fixed)?;
    let base = managed.base();
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

/// Whether these are the address and length of a whole allocation of managed memory; a length of 0
/// says so too.
pub fn is_whole(address: u64, len: u64) -> bool {
    let Some((base, record)) = table::find(address) else {
        return false;
    };
    let is_managed = match &record.what {
        What::Managed(_) => true,
        What::Pool(block) => block.managed().is_some(),
        _ => false,
    };
    is_managed && (len == 0 || address == base && len == record.size)
}

impl Managed {
    /// Managed memory of `len` bytes, whole pages, of which the application has requested `asked`.
    pub(crate) fn new(
        device: &Arc<Device>,
        asked: u64,
        len: u64,
        fixed: Option<Pages>,
    ) -> Result<Self> {
        let addresses = Reserved::new(len)?;
        let base = addresses.base();
        va::map(
            base,
            len,
            Backing::File(file::file()?, file::offset(base)),
            true,
        )?;
        let count = usize::try_from(len / PAGE).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            addresses,
            pages: Mutex::new(vec![Page::default(); count]),
            advice: Mutex::new(vec![Advice::default(); count]),
            fixed,
            home: device.spec().home,
            noted: Mutex::new(Some(Noted::new(device, Kind::Managed, asked))),
        })
    }

    /// The application has freed it. Calls of other threads that still use it do not keep it on the
    /// device's counters.
    pub(crate) fn freed(&self) {
        let noted = self.noted.lock();
        noted.unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Its first address.
    pub(crate) fn base(&self) -> u64 {
        self.addresses.base()
    }

    /// Whether it contains an address.
    pub(crate) fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.base()) < self.addresses.len()
    }

    /// The advice and the last prefetch of each page.
    fn advice(&self) -> MutexGuard<'_, Vec<Advice>> {
        self.advice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> MutexGuard<'_, Vec<Page>> {
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
        self.give_all();
        file::forget(self.addresses.base(), self.addresses.len());
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The device of this process with an ordinal.
fn device(ordinal: u32) -> Option<Arc<Device>> {
    let number = i32::try_from(ordinal).ok()?;
    let device = process().ok()?.device(number).ok()?;
    Some(Arc::clone(device))
}

/// The effect of an operation that accesses these ranges when it begins; `None` if none of them is
/// managed memory.
pub(crate) fn touch(ranges: &[Accessed]) -> Option<Touch> {
    let ranges: Vec<Accessed> = ranges
        .iter()
        .filter(|(address, len, _)| *len > 0 && holding(*address).is_some())
        .copied()
        .collect();
    if ranges.is_empty() {
        return None;
    }
    Some(Touch::new(move |device| {
        let mut moved = Moved::default();
        for (address, len, manner) in &ranges {
            if let Some((base, managed)) = holding(*address) {
                moved += managed.bring(device, address - base, *len, *manner);
            }
        }
        moved.ns(device.spec())
    }))
}

/// The effect of a prefetch of a checked range when it begins.
pub fn prefetching(address: u64, len: u64, to: Location) -> Touch {
    Touch::new(move |at| {
        let Ok((base, managed)) = find(address, len) else {
            return 0;
        };
        let moved = match to {
            Location::Device(ordinal) => device(ordinal).map_or_else(Moved::default, |device| {
                managed.bring(&device, address - base, len, Manner::Prefetch)
            }),
            Location::Host => managed.send_home(address - base, len),
        };
        moved.ns(at.spec())
    })
}

/// Notes the destination of a prefetch: its effect in stream order.
pub fn prefetched(address: u64, len: u64, to: Location) {
    let Ok((base, managed)) = find(address, len) else {
        return;
    };
    let pages = managed.pages_of(address - base, len);
    for advice in &mut managed.advice()[pages] {
        advice.prefetched = Some(to);
    }
}

/// The managed memory that contains an address, with its base.
fn holding(address: u64) -> Option<(u64, Arc<Managed>)> {
    let (_, record) = table::find(address)?;
    let managed = memory_of(&record)?;
    Some((managed.base(), managed))
}

/// The managed memory that an allocation is, or is a part of.
fn memory_of(record: &Record) -> Option<Arc<Managed>> {
    match &record.what {
        What::Managed(managed) => Some(Arc::clone(managed)),
        What::Pool(block) => block.managed().cloned(),
        _ => None,
    }
}

/// The managed memory of the allocation that contains the whole range, with its base.
///
/// # Errors
/// `INVALID_VALUE` if no managed allocation contains it.
pub(crate) fn find(address: u64, len: u64) -> Result<(u64, Arc<Managed>)> {
    let (base, record) = table::find(address).ok_or(CUresult::INVALID_VALUE)?;
    let rest = record.size.saturating_sub(address - base);
    match memory_of(&record) {
        Some(managed) if len > 0 && len <= rest => Ok((managed.base(), managed)),
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
