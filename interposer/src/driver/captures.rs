//! Captures under way in this process: and who began them. And the relaxed mode in which the driver
//! is asked on the program's behalf.
//!
//! The hooks of begins, ends and destructions keep the list. What could be missed (a capture that ended where no hook saw it) is asked
//! of the driver before it keeps a thread from waiting, so that no entry keeps one for ever.
//!
//! # Safety
//! `unsafe` exchanges the calling thread's mode, and asks the driver about streams in the list: a stream leaves it before it is destroyed.
#![allow(unsafe_code, reason = "asks the driver about captures")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
use crate::driver::ordered::Ordered;
use crate::guest::fork::ForkLocal;

/// A capture that a hook saw begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capture {
    /// Where it began.
    stream: CUstream,
    /// The stream is the thread's own of this context, not one that was made.
    own_of: Option<CUcontext>,
    /// The context it is in, if that is known.
    context: CUcontext,
    /// The thread that began it.
    thread: i64,
}

#[derive(Debug, Default)]
struct Captures {
    list: Mutex<Vec<Capture>>,
    /// Entries, and begins on their way.
    count: AtomicUsize,
}

static CAPTURES: ForkLocal<Captures> = ForkLocal::new();

impl Captures {
    fn get() -> &'static Self {
        CAPTURES.get_or(Self::default)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Capture>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what `over` says is over.
    fn drop_if(&self, over: impl Fn(&Capture) -> bool) {
        let mut list = self.lock();
        let before = list.len();
        list.retain(|capture| !over(capture));
        self.count.fetch_sub(before - list.len(), Ordering::AcqRel);
    }
}

/// This thread disturbs no capture, as long as this lives.
#[derive(Debug)]
pub(crate) struct Relaxed(CUstreamCaptureMode);

impl Relaxed {
    /// From now on.
    pub(crate) fn enter() -> Self {
        let mut mode = CUstreamCaptureMode::RELAXED;
        // SAFETY: exchanges a value of this thread's for one that outlives the call. A driver without it knows no modes.
        let _ = unsafe { calls::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        Self(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: puts back what was there.
        let _ = unsafe { calls::cuThreadExchangeStreamCaptureMode(&raw mut self.0) };
    }
}

/// Asks the driver something on the program's behalf that a capture could forbid: no capture notices.
///
/// Which questions that are is listed in ADR 38.
#[inline]
pub(crate) fn unnoticed<R>(ask: impl FnOnce() -> R) -> R {
    let _relaxed = Relaxed::enter();
    ask()
}

/// Where a capture begins, or ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    stream: CUstream,
    own_of: Option<CUcontext>,
    context: CUcontext,
}

impl Place {
    /// Of a stream of `context`. `per_thread` says whether stream 0 is the thread's own.
    pub(crate) fn of(stream: CUstream, per_thread: bool, context: CUcontext) -> Self {
        let own = stream == CU_STREAM_PER_THREAD || stream.is_null() && per_thread;
        Self {
            stream: if own { CU_STREAM_PER_THREAD } else { stream },
            own_of: own.then_some(context),
            context,
        }
    }

    fn is_of(&self, capture: &Capture) -> bool {
        let thread = self.own_of.is_none() || capture.thread == this_thread();
        thread && capture.stream == self.stream && capture.own_of == self.own_of
    }
}

/// Begins a capture by `call`.
pub(crate) fn beginning(place: Place, call: impl FnOnce() -> CUresult) -> CUresult {
    let captures = Captures::get();
    // Counted before it begins, so that nobody believes there is none.
    captures.count.fetch_add(1, Ordering::AcqRel);
    let answer = call();
    if answer.is_success() {
        captures.lock().push(Capture {
            stream: place.stream,
            own_of: place.own_of,
            context: place.context,
            thread: this_thread(),
        });
    } else {
        captures.count.fetch_sub(1, Ordering::AcqRel);
    }
    answer
}

/// Notes the driver's answer to the end of a capture, which may leave it as it is.
pub(crate) fn ended(place: Place, answer: CUresult) {
    let Some(captures) = CAPTURES.get() else {
        return;
    };
    let over = answer.is_success() || !still_records(place.stream);
    if over {
        captures.drop_if(|capture| place.is_of(capture));
    }
}

/// A stream is about to be destroyed, and a capture that began on it with it.
pub(crate) fn stream_going(stream: CUstream) {
    if let Some(captures) = CAPTURES.get() {
        captures.drop_if(|capture| capture.own_of.is_none() && capture.stream == stream);
    }
}

/// A context is gone, and the captures on its streams with it.
pub(crate) fn context_gone(context: CUcontext) {
    if let Some(captures) = CAPTURES.get() {
        captures.drop_if(|capture| capture.context == context);
    }
}

/// Whether no capture is under way that a hook saw begin.
#[inline]
pub(crate) fn none_seen() -> bool {
    CAPTURES
        .get()
        .is_none_or(|captures| captures.count.load(Ordering::Acquire) == 0)
}

/// Whether this thread may be kept waiting: not while it records a graph, which others may be held up by. Where no hook saw a capture
/// begin, the driver is asked about the one that it tells of, that of a blocking stream in the current context: nobody knows whose it is.
pub(crate) fn may_wait() -> bool {
    if none_seen() {
        !Ordered::legacy(CUstream::NULL).records()
    } else {
        !by_this_thread()
    }
}

/// Whether the calling thread has a capture under way.
pub(crate) fn by_this_thread() -> bool {
    let me = this_thread();
    under_way(|capture| capture.thread == me)
}

/// Whether any capture is under way that is `wanted`. What the driver says is over of the calling thread's own is forgotten. Of others it
/// is not asked: their threads may destroy the stream meanwhile.
fn under_way(wanted: impl Fn(&Capture) -> bool) -> bool {
    let Some(captures) = CAPTURES.get().filter(|_| !none_seen()) else {
        return false;
    };
    let found: Vec<Capture> = {
        let list = captures.lock();
        list.iter()
            .copied()
            .filter(|capture| wanted(capture))
            .collect()
    };
    let me = this_thread();
    let asked = |capture: &Capture| capture.own_of.is_none() && capture.thread == me;
    let (over, going): (Vec<Capture>, Vec<Capture>) = found
        .into_iter()
        .partition(|capture| asked(capture) && !still_records(capture.stream));
    if !over.is_empty() {
        captures.drop_if(|capture| over.contains(capture));
    }
    !going.is_empty()
}

/// Whether a stream captures, or the driver will not say: then it is taken to.
fn still_records(stream: CUstream) -> bool {
    let mut status = CUstreamCaptureStatus::NONE;
    // SAFETY: the program's stream, which has not been destroyed, and an out parameter that outlives the call.
    let answer = unsafe { calls::cuStreamIsCapturing(stream, &raw mut status) };
    !answer.is_success() || status != CUstreamCaptureStatus::NONE
}

fn this_thread() -> i64 {
    // SAFETY: takes nothing and always succeeds. By number: glibc has a name for it since 2.30 only.
    unsafe { libc::syscall(libc::SYS_gettid) }
}
