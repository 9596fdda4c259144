//! The program's contexts and streams, and what keeps a mark of ours out of their way.
//!
//! A stream or context is not destroyed while something is put into it ([`marking`]): the hook of its destruction takes it out of here
//! first, and waits. No capture begins while a mark is made, and no mark is made in a capturing stream; what it holds is marked just
//! before its capture begins. All waits are bounded; what is bounded is a few calls of the driver.
//!
//! # Safety
//! `unsafe` asks the driver about streams that are kept from being destroyed, or that the program has just named.
#![allow(unsafe_code, reason = "asks the driver about streams and contexts")]

use core::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpushare_cuda_abi::cuda::*;

mod captures;
mod greens;

use captures::Origin;
pub(crate) use captures::own_stream_runs;
pub(crate) use captures::{beginning_capture, joining_capture};
pub(crate) use greens::destroying_green;
pub(crate) use greens::marking_green;

use crate::driver::calls;
use crate::driver::contexts::{self, Here};
use crate::driver::ordered::Ordered;
use crate::gate::drain;
use crate::gate::marks;
use crate::guest::fork::ForkLocal;

/// How long a destruction or the begin of a capture waits for a mark that is being made: far longer than the driver takes, unless the
/// stream's queue is full of work that does not end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What came of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked<R> {
    /// It was made: what its closure answered.
    Done(R),
    /// The context is destroyed, or has failed.
    Gone,
    /// The stream records, or a mark behind all of its context would disturb one that does.
    Captures,
    /// Nobody knows the stream, or its context is going, perhaps.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Context {
    column: usize,
    /// Being destroyed, or released perhaps for the last time.
    going: bool,
    /// Marks being made in it.
    busy: u32,
    /// A blocking stream of ours, for marks behind the legacy one; it goes with the context.
    own: Option<CUstream>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    here: Here,
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
    /// Captures that have begun and, as far as is known, have not ended.
    capturing: Vec<Origin>,
    /// How many have begun so far.
    begun: u64,
}

#[derive(Debug, Default)]
struct Shared {
    registry: Mutex<Registry>,
    changed: Condvar,
}

static SHARED: ForkLocal<Shared> = ForkLocal::new();
/// Rises when a stream or context goes, so that no thread's remembered one outlives it.
static EPOCH: AtomicU64 = AtomicU64::new(1);
/// The driver has no `cuCtxRecordEvent`.
static OLDER: AtomicBool = AtomicBool::new(false);

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
pub(crate) fn is_default(stream: CUstream) -> bool {
    stream.is_null() || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD
}

