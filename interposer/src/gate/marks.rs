//! Marks: events of ours behind work in the program's streams, without timing, and asked instead of waited for.
//!
//! A capture must not notice: whoever asks or records does so in [`Relaxed`] mode, and a mark is put into a stream only through
//! [`streams::marking`], which keeps captures, destructions and marks apart. A context that has failed answers every question with its error:
//! nothing runs there any more, so its marks count as passed.
//!
//! # Safety
//! `unsafe` makes, records, asks and destroys events of ours. They are destroyed by nobody else, but for their context's end,
//! before which they are forgotten ([`context_going`](super::drain::context_going)).
#![allow(unsafe_code, reason = "calls the driver with events of ours")]

use core::ops::RangeInclusive;

use gpushare_cuda_abi::cuda::*;

use super::streams::{self, Marked};
pub(super) use crate::captures::Relaxed;
use crate::driver;

/// What the driver answers where a capture forbids something.
const CAPTURE_ERRORS: RangeInclusive<u32> =
    CUresult::STREAM_CAPTURE_UNSUPPORTED.0..=CUresult::STREAM_CAPTURE_WRONG_THREAD.0;

/// An event in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) context: CUcontext,
    event: CUevent,
}

/// What became of a mark.
#[derive(Clone, Copy, Debug)]
pub(super) enum Put {
    /// It is in its stream.
    Made(Mark),
    /// The stream or its context is gone, or has failed: nothing is under way there.
    Gone,
    /// Not now: a capture is in the way, or the driver is short of something. The event, if there is one.
    Later(Option<Mark>),
}

/// Asks marks, each in its own context: the driver wants one to be current.
#[derive(Debug)]
pub(super) struct Asker {
    current: CUcontext,
    pushed: bool,
}

impl Asker {
    /// With what is current now.
    pub(super) fn new() -> Self {
        let mut current = CUcontext::NULL;
        // SAFETY: an out parameter that outlives the call.
        let _ = unsafe { driver::cuCtxGetCurrent(&raw mut current) };
        Self {
            current,
            pushed: false,
        }
    }

    /// Whether all work before the mark is complete, or never will be.
    pub(super) fn is_passed(&mut self, mark: &Mark) -> bool {
        self.enter(mark.context);
        // SAFETY: an event of ours, known only while its context lives.
        let answer = unsafe { driver::cuEventQuery(mark.event) };
        answer != CUresult::NOT_READY && !CAPTURE_ERRORS.contains(&answer.0)
    }

    fn enter(&mut self, context: CUcontext) {
        if self.current == context {
            return;
        }
        self.leave();
        // SAFETY: a context that lives as long as its marks are known. One that cannot be entered has failed: so will the question.
        self.pushed = unsafe { driver::cuCtxPushCurrent_v2(context) }.is_success();
        self.current = context;
    }

    fn leave(&mut self) {
        if core::mem::take(&mut self.pushed) {
            let mut popped = CUcontext::NULL;
            // SAFETY: what was pushed is popped.
            let _ = unsafe { driver::cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Mark {
    /// Gives the event back to the driver.
    pub(super) fn destroy(self) {
        // SAFETY: an event of ours, known only while its context lives; it is not used after this.
        let _ = unsafe { driver::cuEventDestroy_v2(self.event) };
    }
}

/// Puts a mark behind everything that was submitted to `stream`, with the event of `spare` if there is one.
pub(super) fn put(context: CUcontext, stream: CUstream, spare: Option<Mark>) -> Put {
    let put = || record(context, stream, spare);
    match streams::marking(context, stream, false, put) {
        Marked::Done(put) => put,
        Marked::Gone => Put::Gone,
        Marked::Captures => Put::Later(spare),
    }
}

fn record(context: CUcontext, stream: CUstream, spare: Option<Mark>) -> Put {
    let mark = match spare.map_or_else(|| make(context), Ok) {
        Ok(mark) => mark,
        Err(why) if passes(why) => return Put::Later(None),
        Err(_) => return Put::Gone,
    };
    // SAFETY: the stream is kept from being destroyed; the event is of the same context, or the driver refuses.
    match unsafe { driver::cuEventRecord(mark.event, stream) } {
        CUresult::SUCCESS => Put::Made(mark),
        why if passes(why) => Put::Later(Some(mark)),
        _ => Put::Gone,
    }
}

/// Whether what the driver refuses now it may do later.
fn passes(why: CUresult) -> bool {
    CAPTURE_ERRORS.contains(&why.0)
        || matches!(why, CUresult::OUT_OF_MEMORY | CUresult::NOT_PERMITTED)
}

/// A new event in the context, which is current.
fn make(context: CUcontext) -> Result<Mark, CUresult> {
    let mut event = CUevent::NULL;
    let flags = CUevent_flags::DISABLE_TIMING.0;
    // SAFETY: an out parameter that outlives the call.
    unsafe { driver::cuEventCreate(&raw mut event, flags) }.ok()?;
    Ok(Mark { context, event })
}
