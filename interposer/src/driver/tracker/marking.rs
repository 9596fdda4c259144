//! Putting something into a stream or context of the program's while it can neither go nor capture.
//!
//! Green contexts: a stream that belongs to one and has a handle is marked like any, with the
//! primary context current. The default stream of a green context has no handle that means it
//! elsewhere: it is marked with its whole green context, by the thread that launches into it, or
//! with its whole primary context. Why: ADR 41.

use std::sync::atomic::{AtomicBool, Ordering};

use gpushare_cuda_abi::cuda::{CU_STREAM_LEGACY, CUcontext, CUresult, CUstream, CUstream_flags};

use super::captures::release_stream;
use super::contexts::Life;
use super::state::{State, Tracker};
use super::{captures, contexts, streams};
use crate::driver::calls;
use crate::driver::current::CurrentContext;
use crate::driver::green::Green;
use crate::driver::stream_ref::StreamRef;
use crate::guest::clock;

/// The outcome of an attempt to make a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked<R> {
    /// It was made, with this result.
    Done(R),
    /// The context is destroyed, or has failed.
    Gone,
    /// The stream records, or a mark behind all of its context would disturb one that does.
    Captures,
    /// The stream is unknown, or its context may be being destroyed.
    Unknown,
}

/// The driver has no `cuCtxRecordEvent`.
static OLDER: AtomicBool = AtomicBool::new(false);

/// Whether a mark behind all work of a context can be made now, as far as is known.
pub(crate) fn can_mark_all() -> bool {
    !OLDER.load(Ordering::Relaxed) && captures::none_seen()
}

/// The driver cannot put a mark behind all work of a context.
pub(crate) fn is_older() {
    if !OLDER.swap(true, Ordering::Relaxed) {
        tracing::info!(
            "no cuCtxRecordEvent here: threads' own streams are marked by their threads"
        );
    }
}

/// Whether this says that the context is destroyed, or has failed: nothing runs in it any more.
pub(crate) fn is_over(why: CUresult) -> bool {
    matches!(
        why,
        CUresult::DEINITIALIZED
            | CUresult::INVALID_CONTEXT
            | CUresult::CONTEXT_IS_DESTROYED
            | CUresult::ECC_UNCORRECTABLE
            | CUresult::NVLINK_UNCORRECTABLE
            | CUresult::CONTAINED
            | CUresult::ILLEGAL_ADDRESS
            | CUresult::LAUNCH_TIMEOUT
            | CUresult::ASSERT
            | CUresult::HARDWARE_STACK_ERROR
            | CUresult::ILLEGAL_INSTRUCTION
            | CUresult::MISALIGNED_ADDRESS
            | CUresult::INVALID_ADDRESS_SPACE
            | CUresult::INVALID_PC
            | CUresult::LAUNCH_FAILED
            | CUresult::TENSOR_MEMORY_LEAK
            | CUresult::MPS_CLIENT_TERMINATED
    )
}

/// Runs `body`, which records an event in the stream that it is given: the context's legacy stream
/// where no other stream waits for that, else one of ours that stands behind it.
pub(crate) fn marking_legacy<R>(
    context: CUcontext,
    body: impl FnOnce(Result<CUstream, CUresult>) -> Marked<R>,
) -> Marked<R> {
    within(context, CUstream::NULL, |held| body(held.legacy()))
}

/// Runs `body`, which records an event behind everything in the context, while nothing captures.
pub(crate) fn marking_all<R>(context: CUcontext, body: impl FnOnce() -> Marked<R>) -> Marked<R> {
    if OLDER.load(Ordering::Relaxed) {
        return Marked::Unknown;
    }
    within(context, CUstream::NULL, |_| {
        if captures::go_on() {
            return Marked::Captures;
        }
        body()
    })
}

/// Runs `body`, which puts an event or the like into a stream, while neither the stream nor its
/// context can go and no capture can begin. `context` is the current one meanwhile.
pub(crate) fn marking<R>(
    context: CUcontext,
    stream: CUstream,
    per_thread: bool,
    body: impl FnOnce() -> Marked<R>,
) -> Marked<R> {
    within(context, stream, |_| {
        let ordered = if per_thread {
            StreamRef::per_thread(stream)
        } else {
            StreamRef::legacy(stream)
        };
        if ordered.records() {
            return Marked::Captures;
        }
        body()
    })
}

/// Runs `body`, which records an event behind all work in a green context, while none of its
/// streams captures.
pub(crate) fn marking_green<R>(green: &Green, body: impl FnOnce() -> Marked<R>) -> Marked<R> {
    within(green.primary, CUstream::NULL, |_| {
        let own = streams::of_green(green);
        let mut own = own.iter().map(|(stream, _)| StreamRef::legacy(*stream));
        if own.any(StreamRef::records) {
            return Marked::Captures;
        }
        body()
    })
}

