//! Events: markers in a stream that record the time at which the hardware reaches them.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUevent, CUevent_flags, CUresult};

use super::engine::{Item, OpId, Work};
use super::stream::StreamRef;
use super::{enqueue, lock, shared, threads, wait};
use crate::context::{Context, Green, Named};
use crate::error::Result;
use crate::graph::capture;
use crate::graph::forbidden::Unsafe;
use crate::handle::{self, Handles};
use crate::memory::pool;
use crate::world::{SharedEvent, process};

/// An event's number in this process. It equals the event's handle value.
pub type EventId = u64;

static EVENTS: Handles<Event> = Handles::new();

/// A marker that can be recorded in a stream.
#[derive(Debug)]
pub struct Event {
    /// Never given twice, unlike the handle.
    id: EventId,
    handle: usize,
    context: Arc<Context>,
    flags: u32,
    /// The state of the event that other processes see.
    shared: Option<Arc<SharedEvent>>,
}

impl Event {
    /// Its number.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// Its handle.
    pub fn handle(&self) -> CUevent {
        CUevent(std::ptr::without_provenance_mut(self.handle))
    }

    /// The context it was made in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether it was made here for other processes.
    pub(crate) fn is_exported(&self) -> bool {
        self.flags & CUevent_flags::INTERPROCESS.0 != 0
    }

    /// The state that other processes see, if the event was made for them or by them.
    pub(crate) fn shared(&self) -> Option<&Arc<SharedEvent>> {
        self.shared.as_ref()
    }

    /// The operation of this process that last recorded it; 0 if it was never recorded.
    pub(crate) fn recorded(&self) -> OpId {
        lock()
            .events
            .get(&self.id)
            .map_or(0, |recording| recording.op)
    }
}

/// Creates an event.
///
/// # Errors
/// `INVALID_VALUE` for unknown flags, or an interprocess event with timing; `OUT_OF_MEMORY` if the
/// host cannot make an interprocess event.
pub fn create(context: &Arc<Context>, flags: u32) -> Result<CUevent> {
    let known = CUevent_flags::BLOCKING_SYNC.0
        | CUevent_flags::DISABLE_TIMING.0
        | CUevent_flags::INTERPROCESS.0;
    let shared = flags & CUevent_flags::INTERPROCESS.0 != 0;
    if flags & !known != 0 || (shared && flags & CUevent_flags::DISABLE_TIMING.0 == 0) {
        return Err(CUresult::INVALID_VALUE);
    }
    let shared = shared.then(|| process()?.create_event()).transpose()?;
    Ok(enter(context, flags, shared))
}

/// The event of this process for one that it opened.
pub(super) fn opened(context: &Arc<Context>, shared: Arc<SharedEvent>) -> CUevent {
    // It is not for further processes.
    enter(context, CUevent_flags::DISABLE_TIMING.0, Some(shared))
}

fn enter(context: &Arc<Context>, flags: u32, shared: Option<Arc<SharedEvent>>) -> CUevent {
    let value = EVENTS.fresh();
    EVENTS.insert_at(
        value,
        Arc::new(Event {
            id: handle::fresh() as u64,
            handle: value,
            context: Arc::clone(context),
            flags,
            shared,
        }),
    );
    CUevent(std::ptr::without_provenance_mut(value))
}

/// The event of a handle.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no event.
pub fn lookup(event: CUevent) -> Result<Arc<Event>> {
    EVENTS.get(event.0.addr()).ok_or(CUresult::INVALID_HANDLE)
}

/// Destroys an event. Operations that already wait for it are not affected.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no event.
pub fn destroy(event: CUevent) -> Result {
    let event = EVENTS
        .remove(event.0.addr())
        .ok_or(CUresult::INVALID_HANDLE)?;
    capture::event_gone(event.id);
    let _held = event.context.hold();
    lock().events.remove(&event.id);
    Ok(())
}

/// Records the event after all work in `stream`. During a capture, `external` makes it a graph node
/// instead of a dependency of the capture.
///
/// # Errors
/// `INVALID_HANDLE` if event and stream belong to different contexts, `INVALID_VALUE` for
/// `external` in a stream that does not capture; the errors of capture.
pub fn record(event: &Arc<Event>, stream: &StreamRef, external: bool) -> Result {
    if event.context.id() != stream.context().id() {
        return Err(CUresult::INVALID_HANDLE);
    }
    is_legal(stream, external)?;
    if capture::record_event(stream, event, external)? {
        return Ok(());
    }
    threads::ensure()?;
    let effect = event.shared.as_ref().map(shared::publish).transpose()?;
    enqueue(stream, Vec::new(), Work::Instant, effect, Some(event.id));
    Ok(())
}

