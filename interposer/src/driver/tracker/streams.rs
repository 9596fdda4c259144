//! The program's streams: the context of each, and its destruction.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use gpushare_cuda_abi::cuda::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUstream};

use super::contexts::{self, Here};
use super::state::{State, Stream, Tracker, epoch, next_epoch};
use crate::driver::green::{self, Green};
use crate::driver::stream_ref::StreamRef;

thread_local! {
    // Const and without a destructor: launches are made in other libraries' destructors too.
    static LAST: Cell<Option<(u64, CUstream, Here)>> = const { Cell::new(None) };
}

/// Whether a handle means a default stream, of which each context has one.
pub(crate) fn is_default(stream: CUstream) -> bool {
    stream.is_null() || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD
}

/// Streams may wait for a legacy stream, and it for them, of which no context here knows: threads'
/// own default streams, and streams that no hook saw made.
static UNLISTED: AtomicBool = AtomicBool::new(false);

/// A thread's own default stream may have work. Said at each launch of some threads: only the first
/// one takes the line from the other processors.
#[inline]
pub(crate) fn own_is_used() {
    if !UNLISTED.load(Ordering::Relaxed) {
        UNLISTED.store(true, Ordering::Relaxed);
    }
}

/// The same, if `stream` is one.
pub(crate) fn note_own(stream: StreamRef) {
    if stream.is_own() {
        own_is_used();
    }
}

/// Whether a stream of the program's may wait for the context's legacy stream, and that for it.
/// Destroyed streams count: they may have work.
pub(crate) fn wait_for_legacy(context: CUcontext) -> bool {
    let state = Tracker::get().lock();
    let known = state.contexts.get(&context);
    UNLISTED.load(Ordering::Relaxed) || known.is_none_or(|known| known.has_blocking)
}

/// A stream was made in the calling thread's current context, or by a green context.
pub(crate) fn stream_made(stream: CUstream) {
    if let Some(here) = StreamRef::legacy(stream).place() {
        enter(stream, here);
    }
}

/// A stream is about to be made in the current context that waits for its legacy stream.
pub(crate) fn blocking_comes() {
    let Some(here) = contexts::here() else {
        return;
    };
    let mut state = Tracker::get().lock();
    if let Some(known) = state.contexts.get_mut(&here.handle) {
        known.has_blocking = true;
    }
}

/// The stream may wait for the legacy stream, and that for it.
pub(crate) fn is_blocking(stream: CUstream) {
    let mut state = Tracker::get().lock();
    let context = state.streams.get(&stream).map(|known| known.here.handle);
    match context.and_then(|context| state.contexts.get_mut(&context)) {
        Some(known) => known.has_blocking = true,
        None => own_is_used(),
    }
}

fn enter(stream: CUstream, here: Here) {
    let made = Stream { here, busy: 0 };
    Tracker::get().lock().streams.insert(stream, made);
}

/// Where a made stream is, if it is known.
pub(crate) fn whereabouts(stream: CUstream) -> Option<Here> {
    let state = Tracker::get().lock();
    state.streams.get(&stream).map(|known| known.here)
}

/// Whether a made stream is known, so that [`marking`] keeps it from being destroyed.
pub(crate) fn knows(stream: CUstream) -> bool {
    !is_default(stream) && whereabouts(stream).is_some()
}

/// The context and device of a stream in which the program launches. A stream that no hook saw made
/// is registered.
pub(crate) fn locate(stream: StreamRef) -> Option<Here> {
    let handle = stream.handle();
    if is_default(handle) {
        return contexts::here();
    }
    let epoch = epoch();
    if let Some((seen, last, here)) = LAST.get()
        && seen == epoch
        && last == handle
    {
        return Some(here);
    }
    let here = match whereabouts(handle) {
        Some(here) => here,
        None => {
            let here = stream.place()?;
            enter(handle, here);
            is_blocking(handle);
            here
        }
    };
    LAST.set(Some((epoch, handle, here)));
    Some(here)
}

/// The contexts of a device, and whether one of them is being destroyed, or perhaps only released.
pub(crate) fn contexts_on(device_index: usize) -> Vec<(CUcontext, bool)> {
    contexts::on(device_index)
}

/// The program's streams of a context, but for the default ones.
pub(crate) fn streams_of(context: CUcontext) -> Vec<CUstream> {
    let state = Tracker::get().lock();
    let here = state.streams.iter();
    here.filter(|(_, known)| known.here.handle == context)
        .map(|(stream, _)| *stream)
        .collect()
}

/// The program's streams that are a green context's own, and where they are.
pub(crate) fn of_green(green: &Green) -> Vec<(CUstream, Here)> {
    let state = Tracker::get().lock();
    let is_own = |stream: &CUstream| green::owns(green, stream.0.addr());
    let own = state.streams.iter().filter(|(stream, _)| is_own(stream));
    own.map(|(stream, known)| (*stream, known.here)).collect()
}

/// Streams about to be destroyed: no mark is recorded in them, and their handles may soon be
/// reused.
#[derive(Debug)]
pub(crate) struct Going(Vec<(CUstream, Stream)>);

/// Streams are about to be destroyed, and the captures that began on them with them. Returns after
/// the last mark in them.
pub(crate) fn going(streams: &[CUstream]) -> Going {
    let tracker = Tracker::get();
    let busy = |state: &State| {
        let mut known = streams
            .iter()
            .filter_map(|stream| state.streams.get(stream));
        known.any(|stream| stream.busy > 0)
    };
    let mut state = tracker.wait(tracker.lock(), busy);
    let State {
        streams: known,
        captures,
        ..
    } = &mut *state;
    tracker.drop_captures(captures, |capture| {
        streams.iter().any(|stream| capture.is_on(*stream))
    });
    let taken = streams
        .iter()
        .filter_map(|stream| Some((*stream, known.remove(stream)?)));
    let taken = taken.collect();
    drop(state);
    next_epoch();
    Going(taken)
}

impl Going {
    /// The driver has refused: they are there still.
    pub(crate) fn stay(self) {
        let mut state = Tracker::get().lock();
        for (stream, known) in self.0 {
            let back = Stream { busy: 0, ..known };
            state.streams.entry(stream).or_insert(back);
        }
    }
}
