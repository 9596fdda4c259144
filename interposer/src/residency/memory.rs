//! Movable allocations as the program makes and frees them: the program sees plain memory. Those
//! below 1 MiB are parts of [`slabs`].
//!
//! All driver calls here are made inside a passage of the seal, so that none is under way while the
//! mover works. Nothing is allocated or freed while the process is sealed: such a call waits.

use core::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{
    CUcontext, CUdevice, CUdevice_attribute, CUmemoryPool, CUresult, CUstream,
};
use gpushare_protocol::page::MAX_DEVICES;

use super::behind::{Behind, await_all};
use super::blocks::{Block, Blocks, CHUNK, Chunk, Valid};
use super::pooled::PoolId;
use super::small::number;
use super::spent::Spent;
use super::{managed, ordered, peers, pitch, thread};
use crate::account::{self, Units};
use crate::driver::calls;
use crate::driver::captures::{self, unnoticed};
use crate::driver::contexts::{ContextId, Here};
use crate::driver::device::{self, DeviceKey};
use crate::driver::stream_ref::StreamRef;
use crate::driver::vmm;
use crate::gate::{seal, work};
use crate::guest::fork::ForkLocal;
use crate::holdings::frees::Parted;
use crate::holdings::returning;

/// The smallest allocation that has chunks of its own.
pub(crate) const LEAST: u64 = 1 << 20;

/// Host memory is used in pages of this size.
const PAGE: u64 = 4096;

static BLOCKS: ForkLocal<Mutex<Blocks>> = ForkLocal::new();
/// By device, what sizes are rounded to; `None` where the device cannot.
static GRANULARITY: ForkLocal<Mutex<[Option<Option<u64>>; MAX_DEVICES]>> = ForkLocal::new();

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The books. Held for moments, never while the driver is called.
#[inline]
pub(super) fn blocks() -> MutexGuard<'static, Blocks> {
    locked(BLOCKS.get().unwrap_or_else(|| first_blocks()))
}

// By itself: they are large, and would lie on the stack of each call.
#[cold]
#[inline(never)]
fn first_blocks() -> &'static Mutex<Blocks> {
    BLOCKS.get_or(Mutex::default)
}

/// The size that an allocation takes in chunks of its own; `None` where it is made as plain memory,
/// as [`unit_of`] says.
pub(crate) fn size_of(bytes: u64, device: DeviceKey) -> Option<u64> {
    bytes.checked_next_multiple_of(unit_of(device)?)
}

/// The sizes of movable memory are multiples of this; `None` where all memory is plain: on a device
/// that cannot move any, and while a stream captures, when only the driver knows its refusals.
#[cold]
pub(super) fn unit_of(device: DeviceKey) -> Option<u64> {
    if !captures::none_seen() {
        return None;
    }
    granularity_of(device)
}

/// The same whether or not a stream captures; `None` on a device that cannot move any.
#[cold]
pub(super) fn granularity_of(device: DeviceKey) -> Option<u64> {
    if !seal::may_move() {
        return None;
    }
    let known = GRANULARITY.get_or(Mutex::default);
    let told = locked(known)[device.index()];
    told.unwrap_or_else(|| {
        let unit = ask_granularity(device);
        locked(known)[device.index()] = Some(unit);
        unit
    })
}

fn ask_granularity(device: DeviceKey) -> Option<u64> {
    let ordinal = device::ordinal_of(device)?;
    if managed::is_on() {
        return managed::granularity(ordinal);
    }
    let attribute = CUdevice_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    if calls::device_attribute(attribute, ordinal) != Ok(1) {
        tracing::warn!("this device has no virtual memory management: its memory stays on it");
        return None;
    }
    let asked = unnoticed(|| vmm::granularity(ordinal));
    let unit = asked.map(|unit| unit as u64);
    let fits = |unit: &u64| unit.is_power_of_two() && *unit <= CHUNK;
    if !unit.is_ok_and(|unit| fits(&unit)) {
        tracing::warn!(
            ?unit,
            "this granularity cannot be served: memory stays on the device"
        );
    }
    unit.ok().filter(fits)
}

