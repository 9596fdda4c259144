//! Pools whose memory can move: stream-ordered allocations are served from segments of ours, by
//! the rules in [`pool_books`](super::pool_books). The driver's pool stays as it is and keeps the
//! attributes that the program sets; its own memory serves what a capture is in the way of.
//!
//! A pool that others may import, or that is not plain memory of a device, is left to the driver.
//! A free is followed like those of the driver's pools ([`frees`]).

mod grow;

use core::cell::Cell;
use std::collections::BTreeMap;

use gpushare_cuda_abi::cuda::*;

use self::grow::{Grown, Room, Ungrown, Wait, charged, grow, growth};
use super::behind::Behind;
use super::blocks::Blocks;
use super::later;
use super::memory::{blocks, give_back, refused_by_capture, refused_by_context, unit_of};
use super::pool_books::{PoolBooks, size_of};
use crate::account::{self, Deadline, Refused, Units};
use crate::driver::device::DeviceKey;
use crate::driver::stream_ref::StreamRef;
use crate::driver::tracker::StreamId;
use crate::gate::seal;
use crate::holdings::early::{self, Call};
use crate::holdings::frees::{self, Freed};
use crate::holdings::reclaim::{self, Found};
use crate::holdings::returning;

/// A pool's number here.
pub(crate) type PoolId = u64;

/// A pool that is served here.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) handle: CUmemoryPool,
    pub(super) device: DeviceKey,
    pub(super) ordinal: CUdevice,
    pub(super) books: PoolBooks,
    /// The most that it may reserve; 0 for no end.
    pub(super) most: u64,
    /// The bytes of segments that threads are making.
    pub(super) growing: u64,
    /// The bytes that stay reserved where the host waits.
    pub(super) threshold: u64,
    /// Devices and their rights.
    pub(super) access: Vec<(CUdevice, u64)>,
    pub(super) is_destroyed: bool,
}

/// An allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) pool: PoolId,
    pub(super) bytes: u64,
    pub(super) serial: u64,
}

/// A segment of a pool.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// Another one may be at its address before its charge is told.
    serial: u64,
    charge: Units,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Pooled {
    pub(super) pools: BTreeMap<PoolId, Pool>,
    /// By the driver's handle; `None`: it is left to the driver.
    pub(super) handles: BTreeMap<usize, Option<PoolId>>,
    pub(super) live: BTreeMap<u64, Live>,
    /// The segments, by address.
    segments: BTreeMap<u64, Segment>,
    made: u64,
}

impl Pooled {
    /// The allocation that holds an address.
    pub(super) fn find(&self, address: u64) -> Option<(u64, &Live)> {
        let (at, live) = self.live.range(..=address).next_back()?;
        (address - at < live.bytes).then_some((*at, live))
    }

    /// Where the last allocation that begins before `end` ends.
    pub(super) fn last_end(&self, end: u64) -> u64 {
        let last = self.live.range(..end).next_back();
        last.map_or(0, |(at, live)| at + live.bytes)
    }

    /// A pool that is served here from now on.
    pub(super) fn enter(&mut self, pool: Pool) -> PoolId {
        let id = self.made;
        self.made += 1;
        self.handles.insert(pool.handle.0.addr(), Some(id));
        self.pools.insert(id, pool);
        id
    }

    /// The driver has destroyed the pool that a handle was known for. The handle may be another
    /// pool's by now, which stays.
    pub(super) fn destroyed(&mut self, handle: usize, known: Option<PoolId>) {
        if self.handles.get(&handle) == Some(&known) {
            self.handles.remove(&handle);
        }
        if let Some(pool) = known.and_then(|id| self.pools.get_mut(&id)) {
            pool.is_destroyed = true;
        }
    }
}

/// Whether a pool can serve now: not while something captures, when only the driver can say what it
/// refuses.
pub(crate) fn can_serve(pool: PoolId) -> bool {
    let device = blocks().pooled.pools.get(&pool).map(|pool| pool.device);
    device.is_some_and(|device| unit_of(device).is_some())
}

fn take(pool: PoolId, stream: StreamId, bytes: u64, size: u64) -> Option<u64> {
    let made = Cell::new(None);
    let _ = seal::pass(|| {
        made.set(blocks().take_pooled(pool, stream, bytes, size));
        CUresult::SUCCESS
    });
    made.get()
}

