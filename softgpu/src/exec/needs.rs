//! Memory that an operation needs from its beginning to its end, as its kind and its arguments say.
//!
//! The bytes of an operation move in one moment, at its end or later. A device touches them at any
//! time from the beginning on. So an operation faults if a mapping that it needs is away when it
//! begins, and if one is taken before the work is known to be over: also where the memory is back
//! before the bytes move.

use gpushare_cuda_abi::cuda::CUresult;

use super::engine::{Operation, Phase, Timeline, Work};
use super::lock;
use super::op::{Demand, Touch};
use crate::context::Context;
use crate::memory::managed::{Accessed, Manner};
use crate::memory::{is_reached, vmm};
use crate::va::Access;

/// The needs of an operation.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The touch of managed memory when it begins.
    pub(super) touch: Option<Touch>,
    /// The ranges in reservations of the application: address, bytes, access.
    mapped: Vec<(u64, u64, Access)>,
}

impl Needs {
    /// The needs of an operation that touches managed memory so, and accesses these ranges.
    pub(super) fn of(touch: Option<Touch>, ranges: &[Accessed]) -> Self {
        let is_mapped =
            |(address, len, _): &&Accessed| *len > 0 && vmm::reservation(*address).is_some();
        let access = |manner| match manner {
            Manner::Write => Access::Write,
            _ => Access::Read,
        };
        let ranges = ranges.iter().filter(is_mapped);
        let mapped = ranges.map(|(address, len, manner)| (*address, *len, access(*manner)));
        Self {
            touch,
            mapped: mapped.collect(),
        }
    }

    /// The time of an operation of `context` that begins now. It loses the context if it lacks
    /// memory.
    pub(super) fn begin(&self, demand: Demand, context: &Context) -> Demand {
        let lacks =
            |(address, len, access): &(u64, u64, Access)| !is_reached(*address, *len, *access);
        if context.check().is_ok() && self.mapped.iter().any(lacks) {
            context.poison(CUresult::ILLEGAL_ADDRESS);
        }
        let more = self
            .touch
            .as_ref()
            .map_or(0, |touch| touch.ns(context.device()));
        Demand {
            ns: demand.ns.saturating_add(more),
            ..demand
        }
    }

    fn overlap(&self, base: u64, len: u64) -> bool {
        let overlaps = |(address, bytes, _): &(u64, u64, Access)| {
            *address < base.saturating_add(len) && base < address.saturating_add(*bytes)
        };
        self.mapped.iter().any(overlaps)
    }
}

impl Timeline {
    /// The operations that may have begun and are not known to be over.
    fn under_way(&self) -> impl Iterator<Item = &Operation> {
        let nodes = self.nodes.values();
        nodes.filter(|node| node.phase != Phase::Queued)
    }
}

/// Loses the contexts of all work under way that needs a part of a mapping, which is taken now.
/// Nothing runs any more in a context that was lost before, though no wait says that it is over.
pub(crate) fn taken(base: u64, len: u64) {
    let mut timeline = lock();
    timeline.catch_up();
    let runs = |node: &&Operation| node.context.check().is_ok();
    for node in timeline.under_way().filter(runs) {
        if let Work::Engine(_, needs) = &node.work
            && needs.overlap(base, len)
        {
            node.context.poison(CUresult::ILLEGAL_ADDRESS);
        }
    }
}
