//! The tracker's state, and its lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpushare_cuda_abi::cuda::{CUcontext, CUstream};

use crate::driver::device::DeviceKey;
use crate::guest::fork::ForkLocal;
use crate::guest::map::ByHandle;

/// Number of a context in this process. 0 is a context without a number, because more than 4095
/// contexts are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContextId(pub(crate) u16);

impl ContextId {
    /// Memory that belongs to no context: physical memory of `cuMemCreate`.
    pub(crate) const NONE: Self = Self(0);
    /// Highest number that a record has bits for.
    pub(crate) const MAX: u16 = (1 << 12) - 1;
}

/// A context and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    /// Its device.
    pub(crate) device: DeviceKey,
    /// Its number.
    pub(crate) context: ContextId,
    /// The driver's handle.
    pub(crate) handle: CUcontext,
}

/// A stream as captures know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A stream with a handle.
    Stream(CUstream),
    /// The default stream of a thread's own in this context: only that thread can ask about it.
    Own(CUcontext),
}

/// A capture that a hook saw begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capture {
    /// Which one it is of all that have begun.
    pub(super) number: u64,
    /// Where.
    pub(super) place: CaptureSite,
    /// The thread that began it.
    pub(super) thread: i64,
}

/// Where a capture begins, or ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureSite {
    /// Its stream.
    pub(super) origin: Origin,
    /// The context it is in, null if that is not known.
    pub(super) context: CUcontext,
}

/// A capture that is about to begin or to be joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    /// Which one it is of all that there were.
    pub(super) number: u64,
    /// It is not joined.
    pub(super) is_new: bool,
    /// When the driver was asked for it, or when it began to wait for marks (ns).
    pub(super) since: u64,
}

impl Beginning {
    /// Whether its thread left by a jump, or is stuck: nothing waits for it again. `now` is a time
    /// (ns).
    fn is_left(&self, now: u64) -> bool {
        u128::from(now.saturating_sub(self.since)) >= PATIENCE.as_nanos()
    }
}

/// How long a destruction or the begin of a capture waits for a mark that is being made, and a mark
/// for the begin of a capture: far longer than the driver takes, unless the stream's queue is full
/// of work that does not end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A registered context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// Where it is.
    pub(super) here: Here,
    /// Which one it is of all that were registered: its handle may have been another's.
    pub(super) born: u64,
    /// Calls under way that may end it: destroying or resetting it, or releasing it, perhaps for
    /// the last time.
    pub(super) going: u32,
    /// Marks being made in it.
    pub(super) busy: u32,
    /// A blocking stream of ours, for marks behind the legacy one; it goes with the context.
    pub(super) own: Option<CUstream>,
    /// The program made a stream in it that waits for the legacy one, and that for it.
    pub(super) has_blocking: bool,
}

/// A stream that the program made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Where it is.
    pub(super) here: Here,
    /// Marks being made in it, and questions about it.
    pub(super) busy: u32,
}

/// The contexts, streams and captures that are known, under the tracker's lock.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) contexts: ByHandle<CUcontext, Context>,
    pub(super) streams: ByHandle<CUstream, Stream>,
    /// Captures that have begun and, as far as is known, have not ended.
    pub(super) captures: Vec<Capture>,
    /// Numbers of contexts that have ended, while something still carries them.
    pub(super) ended: Vec<ContextId>,
    /// Marks being made.
    pub(super) marking: u32,
    /// Captures about to begin or to be joined.
    pub(super) beginning: Vec<Beginning>,
}

/// The tracker; a process has one.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    /// Captures in the list, and those on their way there. It changes under the lock.
    pub(super) captures: AtomicUsize,
}

pub(super) static TRACKER: ForkLocal<Tracker> = ForkLocal::new();
/// Rises when a stream or context goes, so that no thread's remembered one outlives it.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// Facts cached by a stream's or context's handle are valid as long as this is the same.
#[inline]
pub(crate) fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

pub(super) fn next_epoch() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

impl Tracker {
    pub(super) fn get() -> &'static Self {
        TRACKER.get_or(Self::default)
    }

    /// Counts the captures of [`captures`](Self::captures).
    pub(super) fn count(&self, state: &State) {
        let coming = state.beginning.iter().filter(|beginning| beginning.is_new);
        let captures = state.captures.len() + coming.count();
        self.captures.store(captures, Ordering::Release);
    }

    /// Forgets captures that were about to begin or to be joined, and never will be.
    pub(super) fn drop_left(&self, state: &mut State, now: u64) {
        state.beginning.retain(|beginning| !beginning.is_left(now));
        self.count(state);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `busy`, at most [`PATIENCE`].
    pub(super) fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        busy: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let waited = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| busy(state));
        let (state, time) = waited.unwrap_or_else(PoisonError::into_inner);
        if time.timed_out() {
            tracing::warn!("a mark takes too long: not waited for any longer");
        }
        state
    }
}
