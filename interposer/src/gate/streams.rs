//! The program's contexts and streams, and what keeps a mark of ours out of their way.
//!
//! A stream or context is not destroyed while something is put into it ([`marking`]): the hook of its destruction takes it out of here
//! first, and waits. No capture begins while a mark is made, and no mark is made in a capturing stream. All waits are bounded; what
//! is bounded is a few calls of the driver.
//!
//! # Safety
//! `unsafe` asks the driver about streams that are kept from being destroyed, or that the program has just named.
#![allow(unsafe_code, reason = "asks the driver about streams and contexts")]

use core::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpushare_cuda_abi::cuda::*;

use super::drain;
use crate::contexts::{self, Here};
use crate::driver;
use crate::fork::ForkLocal;
use crate::hooks::Ordered;

/// How long a destruction or the begin of a capture waits for a mark that is being made: far longer than the driver takes, unless the
/// stream's queue is full of work that does not end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked<R> {
    /// It was made: what its closure answered.
    Done(R),
    /// The stream or its context is gone, or going.
    Gone,
    /// The stream records, or is the legacy one of a context in which a stream records that waits for it.
    Captures,
}

#[derive(Clone, Copy, Debug)]
struct Context {
    column: usize,
    /// Being destroyed, or released perhaps for the last time.
    going: bool,
    /// Marks being made in it.
    busy: u32,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    here: Here,
    /// Waits for the legacy stream, and that one for it.
    blocking: bool,
    /// Marks being made in it.
    busy: u32,
}

#[derive(Debug, Default)]
struct Registry {
    contexts: HashMap<CUcontext, Context>,
    streams: HashMap<CUstream, Stream>,
    /// Marks being made.
    marking: u32,
    /// Captures about to begin.
    beginning: u32,
}

#[derive(Debug, Default)]
struct Shared {
    registry: Mutex<Registry>,
    changed: Condvar,
}

static SHARED: ForkLocal<Shared> = ForkLocal::new();
/// Rises when a stream or context goes, so that no thread's remembered one outlives it.
static EPOCH: AtomicU64 = AtomicU64::new(1);
/// A capture has begun, some time.
static CAPTURED: AtomicBool = AtomicBool::new(false);

thread_local! {
    // Const and without a destructor: launches are made in other libraries' destructors too.
    static LAST: Cell<Option<(u64, CUstream, Here)>> = const { Cell::new(None) };
}

impl Shared {
    fn get() -> &'static Self {
        SHARED.get_or(Self::default)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `busy`, at most [`PATIENCE`].
    fn wait<'a>(
        &self,
        registry: MutexGuard<'a, Registry>,
        busy: impl Fn(&Registry) -> bool,
    ) -> MutexGuard<'a, Registry> {
        let waited = self
            .changed
            .wait_timeout_while(registry, PATIENCE, |registry| busy(registry));
        let (registry, time) = waited.unwrap_or_else(PoisonError::into_inner);
        if time.timed_out() {
            tracing::warn!("a mark takes too long: not waited for any longer");
        }
        registry
    }
}

/// Whether a handle means a default stream, of which each context has one.
fn is_default(stream: CUstream) -> bool {
    stream.is_null() || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD
}

/// A context has been noticed.
pub(crate) fn context_seen(here: Here) {
    let context = Context {
        column: here.device.index(),
        going: false,
        busy: 0,
    };
    Shared::get()
        .lock()
        .contexts
        .entry(here.handle)
        .or_insert(context);
}

/// A stream was made in the calling thread's current context, or by a green context.
pub(crate) fn stream_made(stream: CUstream) {
    if let Some(here) = Ordered::legacy(stream).place() {
        enter(stream, here);
    }
}

fn enter(stream: CUstream, here: Here) {
    let mut flags = 0;
    // SAFETY: a stream of the program's, and an out parameter that outlives the call.
    let known = unsafe { driver::cuStreamGetFlags(stream, &raw mut flags) }.is_success();
    let non_blocking = CUstream_flags::NON_BLOCKING.0;
    let made = Stream {
        here,
        blocking: !known || flags & non_blocking == 0,
        busy: 0,
    };
    Shared::get().lock().streams.insert(stream, made);
}

