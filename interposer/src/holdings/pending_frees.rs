//! The known frees that streams have not reached yet: for each stream batches of
//! frees, most of them with an event behind them.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUcontext, CUevent};

use crate::account::{self, Units};
use crate::driver::device::DeviceKey;
use crate::driver::stream_ref::StreamRef;
use crate::driver::streams;
use crate::driver::tracker::StreamId;
use crate::holdings::frees;
use crate::holdings::pools::Pool;

/// Something freed in a stream's order.
#[derive(Debug)]
pub(crate) enum Freed {
    /// An allocation of a pool, of so many bytes.
    Pool(Arc<Pool>, u64),
    /// An allocation of a pool that is kept in a layer above: the pool's number, the free's, and
    /// the bytes.
    Held(u64, u64, u64),
    /// Bytes that a graph, launched there, frees itself.
    Graph(u64),
    /// A charge outside any pool, to be credited when the event has been passed.
    Linear(Units),
    /// Memory of a layer above, which gives it back.
    Parted(Parted),
}

/// Memory that a layer above gives back when its free is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parted {
    pub(crate) at: u64,
    /// Another allocation at this address has another one.
    pub(crate) number: u64,
    /// The charge for this memory alone.
    pub(crate) units: Units,
}

/// Frees that stand or fall together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) count: usize,
    /// Pools, how many of each one's allocations.
    pub(crate) pools: Vec<(Arc<Pool>, usize)>,
    /// Frees of pools above, by the pool's number and the free's.
    pub(crate) held: Vec<(u64, u64)>,
    /// Bytes of pools and of graphs.
    pub(crate) bytes: u64,
    pub(crate) linear: Units,
    pub(crate) parted: Vec<Parted>,
}

/// A batch and the event behind it.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) behind: Batch,
    pub(crate) event: CUevent,
}

/// Frees given to one stream and, when last looked at, not complete.
#[derive(Debug)]
pub(crate) struct StreamFrees {
    pub(crate) key: Key,
    pub(crate) context: CUcontext,
    pub(crate) stream: StreamRef,
    pub(crate) later: Later,
    /// No event stands behind these yet.
    pub(crate) open: Batch,
    pub(crate) older: Option<Marked>,
    pub(crate) younger: Option<Marked>,
    /// A thread records or queries. Only it changes `older` and `younger`; the frees that it is
    /// putting behind an event are in `moving`.
    pub(crate) busy: bool,
    pub(crate) moving: Option<Batch>,
}

/// The possible handling of open frees after the program's own call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// An event can be recorded, by any thread: the stream is kept from being destroyed meanwhile.
    Record,
    /// It can be asked whether the stream is idle. An event in the legacy stream would make it wait
    /// for all blocking streams, at a point where the program did not want that.
    AskIdle,
    /// None: the stream is a thread's own, no hook saw it made, or it is gone.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) device: DeviceKey,
    pub(crate) stream: StreamId,
}

/// Streams whose frees are kept before completed ones are looked for.
const STREAMS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct PendingFrees {
    pub(crate) all: Vec<StreamFrees>,
    /// Streams that were left when completed frees were last looked for, or that a thread which
    /// looks has found.
    left: usize,
    /// Of contexts that are being destroyed, or perhaps only released.
    pub(crate) going: Vec<StreamFrees>,
    /// Contexts that may be ending, one for each call that may end it.
    endings: Vec<CUcontext>,
}

impl Freed {
    /// It will never be known when it is over.
    pub(crate) fn never_known(self, device: DeviceKey) {
        match self {
            Self::Pool(pool, _) => pool.over(1),
            // Used by nothing else until its context is gone.
            Self::Graph(_) | Self::Held(..) | Self::Parted(_) => {}
            Self::Linear(units) => account::release(device, units),
        }
    }
}

impl PendingFrees {
    pub(crate) fn position(&self, key: Key) -> Option<usize> {
        self.all.iter().position(|frees| frees.key == key)
    }

    pub(crate) fn find(&mut self, key: Key) -> Option<&mut StreamFrees> {
        self.all.iter_mut().find(|frees| frees.key == key)
    }

    /// Whether completed frees are to be looked for by the calling thread: the streams are many,
    /// and twice as many as were left the last time. So what a look costs is shared by as many
    /// frees, also where most of them take long.
    pub(crate) fn is_crowded(&mut self) -> bool {
        let crowded = self.all.len() >= STREAMS.max(self.left.saturating_mul(2));
        if crowded {
            // Other threads need not look meanwhile.
            self.left = self.all.len();
        }
        crowded
    }

