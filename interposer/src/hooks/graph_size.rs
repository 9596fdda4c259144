//! The memory that a graph allocates, from its allocation nodes and those of its child graphs.

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
use crate::driver::contexts;
use crate::driver::device::DeviceKey;
use crate::holdings::pools::{self, PoolLocation, growth_of};

/// Graph memory is taken in pages of this size.
const PAGE: u64 = 2 << 20;

/// The most that the driver's memory for graphs grows by for a graph, by device.
pub(super) type Sizes = Vec<(DeviceKey, u64)>;

/// Addresses that allocation nodes have on a device, from the first to the one after the last.
type Range = (DeviceKey, u64, u64);

/// The memory that the driver takes for the allocation nodes of `graph` and of its child graphs: it
/// takes whole steps. `None` if there is no such node, and for a null graph, which the driver will
/// refuse.
///
/// Nodes whose lifetimes do not overlap may have the same addresses, and then have the same memory:
/// within a graph the driver reuses memory by its addresses, which are fixed when a node is made
/// (CUDA C++ Programming Guide, *Graph Memory Nodes*, *Optimized Memory Reuse*).
pub(super) fn size_up(graph: CUgraph) -> Result<Option<Sizes>, CUresult> {
    let mut allocates = false;
    let (mut ranges, mut sizes) = (Vec::new(), Sizes::new());
    let mut left = vec![graph];
    while let Some(graph) = left.pop() {
        if graph.is_null() {
            continue;
        }
        for node in calls::graph_nodes(graph)? {
            let kind = calls::node_kind(node)?;
            if kind == CUgraphNodeType::MEM_ALLOC {
                allocates = true;
                add_allocation(node, (&mut ranges, &mut sizes))?;
            } else if kind == CUgraphNodeType::GRAPH {
                left.push(calls::child_graph(node)?);
            }
        }
    }
    add_once(ranges, &mut sizes);
    for (_, sum) in &mut sizes {
        *sum = growth_of(*sum);
    }
    Ok(allocates.then_some(sizes))
}

/// Adds what an allocation node takes: the range of its addresses, or its size if it has none.
/// Managed memory of no device counts as the current context's.
fn add_allocation(
    node: CUgraphNode,
    (ranges, sizes): (&mut Vec<Range>, &mut Sizes),
) -> Result<(), CUresult> {
    let params = calls::allocation_node(node)?;
    let location = params.poolProps.location;
    let device = match pools::location_of(params.poolProps.allocType, location) {
        PoolLocation::Device(device) => device,
        PoolLocation::Elsewhere => return Ok(()),
        PoolLocation::Anywhere if location.type_ == CUmemLocationType::DEVICE => {
            return Err(CUresult::INVALID_DEVICE);
        }
        PoolLocation::Anywhere => {
            let here = contexts::here().ok_or(CUresult::INVALID_CONTEXT)?;
            here.device
        }
    };
    let bytes = (params.bytesize as u64)
        .checked_next_multiple_of(PAGE)
        .unwrap_or(u64::MAX);
    match params.dptr {
        0 => add((device, bytes), sizes),
        from => ranges.push((device, from, from.saturating_add(bytes))),
    }
    Ok(())
}

/// Adds the ranges, each address once.
fn add_once(mut ranges: Vec<Range>, sizes: &mut Sizes) {
    ranges.sort_unstable_by_key(|(device, from, _)| (device.index(), *from));
    let mut covered: Option<(DeviceKey, u64)> = None;
    for (device, from, to) in ranges {
        let until = covered.filter(|(of, _)| *of == device);
        let until = until.map_or(0, |(_, until)| until);
        add((device, to.saturating_sub(from.max(until))), sizes);
        covered = Some((device, to.max(until)));
    }
}

fn add((device, bytes): (DeviceKey, u64), sizes: &mut Sizes) {
    match sizes.iter_mut().find(|(known, _)| *known == device) {
        Some((_, sum)) => *sum = sum.saturating_add(bytes),
        None => sizes.push((device, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(ranges: &[(usize, u64, u64)]) -> Vec<u64> {
        let key = |at| DeviceKey::of_index(at).expect("a device");
        let ranges = ranges.iter().map(|(at, from, to)| (key(*at), *from, *to));
        let mut sizes = Sizes::new();
        add_once(ranges.collect(), &mut sizes);
        sizes.iter().map(|(_, bytes)| *bytes).collect()
    }

    #[test]
    fn allocations_at_the_same_addresses_take_their_memory_once() {
        assert_eq!(sizes(&[(0, 100, 200); 100]), [100]);
        // The second is at a part of the first, the third goes beyond it, the last lies in it.
        let within = [(0, 100, 200), (0, 120, 150), (0, 180, 260), (0, 110, 130)];
        assert_eq!(sizes(&within), [160]);
    }

    #[test]
    fn allocations_at_other_addresses_or_on_other_devices_add_up() {
        assert_eq!(sizes(&[(0, 300, 400), (0, 100, 200), (0, 200, 250)]), [250]);
        assert_eq!(sizes(&[(0, 100, 200), (1, 100, 200)]), [100, 100]);
        assert_eq!(sizes(&[]), Vec::<u64>::new());
    }
}
