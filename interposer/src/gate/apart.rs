//! Operations whose duration is not typical of their kind: the first one of a function or graph,
//! which may load or compile its module, and one that waits in its stream for a copy to or from the
//! host, another stream, or a host function.
//!
//! Such an operation is recorded as waiting, and no estimate learns from its batch. The state is
//! small tags in sets of four places: no lock, no allocation, and nothing that a fork could leave
//! locked. A tag replaced by another one costs at most one measurement, made once too often or too
//! seldom.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use gpushare_cuda_abi::cuda::{CUcontext, CUgraphExec, CUstream};

use super::{Key, awaited, device_gate, drain, ledger};
use crate::driver::contexts;
use crate::driver::green::{self, Green};
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::gate::device_gate::DeviceGate;
use crate::gate::marks::Relaxed;
use gpushare_pacing::window::StreamKey;

/// Places of a set.
const WAYS: usize = 4;

/// Remembered tags.
#[derive(Debug)]
struct Tags<const SETS: usize> {
    sets: [[AtomicU64; WAYS]; SETS],
    /// Which place of a full set gives way next.
    next: AtomicUsize,
}

/// Functions and graphs that this process has launched while something bound: 32 KiB, which are
/// touched only then.
static LAUNCHED: Tags<1024> = Tags::new();
/// Streams whose next operation waits for something outside the gate's operations.
static WAITING: Tags<64> = Tags::new();
/// Rises when handles may be reused, which makes records of launches under them invalid.
static ERA: AtomicU64 = AtomicU64::new(1);
/// The same for executable graphs, by their address.
static GRAPH_ERAS: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];

impl<const SETS: usize> Tags<SETS> {
    const fn new() -> Self {
        Self {
            sets: [const { [const { AtomicU64::new(0) }; WAYS] }; SETS],
            next: AtomicUsize::new(0),
        }
    }

    fn set(&self, tag: u64) -> &[AtomicU64; WAYS] {
        &self.sets[(tag >> 32) as usize % SETS]
    }

    fn has(&self, tag: u64) -> bool {
        let mut places = self.set(tag).iter();
        places.any(|place| place.load(Ordering::Relaxed) == tag)
    }

