//! Frees in stream order: the driver has accepted them, and gets the memory back when the stream
//! reaches them.
//!
//! Until then the memory stays charged. So events of ours are recorded behind the frees, one behind
//! many: a free is *open* until an event stands behind it. Two events are kept per stream. The
//! older one stays in its place, so it completes even if the stream is never idle; the younger one
//! moves on with later frees.
//!
//! The list is locked for moments, never while the driver is called: a thread that records or asks
//! has the stream to itself (`busy`), and takes only copies of its events with it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpushare_cuda_abi::cuda::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUcontext, CUstream};

use crate::driver::stream_ref::StreamRef;
use crate::driver::tracker::StreamId;
use crate::holdings::arena;
use crate::holdings::events;
use crate::holdings::graph_memory;
use crate::holdings::pending_frees::{Batch, Key, Later, Marked, PendingFrees, StreamFrees};
use crate::holdings::pools;

use crate::driver::contexts::Here;
use crate::driver::device::DeviceKey;
use crate::guest::fork::ForkLocal;
pub(crate) use crate::holdings::arena::{freed, pending, so_far};
pub(crate) use crate::holdings::pending_frees::{Freed, Parted};

/// Frees of a stream that share an event, where it can be found out later too whether they are
/// over.
const FREES: usize = 64;
/// Bytes that share one at most: as much as a pool grows by.
const BYTES: u64 = 32 << 20;
/// How long to wait for another thread that records or queries: far longer than the driver takes,
/// unless a stream is full of endless work.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<PendingFrees>,
    /// The frees of a stream are busy no more.
    idle: Condvar,
}

static UNDER_WAY: ForkLocal<Shared> = ForkLocal::new();

impl Shared {
    fn get() -> &'static Self {
        UNDER_WAY.get_or(Self::default)
    }

    fn lock(&self) -> MutexGuard<'_, PendingFrees> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `busy`, at most [`PATIENCE`].
    fn wait_while<'a>(
        &self,
        pending: MutexGuard<'a, PendingFrees>,
        busy: impl FnMut(&mut PendingFrees) -> bool,
    ) -> MutexGuard<'a, PendingFrees> {
        let waited = self.idle.wait_timeout_while(pending, PATIENCE, busy);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn under_way() -> MutexGuard<'static, PendingFrees> {
    Shared::get().lock()
}

/// Notices to the layer above whose memory moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Frees are over: pools' numbers, and the frees'.
    pub(crate) over: fn(&[(u64, u64)]),
    /// Frees of other memory are over.
    pub(crate) parted: fn(DeviceKey, &[Parted]),
    /// The host has waited for something.
    pub(crate) waited: fn(),
}

static TOLD: ForkLocal<Told> = ForkLocal::new();

/// From now on it is told.
pub(crate) fn tell(told: Told) {
    TOLD.set(told);
}

/// Frees of pools above are over.
pub(super) fn held_over(list: &[(u64, u64)]) {
    if let Some(told) = TOLD.get() {
        (told.over)(list);
    }
}

/// Frees of other memory of the layer above are over.
pub(super) fn parted_over(device: DeviceKey, list: &[Parted]) {
    if let Some(told) = TOLD.get() {
        (told.parted)(device, list);
    }
}

/// Follows all arenas after the driver has synchronised, if anything was freed. `before`: the
/// frees [`so_far`] when the program's call began.
#[inline]
pub(crate) fn synchronised(before: u64) {
    if pending() {
        follow_all();
        if let Some(told) = TOLD.get() {
            (told.waited)();
        }
        arena::follows(before);
    }
}

#[cold]
fn follow_all() {
    settle();
    if !under_way().all.is_empty() {
        freed();
    }
    pools::each(&arena::follow);
    graph_memory::each(&arena::follow);
}

