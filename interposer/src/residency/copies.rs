//! Copies between chunks and the host store, in streams of ours, by the mover's thread alone.
//!
//! A move begins the copies of a part, and awaits those of the part before meanwhile. Each of the
//! two has a stream of its own, so that the wait for the first is not one for the second.

use std::collections::{BTreeMap, BTreeSet};

use gpushare_cuda_abi::cuda::{CUcontext, CUresult, CUstream, CUstream_flags};

use super::blocks::Chunk;
use super::host::Piece;
use super::memory::blocks;
use crate::driver::calls;
use crate::driver::current::CurrentContext;
use crate::driver::streams;
use crate::driver::vmm;
use crate::gate::marks::is_over;

/// Most bytes of a part, unless a single chunk has more: an order of the daemon's is seen between
/// two parts, and the device's time for one part is to be longer than the calls for another.
pub(super) const PART: u64 = 32 << 20;

/// How often the driver is asked to wait for copies, where it refuses.
const WAITS: usize = 8;

/// A chunk of a move: its allocation's address, its place in that, and a copy of the chunk.
pub(super) type Place = (u64, usize, Chunk);

/// The stream of a part. The next part has the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    #[default]
    First,
    Second,
}

impl Lane {
    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Streams of ours for the copies, by context. They go with their contexts.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: BTreeMap<(usize, Lane), CUstream>,
    /// The contexts that have failed since the process was sealed.
    failed: BTreeSet<usize>,
}

impl Streams {
    /// A stream of the current context.
    fn of(&mut self, context: CUcontext, lane: Lane) -> Result<CUstream, CUresult> {
        let key = (context.0.addr(), lane);
        if let Some(stream) = self.all.get(&key) {
            return Ok(*stream);
        }
        let made = calls::create_stream(CUstream_flags::NON_BLOCKING)?;
        self.all.insert(key, made);
        Ok(made)
    }

    /// A context has failed: no copy is made in it while another one will do. Whether that is new.
    pub(super) fn has_failed(&mut self, context: usize) -> bool {
        self.failed.insert(context)
    }

    /// Forgets them: their contexts may have ended since. No copy is under way.
    pub(super) fn forget(&mut self) {
        self.failed.clear();
        for ((context, _), stream) in core::mem::take(&mut self.all) {
            let context = CUcontext(core::ptr::with_exposed_provenance_mut(context));
            if let Ok(_current) = CurrentContext::make(context) {
                let _ = calls::destroy_stream(stream);
            }
        }
    }
}

/// Why copies were not made.
#[derive(Debug)]
pub(super) enum Uncopied {
    /// None of them is under way.
    Refused(CUresult),
    /// The driver does not say when those that it has begun are complete.
    UnderWay(CUresult, Begun),
}

impl Uncopied {
    pub(super) fn why(&self) -> CUresult {
        match self {
            Self::Refused(why) | Self::UnderWay(why, _) => *why,
        }
    }
}

/// Copies that were begun.
#[derive(Debug, Default)]
#[must_use = "they use memory until they are awaited"]
pub(super) struct Begun(Vec<(CUcontext, CUstream)>);

impl Begun {
    /// Waits until they are complete.
    pub(super) fn awaited(self) -> Result<(), Uncopied> {
        let mut answer = Ok(());
        let mut under_way = Self::default();
        for (context, stream) in self.0 {
            if let Err(why) = awaited(context, stream) {
                if !is_over(why) {
                    under_way.0.push((context, stream));
                }
                answer = Err(why);
            }
        }
        match answer {
            Err(why) if !under_way.0.is_empty() => Err(Uncopied::UnderWay(why, under_way)),
            answer => answer.map_err(Uncopied::Refused),
        }
    }

    /// Waits again for copies that the driver did not say were complete. `Err`: it still does not.
    pub(super) fn are_over(&mut self) -> Result<(), CUresult> {
        match core::mem::take(self).awaited() {
            Ok(()) | Err(Uncopied::Refused(_)) => Ok(()),
            Err(Uncopied::UnderWay(why, left)) => {
                *self = left;
                Err(why)
            }
        }
    }

