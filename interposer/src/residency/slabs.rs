//! Allocations below 1 MiB that can move: the slabs that they are parts of are made and given back
//! here. As in [`memory`](super::memory), all driver calls are made inside a passage of the seal.

use core::cell::Cell;

use gpushare_cuda_abi::cuda::CUresult;

use super::behind::{Behind, await_all};
use super::blocks::Blocks;
use super::memory::{
    await_device, blocks, give_back, make, refused_by_capture, refused_by_context, unit_of,
};
use super::pooled;
use super::provide::is_idle;
use super::small::{Empty, Given, SLAB};
use super::{later, managed, ordered};
use crate::account::{self, Units};
use crate::driver::captures;
use crate::driver::contexts::{self, Here};
use crate::driver::device::DeviceKey;
use crate::driver::stream_ref::StreamRef;
use crate::gate::{seal, work};
use crate::guest::clock;
use crate::holdings::frees::Parted;

/// Host memory is used in pages of this size.
const PAGE: u64 = 4096;

/// The bytes of a slab on a device; `None` where small allocations are made as plain memory.
pub(crate) fn size_on(device: DeviceKey) -> Option<u64> {
    if managed::is_on() {
        return None;
    }
    unit_of(device).map(|unit| SLAB.max(unit))
}

/// Takes a part for `bytes` of a slab that is there, for the current context. `None`: it takes the
/// slow way, which may find one.
#[inline(never)]
pub(crate) fn take_at_once(bytes: u32) -> Option<u64> {
    let here = contexts::here()?;
    // As there: a context may be lost, and while a stream captures such memory is the driver's.
    if !work::is_done(here.device.index()) || !captures::none_seen() {
        return None;
    }
    let taken = seal::try_pass_books(|| blocks().smalls.take_at_once(here.context, bytes));
    taken.ok()?
}

/// Takes a part for `bytes` of a slab that is there. Calls no driver.
pub(crate) fn take(here: Here, bytes: u32) -> Option<u64> {
    seal::pass_books(|| blocks().smalls.take(here.context, bytes)).ok()?
}

/// A slab that was made, and a part of it or of another one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grown {
    slab: u64,
    number: u64,
    /// The part's address.
    pub(crate) at: u64,
}