/// Notes that something was freed in a stream's order, which the calling thread's own call uses.
///
/// If no event can be recorded behind it, because its stream's context is unknown, it is credited
/// at once: the driver has accepted its free. Returns which stream it is, where that is known.
pub(crate) fn freed_in(
    stream: StreamRef,
    here: Option<Here>,
    device: DeviceKey,
    what: Freed,
) -> Option<StreamId> {
    freed();
    let Some(here) = here else {
        what.never_known(device);
        return None;
    };
    let key = Key {
        device,
        stream: stream.id(Some(here)),
    };
    let (many, due, crowded) = {
        let mut pending = under_way();
        let crowded = pending.is_crowded();
        let frees = match pending.position(key) {
            Some(at) => &mut pending.all[at],
            None => {
                pending.all.push(StreamFrees::new(key, here.handle, stream));
                pending.all.last_mut()?
            }
        };
        frees.open.add(what);
        let many = frees.open.count >= FREES;
        let (bytes, linear) = (frees.open.bytes, frees.open.linear);
        let large = bytes >= BYTES || linear.0 > 0 || !frees.open.parted.is_empty();
        (
            many,
            many || large || frees.later == Later::Nothing,
            crowded,
        )
    };
    if due {
        record(key, true);
    }
    if crowded {
        settle();
    } else if many {
        ask(key, Asks::ButLast);
    }
    Some(key.stream)
}

/// Records an event behind the open frees of a stream, unless another thread does. `in_use`: the
/// program's own call uses the stream.
fn record(key: Key, in_use: bool) {
    let (context, stream, spare) = {
        let pending = under_way();
        // Work that cannot be done later is done now, even if another thread is busy here for a
        // moment.
        let wait = |pending: &mut PendingFrees| {
            let frees = pending.find(key);
            in_use && frees.is_some_and(|frees| frees.busy && frees.later != Later::Record)
        };
        let mut pending = Shared::get().wait_while(pending, wait);
        let Some(frees) = pending.find(key).filter(|frees| !frees.busy) else {
            return;
        };
        if frees.open.count == 0 || !(in_use || frees.later == Later::Record) {
            return;
        }
        frees.busy = true;
        frees.moving = Some(core::mem::replace(&mut frees.open, Batch::new()));
        let younger = frees.younger.as_ref().map(|younger| younger.event);
        (frees.context, frees.stream, younger)
    };
    let recorded = events::put(stream, context, spare, in_use);
    let mut pending = under_way();
    if let Some(frees) = pending.find_busy(key) {
        frees.busy = false;
        match (recorded, frees.moving.take()) {
            (Ok(event), Some(behind)) => frees.put(Marked { behind, event }),
            (_, Some(behind)) => frees.open.join(behind),
            _ => {}
        }
    }
    drop(pending);
    Shared::get().idle.notify_all();
}

/// How completed frees are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// The last event is left for a later look, which may wait for it ([`observe`]).
    ButLast,
    /// By queries alone.
    All,
    /// By queries, and the driver learns of each that is over by a wait.
    Observed,
}

/// Credits the completed frees of a stream, unless another thread does.
fn ask(key: Key, asks: Asks) {
    loop {
        let (context, event) = {
            let mut pending = under_way();
            let Some(frees) = pending.find(key).filter(|frees| !frees.busy) else {
                return;
            };
            let Some(event) = frees.older.as_ref().map(|older| older.event) else {
                return;
            };
            if asks == Asks::ButLast && frees.younger.is_none() {
                return;
            }
            frees.busy = true;
            (frees.context, event)
        };
        let passed = events::is_passed(context, event);
        if passed {
            if asks == Asks::Observed {
                events::observe(context, event);
            }
            events::destroy(context, event);
        }
        let mut over = None;
        {
            let mut pending = under_way();
            if let Some(frees) = pending.find_busy(key) {
                frees.busy = false;
                if passed {
                    over = frees.older.take();
                    frees.older = frees.younger.take();
                }
            }
            pending.all.retain(|frees| !frees.is_empty());
        }
        Shared::get().idle.notify_all();
        match over {
            Some(marked) => marked.behind.over(key.device),
            None => return,
        }
    }
}

/// Credits the frees that are complete.
pub(crate) fn settle() {
    settle_by(Asks::All);
}

/// The same, and lets the driver's pools know of them as a wait of the program's would: until then
/// a trim may leave that memory. Pools give back what is above their thresholds at that.
pub(crate) fn observe() {
    settle_by(Asks::Observed);
}

fn settle_by(asks: Asks) {
    let keys: Vec<Key> = under_way().all.iter().map(|frees| frees.key).collect();
    for key in keys {
        record(key, false);
        ask_idle(key);
        ask(key, asks);
    }
    under_way().settled();
}