/// Allocates `bytes` in a context, `size` of them in chunks. Returns the address.
///
/// # Errors
/// The driver's, as for a plain allocation.
pub(crate) fn allocate(here: Here, bytes: u64, size: u64) -> Result<u64, CUresult> {
    let made = Cell::new(0);
    let answer = seal::pass(|| match make(here, bytes, size) {
        Ok(at) => {
            made.set(at);
            CUresult::SUCCESS
        }
        Err(why) => why,
    });
    answer.ok().map(|()| made.get())
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Whose a block is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    device: DeviceKey,
    ordinal: CUdevice,
    context: ContextId,
    handle: CUcontext,
    pool: Option<PoolId>,
}

impl Owner {
    /// A pool's.
    pub(super) fn pool(pool: PoolId, device: DeviceKey, ordinal: CUdevice) -> Self {
        Self {
            device,
            ordinal,
            context: ContextId::NONE,
            handle: CUcontext::NULL,
            pool: Some(pool),
        }
    }
}

/// Makes a block of a context. Inside a passage of the seal.
pub(super) fn make(here: Here, bytes: u64, size: u64) -> Result<u64, CUresult> {
    let ordinal = device::ordinal_of(here.device).ok_or(CUresult::INVALID_DEVICE)?;
    let owner = Owner {
        device: here.device,
        ordinal,
        context: here.context,
        handle: here.handle,
        pool: None,
    };
    make_for(&owner, bytes, size)
}

/// Makes a block. Inside a passage of the seal.
pub(super) fn make_for(owner: &Owner, bytes: u64, size: u64) -> Result<u64, CUresult> {
    let mut block = Block {
        bytes,
        reserved: size,
        handle: owner.handle,
        context: owner.context,
        device: owner.device,
        ordinal: owner.ordinal,
        pool: owner.pool,
        freed: None,
        chunks: Vec::new(),
    };
    if managed::is_on() {
        let made = managed::make(block);
        wake_if_more();
        return made;
    }
    // A capture may have begun since: the driver's own functions are asked outside of it.
    unnoticed(|| {
        let base = vmm::reserve(length(size))?;
        let made = match back(base, &mut block) {
            Ok(()) => peers::enter(base, block),
            Err(why) => Err((why, block)),
        };
        if let Err((why, block)) = made {
            give_back(base, &block);
            return Err(why);
        }
        wake_if_more();
        Ok(base)
    })
}

/// Has the mover's thread ask for more host memory, in the background, if there is more to move.
pub(super) fn wake_if_more() {
    if managed::is_on() {
        return;
    }
    let grows = {
        let blocks = blocks();
        blocks.moving().1 > blocks.store.covered()
    };
    if let Some(session) = account::compute().and_then(|compute| compute.session)
        && grows
    {
        thread::wake(session);
    }
}

/// Puts physical memory behind a block, a chunk at a time.
fn back(base: u64, block: &mut Block) -> Result<(), CUresult> {
    let mut at = base;
    let end = base + block.reserved;
    while at < end {
        let bytes = CHUNK.min(end - at);
        let handle = block.make(length(bytes))?;
        if let Err(why) = vmm::map(at, length(bytes), handle) {
            Spent::chunk(None, handle).give_up();
            return Err(why);
        }
        block.chunks.push(Chunk {
            at,
            bytes,
            used: (base + block.bytes - at).next_multiple_of(PAGE).min(bytes),
            valid: Valid::Device(handle),
            new: None,
        });
        at += bytes;
    }
    Ok(())
}

/// Frees the movable allocation at `base` that is no part of a slab, and what it is charged with,
/// as the driver frees plain memory: when all work on the device is complete. Waits while the
/// process is sealed.
pub(crate) fn free(device: DeviceKey, base: u64, charge: Units) -> CUresult {
    if !blocks().map.contains_key(&base) {
        return CUresult::INVALID_VALUE;
    }
    if let Some(refused) = refused_by_context(device).or_else(refused_by_capture) {
        return refused;
    }
    if let Err(work) = await_all(device) {
        free_later(device, base, charge, work);
        return CUresult::SUCCESS;
    }
    let answer = seal::pass(|| now_free(base));
    if answer.is_success() {
        account::release(device, charge);
    }
    answer
}