/// Makes a slab of `size` and takes a part for `bytes`: of this slab, or of another in which there
/// is room by now. The slab's charge is told by [`charged`].
///
/// # Errors
/// The driver's, as for a plain allocation.
pub(crate) fn grow(here: Here, bytes: u32, size: u64) -> Result<Grown, CUresult> {
    let made = Cell::new(Grown::default());
    let answer = seal::pass(|| match make(here, size, size) {
        Ok(slab) => {
            let smalls = &mut blocks().smalls;
            let number = smalls.add(here.context, here.device, slab, size);
            match smalls.take(here.context, bytes) {
                Some(at) => {
                    made.set(Grown { slab, number, at });
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
pub(crate) fn charged(device: DeviceKey, grown: Grown, charge: Units) {
    let holds = blocks().smalls.charged(grown.slab, grown.number, charge);
    if !holds {
        // Its context has ended meanwhile, or nothing was in it.
        account::release(device, charge);
    }
}

/// Frees the small allocation that begins at `at`, as [`memory::free`](super::memory::free).
/// `None`: there is none. Waits while the process is sealed, for a small allocation only.
#[inline(never)]
pub(crate) fn free(at: u64) -> Option<CUresult> {
    if !captures::none_seen() {
        return free_slowly(at);
    }
    // Before the passage, which is a call in the driver as far as the count knows.
    let so_far = work::so_far();
    let may_now = |device: DeviceKey, _| work::was_done(device.index(), so_far);
    match seal::try_pass_books(|| blocks().smalls.give(at, may_now)) {
        Ok(Given::Freed) => Some(CUresult::SUCCESS),
        Ok(given) => freed(at, given),
        Err(_) => free_slowly(at),
    }
}

/// The same in a stream's order: it waits for no work, and not while the process is sealed.
pub(crate) fn free_in(at: u64, stream: StreamRef) -> Option<CUresult> {
    let (device, serial) = blocks().smalls.begins(at)?;
    let refused = stream.fault().or_else(|| refused_by_context(device));
    if let Some(refused) = refused.or_else(refused_by_capture) {
        return Some(refused);
    }
    let so_far = work::so_far();
    let may_now = |device: DeviceKey, now| now == serial && work::was_done(device.index(), so_far);
    match seal::try_pass_books(|| blocks().smalls.give(at, may_now)) {
        Ok(Given::Freed | Given::OneTooMany) => return Some(CUresult::SUCCESS),
        Ok(Given::Nothing) => return Some(CUresult::INVALID_VALUE),
        Ok(Given::Kept) | Err(_) => {}
    }
    let number = serial;
    match stream.place() {
        Some(here) => {
            let units = Units::default();
            ordered::free(stream, here, device, Parted { at, number, units });
        }
        None => later::put(Behind::now(device), move || {
            let _ = blocks().smalls.give(at, |_, now| now == number);
        }),
    }
    Some(CUresult::SUCCESS)
}

/// The same, also where the driver has to be asked, or all work to be waited for.
#[cold]
#[inline(never)]
fn free_slowly(at: u64) -> Option<CUresult> {
    let (device, serial) = blocks().smalls.begins(at)?;
    if let Some(refused) = refused_by_capture().or_else(|| refused_by_context(device)) {
        return Some(refused);
    }
    // Not another one that was given the same place meanwhile.
    let is_it = move |_, now| now == serial;
    if !work::is_done(device.index())
        && let Err(work) = await_device(device)
    {
        // It is unknown what runs. A slab too many stays until it is empty for long.
        later::put(work, move || {
            let _ = blocks().smalls.give(at, is_it);
        });
        return Some(CUresult::SUCCESS);
    }
    let given = seal::pass_books(|| blocks().smalls.give(at, is_it));
    Some(match given {
        // Another thread has freed it, or its context has ended.
        Ok(Given::Nothing | Given::Kept) => CUresult::INVALID_VALUE,
        Ok(Given::Freed) => CUresult::SUCCESS,
        Ok(Given::OneTooMany) => changed(at),
        Err(why) => why,
    })
}

/// Goes on after a free of other than the usual kind.
#[cold]
#[inline(never)]
fn freed(at: u64, given: Given) -> Option<CUresult> {
    match given {
        Given::Nothing => None,
        Given::Kept => free_slowly(at),
        Given::Freed => Some(CUresult::SUCCESS),
        Given::OneTooMany => Some(changed(at)),
    }
}

/// After a free its context has an empty slab too many.
fn changed(at: u64) -> CUresult {
    let Some((slab, device)) = blocks().smalls.place_of(at) else {
        return CUresult::SUCCESS;
    };
    // Memory goes: what no hook saw submitted must be over too. The slab is given back later
    // otherwise, once it is empty for long.
    if let Err(work) = await_all(device) {
        work.over();
        return CUresult::SUCCESS;
    }
    let _ = seal::pass(|| {
        let surplus = {
            let smalls = &mut blocks().smalls;
            let owner = smalls.owner(slab);
            owner.map(|owner| smalls.too_many(owner))
        };
        give_up(surplus.unwrap_or_default());
        CUresult::SUCCESS
    });
    CUresult::SUCCESS
}

/// The device of the slab in which an address lies.
pub(crate) fn device_of(address: u64) -> Option<DeviceKey> {
    if seal::may_move() {
        blocks().smalls.place_of(address).map(|(_, device)| device)
    } else {
        None
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
    let now = clock::now();
    let is_due = blocks().smalls.is_due(now);
    if is_due && is_idle() {
        let idle = blocks().smalls.idle(now);
        give_up(idle);
    }
}

/// Gives the empty slabs of a device back: they need not move. For the mover's thread.
pub(super) fn drop_empty(device_index: usize) {
    if let Some(device) = DeviceKey::of_index(device_index) {
        let spare = blocks().smalls.spare(device);
        give_up(spare);
    }
}

/// Gives the empty slabs and pools' unused segments of a device back, and what the program has
/// freed: memory is short. Nothing is given back while the process is sealed. That is waited for
/// only if what is freed already `makes_room`: the allocation would wait as well.
pub(crate) fn spare(device: DeviceKey, makes_room: bool) {
    let may_give = || !seal::is_set() || makes_room && ordered::give_back_returned();
    if !seal::may_move() || !may_give() {
        return;
    }
    pooled::spare(device);
    ordered::give_back();
    later::hurry();
    // What no hook saw submitted may be at work there. It is not waited for: it may never end.
    if !is_idle() {
        return;
    }
    let _ = seal::pass(|| {
        let spare = blocks().smalls.spare(device);
        give_up(spare);
        CUresult::SUCCESS
    });
}

impl Blocks {
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
