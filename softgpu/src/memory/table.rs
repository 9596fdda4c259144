//! All allocations of this process by address: kind, owner, and size to the byte.
//!
//! The address space itself ([`crate::va`]) only knows which addresses are accessible. This table
//! knows the *allocations*: one entry per allocation (or mapping), with the object that owns its
//! memory. A look-up by any address inside an allocation is logarithmic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gpushare_cuda_abi::cuda::CUresult;

use super::heap::Heap;
use super::host::HostMemory;
use super::ipc::Import;
use super::managed::Managed;
use super::phys::Region;
use super::pool::PoolBlock;
use super::vmm::Mapping;
use crate::Result;
use crate::va::{self, Fault, Range};

/// The kind of an allocation, with the object that owns its memory.
#[derive(Debug, Clone)]
pub(crate) enum What {
    /// Part of a block shared with other small allocations; the bytes it takes in the block.
    Small(Arc<Heap>, u64),
    /// Pages of its own.
    Large(Arc<Region>),
    /// A variable of a module.
    Module(#[expect(dead_code, reason = "held for its drop")] Arc<Region>),
    /// Memory of a stream-ordered pool.
    Pool(Arc<PoolBlock>),
    /// Memory of a graph. Its pages are mapped and unmapped by launches and frees.
    Graph,
    /// A VMM mapping.
    Mapped(Arc<Mapping>),
    /// Managed memory.
    Managed(Arc<Managed>),
    /// Pinned or registered host memory.
    Host(Arc<HostMemory>),
    /// Another process's allocation, opened by a handle.
    Imported(Arc<Import>),
}

/// One allocation.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// Bytes, as requested.
    pub(crate) size: u64,
    /// Unique among all allocations of this process.
    pub(crate) id: u64,
    /// The device it belongs to, by ordinal; for host memory the device of the context it was
    /// allocated in.
    pub(crate) device: u32,
    /// The context it was allocated in and is freed with; 0 for memory that outlives contexts.
    pub(crate) context: u64,
    /// Its kind and owner.
    pub(crate) what: What,
}

impl Record {
    /// Whether it is device memory (managed memory counts as device memory).
    pub(crate) fn on_device(&self) -> bool {
        match &self.what {
            What::Host(_) => false,
            What::Pool(block) => !block.is_on_host(),
            _ => true,
        }
    }
}

static TABLE: RwLock<BTreeMap<u64, Record>> = RwLock::new(BTreeMap::new());
/// Held for reading while bytes move, for writing while mappings are removed.
static STILL: RwLock<()> = RwLock::new(());

/// While the guard is held, no mapping of driver memory is removed. Code that accesses bytes found
/// by [`va::bytes`] holds it.
pub fn still() -> RwLockReadGuard<'static, ()> {
    STILL.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no bytes are moving. While the guard is held, no bytes move and mappings may be
/// removed.
pub(crate) fn exclusive() -> RwLockWriteGuard<'static, ()> {
    STILL.write().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the process's accesses to memory, for good. Returns when no byte moves any more. What still
/// runs finds no bytes, so that nobody waits for a lock that is never released.
pub(crate) fn close() {
    va::close();
    drop(exclusive());
}

/// A new allocation's number.
pub(crate) fn fresh_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Adds an allocation and makes its bytes accessible as `range` says. A call of another thread that
/// finds the addresses taken finds the allocation, too.
pub(crate) fn insert(base: u64, record: Record, range: Range) -> Result {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    va::publish(base, range)?;
    table.insert(base, record);
    Ok(())
}

/// Adds an allocation whose bytes are not accessible yet.
pub(crate) fn enter(base: u64, record: Record) {
    TABLE
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(base, record);
}

/// Removes the allocation that starts at `base` if `takes` accepts it, and makes its bytes
/// inaccessible. If two callers race, one of them gets the record.
pub(crate) fn remove_if(base: u64, takes: impl FnOnce(&Record) -> bool) -> Option<Record> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table
        .get(&base)
        .is_some_and(takes)
        .then(|| table.remove(&base))?
        .inspect(|_| {
            va::retract(base);
        })
}

