//! What the program itself finds out, taken as knowledge of the gate's: which work is complete
//! without a mark behind it.
//!
//! An event is known by what it stands behind: a stream, and how far submission had come. That
//! holds until it is recorded again, in whatever way. So an event is unknown from the begin of a
//! recording to its end; when it was recorded while everything was free, since when nothing was
//! noted; and for ever where others than the program's threads may record it: another process, or a
//! graph. Whoever waits for an event that is recorded meanwhile learns nothing. Why: ADR 64.
//!
//! No lock of ours is held while the driver is called.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUevent, CUresult, CUstream,
};

mod events;

use super::{apart, column, drain};
use crate::driver::contexts;
use crate::driver::green::{self, Green};
use crate::driver::ordered::Ordered;
use crate::driver::streams;
use crate::gate::window::Lane;
use crate::guest::clock;
use crate::guest::fork::ForkLocal;
use events::{Before, Covers, Events};

static EVENTS: ForkLocal<Mutex<Events>> = ForkLocal::new();
/// The streams that wait for the legacy stream of their context, and it for them.
static BLOCKING: ForkLocal<Mutex<HashMap<CUstream, CUcontext>>> = ForkLocal::new();
/// Rises when a device becomes free: from then on recordings may go unnoticed.
static FREED: AtomicU64 = AtomicU64::new(0);

fn events() -> MutexGuard<'static, Events> {
    let events = EVENTS.get_or(Mutex::default);
    events.lock().unwrap_or_else(PoisonError::into_inner)
}

fn blocking() -> MutexGuard<'static, HashMap<CUstream, CUcontext>> {
    let blocking = BLOCKING.get_or(Mutex::default);
    blocking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device becomes free.
pub(super) fn freed() {
    FREED.fetch_add(1, Ordering::AcqRel);
}

/// A context has gone, its streams and events with it.
pub(super) fn context_gone(context: CUcontext) {
    if let Some(events) = EVENTS.get() {
        let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
        events.forget_all();
    }
    if let Some(blocking) = BLOCKING.get() {
        let mut blocking = blocking.lock().unwrap_or_else(PoisonError::into_inner);
        blocking.retain(|_, of| *of != context);
    }
}

/// The program has made a stream that waits for the legacy one, and it for it.
pub(crate) fn blocking_stream_made(stream: CUstream) {
    // Those of a green context wait for that one's default stream.
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

/// From now on the event may be recorded by another process or by a graph.
pub(crate) fn event_shared(event: CUevent) {
    let mut events = events();
    events.forget(event);
    events.shared.insert(event);
}

/// What the stream has been given so far; `None` where that cannot be told, or nothing binds on its
/// device.
fn submitted_to(stream: Ordered) -> Option<Before> {
    let here = streams::locate(stream)?;
    let lane = drain::lane_of(here.handle, stream.handle(), stream.is_per_thread());
    let alone = !apart::waits(&lane);
    submitted(Covers::Lane(lane), here.device.index(), alone)
}

fn submitted(covers: Covers, column: usize, alone: bool) -> Option<Before> {
    let stamp = column::of(column)?.lock().window.stamp();
    Some(Before {
        covers,
        column,
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
    stream: Ordered,
    external: bool,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if external && stream.records() {
        event_shared(event);
    }
    let before = || {
        if stream.runs() {
            submitted_to(stream)
        } else {
            None
        }
    };
    recording(event, before, call)
}

/// The program records `event` behind everything in a context by `call`.
pub(crate) fn recording_in_context(
    event: CUevent,
    context: CUcontext,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let before = || match green::converted(context) {
        Some(green) => of_green(green),
        None => {
            let here = contexts::of(context)?;
            submitted(Covers::Context(here.handle), here.device.index(), false)
        }
    };
    recording(event, before, call)
}

/// The program records `event` behind everything in a green context by `call`. `None`: one that
/// nobody saw made.
pub(crate) fn recording_in_green(
    event: CUevent,
    green: Option<Green>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    recording(event, || of_green(green?), call)
}

fn of_green(green: Green) -> Option<Before> {
    let here = contexts::of(green.primary)?;
    submitted(Covers::Green(green), here.device.index(), false)
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
        teach(&before, before.alone && has_blocked(began));
    }
    answer
}

/// The program asks by `call` whether `stream` is idle.
pub(crate) fn asking_stream(stream: Ordered, call: impl FnOnce() -> CUresult) -> CUresult {
    if !super::is_bound() {
        return call();
    }
    let before = submitted_to(stream);
    let answer = call();
    if let (true, Some(before)) = (answer.is_success(), before) {
        teach(&before, false);
    }
    answer
}

/// The program copies by `call`, on the default stream `stream`, and the driver returns only when
/// all work before the copy is complete.
pub(crate) fn copying(stream: Ordered, call: impl FnOnce() -> CUresult) -> CUresult {
    if !super::is_bound() {
        return call();
    }
    let before = if stream.is_legacy() && !stream.is_of_green() {
        contexts::here()
            .and_then(|here| submitted(Covers::Blocking(here.handle), here.device.index(), false))
    } else {
        submitted_to(stream)
    };
    let answer = call();
    if let (true, Some(before)) = (answer.is_success(), before) {
        teach(&before, false);
    }
    answer
}

fn has_blocked(began: u64) -> bool {
    clock::now().saturating_sub(began) >= drain::BLOCKED
}

/// All that `before` stands for is complete; if the program `blocked`, only just now.
fn teach(before: &Before, blocked: bool) {
    let Some(column) = column::of(before.column).filter(|_| before.stamp > 0) else {
        return;
    };
    match before.covers {
        Covers::Lane(known) => {
            column.waited_for(|lane| *lane == known, before.stamp, blocked);
        }
        Covers::Context(context) => {
            let is_in = |lane: &Lane| lane.context == context.0.addr();
            column.waited_for(is_in, before.stamp, blocked);
        }
        Covers::Green(green) => {
            let is_in =
                |lane: &Lane| *lane == Lane::of_green(&green) || green::owns(&green, lane.stream);
            column.waited_for(is_in, before.stamp, blocked);
        }
        Covers::Blocking(context) => {
            column.waited_for(waiting_for_legacy(context), before.stamp, blocked);
        }
    }
}

/// Whether a stream is the context's legacy one, or waits for that, as far as is known.
pub(super) fn waiting_for_legacy(context: CUcontext) -> impl Fn(&Lane) -> bool {
    let streams: Vec<usize> = blocking()
        .iter()
        .filter(|(_, of)| **of == context)
        .map(|(stream, _)| stream.0.addr())
        .collect();
    move |lane| {
        let is_default = [CU_STREAM_LEGACY, CU_STREAM_PER_THREAD]
            .iter()
            .any(|default| default.0.addr() == lane.stream);
        lane.context == context.0.addr() && (is_default || streams.contains(&lane.stream))
    }
}