    /// Keeps them with others.
    pub(super) fn join(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

/// Waits until our copies are complete. Where the driver refuses to wait, they may still be under
/// way, on memory that is about to be given up: it is asked again, unless nothing runs any more.
/// A context that has failed says so each time, so one such answer alone is no proof.
fn awaited(context: CUcontext, stream: CUstream) -> Result<(), CUresult> {
    let mut last = CUresult::UNKNOWN;
    for _ in 0..WAITS {
        let answer = CurrentContext::make(context).and_then(|_current| vmm::await_stream(stream));
        match answer {
            Ok(()) => return Ok(()),
            Err(why) if is_over(why) && last == why => return Err(why),
            Err(why) => last = why,
        }
    }
    Err(last)
}

/// Begins `copy` of each chunk in a stream of its context; it is given the chunk's place in the
/// list. On an error none is under way, or it says so.
pub(super) fn begun(
    streams: &mut Streams,
    lane: Lane,
    list: &[Place],
    mut copy: impl FnMut(usize, &Chunk, CUstream) -> Result<(), CUresult>,
) -> Result<Begun, Uncopied> {
    let mut begun = Begun::default();
    for (context, places) in by_context(list, &streams.failed)? {
        let answer = CurrentContext::make(context).and_then(|_current| {
            let stream = streams.of(context, lane)?;
            begun.0.push((context, stream));
            let mut places = places.into_iter();
            places.try_for_each(|place| copy(place, &list[place].2, stream))
        });
        if let Err(why) = answer {
            // Those before the refusal use memory of ours.
            begun.awaited()?;
            return Err(Uncopied::Refused(why));
        }
    }
    Ok(begun)
}

/// Runs the copies of one context after those of the other, and waits for each.
pub(super) fn copied(
    streams: &mut Streams,
    list: &[Place],
    mut copy: impl FnMut(usize, &Chunk, CUstream) -> Result<(), CUresult>,
) -> Result<(), Uncopied> {
    for (context, places) in by_context(list, &streams.failed)? {
        let _current = CurrentContext::make(context).map_err(Uncopied::Refused)?;
        let stream = streams
            .of(context, Lane::First)
            .map_err(Uncopied::Refused)?;
        let made = places
            .into_iter()
            .try_for_each(|place| copy(place, &list[place].2, stream));
        // Also behind a refusal: those before it use memory of ours.
        Begun(vec![(context, stream)]).awaited()?;
        made.map_err(Uncopied::Refused)?;
    }
    Ok(())
}

/// The places in the list of each context's chunks.
fn by_context(
    list: &[Place],
    failed: &BTreeSet<usize>,
) -> Result<Vec<(CUcontext, Vec<usize>)>, Uncopied> {
    let mut all: BTreeMap<usize, (CUcontext, Vec<usize>)> = BTreeMap::new();
    for (place, (base, ..)) in list.iter().enumerate() {
        let handle = context_for(*base, failed);
        let handle = handle.ok_or(Uncopied::Refused(CUresult::INVALID_VALUE))?;
        let of = all.entry(handle.0.addr());
        of.or_insert((handle, Vec::new())).1.push(place);
    }
    Ok(all.into_values().collect())
}

/// A context in which an allocation can be copied: its own, or one of its device, that has not
/// `failed` if there is one.
fn context_for(base: u64, failed: &BTreeSet<usize>) -> Option<CUcontext> {
    let device = {
        let blocks = blocks();
        match blocks.map.get(&base) {
            Some(block) if block.pool.is_none() => return Some(block.handle),
            Some(block) => block.device,
            None => blocks.owns.map.get(&base)?.device,
        }
    };
    let contexts = streams::contexts_on(device.index());
    let mut living = contexts.iter();
    let living = living.find(|(context, _)| !failed.contains(&context.0.addr()));
    living
        .or_else(|| contexts.first())
        .map(|(context, _)| *context)
}

/// Copies between a chunk and its pieces, in their order.
pub(super) fn each_piece(
    chunk: &Chunk,
    pieces: &[Piece],
    mut address: impl FnMut(Piece) -> Result<usize, CUresult>,
    mut copy: impl FnMut(usize, u64, usize) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let mut at = chunk.at;
    for piece in pieces {
        let host = address(*piece)?;
        copy(host, at, length(piece.bytes))?;
        at += piece.bytes;
    }
    Ok(())
}

pub(super) fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
