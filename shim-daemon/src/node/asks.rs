//! The open asks: the connection that each answer goes to, and what the ask contains.

use std::collections::BTreeMap;

use gpushare_core::{AskKey, Nanos, ProcessId};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::Ask;

use super::ConnId;

/// See the module's page. Each ask is answered once.
#[derive(Debug, Default)]
pub(super) struct Asks(BTreeMap<AskKey, (ConnId, u32)>);

impl Asks {
    /// An ask came over this connection, in this request. False: one of that number is open.
    pub(super) fn add(&mut self, ask: AskKey, to: ConnId, id: u32) -> bool {
        self.0.insert(ask, (to, id)).is_none()
    }

    /// Takes an ask that is answered now. `None`: it was.
    pub(super) fn take(&mut self, ask: AskKey) -> Option<(ConnId, u32)> {
        self.0.remove(&ask)
    }

    /// A process's open asks, or those that came over one connection.
    pub(super) fn of(&self, process: ProcessId, over: Option<ConnId>) -> Vec<AskKey> {
        let open = self.0.iter().filter(|((asker, _), (to, _))| {
            *asker == process && over.is_none_or(|over| *to == over)
        });
        open.map(|(ask, _)| *ask).collect()
    }

    /// A process has ended: its answers are not awaited any more.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.0.retain(|(asker, _), _| *asker != process);
    }
}

/// The bytes that a tenant would be charged, and whether the driver has refused them.
pub(super) fn charges(ask: &Ask, driver: bool) -> (Bytes, bool) {
    let more = if driver { 0 } else { ask.bytes };
    (Bytes(ask.held.saturating_add(more)), driver)
}

/// The bytes that a tenant holds and wants, and how long it waits.
pub(super) fn amounts(ask: &Ask) -> (Bytes, Bytes, Option<Nanos>) {
    let patience = ask.patience_ms.map(Nanos::millis);
    (Bytes(ask.held), Bytes(ask.bytes), patience)
}
