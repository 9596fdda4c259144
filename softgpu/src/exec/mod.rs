//! Streams, events and the queue of submitted work.
//!
//! [`submit`] is the only entry: an [`Op`] states its kind, its cost and its effect. [`engine`]
//! keeps the timeline: when the hardware would begin and end each operation. [`lane`] is one engine
//! as one context sees it. [`turns`] is the order in which contexts get an engine. [`apply`]
//! decides when effects happen and in which legal order. [`threads`] are the driver's background
//! threads. [`model`] is the round robin alone, for tests of schedulers.

mod apply;
mod bell;
mod belongings;
mod chain;
pub mod clock;
mod engine;
pub mod event;
mod host;
mod job;
pub(crate) mod lane;
pub mod memop;
pub mod model;
mod needs;
mod op;
mod rng;
mod share;
pub mod shared;
pub mod stream;
mod threads;
pub(crate) mod turns;
mod value;
mod wait;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

pub(crate) use host::destroy;
pub use host::{HostCall, in_host_function};
pub use op::{Cost, Effect, Kind, Op, Raw, Touch};
pub use stream::{StreamRef, context_for, resolve};

pub(crate) use engine::{Item, OpId, Work};
pub(crate) use job::Job;
pub(crate) use needs::taken;
pub(crate) use op::nanoseconds;
pub(crate) use value::ValueWait;

use crate::context::{Context, Green};
use crate::error::Result;
use crate::graph::capture;
use crate::graph::forbidden::Unsafe;
use bell::Bell;
use engine::Timeline;
use event::EventId;

/// Which stream the null handle means. Each function that has a per-thread variant is one or the
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultStream {
    /// The context's default stream, which synchronises with its blocking streams (plain names).
    Legacy,
    /// The calling thread's default stream (`_ptsz`, `_ptds`).
    PerThread,
}

/// Operations a stream queues before submission waits for the hardware; real drivers queue about
/// this many.
const DEPTH: usize = 1024;

/// Rung when an operation is finished or applied.
static DONE: Bell = Bell::new();
/// Rung when the watching thread must wake earlier than planned.
static WATCH: Bell = Bell::new();
/// Rung when the first late effect is queued.
static LATE: Bell = Bell::new();
/// Rung when a host function is queued.
static CALLS: Bell = Bell::new();
/// Rung when a job has begun.
static JOBS: Bell = Bell::new();

/// The timeline of this process.
fn lock() -> MutexGuard<'static, Timeline> {
    static TIMELINE: OnceLock<Mutex<Timeline>> = OnceLock::new();
    let timeline = TIMELINE.get_or_init(|| {
        let seed = crate::spec::Spec::from_env().map_or(0, |spec| spec.seed);
        Mutex::new(Timeline::new(seed))
    });
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the calling thread busy for `ns`: the time a call takes on the host.
pub fn host_takes(ns: u64) {
    if ns > 0 {
        let until = clock::now() + ns;
        while clock::now() < until {
            std::hint::spin_loop();
        }
    }
}

/// Makes the calling thread wait for `ns`: the time a call takes in which the host does nothing.
pub fn host_waits(ns: u64) {
    if ns > 0 {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }
}

/// Submits `op` to `stream`, or records it if the stream captures. Waits for the hardware if the
/// stream is full.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` if capture forbids the operation; the error of a lost context;
/// `OPERATING_SYSTEM` if no thread can be started. A fault of the operation itself is not returned:
/// it loses the context when the operation runs.
pub fn submit(context: &Arc<Context>, stream: &StreamRef, op: Op) -> Result {
    context.check()?;
    if capture::record(stream, &op)? {
        return Ok(());
    }
    push(stream, op).map(drop)
}

/// Checks all for which [`submit`] would refuse work to a stream that does not capture: for a call
/// that takes something before it [appends](append) work.
///
/// # Errors
/// As [`submit`].
pub(crate) fn ready(context: &Arc<Context>, stream: &StreamRef) -> Result {
    context.check()?;
    capture::check_submit(stream)?;
    threads::ensure()
}

/// Submits `op` to a stream that was [`ready`] and does not capture.
pub(crate) fn append(stream: &StreamRef, op: Op) {
    let work = op.work(stream.context().device().spec());
    enqueue(stream, Vec::new(), work, op.effect, None);
}

/// Submits `op` and waits for it: the synchronous functions.
///
/// # Errors
/// As [`submit`]; `STREAM_CAPTURE_UNSUPPORTED` if the stream captures; a fault of this operation or
/// of an earlier one.
pub fn run(context: &Arc<Context>, stream: &StreamRef, op: Op) -> Result {
    capture::check_wait(stream)?;
    let op = push(stream, op)?;
    wait::complete(&[op]);
    stream.context().check()?;
    context.check()
}