/// Rises when a stream or context goes: what is remembered of a stream by its handle is true as long as this is the same.
#[inline]
pub(crate) fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// Whether a made stream is known, so that [`marking`] keeps it from being destroyed.
pub(crate) fn knows(stream: CUstream) -> bool {
    !is_default(stream) && Shared::get().lock().streams.contains_key(&stream)
}

/// The context and device of a stream that the program launches in.
pub(super) fn locate(stream: Ordered) -> Option<Here> {
    let handle = stream.handle();
    if is_default(handle) {
        return contexts::here();
    }
    let epoch = EPOCH.load(Ordering::Acquire);
    if let Some((seen, last, here)) = LAST.get()
        && seen == epoch
        && last == handle
    {
        return Some(here);
    }
    let known = Shared::get().lock().streams.get(&handle).copied();
    let here = match known {
        Some(stream) => stream.here,
        None => {
            let here = stream.place()?;
            enter(handle, here);
            here
        }
    };
    LAST.set(Some((epoch, handle, here)));
    Some(here)
}

/// Destroys a stream by `call`, after the last mark in it.
pub(crate) fn destroying_stream(stream: CUstream, call: impl FnOnce() -> CUresult) -> CUresult {
    let shared = Shared::get();
    let busy = |registry: &Registry| {
        let stream = registry.streams.get(&stream);
        stream.is_some_and(|stream| stream.busy > 0)
    };
    let taken = {
        let mut registry = shared.wait(shared.lock(), busy);
        registry.streams.remove(&stream)
    };
    EPOCH.fetch_add(1, Ordering::AcqRel);
    drain::stream_going(stream);
    let answer = call();
    if let (false, Some(back)) = (answer.is_success(), taken) {
        shared.lock().streams.entry(stream).or_insert(back);
    }
    answer
}

/// Destroys, resets or releases a context by `call`, after the last mark in it. `gone` says whether that was its end.
pub(crate) fn destroying_context(
    context: CUcontext,
    call: impl FnOnce() -> CUresult,
    gone: impl FnOnce(CUresult) -> bool,
) -> CUresult {
    let shared = Shared::get();
    {
        let mut registry = shared.lock();
        if let Some(known) = registry.contexts.get_mut(&context) {
            known.going = true;
        }
        let busy = |registry: &Registry| {
            let context = registry.contexts.get(&context);
            context.is_some_and(|context| context.busy > 0)
        };
        drop(shared.wait(registry, busy));
    }
    drain::context_going(context);
    let answer = call();
    let ended = gone(answer);
    let mut registry = shared.lock();
    if ended {
        registry.contexts.remove(&context);
        registry
            .streams
            .retain(|_, stream| stream.here.handle != context);
        EPOCH.fetch_add(1, Ordering::AcqRel);
    } else if let Some(known) = registry.contexts.get_mut(&context) {
        known.going = false;
    }
    answer
}

/// Begins or joins a capture by `call` while no mark is made.
pub(crate) fn beginning_capture(call: impl FnOnce() -> CUresult) -> CUresult {
    let shared = Shared::get();
    {
        let mut registry = shared.lock();
        registry.beginning += 1;
        drop(shared.wait(registry, |registry| registry.marking > 0));
    }
    CAPTURED.store(true, Ordering::Release);
    let answer = call();
    shared.lock().beginning -= 1;
    shared.changed.notify_all();
    answer
}

/// Whether this process has ever begun a capture that a stream may join.
pub(crate) fn has_captured() -> bool {
    CAPTURED.load(Ordering::Acquire)
}

