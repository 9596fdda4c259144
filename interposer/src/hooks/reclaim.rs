//! What is tried before a charge is refused: giving back what this process can spare.
//!
//! Frees in stream order are the driver's again only when the stream comes to them, and until then the account must go on paying.
//! So an event of ours is recorded behind them. When a charge does not fit, completed frees are credited, and unused memory of pools
//! and graphs is trimmed, as the driver itself does when the device is full. If the charge would fit once the frees under way are
//! complete, they are waited for, [`PATIENCE`] at most.
//!
//! # Safety
//! `unsafe` asks the driver about events that this file holds and has not yet destroyed.
#![allow(unsafe_code, reason = "asks the driver about its events")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpushare_cuda_abi::cuda::{CUcontext, CUevent, CUresult, CUstream};

use super::arena::{self, Arena};
use super::ordered::Ordered;
use super::{graph, pools};
use crate::account::{self, Charge, Refused, Units};
use crate::contexts::Here;
use crate::device::DeviceKey;
use crate::driver;
use crate::fork::ForkLocal;

/// The longest a charge waits for frees under way: longer than work in a stream usually takes, too short to be taken for a hang.
const PATIENCE: Duration = Duration::from_secs(1);
/// Streams per device whose last free is remembered; of more, completed ones are forgotten first.
const STREAMS: usize = 64;
/// Blocks of pools remembered of one stream.
const BLOCKS: usize = 64;

/// Frees given to one stream and, when last looked at, not complete.
#[derive(Debug)]
struct Frees {
    device: DeviceKey,
    context: CUcontext,
    stream: CUstream,
    per_thread: bool,
    /// Recorded behind the last of them.
    event: CUevent,
    freed: Sums,
}

/// Something freed in a stream's order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Freed {
    /// An allocation of a pool: its address and size.
    Pool(u64, u64),
    /// Bytes that a graph, launched there, frees itself.
    Graph(u64),
    /// A charge outside any pool, to be credited when the event has been passed.
    Linear(Units),
}

/// What was freed in one stream: blocks of pools, bytes of graphs, units of linear memory.
#[derive(Debug, Default)]
struct Sums {
    pool: Vec<(u64, u64)>,
    graph: u64,
    linear: u32,
}

impl Sums {
    fn add(&mut self, freed: Freed) {
        match freed {
            Freed::Pool(at, bytes) => {
                if self.pool.len() >= BLOCKS {
                    self.pool.swap_remove(0);
                }
                self.pool.push((at, bytes));
            }
            Freed::Graph(bytes) => self.graph = self.graph.saturating_add(bytes),
            Freed::Linear(units) => self.linear = self.linear.saturating_add(units.0),
        }
    }

    fn bytes(&self) -> u64 {
        let pool: u64 = self.pool.iter().map(|(_, bytes)| bytes).sum();
        pool.saturating_add(self.graph)
            .saturating_add(Units(self.linear).bytes())
    }
}

static UNDER_WAY: ForkLocal<Mutex<Vec<Frees>>> = ForkLocal::new();

