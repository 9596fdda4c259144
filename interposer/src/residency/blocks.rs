//! The process's movable allocations: addresses for life, and for each chunk the one place where
//! its valid copy is. The books alone; no driver call.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_cuda_abi::cuda::{CUcontext, CUdevice, CUmemGenericAllocationHandle, CUresult};
use gpushare_protocol::page::MAX_DEVICES;

use super::host::{Piece, Store};
use super::own::Owns;
use super::pooled::{PoolId, Pooled};
use super::small::Smalls;
use crate::driver::contexts::{self, ContextId};
use crate::driver::device::{self, DeviceKey};
use crate::driver::vmm;

/// Most bytes of a chunk.
pub(super) const CHUNK: u64 = 64 << 20;

/// The one valid copy of a chunk.
#[derive(Clone, Debug)]
pub(super) enum Valid {
    /// On the device, in this physical memory.
    Device(CUmemGenericAllocationHandle),
    /// On the host.
    Host(Vec<Piece>),
    /// Managed memory: wherever the driver has it. It was sent home, or not.
    Managed {
        /// To the host.
        home: bool,
    },
    /// Nowhere: it was on the host when its context failed.
    Gone,
}

impl Valid {
    fn is_on_device(&self) -> bool {
        matches!(self, Self::Device(_) | Self::Managed { home: false })
    }
}

/// A part of an allocation that moves as a whole.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// How much of it the program asked for: the rest is not copied. Whole pages of the host.
    pub(super) used: u64,
    pub(super) valid: Valid,
    /// The physical memory of a return that is under way, and how far it is.
    pub(super) new: Option<New>,
}

/// A chunk's physical memory during a return. The host's copy is the valid one until all are back.
#[derive(Clone, Copy, Debug)]
pub(super) struct New {
    pub(super) handle: CUmemGenericAllocationHandle,
    pub(super) mapped: bool,
    pub(super) copied: bool,
}

/// An allocation.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// As the program asked for it.
    pub(crate) bytes: u64,
    pub(super) reserved: u64,
    pub(crate) handle: CUcontext,
    pub(super) context: ContextId,
    pub(crate) device: DeviceKey,
    pub(super) ordinal: CUdevice,
    /// The pool that it is a segment of.
    pub(super) pool: Option<PoolId>,
    /// The number of the program's free, if work may use the memory still.
    pub(super) freed: Option<u64>,
    pub(super) chunks: Vec<Chunk>,
}

/// Makes physical memory for a block, or for a segment of a pool.
pub(super) fn physical(
    ordinal: CUdevice,
    of_pool: bool,
    bytes: usize,
) -> Result<CUmemGenericAllocationHandle, CUresult> {
    if of_pool {
        vmm::create(ordinal, bytes)
    } else {
        vmm::create_linear(ordinal, bytes)
    }
}

impl Block {
    /// Makes physical memory for it.
    pub(super) fn make(&self, bytes: usize) -> Result<CUmemGenericAllocationHandle, CUresult> {
        physical(self.ordinal, self.pool.is_some(), bytes)
    }

    /// Whether it is managed memory.
    pub(crate) fn is_managed(&self) -> bool {
        let mut chunks = self.chunks.iter();
        chunks.any(|chunk| matches!(chunk.valid, Valid::Managed { .. }))
    }

    fn on_device(&self) -> u64 {
        self.bytes_that(Valid::is_on_device)
    }

    /// The bytes that are somewhere.
    fn movable(&self) -> u64 {
        self.bytes_that(|valid| !matches!(valid, Valid::Gone))
    }

    fn bytes_that(&self, are: impl Fn(&Valid) -> bool) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| are(&chunk.valid));
        chunks.map(|chunk| chunk.bytes).sum()
    }
}

/// A context that may access the allocations of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// The device of the first.
    pub(super) device: CUdevice,
    pub(super) from: CUcontext,
    pub(super) of: CUcontext,
}

