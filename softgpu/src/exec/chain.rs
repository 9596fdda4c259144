//! Chains: operations that follow one another without a pause on one engine. They are the engine
//! time that a context certainly needs once the first operation runs.
//!
//! A chain is a path: each operation after the first waits only for the operation before it. So the
//! chain takes at least the sum of its operations' times from the moment its first operation
//! begins. That time may be claimed ahead ([`turns`](super::turns)).

use std::collections::HashMap;

use super::engine::{LaneKey, OpId};

/// An operation's place in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// The chain's first operation.
    chain: OpId,
    /// Engine time from the chain's beginning to this operation's end.
    end: u64,
}

#[derive(Debug)]
struct Chain {
    key: LaneKey,
    tail: OpId,
    end: u64,
}

/// All chains that have unfinished operations.
#[derive(Debug, Default)]
pub(super) struct Chains(HashMap<OpId, Chain>);

impl Chains {
    /// Adds `op`, which takes `ns` of the engine `key`, or no engine time (`None`), and waits only
    /// for `before`, if given. Returns its place, and whether an existing chain became longer.
    pub(super) fn add(
        &mut self,
        op: OpId,
        work: Option<(LaneKey, u64)>,
        before: Option<(OpId, Link)>,
    ) -> (Option<Link>, bool) {
        if let Some((before, link)) = before
            && let Some(chain) = self.0.get_mut(&link.chain)
            && chain.tail == before
            && work.is_none_or(|(key, _)| key == chain.key)
        {
            chain.tail = op;
            chain.end += work.map_or(0, |(_, ns)| ns);
            return (
                Some(Link {
                    chain: link.chain,
                    end: chain.end,
                }),
                work.is_some(),
            );
        }
        let Some((key, ns)) = work else {
            return (None, false);
        };
        self.0.insert(
            op,
            Chain {
                key,
                tail: op,
                end: ns,
            },
        );
        (Some(Link { chain: op, end: ns }), false)
    }

    /// Engine time after the operation at this place (ns).
    pub(super) fn ahead(&self, link: Link) -> u64 {
        self.0
            .get(&link.chain)
            .map_or(0, |chain| chain.end - link.end)
    }

    /// The engine of a chain.
    pub(super) fn key(&self, link: Link) -> Option<LaneKey> {
        self.0.get(&link.chain).map(|chain| chain.key)
    }

    /// Notes that `op` is finished; its chain is forgotten if `op` is the last operation.
    pub(super) fn finished(&mut self, op: OpId, link: Link) {
        if self
            .0
            .get(&link.chain)
            .is_some_and(|chain| chain.tail == op)
        {
            self.0.remove(&link.chain);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::EngineKind;
    use super::*;

    const COMPUTE: LaneKey = (1, EngineKind::Compute);

    #[test]
    fn a_chain_counts_the_work_that_follows_alone_on_its_engine() {
        let mut chains = Chains::default();
        let (first, _) = chains.add(1, Some((COMPUTE, 100)), None);
        let first = first.unwrap();
        let (second, longer) = chains.add(2, Some((COMPUTE, 50)), Some((1, first)));
        assert!(longer);
        let (mark, longer) = chains.add(3, None, Some((2, second.unwrap())));
        assert!(!longer, "an operation without engine time");
        chains.add(4, Some((COMPUTE, 7)), Some((3, mark.unwrap())));
        assert_eq!(
            (chains.ahead(first), chains.ahead(second.unwrap())),
            (57, 7)
        );
    }

    #[test]
    fn a_second_successor_and_another_engine_do_not_extend_a_chain() {
        let mut chains = Chains::default();
        let first = chains.add(1, Some((COMPUTE, 100)), None).0.unwrap();
        chains.add(2, Some((COMPUTE, 50)), Some((1, first)));
        assert!(!chains.add(3, Some((COMPUTE, 50)), Some((1, first))).1);
        let third = chains.add(4, Some((COMPUTE, 1)), None).0.unwrap();
        assert!(
            !chains
                .add(5, Some(((1, EngineKind::ToHost), 50)), Some((4, third)))
                .1
        );
        assert_eq!((chains.ahead(first), chains.ahead(third)), (50, 0));
    }

    #[test]
    fn a_finished_chain_is_forgotten() {
        let mut chains = Chains::default();
        let first = chains.add(1, Some((COMPUTE, 100)), None).0.unwrap();
        chains.finished(1, first);
        assert!(chains.0.is_empty());
        assert!(!chains.add(2, Some((COMPUTE, 50)), Some((1, first))).1);
    }
}
