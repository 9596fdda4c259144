//! Synchronisation: where the driver gives freed pool memory back, so that the account can follow, and where the gate learns
//! what is complete.
//!
//! # Safety
//! The driver is called with the program's own arguments.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use gpushare_cuda_abi::cuda::{CUcontext, CUevent, CUresult, CUstream};

use crate::account;
use crate::driver::ordered::Ordered;
use crate::entry::hooks;
use crate::gate;
use crate::gate::awaited::Awaited;
use crate::holdings::frees;

hooks! {
    #[wait]
    fn cuStreamSynchronize(stream: CUstream) -> CUresult = synchronize_stream;
    #[wait]
    fn cuStreamSynchronize_ptsz(stream: CUstream) -> CUresult = synchronize_stream_per_thread;
    #[wait]
    fn cuCtxSynchronize() -> CUresult = synchronize;
    #[wait]
    fn cuCtxSynchronize_v2(context: CUcontext) -> CUresult = synchronize_context;
    #[wait]
    fn cuEventSynchronize(event: CUevent) -> CUresult = synchronize_event;
}

/// Whether a wait is only to be counted: nothing binds, and nothing was freed that the driver may give back now.
#[inline(always)]
pub(super) fn is_plain() -> bool {
    gate::is_free() && !frees::pending()
}

/// Counts a plain wait that is over.
#[inline(always)]
pub(super) fn over() {
    if !gate::waited() {
        account::worked();
    }
}

fn synchronize_stream(real: cuStreamSynchronize, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    awaited(Awaited::Stream(Ordered::legacy(stream)), || unsafe {
        real(stream)
    })
}

fn synchronize_stream_per_thread(real: cuStreamSynchronize_ptsz, stream: CUstream) -> CUresult {
    // SAFETY: the program's own argument.
    awaited(Awaited::Stream(Ordered::per_thread(stream)), || unsafe {
        real(stream)
    })
}

fn synchronize(real: cuCtxSynchronize) -> CUresult {
    // SAFETY: takes nothing.
    awaited(Awaited::Context(CUcontext::NULL), || unsafe { real() })
}

fn synchronize_context(real: cuCtxSynchronize_v2, context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    awaited(Awaited::Context(context), || unsafe { real(context) })
}

fn synchronize_event(real: cuEventSynchronize, event: CUevent) -> CUresult {
    // SAFETY: the program's own argument.
    followed(gate::awaited::asking_event(event, || unsafe {
        real(event)
    }))
}

/// Waits by `call`; the gate learns what is complete.
fn awaited(what: Awaited, call: impl FnOnce() -> CUresult) -> CUresult {
    followed(gate::awaited::waiting(what, call))
}

fn followed(answer: CUresult) -> CUresult {
    account::worked();
    frees::synchronised();
    answer
}
