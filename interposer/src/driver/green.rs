//! Green contexts: which primary context one is a part of, and which streams are its own.
//!
//! A green context may be current in one thread at a time, and that is a thread of the program. So
//! this library makes none current: its memory is the primary context's, and queries and events for
//! it are made in the primary context. It has two handles: its own, and the one it has as a context
//! (`cuCtxFromGreenCtx`).

use core::sync::atomic::{AtomicBool, Ordering};

use gpushare_cuda_abi::cuda::{CUcontext, CUdevice, CUgreenCtx, CUstream};

use crate::driver::calls;
use crate::guest::map::Map;

/// A green context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Green {
    /// Its own handle.
    pub(crate) handle: CUgreenCtx,
    /// Its handle as a context.
    pub(crate) converted: CUcontext,
    /// The primary context it is a part of.
    pub(crate) primary: CUcontext,
    /// The device, as the program knows it.
    pub(crate) ordinal: CUdevice,
}

/// By their own handles.
static OWN: Map<Green> = Map::new();
/// By their handles as contexts.
static CONVERTED: Map<Green> = Map::new();
/// The converted context of each stream that is a green context's.
static STREAMS: Map<CUcontext> = Map::new();
/// There has been one, in this process or an ancestor.
static ANY: AtomicBool = AtomicBool::new(false);

/// The program has made a green context on this device. `None` if the driver does not report its
/// primary context.
pub(crate) fn made(handle: CUgreenCtx, ordinal: CUdevice) -> Option<Green> {
    let converted = calls::context_of_green(handle).ok()?;
    enter(handle, converted, ordinal)
}

/// Checks whether the calling thread's current context, seen for the first time, is a green context
/// that no hook saw made.
pub(crate) fn notice(current: CUcontext) -> Option<Green> {
    // The default stream of the current context belongs to the current green context.
    let handle = calls::stream_green(CUstream::NULL).ok()?;
    if handle.is_null() {
        return None;
    }
    let ordinal = calls::current_device().ok()?;
    enter(handle, current, ordinal)
}

fn enter(handle: CUgreenCtx, converted: CUcontext, ordinal: CUdevice) -> Option<Green> {
    let green = Green {
        handle,
        converted,
        primary: primary_of(ordinal)?,
        ordinal,
    };
    OWN.insert(number(handle.0), green);
    CONVERTED.insert(number(converted.0), green);
    ANY.store(true, Ordering::Release);
    Some(green)
}

/// The primary context of a device that has one. It is retained and released again, which has no
/// effect while another owner retains it.
fn primary_of(ordinal: CUdevice) -> Option<CUcontext> {
    let primary = calls::retain_primary(ordinal).ok()?;
    let _ = calls::release_primary(ordinal);
    Some(primary)
}

/// The one of this handle, `None` where none is known.
pub(crate) fn of(handle: CUgreenCtx) -> Option<Green> {
    OWN.with(number(handle.0), |green| *green)
}

/// The green context with this handle as a context.
pub(crate) fn converted(context: CUcontext) -> Option<Green> {
    if !is_any() {
        return None;
    }
    CONVERTED.with(number(context.0), |green| *green)
}

/// The green context whose default stream is known by this number: that of its handle as a context.
pub(crate) fn of_default(stream: usize) -> Option<Green> {
    converted(CUcontext(core::ptr::without_provenance_mut(stream)))
}

/// The green contexts of a primary context.
pub(crate) fn all_in(primary: CUcontext) -> Vec<Green> {
    if !is_any() {
        return Vec::new();
    }
    let all = OWN.all().into_iter();
    all.filter(|green| green.primary == primary).collect()
}

/// The green context that is current in the calling thread.
pub(crate) fn current() -> Option<Green> {
    if !is_any() {
        return None;
    }
    let current = calls::current_context().ok()?;
    converted(current)
}

/// Whether there has been any.
fn is_any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// It is destroyed: its handles may soon be reused.
pub(crate) fn gone(green: &Green) {
    OWN.take(number(green.handle.0));
    CONVERTED.take(number(green.converted.0));
    let _ = STREAMS.drain_if(|_, of| *of == green.converted);
}

/// A primary context has ended, and its green ones with it.
pub(crate) fn primary_gone(primary: CUcontext) {
    if is_any() {
        let ended = OWN.drain_if(|_, green| green.primary == primary);
        ended.iter().for_each(|(_, green)| gone(green));
    }
}

/// The program has made a stream: whether it is a green context's.
pub(crate) fn stream_made(stream: CUstream) {
    if !is_any() {
        return;
    }
    if let Ok(of) = calls::stream_green(stream)
        && let Some(green) = self::of(of)
    {
        STREAMS.insert(number(stream.0), green.converted);
    }
}

/// The program is about to destroy a stream, whose handle may soon be another's. Returns what was
/// known of it.
pub(crate) fn stream_going(stream: CUstream) -> Option<CUcontext> {
    if is_any() {
        STREAMS.take(number(stream.0))
    } else {
        None
    }
}

/// The driver has refused that.
pub(crate) fn stream_stays(stream: CUstream, known: CUcontext) {
    STREAMS.insert(number(stream.0), known);
}

/// Whether a stream, by the number of its handle, is this green context's own.
pub(crate) fn owns(green: &Green, stream: usize) -> bool {
    STREAMS.with(stream as u64, |of| *of == green.converted) == Some(true)
}

fn number<T>(handle: *mut T) -> u64 {
    handle.addr() as u64
}