/// Allocates from a pool in a stream's order.
///
/// # Errors
/// The driver's, or `OUT_OF_MEMORY` above the quota and above the pool's own limit.
pub(crate) fn allocate(pool: PoolId, stream: StreamRef, bytes: u64) -> Result<u64, CUresult> {
    let id = stream.id(stream.place());
    let size = size_of(bytes).ok_or(CUresult::OUT_OF_MEMORY)?;
    let take = || take(pool, id, bytes, size);
    let by = Call::Pool(bytes);
    if early::watches()
        && let Some((device, growth, _)) = growth(pool, size)
    {
        early::begins(device, growth, by);
    }
    let (call, mut others) = (Deadline::new(), Wait::default());
    loop {
        if let Some(at) = take() {
            return Ok(at);
        }
        frees::settle();
        if let Some(at) = take() {
            return Ok(at);
        }
        let (device, growth, room) = growth(pool, size).ok_or(CUresult::OUT_OF_MEMORY)?;
        if room != Room::Free {
            // A segment may have been made since the look before.
            match take() {
                Some(at) => return Ok(at),
                None if room == Room::Coming && others.goes_on() => continue,
                None => return Err(CUresult::OUT_OF_MEMORY),
            }
        }
        let charge = match account::charge(device, growth, &call) {
            Ok(charge) => charge,
            Err(Refused) => {
                match reclaim::reserve_or(device, growth, Some(by), &call, &mut || take())? {
                    Found::Booked(charge) => charge,
                    Found::Otherwise(at) => return Ok(at),
                }
            }
        };
        let (made, is_full) = (Cell::new(Grown::default()), Cell::new(false));
        let ask = || match grow(pool, growth, id, bytes, size) {
            Ok(grown) => {
                made.set(grown);
                CUresult::SUCCESS
            }
            Err(Ungrown::Full) => {
                is_full.set(true);
                // No driver's answer: the daemon cannot help.
                CUresult::UNKNOWN
            }
            Err(Ungrown::Driver(why)) => why,
        };
        let mut answer = ask();
        if answer == CUresult::OUT_OF_MEMORY {
            spare(device);
            answer = reclaim::insist(device, growth, by, &call, ask);
        }
        if is_full.get() {
            // Others have made it grow meanwhile, or do, perhaps by more than they need.
            continue;
        }
        answer.ok()?;
        let grown = made.get();
        charged(grown, device, charge.keep());
        return Ok(grown.at);
    }
}

/// Whether an allocation of a pool of ours begins at an address.
pub(crate) fn is_start(at: u64) -> bool {
    seal::may_move() && blocks().pooled.live.contains_key(&at)
}

/// Frees an allocation in the order of a stream that does not capture. Beside another capture the
/// driver may refuse that.
pub(crate) fn free_in(at: u64, stream: StreamRef) -> CUresult {
    if let Some(refused) = refused_by_capture() {
        return refused;
    }
    let place = stream.place();
    let id = stream.id(place);
    let freed_in = |books: &mut PoolBooks, size| books.freed_in(id, at, size);
    let taken = blocks().pooled.give(at, freed_in);
    let Some((live, device, size, free)) = taken else {
        return CUresult::INVALID_VALUE;
    };
    if place.is_some() {
        let freed = Freed::Held(live.pool, free, size);
        frees::freed_in(stream, place, device, freed);
    } else {
        // No event can stand behind it: it is over when all work is.
        returning::begins(device, size);
        later::put(Behind::now(device), move || {
            over(&[(live.pool, free)]);
            returning::ends(device, size);
            frees::freed();
        });
    }
    CUresult::SUCCESS
}

/// Frees an allocation. The driver takes all accesses to it for complete, and waits for none.
pub(crate) fn free_now(at: u64) -> CUresult {
    let known = {
        let blocks = blocks();
        let live = blocks.pooled.live.get(&at);
        live.and_then(|live| Some((blocks.pooled.pools.get(&live.pool)?.device, live.serial)))
    };
    let Some((device, serial)) = known else {
        return CUresult::INVALID_VALUE;
    };
    if let Some(refused) = refused_by_context(device).or_else(refused_by_capture) {
        return refused;
    }
    if !give(at, serial) {
        return CUresult::INVALID_VALUE;
    }
    tidy();
    CUresult::SUCCESS
}

/// Gives an allocation back to its pool. `false`: it is not that one, or none any more.
fn give(at: u64, serial: u64) -> bool {
    let mut blocks = blocks();
    let is_it = blocks
        .pooled
        .live
        .get(&at)
        .is_some_and(|live| live.serial == serial);
    if is_it {
        let give = |books: &mut PoolBooks, size| books.freed_now(at, size);
        let _ = blocks.pooled.give(at, give);
        frees::freed();
    }
    is_it
}

/// Frees are over.
pub(super) fn over(list: &[(u64, u64)]) {
    let mut blocks = blocks();
    for (pool, free) in list {
        if let Some(pool) = blocks.pooled.pools.get_mut(pool) {
            pool.books.over(*free);
        }
    }
}

