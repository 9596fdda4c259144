//! Physical memory that the program makes itself (`cuMemCreate`) and maps: it can move too.
//!
//! The program has a number of ours in place of the driver's handle, because the memory behind it
//! is another after each move. Its mappings are undone and made again, with the rights that the
//! driver says they have. What refers to memory in a way that cannot follow a move fixes it: an
//! export, a multicast object, a part of it mapped. All driver calls here are made inside a passage
//! of the seal.

use std::collections::BTreeMap;

use gpushare_cuda_abi::cuda::{
    CUdevice, CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle,
    CUmemLocationType, CUresult,
};

use super::blocks::{Blocks, Chunk, Valid};
use super::managed;
use super::memory::{blocks, wake_if_more};
use super::spent::Spent;
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::device::DeviceKey;
use crate::driver::vmm;
use crate::gate::seal;

/// Numbers in place of handles begin here: no handle of a driver is such a number, neither an
/// address nor a small one.
const FIRST: u64 = 0x6770_7368 << 32;
/// How many there are.
const COUNT: u64 = 1 << 32;

/// The properties in which movable memory may differ, besides its device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Props {
    pub(super) handle_types: u32,
    pub(super) rdma: u8,
}

/// A mapping of the program's. Memory of which a part is mapped stays on the device.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) at: u64,
    /// How much of the memory.
    bytes: u64,
    /// The rights of devices; `None`: the driver is asked before the next move.
    pub(super) access: Option<Vec<(CUdevice, u64)>>,
    pub(super) state: Mapped,
}

/// How far a mapping is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    No,
    /// Without its rights.
    Bare,
    Whole,
}

/// Physical memory of the program's.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) props: Props,
    pub(super) device: DeviceKey,
    pub(super) ordinal: CUdevice,
    /// The program's references to the number.
    references: u64,
    /// It stays on the device.
    pub(super) is_fixed: bool,
    pub(super) maps: Vec<Mapping>,
    /// At a window of ours, through which it is copied.
    pub(super) chunk: Chunk,
    /// The physical memory that is mapped in the window.
    pub(super) window: Option<CUmemGenericAllocationHandle>,
}

/// All of it, by number, and where it is mapped.
#[derive(Debug, Default)]
pub(super) struct Owns {
    pub(super) map: BTreeMap<u64, Own>,
    pub(super) places: BTreeMap<u64, u64>,
    made: u64,
}

impl Owns {
    fn at(&self, address: u64) -> Option<(u64, u64)> {
        let (at, number) = self.places.range(..=address).next_back()?;
        let maps = &self.map.get(number)?.maps;
        let mapping = maps.iter().find(|mapping| mapping.at == *at)?;
        (address - at < mapping.bytes).then_some((*at, *number))
    }

    /// The memory that a range of addresses reaches.
    fn over(&self, at: u64, bytes: u64) -> Vec<u64> {
        let first = self.at(at).map(|(_, number)| number);
        let rest = self.within(at, bytes).into_iter();
        let mut numbers: Vec<u64> = first.into_iter().collect();
        numbers.extend(rest.map(|(_, number)| number));
        numbers.dedup();
        numbers
    }

    /// The mappings that begin in a range of addresses.
    fn within(&self, at: u64, bytes: u64) -> Vec<(u64, u64)> {
        let range = self.places.range(at..at.saturating_add(bytes));
        range.map(|(at, number)| (*at, *number)).collect()
    }

    /// Bytes on a device that can move.
    pub(super) fn movable(&self, device: DeviceKey) -> u64 {
        let all = self.map.values();
        all.filter(|own| own.device == device && !own.is_fixed)
            .map(|own| own.chunk.bytes)
            .sum()
    }
}

/// Whether this is a number of ours.
pub(crate) fn is_number(handle: CUmemGenericAllocationHandle) -> bool {
    handle.wrapping_sub(FIRST) < COUNT
}

/// The driver's handle of a number, or the handle itself. `None`: a number that stands for nothing.
fn translated(handle: CUmemGenericAllocationHandle) -> Option<CUmemGenericAllocationHandle> {
    if !is_number(handle) {
        return Some(handle);
    }
    match blocks().owns.map.get(&handle)?.chunk.valid {
        Valid::Device(real) => Some(real),
        Valid::Host(_) | Valid::Managed { .. } | Valid::Gone => None,
    }
}

/// Makes a call with the driver's handle in place of a number, while nothing moves. With `fixes`
/// the memory stays on the device if the driver agrees.
pub(crate) fn with_handle(
    handle: CUmemGenericAllocationHandle,
    fixes: bool,
    call: impl FnOnce(CUmemGenericAllocationHandle) -> CUresult,
) -> CUresult {
    if !is_number(handle) {
        return call(handle);
    }
    seal::pass(|| {
        let Some(real) = translated(handle) else {
            return CUresult::INVALID_VALUE;
        };
        let answer = call(real);
        if fixes && answer.is_success() {
            blocks().fix(handle);
        }
        answer
    })
}

