//! Graph nodes of every type: creation, queries, changes.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_MEMCPY3D_v2,
    CUDA_MEMSET_NODE_PARAMS_v1, CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphEdgeData,
    CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUresult,
};
use softgpu::exec::{Kind, Op, event::Event};
use softgpu::graph::allocation::{self, Allocation};
use softgpu::graph::store::{NodeWork, graph_handle, node_handle, store};
use softgpu::{Result, context, graph, world};

use super::graph::{Dependencies, dependencies};
use super::graph_params::{self as params, Placed};
use crate::abi::{input, out, required};

type Nodes = *const CUgraphNode;

fn add(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: &Dependencies,
    (work, context): Placed,
) -> Result {
    required(node.cast_const())?;
    let added = store().add(graph.0.addr(), after, work, context)?;
    out(node, node_handle(added))
}

fn add_child(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: &Dependencies,
    (child, moved): (usize, bool),
) -> Result {
    required(node.cast_const())?;
    let mut store = store();
    let added = if moved {
        store.move_child(graph.0.addr(), after, child)?
    } else {
        store.add_child(graph.0.addr(), after, child)?
    };
    drop(store);
    out(node, node_handle(added))
}

/// Adds an allocation node; returns the address that every launch uses.
fn add_alloc(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: &Dependencies,
    given: &CUDA_MEM_ALLOC_NODE_PARAMS_v1,
) -> Result<u64> {
    required(node.cast_const())?;
    let device = Arc::clone(world::process()?.device(given.poolProps.location.id)?);
    let bytes = u64::try_from(given.bytesize).map_err(|_| CUresult::INVALID_VALUE)?;
    let memory = Allocation::new(&device, graph.0.addr(), given.poolProps, bytes)?;
    let address = memory.address();
    add(node, graph, after, (NodeWork::Alloc(memory), None))?;
    Ok(address)
}

fn add_free(node: *mut CUgraphNode, graph: CUgraph, after: &Dependencies, address: u64) -> Result {
    let memory = allocation::at(address)?;
    if graph::is_freed_in(graph.0.addr(), address)? {
        return Err(CUresult::INVALID_VALUE);
    }
    add(node, graph, after, (NodeWork::Free(memory), None))
}

fn add_generic(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: &Dependencies,
    given: *mut CUgraphNodeParams,
) -> Result {
    let mut read = input(given.cast_const())?;
    match read.type_ {
        CUgraphNodeType::MEM_ALLOC => {
            let address = add_alloc(node, graph, after, &params::alloc_member(&read))?;
            params::set_alloc_address(&mut read, address);
            out(given, read)
        }
        CUgraphNodeType::MEM_FREE => add_free(node, graph, after, params::free_member(&read)),
        CUgraphNodeType::GRAPH => {
            let child = (params::child_member(&read), params::is_child_moved(&read)?);
            add_child(node, graph, after, child)
        }
        CUgraphNodeType::CONDITIONAL => {
            required(node.cast_const())?;
            let wanted = params::conditional_member(&read);
            let context = context::lookup(wanted.ctx)?;
            let kind = (wanted.type_, wanted.size);
            let (added, made) =
                store().add_conditional(graph.0.addr(), after, wanted.handle, kind, context)?;
            params::set_bodies(&mut read, made.handles());
            out(given, read)?;
            out(node, node_handle(added))
        }
        _ => add(node, graph, after, params::generic(&read)?),
    }
}

/// A node's work.
fn work(node: CUgraphNode) -> Result<NodeWork> {
    Ok(store().node(node.0.addr())?.1.work.clone())
}