/// Removes the allocation that starts at `base` if `takes` accepts it. Its bytes stay accessible
/// until they are retracted.
pub(crate) fn forget_if(base: u64, takes: impl FnOnce(&Record) -> bool) -> Option<Record> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    table
        .get(&base)
        .is_some_and(takes)
        .then(|| table.remove(&base))?
}

/// The bases of the allocations for which `chosen` holds.
pub(crate) fn starts(chosen: impl Fn(&Record) -> bool) -> Vec<u64> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table
        .iter()
        .filter(|(_, record)| chosen(record))
        .map(|(base, _)| *base)
        .collect()
}

/// The allocation that starts at `base`.
pub(crate) fn at(base: u64) -> Option<Record> {
    TABLE
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&base)
        .cloned()
}

/// The allocation that contains `address`, with its base.
pub(crate) fn find(address: u64) -> Option<(u64, Record)> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let (&base, record) = table.range(..=address).next_back()?;
    (address - base < record.size).then(|| (base, record.clone()))
}

/// Whether `address` is inside an allocation.
pub(crate) fn known(address: u64) -> bool {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table
        .range(..=address)
        .next_back()
        .is_some_and(|(base, record)| address - base < record.size)
}

/// Whether all `len` bytes are in one allocation, or in adjacent mappings. The driver checks this
/// when a call is made.
pub(crate) fn covers(address: u64, len: u64) -> bool {
    let Some(end) = address.checked_add(len) else {
        return false;
    };
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let mut at = address;
    loop {
        let Some((base, record)) = table.range(..=at).next_back() else {
            return false;
        };
        if at - base >= record.size {
            return false;
        }
        if base + record.size >= end {
            return true;
        }
        if !matches!(record.what, What::Mapped(_)) {
            return false;
        }
        at = base + record.size;
    }
}

/// Whether the bytes are in memory of a pool or a graph that stream order brings and that is not
/// there yet, or not any more. Work in that order may be submitted for it.
pub(crate) fn comes(address: u64, len: u64) -> bool {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    let found = table.range(..=address).next_back();
    let inside = found.filter(|(base, record)| {
        let end = (address - **base).checked_add(len);
        end.is_some_and(|end| end <= record.size)
    });
    inside.is_some_and(|(_, record)| matches!(record.what, What::Pool(_) | What::Graph))
        && va::find(address).is_none()
}

/// Whether a copy or memset of the device with this ordinal reaches the `len` bytes, as the driver
/// checks it when the call is made. Of plain memory all of the process's devices do; a mapping and
/// a pool's memory have rights by device.
pub(crate) fn reaches(ordinal: u32, address: u64, len: u64, access: va::Access) -> bool {
    overlapping(address, len)
        .iter()
        .all(|(base, record)| match &record.what {
            What::Mapped(_) => va::check(ordinal, *base, 1, access).is_ok(),
            What::Pool(block) => block.admits(ordinal, access),
            _ => true,
        })
}

/// The bytes for a copy engine of the device with the ordinal `by`, with the rules of [`reaches`];
/// `None`: the rights of any device do. The caller holds [`still`].
///
/// # Errors
/// A fault if the memory is not mapped, or the device, or any, has no such access right.
pub(crate) fn engine_bytes(
    by: Option<u32>,
    address: u64,
    len: u64,
    access: va::Access,
) -> std::result::Result<*mut u8, Fault> {
    // By the published rights: no lock of a pool is taken here.
    let has_rights = |record: &Record| match &record.what {
        What::Mapped(_) => true,
        What::Pool(block) => block.pool().is_on_device(),
        _ => false,
    };
    if let Some(ordinal) = by
        && overlaps_any(address, len, has_rights)
    {
        va::check(ordinal, address, len, access)?;
    }
    let (_, range) = va::find(address).ok_or(Fault {
        addr: address,
        absent: true,
    })?;
    let allowed = match access {
        va::Access::Read => range.readers,
        va::Access::Write => range.writers,
    };
    if allowed == 0 {
        return Err(Fault {
            addr: address,
            absent: false,
        });
    }
    va::check(allowed.trailing_zeros(), address, len, access)?;
    if range.shift != 0 && has_hole(address, len) {
        // A real driver copies to and from a page that is nobody's any more, and says nothing.
        eprintln!("softgpu: {address:#x}: the file has lost pages that are pinned");
        return Err(Fault {
            addr: address,
            absent: true,
        });
    }
    va::bytes(address, len)
}

