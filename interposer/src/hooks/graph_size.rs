//! What a graph allocates, from its allocation nodes and those of the graphs in it.
//!
//! # Safety
//! The driver is asked about the program's graphs, with out parameters that outlive the calls.
#![allow(unsafe_code, reason = "asks the driver about the program's graphs")]

use core::mem::MaybeUninit;
use core::ptr;

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};

/// Graph memory is taken in pages of this size.
const PAGE: u64 = 2 << 20;

/// Bytes that a graph allocates, by device.
pub(super) type Sizes = Vec<(DeviceKey, u64)>;

/// What the allocation nodes of `graph` and of its child graphs allocate. Nothing for what is no graph: the driver will say so.
pub(super) fn size_up(graph: CUgraph) -> Result<Sizes, CUresult> {
    let mut sizes = Sizes::new();
    let mut left = vec![graph];
    while let Some(graph) = left.pop() {
        for node in nodes(graph)? {
            let mut kind = CUgraphNodeType::EMPTY;
            // SAFETY: a node of the graph, and an out parameter that outlives the call.
            unsafe { calls::cuGraphNodeGetType(node, &raw mut kind) }.ok()?;
            if kind == CUgraphNodeType::MEM_ALLOC {
                add_allocation(node, &mut sizes)?;
            } else if kind == CUgraphNodeType::GRAPH {
                let mut child = CUgraph::NULL;
                // SAFETY: a child graph node, and an out parameter that outlives the call.
                unsafe { calls::cuGraphChildGraphNodeGetGraph(node, &raw mut child) }.ok()?;
                left.push(child);
            }
        }
    }
    Ok(sizes)
}

fn nodes(graph: CUgraph) -> Result<Vec<CUgraphNode>, CUresult> {
    let mut count = 0;
    if graph.is_null() {
        return Ok(Vec::new());
    }
    // SAFETY: the program's graph; a null list asks for the count.
    unsafe { calls::cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count) }.ok()?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: room for `count` nodes.
        unsafe { calls::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) }.ok()?;
    }
    nodes.truncate(count);
    Ok(nodes)
}

fn add_allocation(node: CUgraphNode, sizes: &mut Sizes) -> Result<(), CUresult> {
    let mut params = MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS>::zeroed();
    // SAFETY: an allocation node, and room for its parameters.
    unsafe { calls::cuGraphMemAllocNodeGetParams(node, params.as_mut_ptr()) }.ok()?;
    // SAFETY: zeroed is a valid value of this C struct, and the driver has written it.
    let params = unsafe { params.assume_init() };
    let location = params.poolProps.location;
    if location.type_ != CUmemLocationType::DEVICE {
        return Ok(());
    }
    let device = device::of_ordinal(location.id).ok_or(CUresult::INVALID_DEVICE)?;
    let bytes = (params.bytesize as u64)
        .checked_next_multiple_of(PAGE)
        .unwrap_or(u64::MAX);
    match sizes.iter_mut().find(|(known, _)| *known == device) {
        Some((_, sum)) => *sum = sum.saturating_add(bytes),
        None => sizes.push((device, bytes)),
    }
    Ok(())
}
