//! Allocations below 1 MiB that can move: the slabs that they are parts of are made and given back
//! here. As in [`memory`](super::memory), all driver calls are made inside a passage of the seal.

use core::cell::Cell;

use gpushare_cuda_abi::cuda::CUresult;

use super::blocks::Blocks;
use super::managed;
use super::memory::{await_device, blocks, give_back, make, refused_by_capture, unit_of};
use super::pooled;
use super::small::{Empty, SLAB};
use crate::account::{self, Units};
use crate::driver::contexts::Here;
use crate::driver::device::DeviceKey;
use crate::driver::vmm;
use crate::gate::{self, seal};

/// Host memory is used in pages of this size.
const PAGE: u64 = 4096;

/// The bytes of a slab on a device; `None` where small allocations are made as plain memory.
pub(crate) fn size_on(device: DeviceKey) -> Option<u64> {
    if managed::is_on() {
        return None;
    }
    unit_of(device).map(|unit| SLAB.max(unit))
}

/// Takes a part for `bytes` of a slab that is there.
pub(crate) fn take(here: Here, bytes: u64) -> Option<u64> {
    let made = Cell::new(None);
    let _ = seal::pass(|| {
        made.set(blocks().take_small(here, bytes));
        CUresult::SUCCESS
    });
    made.get()
}

/// Makes a slab of `size` and takes a part for `bytes`: of this slab, or of another in which there
/// is room by now. Returns the slab and the part. The slab's charge is told by [`charged`].
///
/// # Errors
/// The driver's, as for a plain allocation.
pub(crate) fn grow(here: Here, bytes: u64, size: u64) -> Result<(u64, u64), CUresult> {
    let made = Cell::new((0, 0));
    let answer = seal::pass(|| match make(here, size, size) {
        Ok(base) => {
            let mut blocks = blocks();
            blocks.smalls.add(here.context, here.device, base, size);
            match blocks.take_small(here, bytes) {
                Some(at) => {
                    made.set((base, at));
                    CUresult::SUCCESS
                }
                None => CUresult::UNKNOWN,
            }
        }
        Err(why) => why,
    });
    answer.ok().map(|()| made.get())
}

/// A slab is charged with so much.
pub(crate) fn charged(device: DeviceKey, slab: u64, charge: Units) {
    let holds = blocks().smalls.charged(slab, charge);
    if !holds {
        // Its context has ended meanwhile, or nothing was in it.
        account::release(device, charge);
    }
}

/// Frees the small allocation at `at`, as [`memory::free`](super::memory::free).
pub(super) fn free(device: DeviceKey, at: u64) -> CUresult {
    if let Some(refused) = refused_by_capture() {
        return refused;
    }
    await_device(device);
    seal::pass(|| {
        let (small, surplus) = {
            let mut blocks = blocks();
            let small = blocks.smalls.give(at, gate::now());
            let owner = small.and_then(|small| blocks.smalls.owner_if_empty(small.slab));
            let surplus = owner.map(|owner| blocks.smalls.too_many(owner));
            (small, surplus.unwrap_or_default())
        };
        if let Some(small) = small.filter(|small| small.sync_memops) {
            follow_sync_memops(small.slab);
        }
        give_up(surplus);
        CUresult::SUCCESS
    })
}

/// Sets `SYNC_MEMOPS` of a slab, or a pool's segment, as its allocations want it. Inside a passage
/// of the seal.
pub(super) fn follow_sync_memops(base: u64) {
    let (on, chunks): (bool, Vec<u64>) = {
        let mut blocks = blocks();
        let blocks = &mut *blocks;
        let Some(block) = blocks.map.get_mut(&base) else {
            return;
        };
        let of_pool = blocks.pooled.sync_memops(base, block.reserved);
        let on = of_pool || blocks.smalls.sync_memops(base);
        if !on && !block.sync_memops {
            return;
        }
        block.sync_memops = on;
        (on, block.chunks.iter().map(|chunk| chunk.at).collect())
    };
    for at in chunks {
        let _ = vmm::set_sync_memops(at, on);
    }
}

/// Gives slabs back that are out of the books, and what they are charged with.
fn give_up(list: Vec<Empty>) {
    for empty in list {
        let block = blocks().remove(empty.base);
        if let Some(block) = block {
            give_back(empty.base, &block);
        }
        account::release(empty.device, empty.charge);
    }
}

/// Gives the slabs back that are empty for long. For the mover's thread, while nothing is sealed.
pub(super) fn drop_idle() {
    let idle = blocks().smalls.idle(gate::now());
    give_up(idle);
}

/// Gives the empty slabs of a device back: they need not move. For the mover's thread.
pub(super) fn drop_empty(device_index: usize) {
    if let Some(device) = DeviceKey::of_index(device_index) {
        let spare = blocks().smalls.spare(device);
        give_up(spare);
    }
}

/// Gives the empty slabs and pools' unused segments of a device back: memory is short.
pub(crate) fn spare(device: DeviceKey) {
    if !seal::may_move() || seal::is_set() {
        return;
    }
    pooled::spare(device);
    let _ = seal::pass(|| {
        let spare = blocks().smalls.spare(device);
        give_up(spare);
        CUresult::SUCCESS
    });
}

impl Blocks {
    fn take_small(&mut self, here: Here, bytes: u64) -> Option<u64> {
        self.smalls.take(here.context, bytes)
    }

    /// Only what is in use of a device's slabs and segments is copied: up to the end of the last
    /// allocation.
    pub(super) fn measure(&mut self, device_index: usize) {
        let (smalls, pooled) = (&self.smalls, &self.pooled);
        for (base, block) in &mut self.map {
            let is_slab = smalls.owner(*base).is_some();
            if block.device.index() != device_index || !is_slab && block.pool.is_none() {
                continue;
            }
            for chunk in &mut block.chunks {
                let end = match is_slab {
                    true => base + smalls.used(*base),
                    false => pooled.last_end(chunk.at + chunk.bytes),
                };
                let used = end.saturating_sub(chunk.at).next_multiple_of(PAGE);
                chunk.used = used.min(chunk.bytes);
            }
        }
    }
}
