//! Uses the program's own waits and queries: they show which work is complete without a mark behind
//! it.
//!
//! An event is known by the work it stands behind: a stream, and its position in the stream. That
//! holds until it is recorded again, in any way. So an event is unknown in three cases: while a
//! recording is in progress; when it was recorded while everything was free and nothing has been
//! tracked since; and for ever where something else than a call of the program's may record it
//! (another process, a graph, or a kernel). A wait for an event that is recorded meanwhile shows
//! nothing. Why: ADR 64.
//!
//! No lock of ours is held while the driver is called. The locks here are taken in the bodies of
//! hooks only: a signal handler that interrupts one is found to be inside our own code, and its
//! calls go straight to the driver (`frames::enter`). So no thread waits for a lock that it holds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUevent, CUresult, CUstream,
};

mod events;

use super::{apart, device_gate, drain};
use crate::driver::contexts::{self, Here};
use crate::driver::green::{self, Green};
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::guest::clock;
use crate::guest::fork::ForkLocal;
use crate::guest::map::ByHandle;
use events::{Before, Covers, Events};
use gpushare_pacing::window::StreamKey;

static EVENTS: ForkLocal<Mutex<Events>> = ForkLocal::new();
/// The streams that wait for the legacy stream of their context, and it for them.
static BLOCKING: ForkLocal<Mutex<ByHandle<CUstream, CUcontext>>> = ForkLocal::new();
/// A wait of the program's that took so long (ns) was for work that ended only then.
const BLOCKED: u64 = 20_000;
/// Rises when a device becomes free: from then on recordings may go unnoticed.
static FREED: AtomicU64 = AtomicU64::new(0);

fn events() -> MutexGuard<'static, Events> {
    let events = EVENTS.get_or(Mutex::default);
    events.lock().unwrap_or_else(PoisonError::into_inner)
}

fn blocking() -> MutexGuard<'static, ByHandle<CUstream, CUcontext>> {
    let blocking = BLOCKING.get_or(Mutex::default);
    blocking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device becomes free.
pub(super) fn freed() {
    FREED.fetch_add(1, Ordering::AcqRel);
}

/// A context has gone, its streams and events with it.
pub(super) fn context_gone(context: CUcontext) {
    events().forget_all();
    blocking().retain(|_, of| *of != context);
}

/// The program has made a stream that waits for the legacy one, and it for it.
pub(crate) fn blocking_stream_made(stream: CUstream) {
    // Streams of a green context wait for that context's default stream.
    if green::current().is_none()
        && let Some(here) = contexts::here()
    {
        blocking().insert(stream, here.handle);
    }
}

/// A stream is about to be destroyed: its handle may be another's.
pub(crate) fn stream_going(stream: CUstream) {
    blocking().remove(&stream);
}

/// An event is about to be destroyed: its handle may be another's.
pub(crate) fn event_going(event: CUevent) {
    let mut events = events();
    events.forget(event);
    events.shared.remove(&event);
}

/// From now on the event may be recorded by another process, by a graph, or within a launch.
pub(crate) fn event_shared(event: CUevent) {
    let mut events = events();
    events.forget(event);
    events.shared.insert(event);
}

/// The work that the program waits for, or records an event behind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// A stream, as the function understands it.
    Stream(StreamRef),
    /// All of a context, which may be a green one's; the current one if it is null.
    Context(CUcontext),
    /// All of a green context. `None`: one that no hook saw made.
    Green(Option<Green>),
}

impl Awaited {
    /// The work that was submitted there until now, `alone` if nothing else may stand behind that.
    /// `None` where it is unknown, or the device is unbound.
    fn before(self, alone: bool) -> Option<Before> {
        match self {
            Self::Stream(stream) => {
                let here = streams::locate(stream)?;
                let stream_key = drain::stream_key_of(here.handle, stream);
                let alone = alone && !apart::waits(&stream_key);
                submitted(Covers::StreamKey(stream_key), here, alone)
            }
            Self::Context(context) if context.is_null() => match green::current() {
                Some(green) => Self::Green(Some(green)).before(alone),
                None => of_context(contexts::here()?, alone),
            },
            Self::Context(context) => match green::converted(context) {
                Some(green) => Self::Green(Some(green)).before(alone),
                None => of_context(contexts::of(context)?, alone),
            },
            Self::Green(green) => {
                let here = contexts::of(green?.primary)?;
                submitted(Covers::Green(green?), here, alone)
            }
        }
    }
}

fn of_context(here: Here, alone: bool) -> Option<Before> {
    submitted(Covers::Context(here.handle), here, alone)
}

