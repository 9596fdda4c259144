//! Captures: no mark is made while one begins or is joined, and what a stream holds is marked before.

use std::sync::atomic::{AtomicBool, Ordering};

use gpushare_cuda_abi::cuda::{CU_STREAM_PER_THREAD, CUresult, CUstream};

use super::{Shared, drain, locate};
use crate::driver::ordered::Ordered;

/// A stream that began a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// One with a handle.
    Stream(CUstream),
    /// The own default stream of a thread: only that thread can ask about it.
    Thread(usize),
}

/// A capture has begun, some time.
static CAPTURED: AtomicBool = AtomicBool::new(false);
/// Captures have begun that are not known to have ended.
static CAPTURES: AtomicBool = AtomicBool::new(false);

/// Whether a capture may go on, as far as is known.
pub(super) fn may_go_on() -> bool {
    CAPTURES.load(Ordering::Relaxed)
}

/// Begins a capture on `stream` by `call` while no mark is made. What the stream holds is marked before.
pub(crate) fn beginning_capture(stream: Ordered, call: impl FnOnce() -> CUresult) -> CUresult {
    mark_before(stream);
    let origin = if stream.is_own() {
        Origin::Thread(drain::thread_number())
    } else {
        Origin::Stream(stream.handle())
    };
    without_marks(|| {
        CAPTURED.store(true, Ordering::Release);
        // Before it begins: nobody takes it for over while it is counted as beginning.
        CAPTURES.store(true, Ordering::Release);
        let answer = call();
        if answer.is_success() {
            let mut registry = Shared::get().lock();
            registry.begun += 1;
            registry.capturing.retain(|other| *other != origin);
            registry.capturing.push(origin);
        }
        answer
    })
}

/// Has `stream` wait for an event by `call`: it joins a capture if the event is of one.
pub(crate) fn joining_capture(stream: Ordered, call: impl FnOnce() -> CUresult) -> CUresult {
    if !CAPTURED.load(Ordering::Acquire) {
        return call();
    }
    if go_on() {
        mark_before(stream);
    }
    without_marks(call)
}

/// Marks what a stream holds that does not capture yet.
fn mark_before(stream: Ordered) {
    if !drain::may_bind() || stream.records() {
        return;
    }
    if let Some(here) = locate(stream) {
        drain::capture_begins(here, stream);
    }
}

fn without_marks(call: impl FnOnce() -> CUresult) -> CUresult {
    let shared = Shared::get();
    {
        let mut registry = shared.lock();
        registry.beginning += 1;
        let mut registry = shared.wait(registry, |registry| registry.marking > 0);
        if registry.marking > 0 {
            // Whoever counted it has left it by a jump, or is held up: it is not waited for again.
            registry.marking = 0;
        }
    }
    let answer = call();
    let mut registry = shared.lock();
    registry.beginning = registry.beginning.saturating_sub(1);
    drop(registry);
    shared.changed.notify_all();
    answer
}

/// The calling thread's own default stream runs what it is given: if it captured, that is over.
pub(crate) fn own_stream_runs() {
    if CAPTURES.load(Ordering::Relaxed) {
        let mine = Origin::Thread(drain::thread_number());
        let capturing = &mut Shared::get().lock().capturing;
        capturing.retain(|origin| *origin != mine);
    }
}

/// Whether a capture goes on anywhere in this process, or may just begin.
pub(super) fn go_on() -> bool {
    if !CAPTURES.load(Ordering::Acquire) {
        return false;
    }
    let shared = Shared::get();
    let (capturing, begun) = {
        let registry = shared.lock();
        (registry.capturing.clone(), registry.begun)
    };
    let is_over = |origin: &Origin| match origin {
        // A stream that is no more captures nothing.
        Origin::Stream(stream) => !Ordered::legacy(*stream).records(),
        Origin::Thread(thread) => {
            *thread == drain::thread_number() && !Ordered::legacy(CU_STREAM_PER_THREAD).records()
        }
    };
    let over: Vec<_> = capturing.into_iter().filter(is_over).collect();
    let mut registry = shared.lock();
    if registry.begun != begun {
        // One of them may have begun again.
        return true;
    }
    registry.capturing.retain(|origin| !over.contains(origin));
    let goes_on = !registry.capturing.is_empty() || registry.beginning > 0;
    CAPTURES.store(goes_on, Ordering::Release);
    goes_on
}