    /// Completed frees were looked for.
    pub(crate) fn settled(&mut self) {
        self.left = self.all.len();
    }

    /// The stream of the thread that holds it; it may be a stream of a context that is being
    /// destroyed.
    pub(crate) fn find_busy(&mut self, key: Key) -> Option<&mut StreamFrees> {
        let all = self.all.iter_mut().chain(&mut self.going);
        all.into_iter().find(|frees| frees.key == key && frees.busy)
    }

    /// A call that may end a context begins: its frees are left alone.
    pub(crate) fn context_goes(&mut self, context: CUcontext) {
        self.endings.push(context);
        let here = self.all.extract_if(.., |frees| frees.context == context);
        self.going.extend(here);
    }

    /// Such a call has not ended it. Its frees are back once no other call may end it.
    pub(crate) fn context_stays(&mut self, context: CUcontext) {
        if let Some(at) = self.endings.iter().position(|ending| *ending == context) {
            self.endings.swap_remove(at);
        }
        if !self.endings.contains(&context) {
            let back = self.going.extract_if(.., |frees| frees.context == context);
            self.all.extend(back);
        }
    }

    /// Such a call has ended it, also for those that do not come back. Returns its frees.
    pub(crate) fn context_gone(&mut self, context: CUcontext) -> Vec<StreamFrees> {
        self.endings.retain(|ending| *ending != context);
        let of_it = |frees: &mut StreamFrees| frees.context == context;
        let going = self.going.extract_if(.., of_it);
        going.chain(self.all.extract_if(.., of_it)).collect()
    }

    /// The calls that may end it, and that have not come back, never will.
    pub(crate) fn nothing_ends(&mut self, context: CUcontext) {
        self.endings.retain(|ending| *ending != context);
        self.context_stays(context);
    }
}

impl Later {
    pub(crate) fn of(stream: StreamRef) -> Self {
        if stream.is_of_green() {
            // Only while the green context is current, and it may be so in one thread alone.
            Self::Nothing
        } else if stream.is_legacy() {
            Self::AskIdle
        } else if streams::knows(stream.handle()) {
            Self::Record
        } else {
            Self::Nothing
        }
    }
}

impl StreamFrees {
    pub(crate) fn new(key: Key, context: CUcontext, stream: StreamRef) -> Self {
        Self {
            key,
            context,
            stream,
            later: Later::of(stream),
            open: Batch::new(),
            older: None,
            younger: None,
            busy: false,
            moving: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.count == 0 && self.older.is_none() && !self.busy
    }

    pub(crate) fn batches(&self) -> impl Iterator<Item = &Batch> {
        let marked = self.older.iter().chain(&self.younger);
        let marked = marked.map(|marked| &marked.behind);
        core::iter::once(&self.open)
            .chain(&self.moving)
            .chain(marked)
    }

    /// The frees behind an event.
    pub(crate) fn put(&mut self, marked: Marked) {
        match (&self.older, &mut self.younger) {
            (None, _) => self.older = Some(marked),
            (_, None) => self.younger = Some(marked),
            // Its event has moved on.
            (_, Some(younger)) => younger.behind.join(marked.behind),
        }
    }
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self {
            count: 0,
            pools: Vec::new(),
            held: Vec::new(),
            bytes: 0,
            linear: Units(0),
            parted: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, freed: Freed) {
        self.count += 1;
        match freed {
            Freed::Pool(pool, bytes) => {
                self.bytes = self.bytes.saturating_add(bytes);
                self.add_pool(pool, 1);
            }
            Freed::Held(pool, free, bytes) => {
                self.bytes = self.bytes.saturating_add(bytes);
                self.held.push((pool, free));
            }
            Freed::Graph(bytes) => self.bytes = self.bytes.saturating_add(bytes),
            Freed::Linear(units) => self.linear.0 = self.linear.0.saturating_add(units.0),
            // Their bytes count in `returning`: also when the stream has come to them.
            Freed::Parted(parted) => self.parted.push(parted),
        }
    }

    pub(crate) fn add_pool(&mut self, pool: Arc<Pool>, more: usize) {
        let mut known = self.pools.iter_mut();
        match known.find(|(known, _)| Arc::ptr_eq(known, &pool)) {
            Some((_, count)) => *count += more,
            None => self.pools.push((pool, more)),
        }
    }

    /// Takes another batch in.
    pub(crate) fn join(&mut self, other: Self) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.linear.0 = self.linear.0.saturating_add(other.linear.0);
        for (pool, count) in other.pools {
            self.add_pool(pool, count);
        }
        self.held.extend(other.held);
        self.parted.extend(other.parted);
    }

