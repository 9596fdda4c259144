//! The memory that a graph allocates, from its allocation nodes and those of its child graphs.

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};
use crate::holdings::pools::growth_of;

/// Graph memory is taken in pages of this size.
const PAGE: u64 = 2 << 20;

/// The most that the driver's memory for graphs grows by for a graph, by device.
pub(super) type Sizes = Vec<(DeviceKey, u64)>;

/// The memory that the driver takes for the allocation nodes of `graph` and of its child graphs: it
/// takes whole steps. Zero for an invalid graph: the driver will refuse it.
pub(super) fn size_up(graph: CUgraph) -> Result<Sizes, CUresult> {
    let mut sizes = Sizes::new();
    let mut left = vec![graph];
    while let Some(graph) = left.pop() {
        if graph.is_null() {
            continue;
        }
        for node in calls::graph_nodes(graph)? {
            let kind = calls::node_kind(node)?;
            if kind == CUgraphNodeType::MEM_ALLOC {
                add_allocation(node, &mut sizes)?;
            } else if kind == CUgraphNodeType::GRAPH {
                left.push(calls::child_graph(node)?);
            }
        }
    }
    for (_, sum) in &mut sizes {
        *sum = growth_of(*sum);
    }
    Ok(sizes)
}

fn add_allocation(node: CUgraphNode, sizes: &mut Sizes) -> Result<(), CUresult> {
    let params = calls::allocation_node(node)?;
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