/// The host has waited for something: pools give back what is unused above their thresholds.
pub(super) fn synchronised() {
    released(|_, pool| {
        pool.books.synchronised();
        pool.threshold
    });
}

/// Gives all unused memory of a device's pools back: memory is short.
pub(super) fn spare(device: DeviceKey) {
    frees::settle();
    released(|_, pool| match pool.device == device {
        true => 0,
        false => u64::MAX,
    });
}

/// Gives the unused memory of pools back that are destroyed.
pub(super) fn tidy() {
    released(|_, pool| if pool.is_destroyed { 0 } else { u64::MAX });
}

/// Releases unused segments of each pool down to what `keep` says. Not while the process is sealed:
/// the next wait of the host does it, though nothing is freed until then.
pub(super) fn released(mut keep: impl FnMut(PoolId, &mut Pool) -> u64) {
    let has_any = seal::may_move() && !blocks().pooled.segments.is_empty();
    if !has_any {
        return;
    }
    if seal::is_set() {
        frees::freed();
        return;
    }
    let _ = seal::pass(|| {
        let gone = blocks().pooled.release(&mut keep);
        give_up(gone);
        CUresult::SUCCESS
    });
}

fn give_up(list: Vec<(u64, DeviceKey, Units)>) {
    for (base, device, charge) in list {
        let block = blocks().remove(base);
        if let Some(block) = block {
            give_back(base, &block);
        }
        account::release(device, charge);
    }
}

/// Gives the memory of destroyed pools and lost segments back whose frees are over. For the mover's
/// thread, while nothing is sealed.
pub(super) fn drop_destroyed() {
    let has_any = {
        let blocks = blocks();
        let mut pools = blocks.pooled.pools.values();
        pools.any(|pool| pool.is_destroyed || pool.books.has_lost())
    };
    if has_any {
        frees::settle();
        let mut keep = |_, pool: &mut Pool| if pool.is_destroyed { 0 } else { u64::MAX };
        let gone = blocks().pooled.release(&mut keep);
        give_up(gone);
    }
}

impl Pooled {
    /// Takes an allocation out of the books by `give`.
    fn give<T>(
        &mut self,
        at: u64,
        give: impl FnOnce(&mut PoolBooks, u64) -> T,
    ) -> Option<(Live, DeviceKey, u64, T)> {
        let live = self.live.remove(&at)?;
        let size = size_of(live.bytes)?;
        let pool = self.pools.get_mut(&live.pool)?;
        let given = give(&mut pool.books, size);
        Some((live, pool.device, size, given))
    }

    /// A segment was made, or not.
    fn grows_no_more(&mut self, pool: PoolId, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.growing = pool.growing.saturating_sub(bytes);
        }
    }

    /// A segment was made. Returns its number.
    fn grow(&mut self, pool: PoolId, base: u64, bytes: u64) -> u64 {
        let serial = self.made;
        self.made += 1;
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.books.grow(base, bytes);
            let charge = Units::default();
            self.segments.insert(base, Segment { serial, charge });
        }
        serial
    }

    /// A segment is charged with so much. `false`: it is gone.
    fn charged(&mut self, grown: Grown, charge: Units) -> bool {
        let known = self.segments.get_mut(&grown.base);
        let known = known.filter(|segment| segment.serial == grown.serial);
        known.map(|segment| segment.charge = charge).is_some()
    }

    fn release(
        &mut self,
        keep: &mut dyn FnMut(PoolId, &mut Pool) -> u64,
    ) -> Vec<(u64, DeviceKey, Units)> {
        let mut gone = Vec::new();
        for (id, pool) in &mut self.pools {
            let keep = keep(*id, pool);
            for base in pool.books.release(keep) {
                let segment = self.segments.remove(&base);
                let charge = segment.map(|segment| segment.charge);
                gone.push((base, pool.device, charge.unwrap_or_default()));
            }
        }
        let is_used = |pool: &Pool| pool.books.reserved.now > 0 || pool.growing > 0;
        self.pools
            .retain(|_, pool| !pool.is_destroyed || is_used(pool));
        gone
    }
}

impl Blocks {
    fn take_pooled(
        &mut self,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
        size: u64,
    ) -> Option<u64> {
        let known = self.pooled.pools.get_mut(&pool)?;
        let at = known.books.take(stream, size)?;
        let live = Live {
            pool,
            bytes,
            serial: self.smalls.next_serial(),
        };
        self.pooled.live.insert(at, live);
        Some(at)
    }
}

#[cfg(test)]
mod tests;
