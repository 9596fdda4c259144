//! Graphs: nodes, edges, copies. The nodes' work is in [`graph_nodes`](super::graph_nodes).

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUcontext, CUgraph, CUgraphConditionalHandle, CUgraphEdgeData, CUgraphNode, CUgraphNodeType,
    CUresult,
};
use softgpu::Result;
use softgpu::context::{self, Context};
use softgpu::graph::store::{Edge, NodeId, PLAIN, graph_handle, node_handle, store};

use crate::abi::{input, inputs, out, outputs, required};

/// Nodes with the data of their edges, in the form in which callers pass dependencies.
pub(super) type Dependencies = Vec<(NodeId, CUgraphEdgeData)>;

/// Reads a list of dependencies; without edge data the edges are plain.
pub(super) fn dependencies(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<Dependencies> {
    let nodes = inputs(nodes, count)?;
    let data = if data.is_null() {
        vec![PLAIN; count]
    } else {
        inputs(data, count)?
    };
    Ok(nodes
        .into_iter()
        .map(|node| node.0.addr())
        .zip(data)
        .collect())
}

/// Writes a list in the API's two-step protocol. Without an array the caller asks for the length;
/// otherwise as many entries as fit are written, and NULL for the remaining elements.
fn answer<T: Copy>(at: *mut T, count: *mut usize, values: &[T], none: T) -> Result {
    let room = input(count.cast_const())?;
    if !at.is_null() {
        let mut filled = values.to_vec();
        filled.resize(room.max(values.len()), none);
        outputs(at, room, &filled)?;
    }
    Ok(())
}

/// Sets the count of the same protocol.
fn answer_count<T>(at: *mut T, count: *mut usize, len: usize) -> Result {
    let room = input(count.cast_const())?;
    out(count, if at.is_null() { len } else { room.min(len) })
}

fn answer_nodes(at: *mut CUgraphNode, count: *mut usize, nodes: &[NodeId]) -> Result {
    let handles: Vec<CUgraphNode> = nodes.iter().map(|node| node_handle(*node)).collect();
    answer(at, count, &handles, CUgraphNode::NULL)?;
    answer_count(at, count, nodes.len())
}

/// Refuses to omit edge data that is not zero.
fn answer_data(
    at: *mut CUgraphEdgeData,
    nodes: *mut CUgraphNode,
    count: *mut usize,
    edges: &[Edge],
) -> Result {
    if at.is_null() {
        let lossy = !nodes.is_null()
            && edges
                .iter()
                .any(|edge| edge.data.type_ != 0 || edge.data.from_port != 0);
        return if lossy {
            Err(CUresult::LOSSY_QUERY)
        } else {
            Ok(())
        };
    }
    let data: Vec<CUgraphEdgeData> = edges.iter().map(|edge| edge.data).collect();
    answer(at, count, &data, PLAIN)
}

fn edges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result {
    required(count.cast_const())?;
    if from.is_null() != to.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let edges = store().graph(graph.0.addr())?.edges().to_vec();
    answer_data(data, from, count, &edges)?;
    let ends = |end: fn(&Edge) -> NodeId| {
        edges
            .iter()
            .map(|edge| node_handle(end(edge)))
            .collect::<Vec<_>>()
    };
    answer(from, count, &ends(|edge| edge.from), CUgraphNode::NULL)?;
    answer(to, count, &ends(|edge| edge.to), CUgraphNode::NULL)?;
    answer_count(from, count, edges.len())
}

/// The predecessors (`before`) or the successors of a node.
fn neighbours(
    node: CUgraphNode,
    before: bool,
    at: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result {
    required(count.cast_const())?;
    let id = node.0.addr();
    let edges: Vec<Edge> = {
        let store = store();
        let (home, _) = store.node(id)?;
        let touches = |edge: &&Edge| {
            if before {
                edge.to == id
            } else {
                edge.from == id
            }
        };
        store
            .graph(home)?
            .edges()
            .iter()
            .filter(touches)
            .copied()
            .collect()
    };
    answer_data(data, at, count, &edges)?;
    let nodes: Vec<NodeId> = edges
        .iter()
        .map(|edge| if before { edge.from } else { edge.to })
        .collect();
    answer_nodes(at, count, &nodes)
}

fn link(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result {
    let (from, to) = (dependencies(from, data, count)?, inputs(to, count)?);
    let mut store = store();
    for ((from, data), to) in from.into_iter().zip(to) {
        store.link(
            graph.0.addr(),
            Edge {
                from,
                to: to.0.addr(),
                data,
            },
        )?;
    }
    Ok(())
}

fn unlink(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result {
    let (from, to) = (inputs(from, count)?, inputs(to, count)?);
    let mut store = store();
    from.iter()
        .zip(to)
        .try_for_each(|(from, to)| store.unlink(graph.0.addr(), from.0.addr(), to.0.addr()))
}

driver! {
    fn cuGraphCreate(graph: *mut CUgraph, flags: u32) {
        required(graph.cast_const())?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        out(graph, graph_handle(store().create()))
    }

    fn cuGraphDestroy(graph: CUgraph) {
        store().destroy(graph.0.addr())
    }

    fn cuGraphClone(clone: *mut CUgraph, graph: CUgraph) {
        required(clone.cast_const())?;
        let copy = store().clone_graph(graph.0.addr())?;
        out(clone, graph_handle(copy))
    }

    fn cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) {
        required(node.cast_const())?;
        let found = store().find_in_clone(original.0.addr(), clone.0.addr())?;
        out(node, node_handle(found))
    }

    fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) {
        required(kind.cast_const())?;
        let found = store().node(node.0.addr())?.1.work.kind();
        out(kind, found)
    }

    fn cuGraphConditionalHandleCreate(handle: *mut CUgraphConditionalHandle, graph: CUgraph, context: CUcontext, value: u32, flags: u32) {
        required(handle.cast_const())?;
        let context = context::lookup(context)?;
        out(handle, store().create_condition(graph.0.addr(), &context, value, flags)?)
    }

    fn cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph) {
        required(graph.cast_const())?;
        let (home, _) = store().node(node.0.addr())?;
        out(graph, graph_handle(home))
    }

    fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        required(count.cast_const())?;
        let all: Vec<NodeId> = store().graph(graph.0.addr())?.nodes().map(|(id, _)| id).collect();
        answer_nodes(nodes, count, &all)
    }

    fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) {
        required(count.cast_const())?;
        let roots = store().graph(graph.0.addr())?.roots();
        answer_nodes(nodes, count, &roots)
    }

    fn cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) {
        edges(graph, from, to, std::ptr::null_mut(), count)
    }

    fn cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize) {
        edges(graph, from, to, data, count)
    }

    fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        neighbours(node, true, nodes, std::ptr::null_mut(), count)
    }

    fn cuGraphNodeGetDependencies_v2(node: CUgraphNode, nodes: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize) {
        neighbours(node, true, nodes, data, count)
    }

    fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) {
        neighbours(node, false, nodes, std::ptr::null_mut(), count)
    }

    fn cuGraphNodeGetDependentNodes_v2(node: CUgraphNode, nodes: *mut CUgraphNode, data: *mut CUgraphEdgeData, count: *mut usize) {
        neighbours(node, false, nodes, data, count)
    }

    fn cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {
        link(graph, from, to, std::ptr::null(), count)
    }

    fn cuGraphAddDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize) {
        link(graph, from, to, data, count)
    }

    fn cuGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {
        unlink(graph, from, to, count)
    }

    fn cuGraphRemoveDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, _data: *const CUgraphEdgeData, count: usize) {
        unlink(graph, from, to, count)
    }

    fn cuGraphDestroyNode(node: CUgraphNode) {
        store().remove(node.0.addr())
    }
}

/// The context that `named` names, or the current one for the null handle.
pub(super) fn context_of(named: CUcontext) -> Result<Arc<Context>> {
    if named.is_null() {
        context::current()
    } else {
        context::lookup(named)
    }
}
