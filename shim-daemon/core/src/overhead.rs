//! The cost of a context, measured per (GPU, driver) class.
//!
//! The driver takes memory for every process beyond its allocations, before the first allocation.
//! So this memory is reserved ahead, by the measurements of earlier processes. The estimate rises
//! at once and falls slowly: an estimate that is too low breaks the accounts, one that is too high
//! only idles some memory for a while.

use crate::ids::CostClass;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// One part in this many of the distance is given up when a process took less than expected.
const FORGET: u64 = 8;

/// Learned costs. Bytes.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    learned: BTreeMap<CostClass, Bytes>,
}

impl Costs {
    /// The memory to reserve for a new process of this class; `first` before one was measured.
    pub(crate) fn expected(&self, class: CostClass, first: Bytes) -> Bytes {
        self.learned.get(&class).copied().unwrap_or(first)
    }

    /// A process of this class was measured for the first time. `most` bounds the reservation that
    /// one tenant can cause for others.
    pub(crate) fn learn(&mut self, class: CostClass, measured: Bytes, most: Bytes) {
        let measured = measured.min(most);
        let cost = self.learned.entry(class).or_insert(measured);
        *cost = match measured >= *cost {
            true => measured,
            false => *cost - Bytes((cost.0 - measured.0) / FORGET),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: CostClass = CostClass(1);

    #[test]
    fn a_dearer_context_is_believed_at_once_and_a_cheaper_one_slowly() {
        let mut costs = Costs::default();
        assert_eq!(costs.expected(CLASS, Bytes(7)), Bytes(7));
        costs.learn(CLASS, Bytes(100), Bytes::MAX);
        costs.learn(CLASS, Bytes(900), Bytes::MAX);
        assert_eq!(costs.expected(CLASS, Bytes(7)), Bytes(900));
        costs.learn(CLASS, Bytes(100), Bytes::MAX);
        assert_eq!(costs.expected(CLASS, Bytes(7)), Bytes(800));
    }

    #[test]
    fn no_tenant_can_teach_a_cost_above_the_most() {
        let mut costs = Costs::default();
        costs.learn(CLASS, Bytes(1 << 40), Bytes(500));
        assert_eq!(costs.expected(CLASS, Bytes(7)), Bytes(500));
        assert_eq!(costs.expected(CostClass(2), Bytes(7)), Bytes(7));
    }
}