/// All of them, by address, and the host store.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) map: BTreeMap<u64, Block>,
    pub(super) store: Store,
    pub(super) peers: Vec<Peer>,
    /// The program's own physical memory.
    pub(super) owns: Owns,
    /// Of that, what a failed move has left on the device without all of its mappings.
    pub(super) torn: BTreeSet<u64>,
    /// Managed memory whose context failed while it was at home: the driver has it.
    pub(super) left: BTreeSet<u64>,
    /// The slabs among them, and what is in those.
    pub(super) smalls: Smalls,
    /// Pools, and what is in their segments.
    pub(super) pooled: Pooled,
    /// By device, how often its memory has come back.
    pub(super) returns: [u64; MAX_DEVICES],
    /// Bytes of chunks by device, and those on the host.
    pub(super) movable: [u64; MAX_DEVICES],
    pub(super) away: [u64; MAX_DEVICES],
    /// The devices that are lost: nothing moves there any more.
    pub(super) lost: [bool; MAX_DEVICES],
}

impl Blocks {
    /// The device of an allocation that can move, and the bytes of all of them.
    pub(super) fn moving(&self) -> (Option<usize>, u64) {
        let bytes = self.movable.iter().zip(self.lost).enumerate();
        let here = bytes.filter(|(_, (bytes, lost))| **bytes > 0 && !lost);
        here.fold((None, 0), |(first, sum), (index, (bytes, _))| {
            (first.or(Some(index)), sum + bytes)
        })
    }

    /// The allocation that holds an address.
    pub(super) fn find(&self, address: u64) -> Option<(u64, &Block)> {
        self.reached(address, 1)
    }

    /// An allocation that a range of addresses reaches, wherever the range begins. A range without
    /// bytes is its address.
    pub(super) fn reached(&self, at: u64, bytes: u64) -> Option<(u64, &Block)> {
        let last = at.saturating_add(bytes.max(1) - 1);
        let (base, block) = self.map.range(..=last).next_back()?;
        (at < base + block.reserved).then_some((*base, block))
    }

    /// A block that is already there is of a context whose end is not noted yet: the driver has
    /// freed it with that.
    pub(super) fn insert(&mut self, base: u64, block: Block) {
        drop(self.remove(base));
        self.movable[block.device.index()] += block.reserved;
        self.map.insert(base, block);
    }

    /// Takes an allocation out; its host pieces are free again.
    pub(super) fn remove(&mut self, base: u64) -> Option<Block> {
        let mut block = self.map.remove(&base)?;
        self.left.remove(&base);
        let device_index = block.device.index();
        self.movable[device_index] -= block.movable();
        self.away[device_index] -= block.movable() - block.on_device();
        for chunk in &mut block.chunks {
            if let Valid::Host(pieces) = &mut chunk.valid {
                self.store.give(core::mem::take(pieces));
            }
        }
        Some(block)
    }

    /// Puts managed memory back that [`Self::remove`] took: the driver has refused to free it. Not
    /// where the address has been given again, or its context has ended: the driver has freed it.
    pub(super) fn put_back(&mut self, base: u64, block: Block) {
        let is_alive = block.context == ContextId::NONE || contexts::is_alive(block.context);
        if !is_alive || self.map.contains_key(&base) {
            return;
        }
        self.away[block.device.index()] += block.movable() - block.on_device();
        self.insert(base, block);
    }

    /// The rights at a pool's memory; `None`: it is a context's, for its [`Self::accessors`].
    pub(super) fn rights(&self, block: &Block) -> Option<Vec<(CUdevice, u64)>> {
        let pool = self.pooled.pools.get(&block.pool?)?;
        let rights = pool.access.iter();
        let rights = rights.filter(|(device, _)| self.may_reach(*device, block.ordinal));
        Some(rights.copied().collect())
    }

