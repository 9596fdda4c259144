//! Host memory for tenants' memory: each range is a memory file of its own, made and allocated by
//! the daemon, so that its pages count for the daemon's memory cgroup and a full host shows here.
//!
//! A range is one process's: no other gets its descriptor, so no tenant can read another's bytes.

use std::collections::BTreeMap;

use gpushare_core::ProcessId;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Refusal, Reply};

use super::{Client, Effect, Node};
use crate::pages::host_range;

/// The longest range. Allocating it takes the daemon's only thread about 15 ms, in which no tenant
/// is answered. A process that wants more asks again.
const PIECE: Bytes = Bytes::mib(64);

/// The node's budget of host memory, and the part that each process has of it.
#[derive(Debug)]
pub(super) struct HostStore {
    budget: Bytes,
    given: BTreeMap<ProcessId, Bytes>,
}

impl HostStore {
    pub(super) fn new(budget: Bytes) -> Self {
        Self {
            budget,
            given: BTreeMap::new(),
        }
    }

    /// The node's budget.
    pub(super) fn budget(&self) -> Bytes {
        self.budget
    }

    fn free(&self) -> Bytes {
        self.budget - self.given.values().copied().sum()
    }

    fn give(&mut self, process: ProcessId, bytes: Bytes) {
        *self.given.entry(process).or_default() += bytes;
    }

    /// A process of the previous daemon reports so much. A false report takes from its own part
    /// only.
    pub(super) fn found(&mut self, process: ProcessId, bytes: Bytes) {
        let bytes = bytes.min(self.budget);
        let own = self.given.entry(process).or_default();
        *own = bytes.max(*own);
    }

    /// A process says that it uses a range no more. The file is gone with its last mapping.
    pub(super) fn drop_range(&mut self, process: ProcessId, _offset: u64, bytes: u64) {
        if let Some(own) = self.given.get_mut(&process) {
            *own -= Bytes(bytes);
        }
    }

    pub(super) fn forget(&mut self, process: ProcessId) {
        self.given.remove(&process);
    }
}

impl Node {
    /// Answers a request for host memory.
    pub(super) fn give_host(&mut self, client: Client, process: ProcessId, id: u32, bytes: u64) {
        let wanted = Bytes(bytes).round_up(Bytes::mib(2)).min(PIECE);
        let refused = wanted.is_zero() || wanted > self.residency.host.free();
        if refused || !client.moves {
            let reply = Reply::Refused(Refusal::NoMemory);
            return self.reply(client.connection, id, reply);
        }
        match host_range(wanted.0) {
            Ok(file) => {
                self.residency.host.give(process, wanted);
                self.effect(Effect::Client {
                    to: client.connection,
                    id,
                    reply: Reply::HostRange {
                        offset: 0,
                        bytes: wanted.0,
                    },
                    descriptors: vec![file],
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no host memory for a tenant");
                let reply = Reply::Refused(Refusal::NoMemory);
                self.reply(client.connection, id, reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_claims_or_drops_changes_its_own_part_only() {
        let mut store = HostStore::new(Bytes::gib(4));
        let (one, other) = (ProcessId(1), ProcessId(2));
        store.give(one, Bytes::gib(1));
        store.give(other, Bytes::gib(1));
        store.drop_range(one, 0, u64::MAX);
        assert_eq!(store.free(), Bytes::gib(3));
        store.found(one, Bytes::MAX);
        assert_eq!(
            store.free(),
            Bytes::ZERO,
            "it holds the whole budget at most"
        );
        store.forget(one);
        assert_eq!(store.free(), Bytes::gib(3));
    }
}