fn push(stream: &StreamRef, op: Op) -> Result<OpId> {
    threads::ensure()?;
    let work = op.work(stream.context().device().spec());
    Ok(enqueue(stream, Vec::new(), work, op.effect, None))
}

/// Appends an operation to a stream. It also waits for the operations in `also`.
pub(crate) fn enqueue(
    stream: &StreamRef,
    also: Vec<OpId>,
    work: Work,
    effect: Option<Effect>,
    records: Option<EventId>,
) -> OpId {
    let _held = stream.context().hold();
    let mut timeline = wait::until(lock(), |timeline| has_room(timeline, stream));
    let now = timeline.catch_up();
    let mut after = timeline.stream_order(stream.id());
    after.extend(also);
    let context = Arc::clone(stream.context());
    let op = timeline.add(
        now,
        Item {
            context,
            after,
            work,
            effect,
            records,
            stream: stream.id(),
        },
    );
    if let Some(queue) = timeline.queues.get_mut(&stream.id()) {
        queue.last = op;
    }
    threads::nudge(&timeline);
    op
}

/// One operation of a batch. A batch is a launched graph.
pub(crate) struct BatchItem {
    pub(crate) context: Arc<Context>,
    /// The operations of the batch that it waits for, by index. An operation with no predecessors
    /// waits for the stream's earlier work.
    pub(crate) after: Vec<usize>,
    /// An operation outside the batch that it also waits for; 0 for none.
    pub(crate) also: OpId,
    pub(crate) work: Work,
    pub(crate) effect: Option<Effect>,
    pub(crate) records: Option<EventId>,
}

impl BatchItem {
    /// An operation without predecessors in the batch that takes no time.
    pub(crate) fn instant(
        context: &Arc<Context>,
        effect: impl Fn() -> Result + Send + Sync + 'static,
    ) -> Self {
        let effect: Option<Effect> = Some(Arc::new(effect));
        Self {
            context: Arc::clone(context),
            after: Vec::new(),
            also: 0,
            work: Work::Instant,
            effect,
            records: None,
        }
    }
}

/// Submits a batch to `stream`; it also waits for `also`. Returns the operation that ends the
/// batch. The stream's queue holds only that operation.
///
/// # Errors
/// `OPERATING_SYSTEM` if no thread can be started.
pub(crate) fn submit_batch(stream: &StreamRef, also: OpId, items: Vec<BatchItem>) -> Result<OpId> {
    threads::ensure()?;
    let _held = stream.context().hold();
    let mut timeline = wait::until(lock(), |timeline| has_room(timeline, stream));
    let now = timeline.catch_up();
    let mut entry = timeline.stream_order(stream.id());
    entry.push(also);
    let mut ops = Vec::with_capacity(items.len());
    let mut followed = vec![false; items.len()];
    for item in items {
        item.after.iter().for_each(|&at| followed[at] = true);
        let mut after: Vec<OpId> = if item.after.is_empty() {
            entry.clone()
        } else {
            item.after.iter().map(|&at| ops[at]).collect()
        };
        after.push(item.also);
        let BatchItem {
            context,
            work,
            effect,
            records,
            ..
        } = item;
        ops.push(timeline.add(
            now,
            Item {
                context,
                after,
                work,
                effect,
                records,
                stream: 0,
            },
        ));
    }
    let after = if ops.is_empty() {
        entry
    } else {
        ends(&ops, &followed)
    };
    let context = Arc::clone(stream.context());
    let end = Item {
        context,
        after,
        work: Work::Instant,
        effect: None,
        records: None,
        stream: stream.id(),
    };
    let op = timeline.add(now, end);
    if let Some(queue) = timeline.queues.get_mut(&stream.id()) {
        queue.last = op;
    }
    threads::nudge(&timeline);
    Ok(op)
}

/// The operations of the batch that have no successor in it.
fn ends(ops: &[OpId], followed: &[bool]) -> Vec<OpId> {
    let last = ops.iter().zip(followed).filter(|(_, followed)| !**followed);
    last.map(|(op, _)| *op).collect()
}

/// Waits until the stream has room for another operation, so that a batch need not wait while the
/// caller holds locks.
pub(crate) fn make_room(stream: &StreamRef) {
    let _held = stream.context().hold();
    drop(wait::until(lock(), |timeline| has_room(timeline, stream)));
}

fn has_room(timeline: &Timeline, stream: &StreamRef) -> bool {
    timeline
        .queues
        .get(&stream.id())
        .is_none_or(|queue| queue.unfinished < DEPTH)
}

