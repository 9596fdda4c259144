//! Graph memory: addresses are fixed when a node is created; physical memory is held only from
//! launch to free.
//!
//! The device's graphs take memory in steps. What is mapped of a step is one graph's: an H200 gives
//! each graph whose memory is live steps of its own. Freed pages stay with the graphs for the next
//! launch until all of a step are free and it is trimmed. *Reserved* memory is all steps that the
//! graphs hold, *used* memory the steps that some node has, from its launch until they are trimmed,
//! it is given other memory, or its graphs are gone: also between launches, and when its executable
//! graph is destroyed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUgraphMem_attribute as Attribute, CUmemPoolProps, CUresult};

use super::phys::{Noted, Pages, Reserved};
use super::pool::STEP;
use super::table::{self, Record, What};
use crate::Result;
use crate::exec;
use crate::spec::PAGE;
use crate::va::{self, Backing, Range};
use crate::world::{Device, Kind};

/// One device's graph memory.
#[derive(Debug, Default)]
struct Graphs(Mutex<GraphMemory>);

#[derive(Debug, Default)]
struct GraphMemory {
    nodes: HashMap<u64, AllocNode>,
    /// Pages that are mapped at no address, one by one.
    idle: Vec<Page>,
    /// The steps taken from the device, by number, and the next number.
    steps: BTreeSet<u64>,
    next: u64,
    used_high: u64,
    reserved_high: u64,
}

/// One physical page, recorded in the counters of requested memory.
#[derive(Debug)]
struct Page {
    /// The step it was taken with.
    step: u64,
    pages: Pages,
    _noted: Noted,
}

/// The memory of one allocation node.
#[derive(Debug)]
struct AllocNode {
    /// The graph's number.
    graph: usize,
    addresses: Reserved,
    size: u64,
    pages: Vec<Page>,
    /// The steps that its last launch had memory of.
    has: BTreeSet<u64>,
}

impl GraphMemory {
    fn reserved(&self) -> u64 {
        self.steps.len() as u64 * STEP
    }

    fn used(&self) -> u64 {
        let all: BTreeSet<u64> = self
            .nodes
            .values()
            .flat_map(|node| node.has.iter().copied())
            .collect();
        all.len() as u64 * STEP
    }

    /// The steps of which another graph has mapped memory.
    fn of_others(&self, graph: usize) -> BTreeSet<u64> {
        let others = self.nodes.values().filter(|node| node.graph != graph);
        let pages = others.flat_map(|node| &node.pages);
        pages.map(|page| page.step).collect()
    }

    /// Takes so many idle pages: of the steps in `first` before others, of those in `last` after
    /// all.
    fn take_idle(
        &mut self,
        count: usize,
        first: &BTreeSet<u64>,
        last: &BTreeSet<u64>,
    ) -> Vec<Page> {
        let rank = |page: &Page| {
            let is_last = last.contains(&page.step);
            (!is_last, first.contains(&page.step), page.step)
        };
        self.idle.sort_by_key(rank);
        let rest = self.idle.len().saturating_sub(count);
        self.idle.split_off(rest)
    }

    fn mark(&mut self) {
        self.used_high = self.used_high.max(self.used());
        self.reserved_high = self.reserved_high.max(self.reserved());
    }
}

fn graphs(device: &Device) -> Arc<Graphs> {
    device.ext::<Graphs>()
}