fn submitted(covers: Covers, here: Here, alone: bool) -> Option<Before> {
    let device_index = here.device.index();
    let stamp = device_gate::of(device_index)?.lock().window.stamp();
    Some(Before {
        covers,
        device_index,
        stamp,
        alone,
    })
}

/// Records `event` by `call`; `before` says behind what, and is asked first.
fn recording(
    event: CUevent,
    before: impl FnOnce() -> Option<Before>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if !super::is_bound() {
        events().forget(event);
        return call();
    }
    let before = before();
    let serial = events().begin(event, FREED.load(Ordering::Acquire));
    let answer = call();
    let before = before.filter(|_| answer.is_success());
    events().end(event, serial, before);
    answer
}

/// The program records `event` in `stream` by `call`. In a capture, with `external`, it becomes a
/// node of the graph.
pub(crate) fn recording_in(
    event: CUevent,
    stream: StreamRef,
    external: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if external && stream.records() {
        event_shared(event);
    }
    let before = || Awaited::Stream(stream).before(true);
    recording(event, || stream.runs().then(before).flatten(), call)
}

/// The program records `event` behind everything in a context by `call`.
pub(crate) fn recording_behind(
    event: CUevent,
    context: Awaited,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    recording(event, || context.before(false), call)
}

/// The program waits for `event`, or asks about it, by `call`.
pub(crate) fn asking_event(event: CUevent, call: impl FnOnce() -> CUresult) -> CUresult {
    if !super::is_bound() {
        return call();
    }
    let freed = FREED.load(Ordering::Acquire);
    let found = events().find(event, freed);
    let began = clock::now();
    let answer = call();
    if let (true, Some((serial, before))) = (answer.is_success(), found)
        && events().tell(event, serial, FREED.load(Ordering::Acquire))
    {
        teach(&before, has_blocked(began));
    }
    answer
}

/// The program waits by `call`.
pub(crate) fn waiting(what: Awaited, call: impl FnOnce() -> CUresult) -> CUresult {
    finding_out(|| what.before(true), call)
}

/// The program asks by `call` whether `stream` is idle.
pub(crate) fn asking_stream(stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    finding_out(|| Awaited::Stream(stream).before(false), call)
}

/// The program copies by `call`, on the default stream `stream`, and the driver returns only when
/// all work before the copy is complete.
pub(crate) fn copying(stream: StreamRef, call: impl FnOnce() -> CUresult) -> CUresult {
    let before = || {
        if stream.is_legacy() && !stream.is_of_green() {
            let here = contexts::here()?;
            submitted(Covers::Blocking(here.handle), here, false)
        } else {
            Awaited::Stream(stream).before(false)
        }
    };
    finding_out(before, call)
}

/// Once `call` has succeeded, what `before` said is complete; if it took long, only just now.
fn finding_out(
    before: impl FnOnce() -> Option<Before>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if !super::is_bound() {
        return call();
    }
    let before = before();
    let began = clock::now();
    let answer = call();
    if let (true, Some(before)) = (answer.is_success(), before) {
        teach(&before, has_blocked(began));
    }
    answer
}

fn has_blocked(began: u64) -> bool {
    clock::now().saturating_sub(began) >= BLOCKED
}

/// All that `before` stands for is complete; if the program `blocked`, only just now.
fn teach(before: &Before, blocked: bool) {
    let Some(gate) = device_gate::of(before.device_index).filter(|_| before.stamp > 0) else {
        return;
    };
    let blocked = blocked && before.alone;
    let is_covered = |stream_key: &StreamKey| before.covers.has(stream_key);
    if blocked && !matches!(before.covers, Covers::StreamKey(_)) {
        // The operation behind a stream's waiting work has ended only now, not that work itself.
        let waits = |stream_key: &StreamKey| is_covered(stream_key) && apart::waits(stream_key);
        gate.waited_for(waits, before.stamp, false);
    }
    gate.waited_for(is_covered, before.stamp, blocked);
}

impl Covers {
    fn has(&self, stream_key: &StreamKey) -> bool {
        match self {
            Self::StreamKey(known) => stream_key == known,
            Self::Context(context) => stream_key.context == context.0.addr(),
            Self::Green(green) => {
                *stream_key == drain::stream_key_of_green(green)
                    || green::owns(green, stream_key.stream)
            }
            Self::Blocking(context) => waits_for_legacy(*context, stream_key),
        }
    }
}

/// Whether a stream is the context's legacy one, or waits for that, as far as is known.
pub(super) fn waits_for_legacy(context: CUcontext, stream_key: &StreamKey) -> bool {
    let stream = CUstream(core::ptr::without_provenance_mut(stream_key.stream));
    let is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    stream_key.context == context.0.addr()
        && (is_default || blocking().get(&stream) == Some(&context))
}
