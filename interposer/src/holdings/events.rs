//! Events of ours behind frees in the program's streams: made, recorded, queried, destroyed. They
//! affect no capture, and no lock of ours is held meanwhile: a stream whose queue is full blocks
//! its caller.

use gpushare_cuda_abi::cuda::*;

use crate::driver::calls;
use crate::driver::captures::Relaxed;
use crate::driver::current::CurrentContext;
use crate::driver::marking::{self, Marked};
use crate::driver::stream_ref::StreamRef;

/// Records an event behind everything that `stream` has been given: `spare`, or a new one. `in_use`
/// says that the program's own call uses the stream meanwhile, so that it exists.
///
/// # Errors
/// `spare`, if it could not be recorded now: a capture is in the way, the stream is gone, or the
/// driver will not.
pub(crate) fn put(
    stream: StreamRef,
    context: CUcontext,
    spare: Option<CUevent>,
    in_use: bool,
) -> Result<CUevent, Option<CUevent>> {
    let _relaxed = Relaxed::enter();
    let record = || record(stream, spare);
    if stream.is_of_green() {
        return if in_use { record() } else { Err(spare) };
    }
    let mark = || Marked::Done(record());
    match marking::marking(context, stream.handle(), stream.is_per_thread(), mark) {
        Marked::Done(recorded) => recorded,
        // No hook saw the stream made. It exists, if the program uses it.
        Marked::Gone | Marked::Unknown if in_use => within(context, record).unwrap_or(Err(spare)),
        Marked::Gone | Marked::Unknown | Marked::Captures => Err(spare),
    }
}

fn record(stream: StreamRef, spare: Option<CUevent>) -> Result<CUevent, Option<CUevent>> {
    let event = match spare {
        Some(event) => event,
        None => calls::create_event(CUevent_flags::DISABLE_TIMING).map_err(|_| None)?,
    };
    if stream.record(event).is_ok() {
        return Ok(event);
    }
    if spare.is_none() {
        let _ = calls::destroy_event(event);
    }
    Err(spare)
}

/// Whether an event is passed. Whatever the driver answers but that it is means that it is not.
pub(crate) fn is_passed(context: CUcontext, event: CUevent) -> bool {
    let _relaxed = Relaxed::enter();
    within(context, || calls::event_status(event)).is_some_and(CUresult::is_success)
}

/// Waits for an event that is passed: the driver may count memory as outstanding of whose free the
/// host has not learned by a wait (`cuMemPoolTrimTo`).
pub(crate) fn observe(context: CUcontext, event: CUevent) {
    let _relaxed = Relaxed::enter();
    let _ = within(context, || calls::await_passed_event(event));
}

/// Whether the driver says that a stream has nothing under way. It is not asked where a stream
/// captures that waits for this one: the question would end the capture, whatever the thread's
/// mode.
pub(crate) fn is_idle(context: CUcontext, stream: StreamRef) -> bool {
    let _relaxed = Relaxed::enter();
    let ask = || Marked::Done(calls::stream_status(stream.handle()).is_success());
    let asked = marking::marking(context, stream.handle(), stream.is_per_thread(), ask);
    asked == Marked::Done(true)
}

/// Gives an event back to the driver.
pub(crate) fn destroy(context: CUcontext, event: CUevent) {
    let _ = within(context, || calls::destroy_event(event));
}

/// Runs `body` with a context current that is kept from being destroyed; `None` if that is
/// impossible.
fn within<R>(context: CUcontext, body: impl FnOnce() -> R) -> Option<R> {
    let _current = CurrentContext::make(context).ok()?;
    Some(body())
}