impl Graphs {
    fn lock(&self) -> MutexGuard<'_, GraphMemory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fixes the address of an allocation node of the graph with this number. No physical memory is
/// taken.
///
/// # Errors
/// `INVALID_VALUE` for 0 bytes or properties that name another device, `OUT_OF_MEMORY` for more
/// than the device has.
pub fn reserve(
    device: &Arc<Device>,
    graph: usize,
    props: &CUmemPoolProps,
    bytes: u64,
) -> Result<u64> {
    let named = i32::try_from(device.ordinal()).unwrap_or(-1);
    if bytes == 0 || props.location.id != named {
        return Err(CUresult::INVALID_VALUE);
    }
    let len = bytes
        .checked_next_multiple_of(PAGE)
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    if len > device.capacity() {
        return Err(CUresult::OUT_OF_MEMORY);
    }
    let addresses = Reserved::new(len)?;
    let base = addresses.base();
    graphs(device).lock().nodes.insert(
        base,
        AllocNode {
            graph,
            addresses,
            size: bytes,
            pages: Vec::new(),
            has: BTreeSet::new(),
        },
    );
    let record = Record {
        size: bytes,
        id: table::fresh_id(),
        device: device.ordinal(),
        context: 0,
        what: What::Graph,
    };
    table::enter(base, record);
    Ok(base)
}

/// Maps physical memory at a node's address: idle pages first, the rest from the device.
///
/// # Errors
/// `INVALID_VALUE` if the address is not a node's, `OUT_OF_MEMORY` if the device lacks the steps;
/// then nothing is changed.
pub fn back(device: &Arc<Device>, address: u64) -> Result {
    let graphs = graphs(device);
    let mut state = graphs.lock();
    let state = &mut *state;
    let node = state.nodes.get(&address).ok_or(CUresult::INVALID_VALUE)?;
    if !node.pages.is_empty() {
        return Ok(());
    }
    let (len, size, had) = (node.addresses.len(), node.size, node.has.clone());
    let count = usize::try_from(len / PAGE).map_err(|_| CUresult::OUT_OF_MEMORY)?;
    let taken = state.of_others(node.graph);
    let idle = state.idle.iter();
    let free = idle.filter(|page| !taken.contains(&page.step)).count();
    let missing = count.saturating_sub(free) as u64 * PAGE;
    for step in fresh_steps(device, missing.div_ceil(STEP), state.next)? {
        state.steps.insert(state.next);
        state.next += 1;
        state.idle.extend(step);
    }
    let mut pages = state.take_idle(count, &had, &taken);
    if let Err(error) = map(device, address, (len, size), &pages) {
        state.idle.append(&mut pages);
        return Err(error);
    }
    if let Some(node) = state.nodes.get_mut(&address) {
        node.has = pages.iter().map(|page| page.step).collect();
        node.pages = pages;
    }
    state.mark();
    Ok(())
}

/// Maps pages at a node's address, of which `size` bytes are accessible.
fn map(device: &Arc<Device>, address: u64, (len, size): (u64, u64), pages: &[Page]) -> Result {
    let runs: Vec<_> = pages
        .iter()
        .flat_map(|page| page.pages.runs().iter().copied())
        .collect();
    va::map(address, len, Backing::Pages(device, &runs), false)?;
    va::publish(
        address,
        Range {
            peers: false,
            ..Range::on_device(device.ordinal(), size)
        },
    )
}

/// Takes `count` steps from the device, or none. The first has number `next`.
fn fresh_steps(device: &Arc<Device>, count: u64, next: u64) -> Result<Vec<Vec<Page>>> {
    let page = |step| {
        let pages = Pages::take(device, Kind::Graph, PAGE)?;
        Ok(Page {
            step,
            pages,
            _noted: Noted::new(device, Kind::Graph, PAGE),
        })
    };
    (next..next + count)
        .map(|step| (0..STEP / PAGE).map(|_| page(step)).collect())
        .collect()
}

/// Unmaps the physical memory at a node's address. The pages stay with the device's graphs.
pub fn unback(device: &Device, address: u64) {
    let graphs = graphs(device);
    let mut state = graphs.lock();
    let Some(node) = state.nodes.get_mut(&address) else {
        return;
    };
    let mut pages = std::mem::take(&mut node.pages);
    let len = node.addresses.len();
    if pages.is_empty() {
        return;
    }
    va::retract(address);
    let exclusive = table::exclusive();
    // Fails only if the range is not in a reservation; a node's addresses are one.
    let _ = va::unmap(address, len);
    drop(exclusive);
    state.idle.append(&mut pages);
}

/// Releases a node's address.
pub fn unreserve(device: &Device, address: u64) {
    unback(device, address);
    table::remove_if(address, |record| matches!(record.what, What::Graph));
    let graphs = graphs(device);
    let node = graphs.lock().nodes.remove(&address);
    drop(node);
}

/// `cuMemFree` of a node's address.
pub(crate) fn free_now(address: u64) -> Result {
    let memory = crate::graph::allocation::at(address)?;
    if !memory.submit_free() {
        return Err(CUresult::INVALID_VALUE);
    }
    exec::drain_device(memory.device().ordinal());
    memory.free();
    Ok(())
}

/// Frees the steps of which no page is mapped now.
pub fn trim(device: &Device) {
    let graphs = graphs(device);
    let mut state = graphs.lock();
    let mapped: BTreeSet<u64> = state
        .nodes
        .values()
        .flat_map(|node| &node.pages)
        .map(|page| page.step)
        .collect();
    // With the lock held, so that a caller sees less reserved memory only after the device's
    // counters show it as free.
    state.idle.retain(|page| mapped.contains(&page.step));
    for node in state.nodes.values_mut() {
        node.has.retain(|step| mapped.contains(step));
    }
    state.steps = mapped;
}

/// The value of an attribute, in bytes.
///
/// # Errors
/// `INVALID_VALUE` for an unknown attribute.
pub fn attribute(device: &Device, attribute: Attribute) -> Result<u64> {
    let graphs = graphs(device);
    let state = graphs.lock();
    match attribute {
        Attribute::USED_MEM_CURRENT => Ok(state.used()),
        Attribute::USED_MEM_HIGH => Ok(state.used_high),
        Attribute::RESERVED_MEM_CURRENT => Ok(state.reserved()),
        Attribute::RESERVED_MEM_HIGH => Ok(state.reserved_high),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Resets a high-water mark to the current value.
///
/// # Errors
/// `INVALID_VALUE` for a value other than 0 or an attribute that is not a high-water mark.
pub fn reset(device: &Device, attribute: Attribute, value: u64) -> Result {
    let graphs = graphs(device);
    let mut state = graphs.lock();
    match (attribute, value) {
        (Attribute::USED_MEM_HIGH, 0) => state.used_high = state.used(),
        (Attribute::RESERVED_MEM_HIGH, 0) => state.reserved_high = state.reserved(),
        _ => return Err(CUresult::INVALID_VALUE),
    }
    Ok(())
}