/// Credits the open frees of an idle stream, in which no event may be recorded.
fn ask_idle(key: Key) {
    let (context, stream) = {
        let mut pending = under_way();
        let frees = pending.find(key);
        let asked = |frees: &&mut StreamFrees| {
            !frees.busy && frees.later == Later::AskIdle && frees.open.count > 0
        };
        let Some(frees) = frees.filter(asked) else {
            return;
        };
        frees.busy = true;
        frees.moving = Some(core::mem::replace(&mut frees.open, Batch::new()));
        (frees.context, frees.stream)
    };
    let idle = events::is_idle(context, stream);
    let mut over = None;
    {
        let mut pending = under_way();
        if let Some(frees) = pending.find_busy(key) {
            frees.busy = false;
            match frees.moving.take() {
                Some(batch) if idle => over = Some(batch),
                Some(batch) => frees.open.join(batch),
                None => {}
            }
        }
        pending.all.retain(|frees| !frees.is_empty());
    }
    Shared::get().idle.notify_all();
    if let Some(batch) = over {
        batch.over(key.device);
    }
}

/// A stream is about to be destroyed, or to capture: its open frees get their event now.
pub(crate) fn stream_going(stream: CUstream) {
    let Some(shared) = UNDER_WAY.get().filter(|_| !is_default(stream)) else {
        return;
    };
    let keys: Vec<Key> = {
        let busy = |pending: &mut PendingFrees| {
            let mut here = pending.all.iter();
            here.any(|frees| frees.busy && frees.stream.handle() == stream)
        };
        let pending = shared.wait_while(shared.lock(), busy);
        let here = pending.all.iter();
        let here = here.filter(|frees| frees.stream.handle() == stream && frees.open.count > 0);
        here.map(|frees| frees.key).collect()
    };
    keys.into_iter().for_each(|key| record(key, true));
}

/// Whether a handle means the default streams, which are never destroyed.
fn is_default(stream: CUstream) -> bool {
    stream.is_null() || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD
}

/// A stream has been destroyed: its handle may come to mean another.
pub(crate) fn stream_gone(stream: CUstream) {
    let Some(shared) = UNDER_WAY.get() else {
        return;
    };
    for frees in &mut shared.lock().all {
        if frees.stream.handle() == stream {
            frees.later = Later::Nothing;
        }
    }
}

/// A context is about to be destroyed, or released perhaps for the last time: its events are not
/// queried from now on.
pub(crate) fn context_going(context: CUcontext) {
    let Some(shared) = UNDER_WAY.get() else {
        return;
    };
    let busy = |pending: &mut PendingFrees| {
        let mut here = pending.all.iter();
        here.any(|frees| frees.context == context && frees.busy)
    };
    let mut pending = shared.wait_while(shared.lock(), busy);
    pending.context_goes(context);
}

/// The context is there still, unless another call ends it.
pub(crate) fn context_stays(context: CUcontext) {
    if let Some(shared) = UNDER_WAY.get() {
        shared.lock().context_stays(context);
    }
}

/// The calls that may end a context, and that have not come back, never will.
pub(crate) fn nothing_ends(context: CUcontext) {
    if let Some(shared) = UNDER_WAY.get() {
        shared.lock().nothing_ends(context);
    }
}

/// A context is gone, its events and the frees behind its work with it.
pub(crate) fn context_gone(context: CUcontext) {
    let gone = under_way().context_gone(context);
    for frees in gone {
        frees
            .batches()
            .for_each(|batch| batch.over(frees.key.device));
    }
    follow_all();
}

/// Whether frees are under way on the device.
pub(crate) fn pending_on(device: DeviceKey) -> bool {
    let pending = under_way();
    pending.all.iter().any(|frees| frees.key.device == device)
}

/// Whether frees in a stream are under way, of memory on the device.
pub(crate) fn pending_in(device: DeviceKey, stream: StreamId) -> bool {
    let pending = under_way();
    let key = Key { device, stream };
    let mut all = pending.all.iter().chain(&pending.going);
    all.any(|frees| frees.key == key)
}

/// Bytes that frees under way will give back on a device, but for those of the layer above
/// ([`returning`](super::returning)).
pub(crate) fn coming(device: DeviceKey) -> u64 {
    let pending = under_way();
    let here = pending
        .all
        .iter()
        .filter(|frees| frees.key.device == device);
    here.flat_map(StreamFrees::batches)
        .map(|batch| batch.bytes.saturating_add(batch.linear.bytes()))
        .sum()
}