/// The same in a stream's order: it waits for no work, and not while the process is sealed.
pub(crate) fn free_in(stream: StreamRef, device: DeviceKey, base: u64, charge: Units) -> CUresult {
    if !blocks().map.contains_key(&base) {
        return CUresult::INVALID_VALUE;
    }
    let refused = stream.fault().or_else(|| refused_by_context(device));
    if let Some(refused) = refused.or_else(refused_by_capture) {
        return refused;
    }
    // The driver waits for all work when it frees managed memory. That is left to the mover's
    // thread, as is what is freed in a stream of which nothing is known.
    match stream.place().filter(|_| !managed::is_on()) {
        Some(here) => {
            let parted = Parted {
                at: base,
                number: ordered::freed(base),
                units: charge,
            };
            ordered::free(stream, here, device, parted);
            CUresult::SUCCESS
        }
        None => {
            free_later(device, base, charge, Behind::now(device));
            CUresult::SUCCESS
        }
    }
}

/// Inside a passage of the seal.
pub(super) fn now_free(base: u64) -> CUresult {
    if managed::is_on() {
        return managed::free(base);
    }
    // Of several frees of one address at once only that comes here which has its record. So without
    // a block the context has ended meanwhile: all is freed, and so is the charge.
    let block = blocks().remove(base);
    if let Some(block) = block {
        give_back(base, &block);
    }
    CUresult::SUCCESS
}

/// The block is no allocation any more, and is freed when that work is over.
fn free_later(device: DeviceKey, base: u64, charge: Units, work: Behind) {
    returning::begins(device, charge.bytes());
    ordered::free_when_over(work, device, base, ordered::freed(base), charge);
}

/// Gives a block's device memory and addresses back to the driver.
pub(super) fn give_back(base: u64, block: &Block) {
    let mut spent = Spent {
        addresses: Some((base, block.reserved)),
        ..Spent::default()
    };
    for chunk in &block.chunks {
        if let Valid::Device(handle) = chunk.valid {
            spent.mapped.push((chunk.at, chunk.bytes));
            spent.handles.push(handle);
        }
    }
    spent.give_up();
}

/// The driver's error for a free while the current context is lost: its memory stays until it is
/// destroyed. Only work that was submitted can lose it. It is asked whether a stream captures, also
/// while the process is sealed: that touches no device memory.
pub(super) fn refused_by_context(device: DeviceKey) -> Option<CUresult> {
    if work::is_done(device.index()) {
        return None;
    }
    let fault = StreamRef::legacy(CUstream::NULL).fault();
    fault.filter(|fault| *fault != CUresult::INVALID_CONTEXT)
}

/// The driver's error for a free while a stream captures, if it refuses one. It is asked with an
/// allocation of this library's own, which no capture has noticed. Outside of all passages. Waits
/// while the process is sealed, as the free itself: no move waits for the end of a capture.
pub(super) fn refused_by_capture() -> Option<CUresult> {
    if captures::none_seen() {
        return None;
    }
    let answer = seal::pass(|| {
        let Ok(probe) = unnoticed(|| calls::allocate(1)) else {
            return CUresult::SUCCESS;
        };
        let answer = calls::free(probe);
        if !answer.is_success() {
            let _ = unnoticed(|| calls::free(probe));
        }
        answer
    });
    (!answer.is_success()).then_some(answer)
}

/// Waits for all work on a device that the process has submitted, if there is any.
///
/// # Errors
/// See [`await_all`].
pub(super) fn await_device(device: DeviceKey) -> Result<(), Behind> {
    let before = work::so_far();
    await_all(device)?;
    // A context that is lost stays lost: each allocation goes on asking.
    if StreamRef::legacy(CUstream::NULL).fault().is_none() {
        work::done(device.index(), before);
    }
    Ok(())
}