    /// The devices that may access an allocation of a context.
    pub(super) fn accessors(&self, block: &Block) -> Vec<CUdevice> {
        let peers = self.peers.iter().filter(|peer| peer.of == block.handle);
        let peers = peers.map(|peer| peer.device);
        let mut devices: Vec<CUdevice> = peers
            .filter(|device| self.may_reach(*device, block.ordinal))
            .collect();
        devices.push(block.ordinal);
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Whether a device is given rights at memory of another one: the driver may refuse any for one
    /// that is lost, where nothing runs that could use them.
    fn may_reach(&self, device: CUdevice, memory: CUdevice) -> bool {
        device == memory || !self.is_lost(device)
    }

    /// Whether a device is lost.
    pub(super) fn is_lost(&self, ordinal: CUdevice) -> bool {
        device::of_ordinal(ordinal).is_some_and(|device| self.lost[device.index()])
    }

    /// Chunks of a device for which `wanted` says so, up to so many bytes but one at least: the
    /// allocation's address, the place in it, and a copy of the chunk.
    pub(super) fn some(
        &self,
        device_index: usize,
        most: u64,
        wanted: impl Fn(&Chunk) -> bool,
    ) -> Vec<(u64, usize, Chunk)> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (base, block) in &self.map {
            if block.device.index() != device_index {
                continue;
            }
            for (index, chunk) in block.chunks.iter().enumerate() {
                if !wanted(chunk) {
                    continue;
                }
                if !found.is_empty() && bytes + chunk.bytes > most {
                    return found;
                }
                bytes += chunk.bytes;
                found.push((*base, index, chunk.clone()));
            }
        }
        for (number, own) in &self.owns.map {
            let is_here = own.device.index() == device_index && !own.is_fixed;
            if !is_here || !wanted(&own.chunk) {
                continue;
            }
            if !found.is_empty() && bytes + own.chunk.bytes > most {
                return found;
            }
            bytes += own.chunk.bytes;
            found.push((*number, 0, own.chunk.clone()));
        }
        found
    }

    /// The chunk in this place of an allocation, by its address or its number.
    pub(super) fn chunk(&mut self, base: u64, index: usize) -> Option<&mut Chunk> {
        if let Some(own) = self.owns.map.get_mut(&base) {
            return Some(&mut own.chunk);
        }
        self.map.get_mut(&base)?.chunks.get_mut(index)
    }

    /// That chunk's physical memory, during a return.
    pub(super) fn new_of(&mut self, base: u64, index: usize) -> Option<&mut New> {
        self.chunk(base, index)?.new.as_mut()
    }

    /// On which device an allocation is.
    pub(super) fn ordinal(&self, base: u64) -> Option<CUdevice> {
        let own = self.owns.map.get(&base).map(|own| own.ordinal);
        own.or_else(|| self.map.get(&base).map(|block| block.ordinal))
    }

    /// Bytes that are not usable on the device: those on the host, and those without their
    /// mappings.
    pub(super) fn unusable(&self, device_index: usize) -> u64 {
        let torn = self.torn.iter().filter_map(|number| {
            let own = self.owns.map.get(number)?;
            let here = own.device.index() == device_index;
            (here && matches!(own.chunk.valid, Valid::Device(_))).then_some(own.chunk.bytes)
        });
        self.away[device_index] + torn.sum::<u64>()
    }

    /// The chunk's valid copy is on the host from now on.
    pub(super) fn has_left(&mut self, base: u64, index: usize, pieces: Vec<Piece>) {
        let device = match (self.owns.map.get(&base), self.map.get(&base)) {
            (Some(own), _) => own.device,
            (None, Some(block)) => block.device,
            (None, None) => return,
        };
        if let Some(chunk) = self.chunk(base, index) {
            chunk.valid = Valid::Host(pieces);
            self.away[device.index()] += chunk.bytes;
        }
    }

    /// A chunk of managed memory was sent home, or back.
    pub(super) fn has_gone(&mut self, base: u64, index: usize, home: bool) {
        let Some(device) = self.map.get(&base).map(|block| block.device) else {
            return;
        };
        let Some(chunk) = self.chunk(base, index) else {
            return;
        };
        let bytes = chunk.bytes;
        let before = core::mem::replace(&mut chunk.valid, Valid::Managed { home });
        let away = &mut self.away[device.index()];
        match (before.is_on_device(), home) {
            (true, true) => *away += bytes,
            (false, false) => *away -= bytes,
            _ => {}
        }
    }