/// Runs `body` with a stream and its context kept, and the context current.
fn within<R>(
    context: CUcontext,
    stream: CUstream,
    body: impl FnOnce(&Hold) -> Marked<R>,
) -> Marked<R> {
    let held = match Hold::take(context, stream) {
        Ok(held) => held,
        Err(Lost::Context) => return Marked::Gone,
        Err(Lost::Stream) => return Marked::Unknown,
    };
    let _current = match CurrentContext::make(context) {
        Ok(current) => current,
        Err(why) if is_over(why) => return Marked::Gone,
        Err(_) => return Marked::Unknown,
    };
    body(&held)
}

/// Keeps a stream and its context, and captures from beginning.
#[derive(Debug)]
struct Hold {
    context: CUcontext,
    stream: CUstream,
}

/// Why neither can be kept.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// The context is no more.
    Context,
    /// Its context is being destroyed, or the stream is unknown.
    Stream,
}

impl Hold {
    fn take(context: CUcontext, stream: CUstream) -> Result<Self, Lost> {
        let tracker = Tracker::get();
        let mut state = tracker.lock();
        if !state.beginning.is_empty() {
            state = tracker.wait(state, |state| !state.beginning.is_empty());
            tracker.drop_left(&mut state, clock::now());
        }
        let known = state.contexts.get_mut(&context).ok_or(Lost::Context)?;
        if known.going > 0 {
            return Err(Lost::Stream);
        }
        known.busy += 1;
        if !streams::is_default(stream) {
            let Some(stream) = state.streams.get_mut(&stream) else {
                release_context(&mut state, context);
                return Err(Lost::Stream);
            };
            stream.busy += 1;
        }
        state.marking += 1;
        Ok(Self { context, stream })
    }

    /// Where an event behind the context's legacy stream is recorded.
    fn legacy(&self) -> Result<CUstream, CUresult> {
        if streams::wait_for_legacy(self.context) {
            self.own()
        } else {
            Ok(CU_STREAM_LEGACY)
        }
    }

    /// The stream of ours that stands behind the context's legacy stream, made at first use. The
    /// context is current.
    fn own(&self) -> Result<CUstream, CUresult> {
        let tracker = Tracker::get();
        let known = tracker
            .lock()
            .contexts
            .get(&self.context)
            .and_then(|known| known.own);
        if let Some(own) = known {
            return Ok(own);
        }
        let mut made = calls::create_stream(CUstream_flags::DEFAULT)?;
        if let Some(known) = tracker.lock().contexts.get_mut(&self.context) {
            // Where another thread was faster, this one is left to the context.
            made = *known.own.get_or_insert(made);
        }
        Ok(made)
    }
}

/// The outcome of an attempt to keep a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept<R> {
    /// It was kept, with the closure's result.
    Done(R),
    /// It is destroyed, or has failed.
    Gone,
    /// It may be being destroyed, or cannot be used for another reason.
    Going,
}

/// Runs `body` with a context current that is kept from being destroyed meanwhile. `None` where it
/// is unknown, or being destroyed.
pub(crate) fn keeping<R>(context: CUcontext, body: impl FnOnce() -> R) -> Option<R> {
    let life = contexts::life_of(context)?;
    match keeping_life(life, body) {
        Kept::Done(answer) => Some(answer),
        Kept::Gone | Kept::Going => None,
    }
}

/// The same for one life of a context.
pub(crate) fn keeping_life<R>(life: Life, body: impl FnOnce() -> R) -> Kept<R> {
    struct Held(CUcontext);
    impl Drop for Held {
        fn drop(&mut self) {
            release_context(&mut Tracker::get().lock(), self.0);
            Tracker::get().changed.notify_all();
        }
    }
    {
        let mut state = Tracker::get().lock();
        match state.contexts.get_mut(&life.handle) {
            Some(known) if known.born != life.born => return Kept::Gone,
            Some(known) if known.going > 0 => return Kept::Going,
            Some(known) => known.busy += 1,
            None => return Kept::Gone,
        }
    }
    let _held = Held(life.handle);
    match CurrentContext::make(life.handle) {
        Ok(_current) => Kept::Done(body()),
        Err(why) if is_over(why) => Kept::Gone,
        Err(_) => Kept::Going,
    }
}

fn release_context(state: &mut State, context: CUcontext) {
    if let Some(known) = state.contexts.get_mut(&context) {
        known.busy = known.busy.saturating_sub(1);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let tracker = Tracker::get();
        let mut state = tracker.lock();
        release_context(&mut state, self.context);
        release_stream(&mut state, self.stream);
        state.marking = state.marking.saturating_sub(1);
        drop(state);
        tracker.changed.notify_all();
    }
}