/// Whether a launch in `stream` may record the event, as `CUlaunchAttributeValue` says: one without
/// timing, for this process.
///
/// # Errors
/// `INVALID_VALUE` if not, `INVALID_HANDLE` if event and stream belong to different contexts.
pub fn check_of_launch(event: &Event, stream: &StreamRef) -> Result {
    if event.context.id() != stream.context().id() {
        return Err(CUresult::INVALID_HANDLE);
    }
    if event.flags & CUevent_flags::DISABLE_TIMING.0 == 0 || event.shared.is_some() {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(())
}

/// NVIDIA's pages of both functions: the flag is invalid outside of stream capture.
fn is_legal(stream: &StreamRef, external: bool) -> Result {
    if external && !capture::is_active(stream)? {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(())
}

/// Makes `stream` wait for the last recording of the event; does nothing if there is none.
///
/// # Errors
/// `INVALID_VALUE` for `external` in a stream that does not capture; the errors of capture.
pub fn wait(event: &Arc<Event>, stream: &StreamRef, external: bool) -> Result {
    is_legal(stream, external)?;
    if capture::wait_event(stream, event, external)? {
        return Ok(());
    }
    threads::ensure()?;
    if let Some(shared) = &event.shared {
        if let Some(passed) = shared::passed(shared) {
            enqueue(stream, Vec::new(), Work::Value(passed), None, None);
        }
        return Ok(());
    }
    let op = event.recorded();
    if op != 0 {
        enqueue(stream, vec![op], Work::Instant, None, None);
    }
    Ok(())
}

/// Records the event after all work submitted in a context and its green contexts, in all streams;
/// or in a green context alone.
///
/// # Errors
/// `INVALID_HANDLE` if the event belongs to another context; `STREAM_CAPTURE_UNSUPPORTED` if a
/// stream of the context captures.
pub fn record_context(event: &Event, named: &Named) -> Result {
    let Named { context, green } = named;
    if event.context.id() != context.id() {
        return Err(CUresult::INVALID_HANDLE);
    }
    check_captures(context, green.as_deref())?;
    capture::event_gone(event.id);
    threads::ensure()?;
    let effect = event.shared.as_ref().map(shared::publish).transpose()?;
    let _held = context.hold();
    let mut timeline = lock();
    let now = timeline.catch_up();
    let after = match green {
        Some(green) => timeline.of_domain(green.domain()),
        None => timeline.of_context(context.id()),
    };
    timeline.add(
        now,
        Item {
            context: Arc::clone(context),
            after,
            work: Work::Instant,
            effect,
            records: Some(event.id),
            stream: 0,
        },
    );
    threads::nudge(&timeline);
    Ok(())
}

fn check_captures(context: &Arc<Context>, green: Option<&Green>) -> Result {
    match green {
        Some(green) => capture::check_green(green.domain()),
        None => capture::check_drain(context),
    }
}

/// Makes all later work of a context and its green contexts, or of a green context alone, wait for
/// the last recording of the event.
///
/// # Errors
/// `CAPTURED_EVENT` for an event recorded in a capture, `STREAM_CAPTURE_UNSUPPORTED` if a stream of
/// the context captures, `NOT_SUPPORTED` for an interprocess event.
pub fn wait_context(event: &Event, named: &Named) -> Result {
    capture::check_event(event)?;
    if event.shared.is_some() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    check_captures(&named.context, named.green.as_deref())?;
    let op = event.recorded();
    let _held = named.context.hold();
    let mut timeline = lock();
    let pending = timeline.nodes.contains_key(&op);
    let domain = named.domain();
    let mut barriers = timeline.barriers.remove(&domain).unwrap_or_default();
    barriers.retain(|barrier| timeline.nodes.contains_key(barrier));
    if pending {
        barriers.push(op);
    }
    timeline.barriers.insert(domain, barriers);
    Ok(())
}

/// Whether everything before the last recording is complete.
///
/// # Errors
/// `NOT_READY` if not, `CAPTURED_EVENT` for an event recorded in a capture, a fault of the work.
pub fn query(event: &Arc<Event>) -> Result {
    capture::check_event(event)?;
    capture::forbids(Unsafe::Event)?;
    let done = wait::poll(&[event.recorded()]);
    event.context.check()?;
    let elsewhere = event.shared.as_ref();
    if done && elsewhere.is_none_or(|shared| shared.is_complete(shared.recorded())) {
        Ok(())
    } else {
        Err(CUresult::NOT_READY)
    }
}

/// Waits until everything before the last recording is complete.
///
/// # Errors
/// `CAPTURED_EVENT` for an event recorded in a capture, a fault of the work.
pub fn synchronize(event: &Arc<Event>) -> Result {
    capture::check_event(event)?;
    capture::forbids(Unsafe::Event)?;
    wait::complete(&[event.recorded()]);
    event.context.check()?;
    if let Some(shared) = &event.shared {
        shared::wait(shared);
    }
    pool::synchronised(event.context.device());
    Ok(())
}

/// Milliseconds of the hardware's time from `start` to `end`.
///
/// # Errors
/// `INVALID_VALUE` if an event was last recorded in a capture, `INVALID_HANDLE` if one was never
/// recorded or has no timing, or if the events belong to different devices; `NOT_READY` if an event
/// is not complete.
pub fn elapsed(start: &Event, end: &Event) -> Result<f32> {
    capture::check_elapsed(start)?;
    capture::check_elapsed(end)?;
    let timed = |event: &Event| event.flags & CUevent_flags::DISABLE_TIMING.0 == 0;
    if !timed(start)
        || !timed(end)
        || start.context.device().ordinal() != end.context.device().ordinal()
    {
        return Err(CUresult::INVALID_HANDLE);
    }
    let mut timeline = lock();
    timeline.catch_up();
    let passed = |event: &Event| {
        let recording = timeline.events.get(&event.id).copied().unwrap_or_default();
        if recording.op == 0 {
            Err(CUresult::INVALID_HANDLE)
        } else {
            recording.end.ok_or(CUresult::NOT_READY)
        }
    };
    Ok(milliseconds(passed(start)?, passed(end)?))
}

/// The difference in milliseconds; negative if `end` came first.
fn milliseconds(start: u64, end: u64) -> f32 {
    (i128::from(end) - i128::from(start)) as f32 / 1e6
}

/// Forgets the events of a context that is being destroyed.
pub(super) fn forget_all(context: u64) {
    let gone = EVENTS.remove_if(|event| event.context.id() == context);
    let mut timeline = lock();
    for event in gone {
        timeline.events.remove(&event.id);
    }
}