    pub(crate) fn over(&self, device: DeviceKey) {
        account::release(device, self.linear);
        for (pool, count) in &self.pools {
            pool.over(*count);
        }
        if !self.held.is_empty() {
            frees::held_over(&self.held);
        }
        if !self.parted.is_empty() {
            frees::parted_over(device, &self.parted);
        }
    }
}

#[cfg(test)]
mod tests {
    use gpushare_cuda_abi::cuda::CUstream;

    use super::*;
    use crate::driver::contexts::{ContextId, Here};

    fn context(at: usize) -> CUcontext {
        CUcontext(core::ptr::without_provenance_mut(at))
    }

    /// A free in a stream of the context.
    fn free_in(context: CUcontext) -> StreamFrees {
        let device = DeviceKey::of_index(0).expect("a device");
        let handle = context;
        let here = Here {
            device,
            context: ContextId::NONE,
            handle,
        };
        let stream = StreamRef::legacy(CUstream::NULL);
        let stream_id = stream.id(Some(here));
        let key = Key {
            device,
            stream: stream_id,
        };
        StreamFrees::new(key, context, stream)
    }

    #[test]
    fn frees_are_back_when_the_last_call_that_may_end_their_context_is() {
        let (here, there) = (context(0x100), context(0x200));
        let mut pending = PendingFrees::default();
        pending.all.extend([free_in(here), free_in(there)]);
        pending.context_goes(here);
        pending.context_goes(here);
        pending.context_stays(here);
        assert_eq!((pending.all.len(), pending.going.len()), (1, 1));
        pending.context_stays(here);
        assert_eq!((pending.all.len(), pending.going.len()), (2, 0));
    }

    /// The first call that might end its namesake was left by a jump, the second one ended it.
    #[test]
    fn frees_in_a_context_that_has_anothers_handle_are_back() {
        let here = context(0x100);
        let mut pending = PendingFrees::default();
        pending.context_goes(here);
        pending.context_goes(here);
        assert!(pending.context_gone(here).is_empty());
        pending.all.push(free_in(here));
        pending.context_goes(here);
        pending.context_stays(here);
        assert_eq!((pending.all.len(), pending.going.len()), (1, 0));
    }

    /// The looks for completed frees while one stream after another gets a free that takes long,
    /// each stream `frees` of them.
    fn looks(streams: usize, frees: usize) -> usize {
        let mut pending = PendingFrees::default();
        let mut looks = 0;
        for at in 0..streams {
            for free in 0..frees {
                if pending.is_crowded() {
                    looks += 1;
                    pending.settled();
                }
                if free == 0 {
                    pending.all.push(free_in(context(0x100 * (at + 1))));
                }
            }
        }
        looks
    }

    #[test]
    fn frees_that_take_long_in_many_streams_are_looked_for_seldom() {
        assert_eq!(looks(STREAMS - 1, 1000), 0);
        assert_eq!(looks(STREAMS + 10, 1000), 1, "once, though all take long");
        assert_eq!(looks(100 * STREAMS, 3), 7, "each time they have doubled");
    }

    #[test]
    fn frees_are_looked_for_as_before_once_few_streams_are_left() {
        let mut pending = PendingFrees::default();
        let fill = |pending: &mut PendingFrees, streams: usize| {
            pending.all.clear();
            pending
                .all
                .extend((0..streams).map(|at| free_in(context(at + 1))));
        };
        fill(&mut pending, 4 * STREAMS);
        assert!(pending.is_crowded());
        assert!(!pending.is_crowded(), "another thread looks already");
        fill(&mut pending, 1);
        pending.settled();
        fill(&mut pending, STREAMS - 1);
        assert!(!pending.is_crowded());
        fill(&mut pending, STREAMS);
        assert!(pending.is_crowded());
    }

    #[test]
    fn frees_of_a_context_that_ends_do_not_come_back() {
        let here = context(0x100);
        let mut pending = PendingFrees::default();
        pending.all.push(free_in(here));
        pending.context_goes(here);
        pending.context_goes(here);
        pending.all.push(free_in(here));
        assert_eq!(pending.context_gone(here).len(), 2);
        pending.context_stays(here);
        assert!(pending.all.is_empty() && pending.going.is_empty());
        assert!(pending.endings.is_empty());
    }
}
