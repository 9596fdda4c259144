//! Operations whose duration is not typical of their kind: the first one of a function or graph,
//! which may load or compile its module, and one that waits in its stream for a copy to or from the
//! host, another stream, or a host function.
//!
//! Such an operation is recorded as waiting, and no estimate learns from its batch. Which functions
//! and graphs have been launched is kept with their estimates, and which streams wait is kept here:
//! in a lock that is taken as those of [`awaited`] are.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUcontext, CUgraphExec, CUstream};

use super::{Key, awaited, device_gate, drain, ledger};
use crate::driver::contexts;
use crate::driver::green::{self, Green};
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::gate::device_gate::DeviceGate;
use crate::gate::marks::Relaxed;
use crate::guest::fork::ForkLocal;
use crate::guest::map::Handles;
use gpushare_pacing::window::StreamKey;

/// Streams whose next operation waits for something outside the gate's operations.
static WAITING: ForkLocal<Mutex<Handles<StreamKey>>> = ForkLocal::new();
/// So many of them at most. Streams of threads that have ended stay among them; where all are
/// forgotten, operations that wait are measured once.
const MOST: usize = 1024;
/// Rises when handles may be reused, which makes records of launches under them invalid. Never 0.
static ERA: AtomicU32 = AtomicU32::new(1);

fn waiting() -> MutexGuard<'static, Handles<StreamKey>> {
    let waiting = WAITING.get_or(Mutex::default);
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(waiting: &mut Handles<StreamKey>, stream_key: StreamKey) {
    if waiting.len() >= MOST {
        waiting.clear();
    }
    waiting.insert(stream_key);
}

/// In which handles of functions and graphs mean the same.
pub(super) fn era() -> u32 {
    ERA.load(Ordering::Relaxed)
}

/// An operation has been launched into a stream: whether it waits there for something that is no
/// operation of the gate's. The next one does not.
pub(super) fn launched(stream_key: &StreamKey) -> bool {
    // Mostly no stream waits, and then nothing is hashed here.
    let mut waiting = waiting();
    waiting.contains(stream_key) && waiting.remove(stream_key)
}

/// Whether something that is no operation of the gate's stands behind the stream's last one.
pub(super) fn waits(stream_key: &StreamKey) -> bool {
    waiting().contains(stream_key)
}

/// Modules have been unloaded, or this is a forked child: handles of functions may be given again.
pub(crate) fn forget() {
    ERA.fetch_add(1, Ordering::Relaxed);
    ledger::changed();
}

/// An executable graph has been made, perhaps at the address of one that was destroyed.
pub(crate) fn graph_made(exec: CUgraphExec) {
    let key = Key::from(exec).number;
    let gates = device_gate::all().iter();
    gates.for_each(|gate| gate.forget_key(key));
    ledger::changed();
}

/// An executable graph has been changed: it may take another time from now on.
pub(crate) fn graph_changed(exec: CUgraphExec) {
    let key = Key::from(exec).number;
    let doubts = |gate: &DeviceGate| gate.doubt(key);
    if device_gate::all()
        .iter()
        .filter(|gate| doubts(gate))
        .count()
        > 0
    {
        ledger::changed();
    }
}

/// A long operation that does not use the multiprocessors is about to be submitted to `stream`: a
/// copy from or to the host, a host function. The stream's earlier work gets its mark first, so
/// that its own completion is known. With `later`, the call does not wait for the operation, and
/// the stream's next operation does.
pub(crate) fn comes(stream: StreamRef, later: bool) {
    streams::note_own(stream);
    if !super::is_bound() || !stream.runs() {
        return;
    }
    let Some(here) = streams::locate(stream) else {
        return;
    };
    let stream_key = drain::stream_key_of(here.handle, stream);
    if let Some(gate) = device_gate::of(here.device.index()) {
        let _relaxed = Relaxed::enter();
        gate.mark_before(stream_key);
        // Streams that wait for the legacy one will wait for this, and so would their marks.
        if stream.is_legacy() && !later {
            mark_blocking(gate, here.handle);
        }
    }
    if later {
        next_waits(stream_key);
    }
}

/// The next operation of `stream` waits for a value in memory, or for a semaphore of another API.
/// No mark is put before: what is complete there is seen when the stream is.
pub(crate) fn waits_for_a_value(stream: StreamRef) {
    streams::note_own(stream);
    if !super::is_bound() || !stream.runs() {
        return;
    }
    if let Some(here) = streams::locate(stream) {
        next_waits(drain::stream_key_of(here.handle, stream));
    }
}

fn next_waits(stream_key: StreamKey) {
    add(&mut waiting(), stream_key);
    ledger::changed();
}

/// Marks what streams hold that wait for the context's legacy stream.
fn mark_blocking(gate: &DeviceGate, context: CUcontext) {
    let mine = drain::thread_number();
    let can_mark = |stream_key: &StreamKey| stream_key.thread == 0 || stream_key.thread == mine;
    let streams: Vec<StreamKey> = gate
        .lock()
        .window
        .streams()
        .filter(|stream_key| !stream_key.is_context())
        .filter(can_mark)
        .collect();
    for stream_key in streams {
        if awaited::waits_for_legacy(context, &stream_key) {
            gate.mark_before(stream_key);
        }
    }
}

/// `stream` has been made to wait for an event. Stream 0 may be either default stream here.
pub(crate) fn made_to_wait(stream: StreamRef) {
    if !super::is_bound() {
        return;
    }
    let Some(here) = streams::locate(stream) else {
        return;
    };
    for stream in [StreamRef::legacy, StreamRef::per_thread].map(|of| of(stream.handle())) {
        next_waits(drain::stream_key_of(here.handle, stream));
    }
}

/// The streams of a context have been made to wait for an event. Own streams of other threads are
/// not known.
pub(crate) fn context_made_to_wait(context: CUcontext) {
    if !super::is_bound() {
        return;
    }
    if let Some(green) = green::converted(context) {
        return green_made_to_wait(Some(green));
    }
    let here = if context.is_null() {
        contexts::here()
    } else {
        contexts::of(context)
    };
    let Some(here) = here else { return };
    let defaults = [StreamRef::legacy, StreamRef::per_thread].map(|of| of(CUstream::NULL));
    let made = streams::streams_of(here.handle).into_iter();
    let all = made.map(StreamRef::legacy).chain(defaults);
    all.for_each(|stream| next_waits(drain::stream_key_of(here.handle, stream)));
}

/// The same of a green context. `None`: no hook saw it made.
pub(crate) fn green_made_to_wait(green: Option<Green>) {
    let Some(green) = green.filter(|_| super::is_bound()) else {
        return;
    };
    for (stream, here) in streams::of_green(&green) {
        next_waits(drain::stream_key_of(here.handle, StreamRef::legacy(stream)));
    }
    next_waits(drain::stream_key_of_green(&green));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(stream: usize) -> StreamKey {
        StreamKey {
            context: 0x500,
            stream,
            thread: 0,
        }
    }

    #[test]
    fn one_operation_waits_for_what_its_stream_does_and_the_next_does_not() {
        let (here, beside) = (stream(4), stream(5));
        next_waits(here);
        assert!(waits(&here) && !waits(&beside));
        assert!(!launched(&beside) && launched(&here));
        assert!(!waits(&here) && !launched(&here));
    }

    #[test]
    fn streams_that_are_launched_into_no_more_do_not_add_up() {
        let mut waiting = Handles::default();
        for number in 0..10 * MOST {
            add(&mut waiting, stream(number));
            assert!(waiting.len() <= MOST && waiting.contains(&stream(number)));
        }
    }
}
