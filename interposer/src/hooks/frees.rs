//! Frees in stream order: the driver has accepted them, and the memory is its own again when the stream comes to them.
//!
//! Until then the account must go on paying. So an event of ours is recorded behind them. Of one stream two events are kept: the
//! older one stays where it is, so that it is passed some day though the stream is never idle; the younger one moves with each free.
//!
//! # Safety
//! `unsafe` asks the driver about events that this file holds and has not yet destroyed.
#![allow(unsafe_code, reason = "asks the driver about its events")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUcontext, CUevent, CUresult};

use super::arena;
use super::graph;
use super::layout::Mark;
use super::ordered::{Ordered, StreamId};
use super::pools::{self, Pool};
use crate::account::{self, Units};
use crate::contexts::Here;
use crate::device::DeviceKey;
use crate::driver;
use crate::fork::ForkLocal;

/// Streams whose frees are remembered before the completed ones are looked for.
const STREAMS: usize = 64;
/// Frees behind one event before it is looked whether the one before it is passed.
const FREES: usize = 64;

/// Something freed in a stream's order.
#[derive(Debug)]
pub(super) enum Freed {
    /// An allocation of a pool: its address, size in bytes, and what names the free there.
    Pool(Arc<Pool>, u64, u64, Mark),
    /// Bytes that a graph, launched there, frees itself.
    Graph(u64),
    /// A charge outside any pool, to be credited when the event has been passed.
    Linear(Units),
}

/// What one event stands behind.
#[derive(Debug)]
struct Batch {
    mark: Mark,
    event: CUevent,
    /// Frees in all.
    count: usize,
    /// Pools, how many of each one's allocations.
    pools: Vec<(Arc<Pool>, usize)>,
    /// Bytes of pools and graphs.
    bytes: u64,
    linear: Units,
}

/// Frees given to one stream and, when last looked at, not complete.
#[derive(Debug)]
struct Frees {
    device: DeviceKey,
    context: CUcontext,
    stream: StreamId,
    older: Batch,
    younger: Option<Batch>,
}

static UNDER_WAY: ForkLocal<Mutex<Vec<Frees>>> = ForkLocal::new();
static MARKS: AtomicU64 = AtomicU64::new(1);