/// Whether host memory was pinned with pages that its file has lost since.
fn has_hole(address: u64, len: u64) -> bool {
    overlaps_any(
        address,
        len,
        |record| matches!(&record.what, What::Host(memory) if memory.has_hole(address, len)),
    )
}

/// Whether the rights of any device reach all bytes now.
pub(crate) fn is_reached(address: u64, len: u64, access: va::Access) -> bool {
    engine_bytes(None, address, len, access).is_ok()
}

/// The bytes for work on the device with this ordinal: access rights apply. The caller holds
/// [`still`].
///
/// # Errors
/// A fault at the first address that this device may not access.
pub fn bytes(
    ordinal: u32,
    address: u64,
    len: u64,
    access: va::Access,
) -> std::result::Result<*mut u8, Fault> {
    va::check(ordinal, address, len, access)?;
    va::bytes(address, len)
}

/// The allocations that overlap the range, in order of address. Not under [`still`]: the last one
/// to drop a record may wait for that to end.
pub(crate) fn overlapping(address: u64, len: u64) -> Vec<(u64, Record)> {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    within(&table, address, len)
        .map(|(base, record)| (*base, record.clone()))
        .collect()
}

/// Whether `is` holds for an allocation that overlaps the range. No record outlives the look.
fn overlaps_any(address: u64, len: u64, is: impl Fn(&Record) -> bool) -> bool {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    within(&table, address, len).any(|(_, record)| is(record))
}

fn within(
    table: &BTreeMap<u64, Record>,
    address: u64,
    len: u64,
) -> impl Iterator<Item = (&u64, &Record)> {
    let before = table
        .range(..address)
        .next_back()
        .filter(|(base, record)| *base + record.size > address);
    let inside = table.range(address..address.saturating_add(len));
    before.into_iter().chain(inside)
}

/// Removes the allocations for which `chosen` holds, and makes their bytes inaccessible.
pub(crate) fn drain(chosen: impl Fn(&Record) -> bool) -> Vec<(u64, Record)> {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    let taken: Vec<_> = table.extract_if(.., |_, record| chosen(record)).collect();
    drop(table);
    for (base, _) in &taken {
        va::retract(*base);
    }
    taken
}

/// The allocation that starts at `base`; `INVALID_VALUE` if there is none.
pub(crate) fn expect(base: u64) -> Result<Record> {
    at(base).ok_or(CUresult::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::va::Access;

    /// Bytes of the host that no test writes.
    static BYTES: [u8; 4096] = [0; 4096];
    const SIZE: u64 = 64;

    fn host() -> Record {
        Record {
            size: SIZE,
            id: fresh_id(),
            device: 0,
            context: 0,
            what: What::Host(Arc::new(HostMemory::of_the_application())),
        }
    }

    #[test]
    fn a_copy_holds_no_memory_that_another_thread_frees() {
        let base = BYTES.as_ptr().expose_provenance() as u64;
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _still = still();
                        let _ = engine_bytes(Some(0), base, SIZE, Access::Read);
                    }
                });
            }
            let held = (0..300_000).filter(|_| {
                insert(base, host(), Range::on_host(SIZE)).expect("nothing is there");
                let record = remove_if(base, |_| true).expect("it was inserted");
                // A copy that holds it would be the last to drop it, and wait for itself.
                matches!(record.what, What::Host(memory) if Arc::strong_count(&memory) > 1)
            });
            let held = held.count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(held, 0);
        });
    }

    #[test]
    fn a_range_overlaps_what_begins_before_it_and_in_it_only() {
        let records = [(100, 50), (200, 10), (300, 10)];
        let record = |size| Record { size, ..host() };
        let table: BTreeMap<u64, Record> = records.map(|(base, size)| (base, record(size))).into();
        let of = |address, len| -> Vec<u64> {
            within(&table, address, len)
                .map(|(base, _)| *base)
                .collect()
        };
        assert_eq!(of(149, 52), [100, 200]);
        assert_eq!(of(150, 50), []);
        assert_eq!(of(0, 100), []);
        assert_eq!(of(205, 1000), [200, 300]);
    }
}