/// A context has been noticed.
pub(crate) fn context_seen(here: Here) {
    let context = Context {
        column: here.device.index(),
        going: false,
        busy: 0,
        own: None,
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
    let made = Stream { here, busy: 0 };
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

/// The context and device of a stream that the program launches in. One that no hook saw made is known from now on.
pub(crate) fn locate(stream: Ordered) -> Option<Here> {
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
    let known = shared.lock().streams.get(&stream).copied();
    if let Some(known) = known {
        drain::stream_going(known.here, stream);
    }
    let taken = {
        let mut registry = shared.wait(shared.lock(), busy);
        registry
            .capturing
            .retain(|origin| *origin != Origin::Stream(stream));
        registry.streams.remove(&stream)
    };
    EPOCH.fetch_add(1, Ordering::AcqRel);
    drain::stream_gone(stream);
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
    drain::context_went(context, ended);
    let mut registry = shared.lock();
    if ended {
        let Registry {
            contexts,
            streams,
            capturing,
            ..
        } = &mut *registry;
        contexts.remove(&context);
        streams.retain(|handle, stream| {
            let stays = stream.here.handle != context;
            if !stays {
                capturing.retain(|origin| *origin != Origin::Stream(*handle));
            }
            stays
        });
        EPOCH.fetch_add(1, Ordering::AcqRel);
    } else if let Some(known) = registry.contexts.get_mut(&context) {
        known.going = false;
    }
    answer
}

/// Whether a mark behind all work of a context can be made now, as far as is known.
pub(crate) fn can_mark_all() -> bool {
    !OLDER.load(Ordering::Relaxed) && !captures::may_go_on()
}

/// The driver cannot put a mark behind all work of a context.
pub(crate) fn is_older() {
    if !OLDER.swap(true, Ordering::Relaxed) {
        tracing::info!(
            "no cuCtxRecordEvent here: threads' own streams are marked by their threads"
        );
    }
}

/// The contexts of a column, and whether one of them is being destroyed, or perhaps only released.
pub(crate) fn contexts_on(column: usize) -> Vec<(CUcontext, bool)> {
    let registry = Shared::get().lock();
    let here = registry.contexts.iter();
    here.filter(|(_, known)| known.column == column)
        .map(|(context, known)| (*context, known.going))
        .collect()
}

/// The program's streams of a context, but for the default ones.
pub(crate) fn streams_of(context: CUcontext) -> Vec<CUstream> {
    let registry = Shared::get().lock();
    let here = registry.streams.iter();
    here.filter(|(_, known)| known.here.handle == context)
        .map(|(stream, _)| *stream)
        .collect()
}

/// Runs `body`, which records an event in the stream that it is given, one of ours that stands behind the context's legacy stream.
pub(crate) fn marking_legacy<R>(
    context: CUcontext,
    body: impl FnOnce(Result<CUstream, CUresult>) -> R,
) -> Marked<R> {
    let held = match Hold::take(context, CUstream::NULL) {
        Ok(held) => held,
        Err(why) => return why.into(),
    };
    let _current = match Current::make(context) {
        Ok(current) => current,
        Err(why) if marks::is_over(why) => return Marked::Gone,
        Err(_) => return Marked::Unknown,
    };
    Marked::Done(body(held.own()))
}

/// Runs `body`, which records an event behind everything in the context, while nothing captures.
pub(crate) fn marking_all<R>(context: CUcontext, body: impl FnOnce() -> R) -> Marked<R> {
    if OLDER.load(Ordering::Relaxed) {
        return Marked::Unknown;
    }
    let _held = match Hold::take(context, CUstream::NULL) {
        Ok(held) => held,
        Err(why) => return why.into(),
    };
    let _current = match Current::make(context) {
        Ok(current) => current,
        Err(why) if marks::is_over(why) => return Marked::Gone,
        Err(_) => return Marked::Unknown,
    };
    if captures::go_on() {
        return Marked::Captures;
    }
    Marked::Done(body())
}

/// Runs `body`, which puts an event or the like into a stream, while neither the stream nor its context can go and no capture can
/// begin. `context` is the current one meanwhile.
pub(crate) fn marking<R>(
    context: CUcontext,
    stream: CUstream,
    per_thread: bool,
    body: impl FnOnce() -> R,
) -> Marked<R> {
    let _held = match Hold::take(context, stream) {
        Ok(held) => held,
        Err(why) => return why.into(),
    };
    let _current = match Current::make(context) {
        Ok(current) => current,
        Err(why) if marks::is_over(why) => return Marked::Gone,
        Err(_) => return Marked::Unknown,
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

/// Why neither can be kept.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// The context is no more.
    Context,
    /// Its context is going, or nobody knows the stream.
    Stream,
}

impl<R> From<Lost> for Marked<R> {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Context => Self::Gone,
            Lost::Stream => Self::Unknown,
        }
    }
}

impl Hold {
    fn take(context: CUcontext, stream: CUstream) -> Result<Self, Lost> {
        let shared = Shared::get();
        let mut registry = shared.lock();
        if registry.beginning > 0 {
            registry = shared.wait(registry, |registry| registry.beginning > 0);
            if registry.beginning > 0 {
                // Whoever counted it has left it by a jump, or is held up: it is not waited for again.
                registry.beginning = 0;
            }
        }
        let known = registry.contexts.get_mut(&context).ok_or(Lost::Context)?;
        if known.going {
            return Err(Lost::Stream);
        }
        known.busy += 1;
        if !is_default(stream) {
            let Some(stream) = registry.streams.get_mut(&stream) else {
                release(&mut registry, context, CUstream::NULL);
                return Err(Lost::Stream);
            };
            stream.busy += 1;
        }
        registry.marking += 1;
        Ok(Self { context, stream })
    }

    /// The stream of ours that stands behind the context's legacy stream, made at first use. The context is current.
    fn own(&self) -> Result<CUstream, CUresult> {
        let shared = Shared::get();
        let known = shared
            .lock()
            .contexts
            .get(&self.context)
            .and_then(|known| known.own);
        if let Some(own) = known {
            return Ok(own);
        }
        let mut made = CUstream::NULL;
        // SAFETY: an out parameter that outlives the call.
        unsafe { calls::cuStreamCreate(&raw mut made, CUstream_flags::DEFAULT.0) }.ok()?;
        let mut registry = shared.lock();
        if let Some(known) = registry.contexts.get_mut(&self.context) {
            // Where another thread was faster, this one is left to the context.
            made = *known.own.get_or_insert(made);
        }
        Ok(made)
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
    fn make(context: CUcontext) -> Result<Self, CUresult> {
        let mut now = CUcontext::NULL;
        // SAFETY: an out parameter that outlives the call.
        let known = unsafe { calls::cuCtxGetCurrent(&raw mut now) }.is_success();
        if known && now == context {
            return Ok(Self { pushed: false });
        }
        // SAFETY: a context that is kept from being destroyed.
        unsafe { calls::cuCtxPushCurrent_v2(context) }.ok()?;
        Ok(Self { pushed: true })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = CUcontext::NULL;
            // SAFETY: what was pushed is popped.
            let _ = unsafe { calls::cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}