/// Makes a call about an address where the program may have mapped memory that can move, while
/// nothing moves.
pub(crate) fn at_address(at: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if holds(at) { seal::pass(call) } else { call() }
}

/// Makes a call that lets others refer to a range of addresses, while nothing moves. All memory
/// that the range reaches stays on the device if the driver agrees.
pub(crate) fn exporting(at: u64, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let is_free = || blocks().owns.over(at, bytes).is_empty();
    if !seal::may_move() || is_free() {
        return call();
    }
    seal::pass(|| {
        let answer = call();
        if answer.is_success() {
            blocks().fix_range(at, bytes);
        }
        answer
    })
}

/// Whether an address lies in such memory.
pub(crate) fn holds(at: u64) -> bool {
    seal::may_move() && blocks().owns.at(at).is_some()
}

/// The properties of memory that can move; `None` for special kinds, which cannot.
fn movable(prop: &CUmemAllocationProp) -> Option<Props> {
    let plain = prop.type_ == CUmemAllocationType::PINNED
        && prop.location.type_ == CUmemLocationType::DEVICE
        && prop.win32HandleMetaData.is_null()
        && prop.allocFlags.compressionType == 0
        && prop.allocFlags.usage == 0;
    plain.then_some(Props {
        handle_types: prop.requestedHandleTypes.0,
        rdma: prop.allocFlags.gpuDirectRDMACapable,
    })
}

/// Makes physical memory by `real`, which gives the driver's handle. The program's handle is
/// returned: a number of ours where the memory can move.
pub(crate) fn create(
    device: DeviceKey,
    prop: &CUmemAllocationProp,
    bytes: u64,
    real: impl FnOnce() -> Result<CUmemGenericAllocationHandle, CUresult>,
) -> Result<CUmemGenericAllocationHandle, CUresult> {
    let moves = seal::may_move() && !managed::is_on();
    let props = movable(prop).filter(|_| moves);
    let Some(props) = props else {
        return real();
    };
    let made = core::cell::Cell::new(0);
    let answer = seal::pass(|| match real() {
        Ok(handle) => {
            made.set(entered(device, prop.location.id, props, bytes, handle));
            CUresult::SUCCESS
        }
        Err(why) => why,
    });
    answer.ok().map(|()| made.get())
}

fn entered(
    device: DeviceKey,
    ordinal: CUdevice,
    props: Props,
    bytes: u64,
    handle: CUmemGenericAllocationHandle,
) -> CUmemGenericAllocationHandle {
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let Ok(window) = unnoticed(|| vmm::reserve(length)) else {
        // It stays where it is.
        return handle;
    };
    let own = Own {
        props,
        device,
        ordinal,
        references: 1,
        is_fixed: false,
        maps: Vec::new(),
        chunk: Chunk {
            at: window,
            bytes,
            used: bytes,
            valid: Valid::Device(handle),
            new: None,
        },
        window: None,
    };
    let number = {
        let mut blocks = blocks();
        blocks.movable[device.index()] += bytes;
        let number = FIRST + blocks.owns.made % COUNT;
        blocks.owns.made += 1;
        blocks.owns.map.insert(number, own);
        number
    };
    wake_if_more();
    number
}

/// Releases a reference of the program's. `None`: it is no number of ours.
pub(crate) fn release(number: CUmemGenericAllocationHandle) -> Option<CUresult> {
    if !is_number(number) {
        return None;
    }
    Some(seal::pass(|| {
        {
            let mut blocks = blocks();
            let own = blocks.owns.map.get_mut(&number);
            let Some(own) = own.filter(|own| own.references > 0) else {
                return CUresult::INVALID_VALUE;
            };
            own.references -= 1;
        }
        end_if_unheld(number);
        CUresult::SUCCESS
    }))
}

/// Gives memory up that nothing refers to any more.
fn end_if_unheld(number: u64) {
    let mut blocks = blocks();
    let is_held = |own: &Own| own.references > 0 || !own.maps.is_empty();
    if blocks.owns.map.get(&number).is_none_or(is_held) {
        return;
    }
    let Some(own) = blocks.owns.map.remove(&number) else {
        return;
    };
    if !own.is_fixed && !matches!(own.chunk.valid, Valid::Gone) {
        blocks.movable[own.device.index()] -= own.chunk.bytes;
        // On a lost device what was away counts as such until it is released.
        if matches!(own.chunk.valid, Valid::Host(_)) {
            blocks.away[own.device.index()] -= own.chunk.bytes;
        }
    }
    drop(blocks);
    let window = (own.chunk.at, own.chunk.bytes);
    let mut spent = Spent {
        mapped: own.window.map(|_| window).into_iter().collect(),
        addresses: Some(window),
        ..Spent::default()
    };
    if let Valid::Device(handle) = own.chunk.valid {
        spent.handles.push(handle);
    }
    spent.give_up();
}