    fn add(&self, tag: u64) {
        if self.has(tag) {
            return;
        }
        let set = self.set(tag);
        let take = |place: &AtomicU64| {
            place
                .compare_exchange(0, tag, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        if !set.iter().any(take) {
            let victim = self.next.fetch_add(1, Ordering::Relaxed) % WAYS;
            set[victim].store(tag, Ordering::Relaxed);
        }
    }

    fn remove(&self, tag: u64) {
        for place in self.set(tag) {
            let _ = place.compare_exchange(tag, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A number for three, never 0.
fn tag(one: u64, two: u64, three: u64) -> u64 {
    let mix = |sum: u64, part: u64| {
        (sum ^ part)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(29)
    };
    mix(mix(mix(0, one), two), three) | 1
}

fn tag_of_stream(stream_key: &StreamKey) -> u64 {
    tag(
        stream_key.context as u64,
        stream_key.stream as u64,
        stream_key.thread as u64,
    )
}

fn tag_of_launch(stream_key: &StreamKey, key: Key) -> u64 {
    tag(
        drain::number(key),
        stream_key.context as u64,
        ERA.load(Ordering::Relaxed).wrapping_add(graph_era(key)),
    )
}

/// Which of the graphs that were made at an address it is.
fn graph_era(key: Key) -> u64 {
    match key {
        Key::Graph(address) => u64::from(graphs_at(address).load(Ordering::Relaxed)) << 32,
        Key::Kernel(_) | Key::Other(_) => 0,
    }
}

fn graphs_at(address: usize) -> &'static AtomicU32 {
    &GRAPH_ERAS[(address >> 6) % GRAPH_ERAS.len()]
}

/// Whether an operation of `key` may load something when it is launched. Its number does not say:
/// a kernel's is a hash.
fn may_load(key: Key) -> bool {
    match key {
        Key::Kernel(_) | Key::Graph(_) => true,
        Key::Other(_) => false,
    }
}

/// Whether an operation of `key` would be the first of its function or graph in the stream's
/// context, as far as is known.
pub(super) fn is_first(stream_key: &StreamKey, key: Key) -> bool {
    may_load(key) && !LAUNCHED.has(tag_of_launch(stream_key, key))
}

/// An operation of `key` has been launched, the `first` one by what was known before the call.
/// Returns whether its time is a valid measurement of its kind. Each launch beside other tenants
/// pays for this call, so the state is written only where it must change.
pub(super) fn launched(stream_key: &StreamKey, key: Key, first: bool) -> bool {
    let waited = waits(stream_key);
    if first {
        LAUNCHED.add(tag_of_launch(stream_key, key));
    }
    if waited {
        WAITING.remove(tag_of_stream(stream_key));
    }
    !first && !waited
}

/// Whether something that is no operation of the gate's stands behind the stream's last one.
pub(super) fn waits(stream_key: &StreamKey) -> bool {
    WAITING.has(tag_of_stream(stream_key))
}

/// Modules have been unloaded, or this is a forked child: handles of functions may be given again.
pub(crate) fn forget() {
    ERA.fetch_add(1, Ordering::Relaxed);
    ledger::changed();
}

/// An executable graph has been made, perhaps at the address of one that was destroyed.
pub(crate) fn graph_made(exec: CUgraphExec) {
    let gates = device_gate::all();
    if gates.is_empty() {
        return;
    }
    graphs_at(exec.0.addr()).fetch_add(1, Ordering::Relaxed);
    let key = drain::number(exec.into());
    gates.iter().for_each(|gate| gate.forget_key(key));
    ledger::changed();
}

/// An executable graph has been changed: it may take another time from now on.
pub(crate) fn graph_changed(exec: CUgraphExec) {
    let key = drain::number(exec.into());
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
        let _ = gate.mark(stream_key);
        // Streams that wait for the legacy one will wait for this, and so would their marks.
        if stream.is_legacy() && !later {
            mark_blocking(gate, here.handle);
        }
    }
    if later {
        next_waits(&stream_key);
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
        next_waits(&drain::stream_key_of(here.handle, stream));
    }
}

fn next_waits(stream_key: &StreamKey) {
    WAITING.add(tag_of_stream(stream_key));
    ledger::changed();
}

/// Marks what streams hold that wait for the context's legacy stream.
fn mark_blocking(gate: &DeviceGate, context: CUcontext) {
    let mine = drain::thread_number();
    let can_mark = |stream_key: &StreamKey| stream_key.thread == 0 || stream_key.thread == mine;
    let streams: Vec<StreamKey> = gate
        .lock()
        .window
        .unmarked_streams()
        .map(|(stream_key, _)| stream_key)
        .filter(can_mark)
        .collect();
    for stream_key in streams {
        if awaited::waits_for_legacy(context, &stream_key) {
            let _ = gate.mark(stream_key);
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
        let stream_key = drain::stream_key_of(here.handle, stream);
        WAITING.add(tag_of_stream(&stream_key));
    }
    ledger::changed();
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
    all.for_each(|stream| next_waits(&drain::stream_key_of(here.handle, stream)));
}

/// The same of a green context. `None`: no hook saw it made.
pub(crate) fn green_made_to_wait(green: Option<Green>) {
    let Some(green) = green.filter(|_| super::is_bound()) else {
        return;
    };
    for (stream, here) in streams::of_green(&green) {
        next_waits(&drain::stream_key_of(
            here.handle,
            StreamRef::legacy(stream),
        ));
    }
    next_waits(&drain::stream_key_of_green(&green));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes have any highest bit; a graph's address has none.
    const LOADING: [Key; 3] = [
        Key::Kernel(0x7000),
        Key::Kernel(1 << 63 | 0x7001),
        Key::Graph(0x7002),
    ];
    const MEMSET: Key = Key::Other(5);

    fn stream_key(context: usize, stream: usize) -> StreamKey {
        StreamKey {
            context,
            stream,
            thread: 0,
        }
    }

    /// An operation goes to the driver and comes back; whether its time is a measurement.
    fn launched(stream_key: &StreamKey, key: Key) -> bool {
        super::launched(stream_key, key, is_first(stream_key, key))
    }

    #[test]
    fn two_launches_at_a_time_are_both_the_first_of_their_function() {
        let (here, key) = (stream_key(0x600, 2), LOADING[0]);
        let (one, other) = (is_first(&here, key), is_first(&here, key));
        assert!(!super::launched(&here, key, one), "it may load");
        assert!(!super::launched(&here, key, other), "it may wait for that");
        assert!(launched(&here, key));
    }

    #[test]
    fn a_functions_first_launch_in_a_context_teaches_nothing_its_next_does() {
        let (here, there) = (stream_key(0x100, 2), stream_key(0x200, 2));
        for key in LOADING {
            assert!(is_first(&here, key) && !launched(&here, key), "{key:?}");
            assert!(!is_first(&here, key) && launched(&here, key), "{key:?}");
            assert!(launched(&stream_key(0x100, 3), key), "whatever stream");
            assert!(!launched(&there, key), "another context loads again");
        }
    }

    #[test]
    fn after_modules_were_unloaded_a_functions_launch_is_its_first() {
        let here = stream_key(0x300, 2);
        for key in LOADING {
            assert!(!launched(&here, key) && launched(&here, key), "{key:?}");
            forget();
            assert!(!launched(&here, key), "{key:?}");
        }
    }

    #[test]
    fn a_graph_at_the_address_of_another_one_is_launched_for_the_first_time() {
        let here = stream_key(0x700, 2);
        let at = |address| CUgraphExec(core::ptr::without_provenance_mut(address));
        let (one, other) = (at(0x5000_0040), at(0x5000_0080));
        for exec in [one, other] {
            assert!(!launched(&here, exec.into()) && launched(&here, exec.into()));
        }
        graphs_at(one.0.addr()).fetch_add(1, Ordering::Relaxed);
        assert!(!launched(&here, one.into()));
        assert!(launched(&here, other.into()), "another one's address");
    }

    #[test]
    fn a_memset_loads_nothing() {
        assert!(launched(&stream_key(0x400, 2), MEMSET));
    }

    #[test]
    fn one_operation_waits_for_what_its_stream_does_and_the_next_does_not() {
        let here = stream_key(0x500, 4);
        WAITING.add(tag_of_stream(&here));
        assert!(waits(&here) && !waits(&stream_key(0x500, 5)));
        assert!(!launched(&here, MEMSET) && launched(&here, MEMSET));
    }

    #[test]
    fn a_full_set_loses_its_oldest_tag_and_keeps_the_newest() {
        let tags = Tags::<1>::new();
        for tag in 1..=6 {
            tags.add(tag);
        }
        assert!(tags.has(6) && tags.has(5));
        assert_eq!((1..=6).filter(|tag| tags.has(*tag)).count(), WAYS);
        tags.remove(6);
        assert!(!tags.has(6));
    }
}
