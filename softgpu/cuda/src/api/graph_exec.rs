//! Executable graphs: instantiation, updates, launch.

use std::ffi::c_char;

use gpushare_cuda_abi::cuda::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1, CUcontext, CUevent,
    CUgraph, CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo_v1,
    CUgraphInstantiateResult, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUresult, CUstream,
};
use softgpu::graph::instance;
use softgpu::graph::store::{NodeWork, node_handle, store};
use softgpu::graph::update::Refusal;
use softgpu::{Result, context};

use super::graph_params::{self as params, Placed};
use super::stream::here;
use crate::abi::{input, out, out_if, required};

fn instantiate(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Result {
    required(exec.cast_const())?;
    context::current()?;
    out(exec, instance::instantiate(graph.0.addr(), flags)?)
}

fn instantiate_with_log(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    error: *mut CUgraphNode,
    log: *mut c_char,
    room: usize,
) -> Result {
    out_if(error, CUgraphNode::NULL);
    if room > 0 {
        out_if(log, 0);
    }
    instantiate(exec, graph, 0)
}

fn set(exec: CUgraphExec, node: CUgraphNode, (work, context): Placed) -> Result {
    instance::lookup(exec)?.set_work(node.0.addr(), work, context)
}

fn set_child(exec: CUgraphExec, node: CUgraphNode, child: usize) -> Result {
    let NodeWork::Child(old) = store().node(node.0.addr())?.1.work else {
        return Err(CUresult::INVALID_VALUE);
    };
    instance::lookup(exec)?.update_child(old, child)
}

fn update(exec: CUgraphExec, graph: CUgraph) -> Result<std::result::Result<(), Refusal>> {
    Ok(instance::lookup(exec)?.update(graph.0.addr()))
}

fn refused(refusal: std::result::Result<(), Refusal>) -> Result {
    refusal.map_err(|_| CUresult::GRAPH_EXEC_UPDATE_FAILURE)
}

driver! {
    fn cuGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, error: *mut CUgraphNode, log: *mut c_char, room: usize) {
        instantiate_with_log(exec, graph, error, log, room)
    }

    fn cuGraphInstantiate_v2(exec: *mut CUgraphExec, graph: CUgraph, error: *mut CUgraphNode, log: *mut c_char, room: usize) {
        instantiate_with_log(exec, graph, error, log, room)
    }

    fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) {
        instantiate(exec, graph, flags)
    }

    fn cuGraphInstantiateWithParams twin cuGraphInstantiateWithParams_ptsz (_d: DefaultStream; exec: *mut CUgraphExec, graph: CUgraph, given: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) {
        let mut read = input(given.cast_const())?;
        let made = instantiate(exec, graph, read.flags);
        read.hErrNode_out = CUgraphNode::NULL;
        read.result_out = match made {
            Ok(()) => CUgraphInstantiateResult::SUCCESS,
            Err(CUresult::NOT_SUPPORTED) => CUgraphInstantiateResult::NODE_OPERATION_NOT_SUPPORTED,
            Err(_) if store().has_unused_condition(graph.0.addr()) => CUgraphInstantiateResult::CONDITIONAL_HANDLE_UNUSED,
            Err(_) => CUgraphInstantiateResult::ERROR,
        };
        out(given, read)?;
        made
    }

    fn cuGraphExecDestroy(exec: CUgraphExec) {
        instance::destroy(exec)
    }

    fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) {
        required(flags.cast_const())?;
        out(flags, instance::lookup(exec)?.flags())
    }

    /// A driver may take the graph's memory now, or leave that to the launch. This one does that.
    fn cuGraphUpload twin cuGraphUpload_ptsz (d: DefaultStream; exec: CUgraphExec, stream: CUstream) {
        instance::lookup(exec)?;
        here(d, stream).map(drop)
    }

    fn cuGraphLaunch twin cuGraphLaunch_ptsz (d: DefaultStream; exec: CUgraphExec, stream: CUstream) {
        let stream = here(d, stream)?;
        instance::lookup(exec)?.launch(&stream)
    }

    fn cuGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut CUgraphExecUpdateResult) {
        required(result.cast_const())?;
        let refusal = update(exec, graph)?;
        out_if(node, refusal.err().map_or(CUgraphNode::NULL, |refusal| node_handle(refusal.node)));
        out(result, refusal.err().map_or(CUgraphExecUpdateResult::SUCCESS, |refusal| refusal.result))?;
        refused(refusal)
    }

    fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo_v1) {
        required(info.cast_const())?;
        let refusal = update(exec, graph)?;
        out(info, CUgraphExecUpdateResultInfo_v1 {
            result: refusal.err().map_or(CUgraphExecUpdateResult::SUCCESS, |refusal| refusal.result),
            errorNode: refusal.err().map_or(CUgraphNode::NULL, |refusal| node_handle(refusal.node)),
            errorFromNode: refusal.err().map_or(CUgraphNode::NULL, |refusal| node_handle(refusal.from)),
        })?;
        refused(refusal)
    }

    fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32) {
        instance::lookup(exec)?.set_enabled(node.0.addr(), enabled != 0)
    }

    fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut u32) {
        required(enabled.cast_const())?;
        out(enabled, u32::from(instance::lookup(exec)?.is_enabled(node.0.addr())?))
    }

    fn cuGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, given: *const CUDA_KERNEL_NODE_PARAMS_v1) {
        set(exec, node, params::kernel(&params::kernel_v1(&input(given)?))?)
    }

    fn cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, given: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        set(exec, node, params::kernel(&input(given)?)?)
    }

    fn cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, given: *const CUDA_MEMCPY3D_v2, context: CUcontext) {
        set(exec, node, params::copy(&input(given)?, context)?)
    }

    fn cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, given: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) {
        set(exec, node, params::memset(&input(given)?, context)?)
    }

    fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, given: *const CUDA_HOST_NODE_PARAMS_v1) {
        set(exec, node, params::host(&input(given)?)?)
    }

    fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) {
        set_child(exec, node, child.0.addr())
    }

    fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        set(exec, node, params::event_record(event)?)
    }

    fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) {
        set(exec, node, params::event_wait(event)?)
    }

    fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, given: *mut CUgraphNodeParams) {
        let read = input(given.cast_const())?;
        if read.type_ == CUgraphNodeType::GRAPH {
            return set_child(exec, node, params::child_member(&read));
        }
        set(exec, node, params::generic(&read)?)
    }
}