/// Maps memory by `call`, which is given the driver's handle.
pub(crate) fn map(
    (at, bytes): (u64, u64),
    handle: CUmemGenericAllocationHandle,
    call: impl FnOnce(CUmemGenericAllocationHandle) -> CUresult,
) -> CUresult {
    if !is_number(handle) {
        return over(at, bytes, || call(handle));
    }
    with_handle(handle, false, |real| {
        let answer = call(real);
        if answer.is_success() {
            blocks().mapped(handle, at, bytes);
        }
        answer
    })
}

/// Makes a call about a range of addresses where memory may be mapped that is away: while nothing
/// moves, so that the driver knows of the mapping.
pub(crate) fn over(at: u64, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    let is_free = || blocks().owns.over(at, bytes).is_empty();
    if !seal::may_move() || is_free() {
        return call();
    }
    seal::pass(call)
}

/// Undoes mappings by `call`.
pub(crate) fn unmap(at: u64, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if !seal::may_move() || blocks().owns.within(at, bytes).is_empty() {
        return call();
    }
    seal::pass(|| {
        let answer = call();
        if answer.is_success() {
            let gone = blocks().owns.within(at, bytes);
            for (at, number) in gone {
                blocks().unmapped(at, number);
                end_if_unheld(number);
            }
        }
        answer
    })
}

/// Changes the rights of mappings by `call`.
pub(crate) fn set_access(at: u64, bytes: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if !seal::may_move() || blocks().owns.within(at, bytes).is_empty() {
        return call();
    }
    seal::pass(|| {
        let answer = call();
        let mut blocks = blocks();
        for (at, number) in blocks.owns.within(at, bytes) {
            // Also behind a refusal, which may come after a part was done.
            blocks.mapping(number, at, |mapping| mapping.access = None);
        }
        answer
    })
}

/// The driver has given one more reference to memory, by its handle: the program's handle for it.
/// `at` is where it is mapped, if that is how it was named.
pub(crate) fn referred(
    at: Option<u64>,
    real: CUmemGenericAllocationHandle,
) -> CUmemGenericAllocationHandle {
    if !seal::may_move() {
        return real;
    }
    let number = {
        let mut blocks = blocks();
        let by_place = at
            .and_then(|at| blocks.owns.at(at))
            .map(|(_, number)| number);
        // Where the driver has another handle for each import, the program has that one: what was
        // exported is fixed, so it needs no number.
        let is_it = |own: &Own| {
            own.is_fixed && matches!(own.chunk.valid, Valid::Device(handle) if handle == real)
        };
        let by_handle = || {
            let mut all = blocks.owns.map.iter();
            all.find(|(_, own)| is_it(own)).map(|(number, _)| *number)
        };
        let number = by_place.or_else(by_handle);
        if let Some(own) = number.and_then(|number| blocks.owns.map.get_mut(&number)) {
            own.references += 1;
        }
        number
    };
    match number {
        Some(number) => {
            // The driver's own reference is counted by the number.
            let _ = calls::release_physical(real);
            number
        }
        None => real,
    }
}

impl Blocks {
    /// Memory that stays on the device from now on.
    fn fix(&mut self, number: u64) {
        if let Some(own) = self.owns.map.get_mut(&number)
            && !own.is_fixed
        {
            own.is_fixed = true;
            self.movable[own.device.index()] -= own.chunk.bytes;
        }
    }

    /// The same of all memory that a range of addresses reaches.
    fn fix_range(&mut self, at: u64, bytes: u64) {
        for number in self.owns.over(at, bytes) {
            self.fix(number);
        }
    }

    fn mapped(&mut self, number: u64, at: u64, bytes: u64) {
        let Some(own) = self.owns.map.get_mut(&number) else {
            return;
        };
        let is_whole = bytes == own.chunk.bytes;
        own.maps.push(Mapping {
            at,
            bytes,
            access: None,
            state: Mapped::Whole,
        });
        self.owns.places.insert(at, number);
        if !is_whole {
            self.fix(number);
        }
    }

    fn unmapped(&mut self, at: u64, number: u64) {
        self.owns.places.remove(&at);
        if let Some(own) = self.owns.map.get_mut(&number) {
            own.maps.retain(|mapping| mapping.at != at);
        }
    }

    /// Changes what is known of a mapping.
    pub(super) fn mapping(&mut self, number: u64, at: u64, change: impl FnOnce(&mut Mapping)) {
        let own = self.owns.map.get_mut(&number);
        let mapping = own.and_then(|own| own.maps.iter_mut().find(|mapping| mapping.at == at));
        if let Some(mapping) = mapping {
            change(mapping);
        }
    }
}

#[cfg(test)]
mod tests;