fn under_way() -> MutexGuard<'static, Vec<Frees>> {
    UNDER_WAY
        .get_or(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Books `bytes`; before that is refused, everything this process can spare on the device is given back.
///
/// # Errors
/// [`Refused`] if it does not fit then either.
#[inline]
pub(crate) fn reserve(device: DeviceKey, bytes: u64) -> Result<Charge, Refused> {
    account::charge(device, bytes).or_else(|_| reserve_slowly(device, bytes, None))
}

/// Asks the driver for `bytes` that are charged. Where it has none although they were granted, the daemon is asked to see why; only
/// what it cannot mend is the program's to hear.
#[inline]
pub(crate) fn insist(device: DeviceKey, bytes: u64, ask: impl Fn() -> CUresult) -> CUresult {
    match ask() {
        CUresult::OUT_OF_MEMORY => insist_slowly(device, bytes, &ask),
        answer => answer,
    }
}

/// Times the driver is asked again.
const INSISTENCE: usize = 8;

#[cold]
fn insist_slowly(device: DeviceKey, bytes: u64, ask: &dyn Fn() -> CUresult) -> CUresult {
    let mut answer = CUresult::OUT_OF_MEMORY;
    let Some(mut insistence) = account::Insistence::new(device, bytes) else {
        return answer;
    };
    for _ in 0..INSISTENCE {
        if !insistence.again() {
            break;
        }
        answer = ask();
        if answer != CUresult::OUT_OF_MEMORY {
            break;
        }
    }
    answer
}

/// As [`reserve`] where it did not fit at first; frees given to `stream` itself are not waited for.
#[cold]
pub(super) fn reserve_slowly(
    device: DeviceKey,
    bytes: u64,
    stream: Option<Ordered>,
) -> Result<Charge, Refused> {
    let began = Instant::now();
    let mut pause = Duration::from_micros(20);
    loop {
        spare(device);
        let refused = match account::charge(device, bytes) {
            Err(refused) => refused,
            booked => return booked,
        };
        if !others_pending(device, stream)
            || !could_fit(device, bytes)
            || began.elapsed() > PATIENCE
        {
            if !account::can_wait() {
                return Err(refused);
            }
            return account::charge_waiting(device, bytes);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

/// Gives back what can be spared at once.
fn spare(device: DeviceKey) {
    settle();
    let trim = |arena: &dyn Arena| {
        if arena.device() == device {
            arena.trim();
            arena::follow(arena);
        }
    };
    pools::each(&trim);
    graph::each(&trim);
}

/// Whether `bytes` would fit if all frees under way were complete.
fn could_fit(device: DeviceKey, bytes: u64) -> bool {
    let Some(standing) = account::standing(device) else {
        return false;
    };
    let Some(limit) = standing.limit else {
        return true;
    };
    let unused = AtomicU64::new(0);
    let add = |arena: &dyn Arena| {
        if arena.device() == device {
            let unused_here = arena::unused(arena).unwrap_or(0);
            unused.fetch_add(unused_here, Ordering::Relaxed);
        }
    };
    pools::each(&add);
    graph::each(&add);
    let coming = under_way()
        .iter()
        .filter(|frees| frees.device == device)
        .map(|frees| frees.freed.bytes())
        .sum::<u64>();
    let left = standing
        .charged
        .saturating_sub(unused.into_inner())
        .saturating_sub(coming);
    left.saturating_add(bytes) <= limit
}

/// Whether frees on other streams than `stream` are under way on the device.
fn others_pending(device: DeviceKey, stream: Option<Ordered>) -> bool {
    under_way()
        .iter()
        .any(|frees| frees.device == device && !stream.is_some_and(|stream| frees.is_on(stream)))
}

/// Whether work given to `stream` before its last noted free is still under way.
pub(super) fn is_pending(stream: Ordered) -> bool {
    settle();
    under_way().iter().any(|frees| frees.is_on(stream))
}

/// What is free for an allocation in a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Everything that was freed: all frees are complete.
    All,
    /// These blocks, freed by the stream itself and each for itself: the stream may have them before their free is complete.
    Own(Vec<(u64, u64)>),
    /// Another stream's frees are under way.
    Unknown,
}

/// What is free on the device for an allocation in `stream`.
pub(super) fn room_for(device: DeviceKey, stream: Ordered) -> Room {
    settle();
    let mut own = None;
    for frees in under_way().iter().filter(|frees| frees.device == device) {
        if !frees.is_on(stream) {
            return Room::Unknown;
        }
        own = Some(frees.freed.pool.clone());
    }
    own.map_or(Room::All, Room::Own)
}

/// Whether memory was freed since the last [`synchronised`]: the driver may give it back when it synchronises.
static FREED: AtomicBool = AtomicBool::new(false);

/// Notes a free that needs no event.
pub(super) fn freed() {
    FREED.store(true, Ordering::Release);
}

/// Follows all arenas after the driver has synchronised, if anything was freed.
#[inline]
pub(super) fn synchronised() {
    if FREED.load(Ordering::Relaxed) {
        follow_all();
    }
}

#[cold]
fn follow_all() {
    FREED.store(false, Ordering::Release);
    settle();
    if !under_way().is_empty() {
        freed();
    }
    pools::each(&arena::follow);
    graph::each(&arena::follow);
}

/// Notes that something was freed in a stream's order.
///
/// Where no event can be recorded behind it, linear memory is credited at once: the driver has accepted its free.
pub(super) fn freed_in(stream: Ordered, here: Option<Here>, device: DeviceKey, what: Freed) {
    freed();
    let mut all = under_way();
    if all.len() >= STREAMS {
        drop(all);
        settle();
        all = under_way();
    }
    if let Some(known) = all
        .iter_mut()
        .find(|frees| frees.device == device && frees.is_on(stream))
        && stream.record(known.event).is_ok()
    {
        known.freed.add(what);
        return;
    }
    let event = here.and_then(|here| Some((here.handle, stream.mark(here.handle)?)));
    match (event, what) {
        (Some((context, event)), what) => {
            let (stream, per_thread) = (stream.handle(), stream.is_per_thread());
            let mut freed = Sums::default();
            freed.add(what);
            all.push(Frees {
                device,
                context,
                stream,
                per_thread,
                event,
                freed,
            });
        }
        (None, Freed::Linear(units)) => account::release(device, units),
        (None, _) => {}
    }
}

impl Frees {
    fn is_on(&self, stream: Ordered) -> bool {
        self.stream == stream.handle() && self.per_thread == stream.is_per_thread()
    }
}

/// Credits the frees that are complete.
fn settle() {
    let mut all = under_way();
    all.retain(|frees| {
        // SAFETY: an event of ours, which nobody else destroys while the list is locked.
        if unsafe { driver::cuEventQuery(frees.event) } == CUresult::NOT_READY {
            return true;
        }
        // SAFETY: as above; it is not used after this.
        let _ = unsafe { driver::cuEventDestroy_v2(frees.event) };
        account::release(frees.device, Units(frees.freed.linear));
        false
    });
}

/// A context is gone, its events and the frees behind its work with it.
pub(super) fn context_gone(context: CUcontext) {
    under_way().retain(|frees| {
        let gone = frees.context == context;
        if gone {
            account::release(frees.device, Units(frees.freed.linear));
        }
        !gone
    });
    follow_all();
}
