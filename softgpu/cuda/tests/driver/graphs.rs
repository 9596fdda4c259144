//! Building graphs.

use std::ffi::c_void;
use std::ptr::null_mut;

use gpushare_cuda_abi::cuda::*;

use super::*;

pub(crate) fn graph() -> CUgraph {
    get(CUgraph::NULL, |out| cuGraphCreate(out, 0))
}

pub(crate) fn instance(graph: CUgraph, flags: u64) -> CUgraphExec {
    get(CUgraphExec::NULL, |out| {
        cuGraphInstantiateWithFlags(out, graph, flags)
    })
}

/// Updates `exec` to `graph`. Returns the reason that is told; the call fails where it is one.
pub(crate) fn updated(exec: CUgraphExec, graph: CUgraph) -> CUgraphExecUpdateResult {
    let mut info = CUgraphExecUpdateResultInfo_v1 {
        result: CUgraphExecUpdateResult::ERROR,
        errorNode: CUgraphNode::NULL,
        errorFromNode: CUgraphNode::NULL,
    };
    let answer = cuGraphExecUpdate_v2(exec, graph, &raw mut info);
    let wanted = match info.result {
        CUgraphExecUpdateResult::SUCCESS => OK,
        _ => CUresult::GRAPH_EXEC_UPDATE_FAILURE,
    };
    assert_eq!(answer, wanted);
    info.result
}

/// Parameters of a `fill`, with storage for the values that they point to.
pub(crate) struct Fill {
    at: CUdeviceptr,
    words: u64,
    value: u32,
    pointers: [*mut c_void; 3],
}

impl Fill {
    pub(crate) fn new(at: CUdeviceptr, words: u64, value: u32) -> Box<Self> {
        let mut fill = Box::new(Self {
            at,
            words,
            value,
            pointers: [null_mut(); 3],
        });
        fill.pointers = [
            (&raw mut fill.at).cast(),
            (&raw mut fill.words).cast(),
            (&raw mut fill.value).cast(),
        ];
        fill
    }

    pub(crate) fn params(&mut self) -> CUDA_KERNEL_NODE_PARAMS_v2 {
        CUDA_KERNEL_NODE_PARAMS_v2 {
            func: function("fill"),
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: self.pointers.as_mut_ptr(),
            extra: null_mut(),
            kern: CUkernel::NULL,
            ctx: CUcontext::NULL,
        }
    }
}

pub(crate) fn fill_node(
    graph: CUgraph,
    after: &[CUgraphNode],
    at: CUdeviceptr,
    words: u64,
    value: u32,
) -> CUgraphNode {
    let mut fill = Fill::new(at, words, value);
    let params = fill.params();
    get(CUgraphNode::NULL, |out| {
        cuGraphAddKernelNode_v2(out, graph, after.as_ptr(), after.len(), &raw const params)
    })
}

pub(crate) fn memset_node(
    graph: CUgraph,
    after: &[CUgraphNode],
    dst: CUdeviceptr,
    value: u32,
    width: usize,
) -> CUgraphNode {
    let params = CUDA_MEMSET_NODE_PARAMS_v1 {
        dst,
        pitch: 0,
        value,
        elementSize: 4,
        width,
        height: 1,
    };
    let (after, count) = (after.as_ptr(), after.len());
    get(CUgraphNode::NULL, |out| {
        cuGraphAddMemsetNode(out, graph, after, count, &raw const params, CUcontext::NULL)
    })
}
