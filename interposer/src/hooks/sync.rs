//! Synchronisation: where the driver gives freed pool memory back, so that the account can follow.
//!
//! # Safety
//! The driver is called with the program's own arguments.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use gpushare_cuda_abi::cuda::{CUcontext, CUevent, CUresult, CUstream};

use super::reclaim;
use crate::account;
use crate::entry::hooks;

hooks! {
    fn cuStreamSynchronize | cuStreamSynchronize_ptsz(stream: CUstream) -> CUresult = synchronize_stream;
    fn cuCtxSynchronize() -> CUresult = synchronize;
    fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult = synchronize_context;
    fn cuEventSynchronize(event: CUevent) -> CUresult = synchronize_event;
}

fn synchronize_stream(real: cuStreamSynchronize, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    followed(unsafe { real(stream) })
}

fn synchronize(real: cuCtxSynchronize) -> CUresult {
    // SAFETY: takes nothing.
    followed(unsafe { real() })
}

fn synchronize_context(real: cuCtxSynchronize_v2, context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    followed(unsafe { real(context) })
}

fn synchronize_event(real: cuEventSynchronize, event: CUevent) -> CUresult {
    // SAFETY: the program's own argument.
    followed(unsafe { real(event) })
}

fn followed(answer: CUresult) -> CUresult {
    account::worked();
    reclaim::synchronised();
    answer
}