    /// All managed memory of a device counts as sent home, but for what is left to the driver: a
    /// return would bring that back at no time.
    pub(super) fn are_home(&mut self, device_index: usize) {
        let here = |chunk: &Chunk| matches!(chunk.valid, Valid::Managed { home: false });
        for (base, index, _) in self.some(device_index, u64::MAX, here) {
            if !self.left.contains(&base) {
                self.has_gone(base, index, true);
            }
        }
    }

    /// What a device had on the host is lost with it: the host's memory is free, and nothing comes
    /// back to those addresses. To free them stays possible. Returns the bytes.
    pub(super) fn give_up(&mut self, device_index: usize) -> u64 {
        let mut bytes = 0;
        for chunk in chunks_of(device_index, &mut self.map, &mut self.owns) {
            if let Valid::Host(pieces) = &mut chunk.valid {
                bytes += chunk.bytes;
                self.store.give(core::mem::take(pieces));
            }
        }
        bytes
    }

    /// What a failed context had on the host is nowhere from now on. Managed memory is wherever the
    /// driver has it. Of a pool, the whole segment serves none any more. Returns the physical
    /// memory that it has, of a return or without all of its mappings, and whether that is mapped
    /// at an address of ours.
    pub(super) fn is_gone(&mut self, base: u64, index: usize) -> Option<New> {
        let own = self.owns.map.get(&base).map(|own| own.device);
        let device = own.or_else(|| self.map.get(&base).map(|block| block.device))?;
        let chunk = self.chunk(base, index)?;
        if matches!(chunk.valid, Valid::Managed { .. }) {
            self.has_gone(base, index, false);
            self.left.insert(base);
            return None;
        }
        let (bytes, mut new) = (chunk.bytes, chunk.new.take());
        match core::mem::replace(&mut chunk.valid, Valid::Gone) {
            Valid::Host(pieces) => {
                self.store.give(pieces);
                self.movable[device.index()] -= bytes;
                self.away[device.index()] -= bytes;
            }
            // Without all of its mappings.
            Valid::Device(handle) => {
                self.torn.remove(&base);
                self.movable[device.index()] -= bytes;
                new = Some(New {
                    handle,
                    mapped: false,
                    copied: false,
                });
            }
            Valid::Managed { .. } | Valid::Gone => {}
        }
        if let (Some(own), Some(new)) = (self.owns.map.get_mut(&base), new) {
            let mapped = own.window.take().is_some();
            return Some(New { mapped, ..new });
        }
        let pool = self.map.get(&base).and_then(|block| block.pool);
        if let Some(pool) = pool.and_then(|pool| self.pooled.pools.get_mut(&pool)) {
            pool.books.is_lost(base);
        }
        new
    }

    /// All memory of a device is back: the valid copies are those on the device from now on.
    pub(super) fn has_entered(&mut self, device_index: usize) {
        self.returns[device_index] += 1;
        for chunk in chunks_of(device_index, &mut self.map, &mut self.owns) {
            let Some(new) = chunk.new.take() else {
                continue;
            };
            let before = core::mem::replace(&mut chunk.valid, Valid::Device(new.handle));
            if let Valid::Host(pieces) = before {
                self.store.give(pieces);
                self.away[device_index] -= chunk.bytes;
            }
        }
    }
}

/// All chunks of a device's memory.
fn chunks_of<'a>(
    device_index: usize,
    map: &'a mut BTreeMap<u64, Block>,
    owns: &'a mut Owns,
) -> impl Iterator<Item = &'a mut Chunk> {
    let of_blocks = map
        .values_mut()
        .filter(move |block| block.device.index() == device_index)
        .flat_map(|block| &mut block.chunks);
    let of_owns = owns
        .map
        .values_mut()
        .filter(move |own| own.device.index() == device_index)
        .map(|own| &mut own.chunk);
    of_blocks.chain(of_owns)
}

#[cfg(test)]
mod tests;
