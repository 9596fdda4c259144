//! Stream capture.

use gpushare_cuda_abi::cuda::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus, CUstreamUpdateCaptureDependencies_flags,
};
use softgpu::Result;
use softgpu::exec::DefaultStream;
use softgpu::graph::capture;
use softgpu::graph::store::graph_handle;

use super::graph::dependencies;
use super::stream::here;
use crate::abi::{input, out, out_if, required};

/// The output pointers of a capture query; NULL for an output that the caller does not want.
struct Answers {
    status: *mut CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    data: *mut *const CUgraphEdgeData,
    count: *mut usize,
}

fn info(default: DefaultStream, stream: CUstream, answers: &Answers, knows_data: bool) -> Result {
    required(answers.status.cast_const())?;
    let Some(info) = capture::info(&here(default, stream)?)? else {
        return out(answers.status, CUstreamCaptureStatus::NONE);
    };
    if !info.valid {
        return out(answers.status, CUstreamCaptureStatus::INVALIDATED);
    }
    if info.has_data && !answers.nodes.is_null() && (!knows_data || answers.data.is_null()) {
        return Err(CUresult::LOSSY_QUERY);
    }
    out_if(answers.id, info.id);
    out_if(answers.graph, graph_handle(info.graph));
    out_if(
        answers.nodes,
        std::ptr::with_exposed_provenance(info.tail.0),
    );
    out_if(answers.data, std::ptr::with_exposed_provenance(info.tail.1));
    out_if(answers.count, info.count);
    out(answers.status, CUstreamCaptureStatus::ACTIVE)
}

fn update(
    default: DefaultStream,
    stream: CUstream,
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: u32,
) -> Result {
    let replace = match CUstreamUpdateCaptureDependencies_flags(flags) {
        CUstreamUpdateCaptureDependencies_flags::ADD_CAPTURE_DEPENDENCIES => false,
        CUstreamUpdateCaptureDependencies_flags::SET_CAPTURE_DEPENDENCIES => true,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let tail = dependencies(nodes, data, count)?;
    capture::update_tail(&here(default, stream)?, tail, replace)
}

/// The version of CUDA 10.0 has no modes: its captures are global.
fn begin(default: DefaultStream, stream: CUstream, mode: CUstreamCaptureMode) -> Result {
    capture::begin(&here(default, stream)?, mode, None)
}

driver! {
    fn cuStreamBeginCapture twin cuStreamBeginCapture_ptsz (d: DefaultStream; stream: CUstream) {
        begin(d, stream, CUstreamCaptureMode::GLOBAL)
    }

    fn cuStreamBeginCapture_v2 twin cuStreamBeginCapture_v2_ptsz (d: DefaultStream; stream: CUstream, mode: CUstreamCaptureMode) {
        begin(d, stream, mode)
    }

    fn cuStreamBeginCaptureToGraph twin cuStreamBeginCaptureToGraph_ptsz (d: DefaultStream; stream: CUstream, graph: CUgraph, after: *const CUgraphNode, data: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode) {
        let tail = dependencies(after, data, count)?;
        capture::begin(&here(d, stream)?, mode, Some((graph.0.addr(), tail)))
    }

    fn cuStreamEndCapture twin cuStreamEndCapture_ptsz (d: DefaultStream; stream: CUstream, graph: *mut CUgraph) {
        required(graph.cast_const())?;
        let ended = capture::end(&here(d, stream)?);
        out(graph, ended.map_or(CUgraph::NULL, graph_handle))?;
        ended.map(drop)
    }

    fn cuStreamIsCapturing twin cuStreamIsCapturing_ptsz (d: DefaultStream; stream: CUstream, status: *mut CUstreamCaptureStatus) {
        required(status.cast_const())?;
        out(status, match capture::info(&here(d, stream)?)? {
            None => CUstreamCaptureStatus::NONE,
            Some(info) if info.valid => CUstreamCaptureStatus::ACTIVE,
            Some(_) => CUstreamCaptureStatus::INVALIDATED,
        })
    }

    fn cuStreamGetCaptureInfo twin cuStreamGetCaptureInfo_ptsz (d: DefaultStream; stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64) {
        use std::ptr::null_mut;
        let answers = Answers { status, id, graph: null_mut(), nodes: null_mut(), data: null_mut(), count: null_mut() };
        info(d, stream, &answers, false)
    }

    fn cuStreamGetCaptureInfo_v2 twin cuStreamGetCaptureInfo_v2_ptsz (d: DefaultStream; stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, count: *mut usize) {
        info(d, stream, &Answers { status, id, graph, nodes, data: std::ptr::null_mut(), count }, false)
    }

    /// Its page: with an array for the edges' data there is one for the nodes.
    fn cuStreamGetCaptureInfo_v3 twin cuStreamGetCaptureInfo_v3_ptsz (d: DefaultStream; stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, data: *mut *const CUgraphEdgeData, count: *mut usize) {
        if nodes.is_null() && !data.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        info(d, stream, &Answers { status, id, graph, nodes, data, count }, true)
    }

    fn cuStreamUpdateCaptureDependencies twin cuStreamUpdateCaptureDependencies_ptsz (d: DefaultStream; stream: CUstream, nodes: *mut CUgraphNode, count: usize, flags: u32) {
        update(d, stream, nodes.cast_const(), std::ptr::null(), count, flags)
    }

    fn cuStreamUpdateCaptureDependencies_v2 twin cuStreamUpdateCaptureDependencies_v2_ptsz (d: DefaultStream; stream: CUstream, nodes: *mut CUgraphNode, data: *const CUgraphEdgeData, count: usize, flags: u32) {
        update(d, stream, nodes.cast_const(), data, count, flags)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode) {
        let given = input(mode.cast_const())?;
        out(mode, capture::exchange_mode(given)?)
    }
}
