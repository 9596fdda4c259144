//! Identities of graphs: their numbers, those of their nodes, and drawings.

use std::ffi::c_char;

use gpushare_cuda_abi::cuda::{CUgraph, CUgraphExec, CUgraphNode, CUresult};
use softgpu::graph::instance;
use softgpu::graph::store::store;
use softgpu::handle;

use crate::abi::{out, required, text};

driver! {
    fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, _flags: u32) {
        let path = text(path)?;
        let drawing = store().dot(graph.0.addr())?;
        std::fs::write(path, drawing).map_err(|_| CUresult::OPERATING_SYSTEM)
    }
    fn cuGraphGetId(graph: CUgraph, id: *mut u32) {
        required(id)?;
        store().graph(graph.0.addr())?;
        out(id, handle::number(graph.0.addr()))
    }
    fn cuGraphExecGetId(exec: CUgraphExec, id: *mut u32) {
        required(id)?;
        instance::lookup(exec)?;
        out(id, handle::number(exec.0.addr()))
    }
    fn cuGraphNodeGetLocalId(node: CUgraphNode, id: *mut u32) {
        required(id)?;
        store().node(node.0.addr())?;
        out(id, handle::number(node.0.addr()))
    }
    fn cuGraphNodeGetToolsId(node: CUgraphNode, id: *mut u64) {
        required(id)?;
        let (graph, _) = store().node(node.0.addr())?;
        let (graph, node) = (handle::number(graph), handle::number(node.0.addr()));
        out(id, u64::from(graph) << 32 | u64::from(node))
    }
}