/// Waits until everything in `stream` is complete.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` or `_IMPLICIT` if capture forbids the wait; a fault of the work.
pub fn synchronize(stream: &StreamRef) -> Result {
    capture::check_wait(stream)?;
    capture::forbids(Unsafe::Stream)?;
    wait::complete(&last(stream));
    stream.context().check()
}

/// Waits until everything in `stream` is complete, also where a capture forbids the program to
/// wait. Ignores faults of the work.
pub(crate) fn idle(stream: &StreamRef) {
    wait::complete(&last(stream));
}

/// Whether everything in `stream` is complete.
///
/// # Errors
/// `NOT_READY` if not; otherwise as [`synchronize`].
pub fn query(stream: &StreamRef) -> Result {
    capture::check_wait(stream)?;
    capture::forbids(Unsafe::Stream)?;
    let done = wait::poll(&last(stream));
    stream.context().check()?;
    if done {
        Ok(())
    } else {
        Err(CUresult::NOT_READY)
    }
}

/// The operations that must be complete for `stream` to be idle. For the legacy default stream
/// these include the last operations of the blocking streams.
fn last(stream: &StreamRef) -> Vec<OpId> {
    let timeline = lock();
    if stream.is_legacy() {
        timeline.stream_order(stream.id())
    } else {
        timeline
            .queues
            .get(&stream.id())
            .map(|queue| queue.last)
            .into_iter()
            .collect()
    }
}

/// Waits until everything submitted in `context` is complete (`cuCtxSynchronize`).
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` if one of its streams captures; a fault of the work.
pub fn drain(context: &Arc<Context>) -> Result {
    capture::check_drain(context)?;
    settled(context)
}

/// Waits until everything submitted in `context` is complete, whether or not a stream captures.
///
/// # Errors
/// A fault of the work.
pub(crate) fn settled(context: &Arc<Context>) -> Result {
    settle(context.id());
    context.check()
}

/// Waits until everything submitted in a green context is complete.
///
/// # Errors
/// As [`drain`].
pub fn drain_green(green: &Green) -> Result {
    capture::check_green(green.domain())?;
    let work = lock().of_domain(green.domain());
    wait::complete(&work);
    green.check()
}

/// Waits until everything this process submitted on the device with this ordinal is complete.
/// Ignores faults of the work. Freeing memory does this.
pub fn drain_device(ordinal: u32) {
    let work = lock().of_device(ordinal);
    wait::complete(&work);
}

/// Runs `effect` behind everything that this process submitted on the device of `context`: now, if
/// that is over.
pub(crate) fn behind_device(
    context: &Arc<Context>,
    effect: impl Fn() -> Result + Send + Sync + 'static,
) {
    let ordinal = context.device().ordinal();
    apply_finished(ordinal);
    let mut timeline = lock();
    let now = timeline.catch_up();
    let after = timeline.of_device(ordinal);
    if after.is_empty() {
        drop(timeline);
        let _ = effect();
        return;
    }
    let effect: Option<Effect> = Some(Arc::new(effect));
    let context = Arc::clone(context);
    let item = Item {
        context,
        after,
        work: Work::Instant,
        effect,
        records: None,
        stream: 0,
    };
    timeline.add(now, item);
    threads::nudge(&timeline);
}

/// Lets all effects on a device happen that would have happened on hardware.
pub(crate) fn apply_finished(ordinal: u32) {
    let mut work = lock().of_device(ordinal);
    work.sort_unstable();
    for op in work {
        let _over = wait::poll(&[op]);
    }
}

fn settle(context: u64) {
    let work = lock().of_context(context);
    wait::complete(&work);
}

/// Waits for the work of a context that is being destroyed, then forgets the context.
pub fn context_gone(context: &Arc<Context>) {
    stream::forget_all(context.id());
    event::forget_all(context.id());
    settle(context.id());
    lock().drop_context(context.id());
}

/// The number of a stream, never given twice.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` if the stream captures, or a capture forbids the question.
pub fn stream_number(stream: &StreamRef) -> Result<u64> {
    capture::check_number(stream)?;
    Ok(stream.id())
}

/// Refuses a call that a capture forbids (allocation, waits): a capture of this
/// thread, or a capture of any thread in global mode.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED`; the call invalidates the captures that forbid it.
pub fn capture_forbids(call: Unsafe) -> Result {
    capture::forbids(call)
}

/// Whether work submitted to `stream` is recorded instead of run.
///
/// # Errors
/// `STREAM_CAPTURE_INVALIDATED` if its capture has failed.
pub fn is_capturing(stream: &StreamRef) -> Result<bool> {
    capture::is_active(stream)
}
