//! The single truth about the program's contexts, streams and captures, and what keeps a mark of
//! ours out of their way.
//!
//! A stream or context is not destroyed while an event is recorded in it ([`marking`]): the hook of
//! its destruction removes it from here first, and waits. No capture begins while a mark is made,
//! and no mark is made in a capturing stream; its work is marked just before its capture begins.
//! All waits are bounded by the time of a few driver calls.
//!
//! The tracker knows and says; what follows from it, in the account and at the gate, the hooks do.
//! Its lock is held for moments, never while the driver is called.

pub(crate) mod captures;
pub(crate) mod contexts;
mod marking;
mod place;
pub(crate) mod streams;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpushare_cuda_abi::cuda::{CUcontext, CUstream};

use crate::guest::fork::ForkLocal;
use captures::Capture;
use contexts::{ContextId, Here};
pub(crate) use place::StreamId;

/// How long a destruction or the begin of a capture waits for a mark that is being made: far longer
/// than the driver takes, unless the stream's queue is full of work that does not end.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Context {
    here: Here,
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
    /// Marks being made in it, and questions about it.
    busy: u32,
}

#[derive(Debug, Default)]
struct State {
    contexts: HashMap<CUcontext, Context>,
    streams: HashMap<CUstream, Stream>,
    /// Captures that have begun and, as far as is known, have not ended.
    captures: Vec<Capture>,
    /// Numbers of contexts that have ended, while something still carries them.
    ended: Vec<ContextId>,
    /// Marks being made.
    marking: u32,
    /// Captures about to begin or to be joined.
    beginning: u32,
}

#[derive(Debug, Default)]
struct Tracker {
    state: Mutex<State>,
    changed: Condvar,
    /// Captures in the list, and those on their way there.
    captures: AtomicUsize,
}

static TRACKER: ForkLocal<Tracker> = ForkLocal::new();
/// Rises when a stream or context goes, so that no thread's remembered one outlives it.
static EPOCH: AtomicU64 = AtomicU64::new(1);

/// Facts cached by a stream's or context's handle are valid as long as this is the same.
#[inline]
pub(crate) fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

fn next_epoch() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

impl Tracker {
    fn get() -> &'static Self {
        TRACKER.get_or(Self::default)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `busy`, at most [`PATIENCE`].
    fn wait<'a>(
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