/// A context has ended: no other one reaches its memory, nor does it others', and what it pinned is
/// pinned no more. Its handle means no other one yet. Inside a passage of the seal.
pub(crate) fn context_ends(handle: CUcontext) {
    if seal::may_move() {
        let mut blocks = blocks();
        blocks.store.context_gone(handle);
        blocks.peers.retain(|peer| peer.of != handle);
        drop(blocks);
        peers::gone(handle);
    }
}

/// A context has ended, and its memory with it. Inside a passage of the seal.
pub(crate) fn context_gone(context: ContextId) {
    if !seal::may_move() {
        return;
    }
    pitch::context_gone(context);
    let (gone, slabs): (Vec<(u64, Block)>, _) = {
        let mut blocks = blocks();
        let slabs = blocks.smalls.context_gone(context);
        let bases = blocks.map.iter();
        let bases: Vec<u64> = bases
            .filter(|(_, block)| block.context == context)
            .map(|(base, _)| *base)
            .collect();
        let taken = bases.into_iter();
        let gone = taken.filter_map(|base| Some((base, blocks.remove(base)?)));
        (gone.collect(), slabs)
    };
    for (base, block) in gone {
        // The driver frees managed memory with its context.
        if !block.is_managed() {
            give_back(base, &block);
        }
    }
    for slab in slabs {
        account::release(slab.device, slab.charge);
    }
}

/// The allocation at an address in movable memory, or that there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// An allocation of the program's.
    Allocation(Allocation),
    /// None: a free part of a slab, or the rest of the last chunk.
    Nothing,
}

/// A movable allocation as the program knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    /// Its address.
    pub(crate) start: u64,
    /// As the program asked for it.
    pub(crate) bytes: u64,
    /// Its context; null for memory of a pool.
    pub(crate) handle: CUcontext,
    /// Its pool.
    pub(crate) pool: CUmemoryPool,
    /// It is the driver's managed memory.
    pub(crate) is_managed: bool,
    /// Of a part of a slab or segment, its own one: see [`number_now`].
    pub(crate) serial: Option<u64>,
}

/// The number (`BUFFER_ID`) of a part of a slab or segment, another one after each move: the driver
/// knows that of the whole. Inside a passage of the seal.
pub(crate) fn number_now(part: &Allocation) -> Option<u64> {
    let blocks = blocks();
    let (_, block) = blocks.find(part.start)?;
    Some(number(part.serial?, blocks.returns[block.device.index()]))
}

/// Finds the allocation at an address; `None`: not movable memory.
#[inline]
pub(crate) fn find(address: u64) -> Option<Found> {
    if !seal::may_move() {
        return None;
    }
    let blocks = blocks();
    let (base, block) = blocks.find(address)?;
    let mut found = Allocation {
        start: base,
        bytes: block.bytes,
        handle: block.handle,
        pool: CUmemoryPool::NULL,
        is_managed: block.is_managed(),
        serial: None,
    };
    if let Some(pool) = block.pool {
        let Some((start, live)) = blocks.pooled.find(address) else {
            return Some(Found::Nothing);
        };
        (found.start, found.bytes) = (start, live.bytes);
        found.serial = Some(live.serial);
        let pool = blocks.pooled.pools.get(&pool);
        found.pool = pool.map_or(CUmemoryPool::NULL, |pool| pool.handle);
    } else if blocks.smalls.owner(base).is_some() {
        let Some((start, small)) = blocks.smalls.find(address) else {
            return Some(Found::Nothing);
        };
        (found.start, found.bytes) = (start, small.bytes);
        found.serial = Some(small.serial);
    } else if block.freed.is_some() || address - base >= block.bytes {
        return Some(Found::Nothing);
    }
    Some(Found::Allocation(found))
}

/// Whether a range of addresses reaches movable memory, wherever the range begins.
#[inline]
pub(crate) fn is_in(at: u64, bytes: u64) -> bool {
    seal::may_move() && blocks().reached(at, bytes).is_some()
}

/// The device of the movable memory that a range of addresses reaches; `None`: there is none.
pub(crate) fn device_of(at: u64, bytes: u64) -> Option<DeviceKey> {
    if !seal::may_move() {
        return None;
    }
    let blocks = blocks();
    let (_, block) = blocks.reached(at, bytes)?;
    Some(block.device)
}