fn under_way() -> MutexGuard<'static, Vec<Frees>> {
    UNDER_WAY
        .get_or(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// A mark nobody else has.
pub(super) fn mark() -> Mark {
    MARKS.fetch_add(1, Ordering::Relaxed)
}

/// Whether memory was freed since the last [`synchronised`]: the driver may give it back when it synchronises.
static FREED: AtomicBool = AtomicBool::new(false);

/// Notes a free that needs no event.
pub(super) fn freed() {
    FREED.store(true, Ordering::Release);
}

/// Whether a synchronisation is to be followed.
#[inline(always)]
pub(super) fn pending() -> bool {
    FREED.load(Ordering::Relaxed)
}

/// Follows all arenas after the driver has synchronised, if anything was freed.
#[inline]
pub(super) fn synchronised() {
    if pending() {
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
/// Where no event can be recorded behind it, it is credited at once: the driver has accepted its free.
pub(super) fn freed_in(stream: Ordered, here: Option<Here>, device: DeviceKey, what: Freed) {
    freed();
    let id = stream.id(here);
    let mut all = under_way();
    if all.len() >= STREAMS {
        drop(all);
        settle();
        all = under_way();
    }
    let known = all
        .iter_mut()
        .find(|frees| frees.device == device && frees.stream == id);
    let many = match (known, here) {
        (Some(known), Some(here)) => known.add(stream, here, what),
        (None, Some(here)) => match Batch::behind(stream, here, what) {
            Ok(older) => {
                all.push(Frees {
                    device,
                    context: here.handle,
                    stream: id,
                    older,
                    younger: None,
                });
                false
            }
            Err(what) => what.never_known(device),
        },
        (_, None) => what.never_known(device),
    };
    drop(all);
    if many {
        settle();
    }
}

impl Freed {
    /// Nobody will know when it is over.
    fn never_known(self, device: DeviceKey) -> bool {
        match self {
            Self::Pool(pool, at, bytes, mark) => {
                pool.submitted(at, bytes, mark, None);
                pool.over(1);
            }
            Self::Graph(_) => {}
            Self::Linear(units) => account::release(device, units),
        }
        false
    }
}

impl Frees {
    /// Adds to the younger event. Returns whether it is time to look.
    fn add(&mut self, stream: Ordered, here: Here, what: Freed) -> bool {
        if let Some(younger) = &mut self.younger {
            if stream.record(younger.event).is_err() {
                return what.never_known(self.device);
            }
            younger.add(what);
            return younger.count.is_multiple_of(FREES);
        }
        match Batch::behind(stream, here, what) {
            Ok(younger) => self.younger = Some(younger),
            Err(what) => return what.never_known(self.device),
        }
        false
    }

    /// Credits what is complete; whether something is left.
    fn settle(&mut self) -> bool {
        loop {
            // SAFETY: an event of ours, which nobody else destroys while the list is locked.
            if unsafe { driver::cuEventQuery(self.older.event) } == CUresult::NOT_READY {
                return true;
            }
            // SAFETY: as above; it is not used after this.
            let _ = unsafe { driver::cuEventDestroy_v2(self.older.event) };
            self.older.over(self.device);
            match self.younger.take() {
                Some(younger) => self.older = younger,
                None => return false,
            }
        }
    }

    fn batches(&self) -> impl Iterator<Item = &Batch> {
        core::iter::once(&self.older).chain(&self.younger)
    }
}

impl Batch {
    /// A new event behind a free; the free comes back if there can be none.
    fn behind(stream: Ordered, here: Here, what: Freed) -> Result<Self, Freed> {
        let Some(event) = stream.mark(here.handle) else {
            return Err(what);
        };
        let mut batch = Self {
            mark: mark(),
            event,
            count: 0,
            pools: Vec::new(),
            bytes: 0,
            linear: Units(0),
        };
        batch.add(what);
        Ok(batch)
    }

    fn add(&mut self, freed: Freed) {
        self.count += 1;
        match freed {
            Freed::Pool(pool, at, bytes, mark) => {
                pool.submitted(at, bytes, mark, Some(self.mark));
                self.bytes = self.bytes.saturating_add(bytes);
                match self
                    .pools
                    .iter_mut()
                    .find(|(known, _)| Arc::ptr_eq(known, &pool))
                {
                    Some((_, count)) => *count += 1,
                    None => self.pools.push((pool, 1)),
                }
            }
            Freed::Graph(bytes) => self.bytes = self.bytes.saturating_add(bytes),
            Freed::Linear(units) => self.linear.0 = self.linear.0.saturating_add(units.0),
        }
    }

    fn over(&self, device: DeviceKey) {
        account::release(device, self.linear);
        for (pool, count) in &self.pools {
            pool.passed(self.mark);
            pool.over(*count);
        }
    }
}

/// Credits the frees that are complete.
pub(super) fn settle() {
    under_way().retain_mut(Frees::settle);
}

/// A context is gone, its events and the frees behind its work with it.
pub(super) fn context_gone(context: CUcontext) {
    under_way().retain(|frees| {
        let gone = frees.context == context;
        if gone {
            frees.batches().for_each(|batch| batch.over(frees.device));
        }
        !gone
    });
    follow_all();
}

/// Whether frees on other streams than `stream` are under way on the device.
pub(super) fn others_pending(device: DeviceKey, stream: Option<StreamId>) -> bool {
    under_way()
        .iter()
        .any(|frees| frees.device == device && stream != Some(frees.stream))
}

/// What names the frees under way that one stream was given.
pub(super) fn own(stream: StreamId) -> Vec<Mark> {
    settle();
    under_way()
        .iter()
        .filter(|frees| frees.stream == stream)
        .flat_map(Frees::batches)
        .map(|batch| batch.mark)
        .collect()
}

/// Bytes that frees under way will give back on a device.
pub(super) fn coming(device: DeviceKey) -> u64 {
    let all = under_way();
    let here = all.iter().filter(|frees| frees.device == device);
    here.flat_map(Frees::batches)
        .map(|batch| batch.bytes.saturating_add(batch.linear.bytes()))
        .sum()
}