fn op(node: CUgraphNode) -> Result<Arc<Op>> {
    match work(node)? {
        NodeWork::Op(op) => Ok(op),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn set(node: CUgraphNode, (work, context): Placed) -> Result {
    store().replace(node.0.addr(), work, context)
}

fn event(node: CUgraphNode, recorded: bool) -> Result<Arc<Event>> {
    match work(node)? {
        NodeWork::EventRecord(event) if recorded => Ok(event),
        NodeWork::EventWait(event) if !recorded => Ok(event),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn plain(nodes: Nodes, count: usize) -> Result<Dependencies> {
    dependencies(nodes, std::ptr::null(), count)
}

driver! {
    fn cuGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        add(node, graph, &plain(after, count)?, params::kernel(&params::kernel_v1(&input(given)?))?)
    }

    fn cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        add(node, graph, &plain(after, count)?, params::kernel(&input(given)?)?)
    }

    fn cuGraphKernelNodeGetParams(node: CUgraphNode, answer: *mut CUDA_KERNEL_NODE_PARAMS_v1) {
        let op = op(node)?;
        let Kind::Kernel(launch) = &op.kind else { return Err(CUresult::INVALID_VALUE) };
        out(answer, params::kernel_back_v1(launch))
    }

    fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, answer: *mut CUDA_KERNEL_NODE_PARAMS_v2) {
        let op = op(node)?;
        let Kind::Kernel(launch) = &op.kind else { return Err(CUresult::INVALID_VALUE) };
        out(answer, params::kernel_back(launch))
    }

    fn cuGraphKernelNodeSetParams(node: CUgraphNode, given: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set(node, params::kernel(&params::kernel_v1(&input(given)?))?)
    }

    fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, given: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        set(node, params::kernel(&input(given)?)?)
    }

    fn cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *const CUDA_MEMCPY3D_v2, context: CUcontext) {
        add(node, graph, &plain(after, count)?, params::copy(&input(given)?, context)?)
    }

    fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, answer: *mut CUDA_MEMCPY3D_v2) {
        let Kind::Copy(copy) = op(node)?.kind else { return Err(CUresult::INVALID_VALUE) };
        out(answer, copy.0)
    }

    fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, given: *const CUDA_MEMCPY3D_v2) {
        set(node, params::copy(&input(given)?, context_of_node(node)?)?)
    }

    fn cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) {
        add(node, graph, &plain(after, count)?, params::memset(&input(given)?, context)?)
    }

    fn cuGraphMemsetNodeGetParams(node: CUgraphNode, answer: *mut CUDA_MEMSET_NODE_PARAMS_v1) {
        let Kind::Fill(fill) = op(node)?.kind else { return Err(CUresult::INVALID_VALUE) };
        out(answer, params::memset_back(&fill.0))
    }

    fn cuGraphMemsetNodeSetParams(node: CUgraphNode, given: *const CUDA_MEMSET_NODE_PARAMS_v1) {
        set(node, params::memset(&input(given)?, context_of_node(node)?)?)
    }

    fn cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *const CUDA_HOST_NODE_PARAMS_v1) {
        add(node, graph, &plain(after, count)?, params::host(&input(given)?)?)
    }

    fn cuGraphHostNodeGetParams(node: CUgraphNode, answer: *mut CUDA_HOST_NODE_PARAMS_v1) {
        let Kind::Host(call) = op(node)?.kind else { return Err(CUresult::INVALID_VALUE) };
        out(answer, params::host_back(call)?)
    }

    fn cuGraphHostNodeSetParams(node: CUgraphNode, given: *const CUDA_HOST_NODE_PARAMS_v1) {
        set(node, params::host(&input(given)?)?)
    }

    fn cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph) {
        add_child(node, graph, &plain(after, count)?, (child.0.addr(), false))
    }

    fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) {
        let NodeWork::Child(child) = work(node)? else { return Err(CUresult::INVALID_VALUE) };
        out(graph, graph_handle(child))
    }

    fn cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) {
        add(node, graph, &plain(after, count)?, (NodeWork::Empty, None))
    }

    fn cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) {
        add(node, graph, &plain(after, count)?, params::event_record(event)?)
    }

    fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, answer: *mut CUevent) {
        out(answer, event(node, true)?.handle())
    }

    fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) {
        set(node, params::event_record(event)?)
    }

    fn cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) {
        add(node, graph, &plain(after, count)?, params::event_wait(event)?)
    }

    fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, answer: *mut CUevent) {
        out(answer, event(node, false)?.handle())
    }

    fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) {
        set(node, params::event_wait(event)?)
    }

    fn cuGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1) {
        let mut read = input(given.cast_const())?;
        read.dptr = add_alloc(node, graph, &plain(after, count)?, &read)?;
        out(given, read)
    }

    fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, answer: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1) {
        let NodeWork::Alloc(memory) = work(node)? else { return Err(CUresult::INVALID_VALUE) };
        out(answer, CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
            poolProps: memory.properties(),
            accessDescs: std::ptr::null(),
            accessDescCount: 0,
            bytesize: usize::try_from(memory.bytes()).map_err(|_| CUresult::UNKNOWN)?,
            dptr: memory.address(),
        })
    }

    fn cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, address: CUdeviceptr) {
        add_free(node, graph, &plain(after, count)?, address)
    }

    fn cuGraphAddBatchMemOpNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) {
        let read = input(given)?;
        add(node, graph, &plain(after, count)?, params::mem_ops(read.ctx, read.count, read.paramArray, read.flags)?)
    }

    fn cuGraphKernelNodeGetAttribute(node: CUgraphNode, id: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue) {
        required(value.cast_const())?;
        let pad = store().attribute(node.0.addr(), id)?;
        out(value, CUlaunchAttributeValue { pad })
    }

    fn cuGraphKernelNodeSetAttribute(node: CUgraphNode, id: CUlaunchAttributeID, value: *const CUlaunchAttributeValue) {
        let bytes = params::attribute_bytes(&input(value)?);
        store().set_attribute(node.0.addr(), id, bytes)
    }

    fn cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) {
        store().copy_attributes(to.0.addr(), from.0.addr())
    }

    fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) {
        let NodeWork::Free(memory) = work(node)? else { return Err(CUresult::INVALID_VALUE) };
        out(address, memory.address())
    }

    fn cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, given: *mut CUgraphNodeParams) {
        add_generic(node, graph, &plain(after, count)?, given)
    }

    fn cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize, given: *mut CUgraphNodeParams) {
        add_generic(node, graph, &dependencies(after, data, count)?, given)
    }

    fn cuGraphAddNode_v3(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize, given: *mut CUgraphNodeParams) {
        add_generic(node, graph, &dependencies(after, data, count)?, given)
    }

    fn cuGraphNodeSetParams(node: CUgraphNode, given: *mut CUgraphNodeParams) {
        set(node, params::generic(&input(given.cast_const())?)?)
    }

    fn cuGraphNodeSetParams_v2(node: CUgraphNode, given: *mut CUgraphNodeParams) {
        set(node, params::generic(&input(given.cast_const())?)?)
    }
}

/// The context of a node. It stays when the node's parameters change.
fn context_of_node(node: CUgraphNode) -> Result<CUcontext> {
    let store = store();
    Ok(store
        .node(node.0.addr())?
        .1
        .context
        .as_ref()
        .map_or(CUcontext::NULL, |context| context.handle()))
}
