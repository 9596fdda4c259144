//! Where the answers to open asks go.

use std::collections::BTreeMap;

use gpushare_core::{AskKey, DeviceId, Nanos, ProcessId, TenantId};
use gpushare_protocol::units::Bytes;

use super::ConnId;

/// An open ask.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Where its answer goes, and under which request.
    pub(super) to: (ConnId, u32),
    pub(super) tenant: TenantId,
    pub(super) device: DeviceId,
    pub(super) since: Nanos,
    /// What its tenant has charged once it is granted. `None`: it asks for a context.
    pub(super) bytes: Option<Bytes>,
    /// Whether the driver refused what was within the grant.
    pub(super) driver_refused: bool,
}

/// See the module's page. Each ask is answered once.
#[derive(Debug, Default)]
pub(super) struct Asks(BTreeMap<AskKey, Asked>);

impl Asks {
    /// An ask came. False: one of that number is open.
    pub(super) fn add(&mut self, ask: AskKey, asked: Asked) -> bool {
        self.0.insert(ask, asked).is_none()
    }

    /// Takes an ask that is answered now. `None`: it was.
    pub(super) fn take(&mut self, ask: AskKey) -> Option<Asked> {
        self.0.remove(&ask)
    }

    /// A process's open asks, or those that came over one connection.
    pub(super) fn of(&self, process: ProcessId, over: Option<ConnId>) -> Vec<AskKey> {
        let open = self.0.iter().filter(|((asker, _), asked)| {
            *asker == process && over.is_none_or(|over| asked.to.0 == over)
        });
        open.map(|(ask, _)| *ask).collect()
    }

    /// A process has ended: its answers are not awaited any more.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.0.retain(|(asker, _), _| *asker != process);
    }
}