/// Shows the streams of a column to `visit`: of each context first the legacy one, then those that do not wait for it; and where
/// `visit` says it could do nothing with the legacy one, all others too. `false` if a context was left out because it is being
/// destroyed, or perhaps only released.
pub(crate) fn with_streams(
    column: usize,
    visit: &mut dyn FnMut(CUcontext, CUstream) -> bool,
) -> bool {
    let (contexts, streams): (Vec<_>, Vec<_>) = {
        let registry = Shared::get().lock();
        let here = |known: &Context| known.column == column;
        let contexts = registry.contexts.iter().filter(|(_, known)| here(known));
        let on = |stream: &Stream| stream.here.device.index() == column;
        let streams = registry.streams.iter().filter(|(_, known)| on(known));
        (
            contexts
                .map(|(context, known)| (*context, known.going))
                .collect(),
            streams.map(|(stream, known)| (*stream, *known)).collect(),
        )
    };
    for (context, _) in contexts.iter().filter(|(_, going)| !going) {
        let covers = visit(*context, CU_STREAM_LEGACY);
        for (stream, known) in &streams {
            if known.here.handle == *context && !(known.blocking && covers) {
                visit(*context, *stream);
            }
        }
    }
    contexts.iter().all(|(_, going)| !going)
}

/// Runs `body`, which puts an event or the like into a stream, while neither the stream nor its context can go and no capture can
/// begin. `context` is the current one meanwhile.
pub(crate) fn marking<R>(
    context: CUcontext,
    stream: CUstream,
    per_thread: bool,
    body: impl FnOnce() -> R,
) -> Marked<R> {
    let Some(_held) = Hold::take(context, stream) else {
        return Marked::Gone;
    };
    let Some(_current) = Current::make(context) else {
        return Marked::Gone;
    };
    let ordered = if per_thread {
        Ordered::per_thread(stream)
    } else {
        Ordered::legacy(stream)
    };
    if ordered.records() {
        return Marked::Captures;
    }
    Marked::Done(body())
}

/// Keeps a stream and its context, and captures from beginning.
struct Hold {
    context: CUcontext,
    stream: CUstream,
}

impl Hold {
    fn take(context: CUcontext, stream: CUstream) -> Option<Self> {
        let shared = Shared::get();
        let end = Instant::now() + PATIENCE;
        let mut registry = shared.lock();
        while registry.beginning > 0 && Instant::now() < end {
            registry = shared.wait(registry, |registry| registry.beginning > 0);
        }
        let known = registry.contexts.get_mut(&context);
        let known = known.filter(|known| !known.going)?;
        known.busy += 1;
        if !is_default(stream) {
            let Some(stream) = registry.streams.get_mut(&stream) else {
                release(&mut registry, context, CUstream::NULL);
                return None;
            };
            stream.busy += 1;
        }
        registry.marking += 1;
        Some(Self { context, stream })
    }
}

fn release(registry: &mut Registry, context: CUcontext, stream: CUstream) {
    if let Some(known) = registry.contexts.get_mut(&context) {
        known.busy = known.busy.saturating_sub(1);
    }
    if let Some(known) = registry.streams.get_mut(&stream) {
        known.busy = known.busy.saturating_sub(1);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let shared = Shared::get();
        let mut registry = shared.lock();
        release(&mut registry, self.context, self.stream);
        registry.marking = registry.marking.saturating_sub(1);
        drop(registry);
        shared.changed.notify_all();
    }
}

/// Makes a context the thread's current one, unless it is, for as long as this lives.
struct Current {
    pushed: bool,
}

impl Current {
    fn make(context: CUcontext) -> Option<Self> {
        let mut now = CUcontext::NULL;
        // SAFETY: an out parameter that outlives the call.
        let known = unsafe { driver::cuCtxGetCurrent(&raw mut now) }.is_success();
        if known && now == context {
            return Some(Self { pushed: false });
        }
        // SAFETY: a context that is kept from being destroyed.
        unsafe { driver::cuCtxPushCurrent_v2(context) }.ok().ok()?;
        Some(Self { pushed: true })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = CUcontext::NULL;
            // SAFETY: what was pushed is popped.
            let _ = unsafe { driver::cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}
