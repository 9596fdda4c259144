//! Calls that are forbidden during a capture, and captures whose streams, events or contexts are
//! destroyed.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use gpushare_cuda_abi::cuda::{CUresult, CUstreamCaptureMode};

use super::forbidden::{Unsafe, disturbs};
use super::session::{Session, active, nodes_before_end};
use crate::context::Context;
use crate::error::Result;
use crate::exec::StreamRef;
use crate::exec::event::{Event, EventId};
use crate::exec::stream::Stream;

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::GLOBAL) };
}

/// Exchanges the calling thread's capture mode, which decides which calls are forbidden during
/// captures.
///
/// # Errors
/// `INVALID_VALUE` for an unknown mode.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode> {
    if mode > CUstreamCaptureMode::RELAXED {
        Err(CUresult::INVALID_VALUE)
    } else {
        Ok(MODE.replace(mode))
    }
}

/// Refuses a potentially unsafe call if it disturbs a capture: a capture of this thread that is not
/// relaxed, or, in global mode, a global capture of another thread. These captures are invalidated.
pub(crate) fn forbids(_: Unsafe) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    let (mine, mode) = (thread::current().id(), MODE.get());
    let mut refused = false;
    for session in captures.sessions.values_mut() {
        if disturbs(mode, session.thread == mine, session.mode) {
            session.valid = false;
            refused = true;
        }
    }
    if refused {
        Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
    } else {
        Ok(())
    }
}

/// Refuses to wait for a stream that captures, or for the legacy default stream while a blocking
/// stream captures.
pub(crate) fn check_wait(stream: &StreamRef) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    captures.refuse_legacy(stream, true)?;
    let Some((_, session)) = captures.of(stream.id()) else {
        return Ok(());
    };
    if !session.valid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    session.valid = false;
    Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses to give the number of a stream that captures.
pub(crate) fn check_number(stream: &StreamRef) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    let Some((_, session)) = captures.of(stream.id()) else {
        return Ok(());
    };
    session.valid = false;
    Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses to wait for a context if one of its streams captures.
pub(crate) fn check_drain(context: &Arc<Context>) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    let mut refused = false;
    for session in captures.sessions.values_mut() {
        if session
            .members
            .values()
            .any(|member| member.context == context.id())
        {
            session.valid = false;
            refused = true;
        }
    }
    if refused {
        Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
    } else {
        Ok(())
    }
}

/// Refuses to query or wait for an event last recorded in a capture.
pub(crate) fn check_event(event: &Event) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    let Some(&(session, _)) = captures.events.get(&event.id()) else {
        return Ok(());
    };
    captures.invalidate(session);
    Err(CUresult::CAPTURED_EVENT)
}

/// Refuses to measure from or to an event that was last recorded in a capture.
pub(crate) fn check_elapsed(event: &Event) -> Result {
    let captured = active().is_some_and(|captures| captures.events.contains_key(&event.id()));
    if captured {
        Err(CUresult::INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// Refuses the legacy default stream beside a blocking stream that captures, before a call that
/// takes something takes it.
pub(crate) fn check_submit(stream: &StreamRef) -> Result {
    active().map_or(Ok(()), |mut captures| captures.refuse_legacy(stream, true))
}

/// Whether `stream` captures.
pub(crate) fn is_active(stream: &StreamRef) -> Result<bool> {
    let Some(mut captures) = active() else {
        return Ok(false);
    };
    match captures.of(stream.id()) {
        None => Ok(false),
        Some((_, session)) if session.valid => Ok(true),
        Some(_) => Err(CUresult::STREAM_CAPTURE_INVALIDATED),
    }
}

/// Handles the destruction of a stream. A capture that began on it is dropped. A capture it joined
/// stays valid if all its work was joined back; otherwise it becomes invalid.
pub(crate) fn stream_gone(stream: &Stream) {
    let Some(mut captures) = active() else { return };
    let Some((id, session)) = captures.of(stream.id()) else {
        return;
    };
    let origin = session.origin == stream.id();
    let gone = session.members.remove(&stream.id());
    if !origin && let Some(gone) = gone {
        let before = nodes_before_end(session).unwrap_or_default();
        session.valid &= gone.tail.iter().all(|(node, _)| before.contains(node));
    }
    captures.streams.remove(&stream.id());
    if origin {
        captures.drop_session(id);
    }
}

/// Handles the destruction of an event, or its recording outside captures.
pub(crate) fn event_gone(event: EventId) {
    let Some(mut captures) = active() else { return };
    captures.events.remove(&event);
    captures.count();
}

/// Handles the destruction of a context: drops the captures with streams of the context.
pub(super) fn context_gone(context: u64) {
    let Some(mut captures) = active() else { return };
    let hit = |session: &Session| {
        session
            .members
            .values()
            .any(|member| member.context == context)
    };
    let gone: Vec<u64> = captures
        .sessions
        .iter()
        .filter(|(_, session)| hit(session))
        .map(|(id, _)| *id)
        .collect();
    gone.into_iter().for_each(|id| captures.drop_session(id));
}
