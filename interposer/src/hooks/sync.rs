//! Synchronisation: the driver may free pool memory here, so the account follows it, and the gate
//! sees which work is complete.

use gpushare_cuda_abi::cuda::{CUcontext, CUevent, CUresult, CUstream};

use crate::account;
use crate::entry::hooks;
use crate::gate;
use crate::gate::awaited::Awaited;
use crate::holdings::frees;

hooks! {
    #[wait]
    fn cuStreamSynchronize | cuStreamSynchronize_ptsz(stream: CUstream) -> CUresult
        = |call, of| awaited(Awaited::Stream(of(stream)), call);
    #[wait]
    fn cuCtxSynchronize() -> CUresult = |call| awaited(Awaited::Context(CUcontext::NULL), call);
    #[wait]
    fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult = |call| awaited(Awaited::Context(context), call);
    #[wait]
    fn cuEventSynchronize(event: CUevent) -> CUresult = |call| followed(|| gate::awaited::asking_event(event, call));
}

/// Waits by `call`; the gate records the completed work.
fn awaited(what: Awaited, call: impl FnOnce() -> CUresult) -> CUresult {
    followed(|| gate::awaited::waiting(what, call))
}

fn followed(wait: impl FnOnce() -> CUresult) -> CUresult {
    let before = frees::so_far();
    let answer = wait();
    account::worked();
    frees::synchronised(before);
    answer
}
