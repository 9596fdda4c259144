//! What a tenant that comes back needs beside what it had.

use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::residency::{Place, Resident};
use crate::world::World;
use crate::world::pending::{Pending, Want};
use gpushare_protocol::units::Bytes;

impl World {
    /// The memory that a tenant wants beside its grant: for its waiting asks, or to take again what
    /// it freed just before it left. The tenant needs room for that too. An ask that could not be
    /// granted were all others moved is not waited for: it is decided once the tenant is back.
    pub(super) fn asked_beside(
        &self,
        tenant: TenantId,
        device: DeviceId,
        account: &Account,
    ) -> Bytes {
        let (mut credit, mut contexts) = (account.in_use, Bytes::ZERO);
        for (ask, pending) in self.asks.on(device) {
            if pending.tenant != tenant {
                continue;
            }
            let (level, costs) = match pending.want {
                Want::Credit { bytes, .. } => ((credit + bytes).min(account.ceiling()), contexts),
                Want::Context { cost, more } if more || !self.has_opened(ask.0, device) => {
                    (credit, contexts + cost)
                }
                _ => continue,
            };
            if self.is_firm_for(pending, level, costs) {
                (credit, contexts) = (level, costs);
            }
        }
        let again = self.taken_again(tenant, device).unwrap_or_default();
        let all = again.max(credit + contexts);
        all.min(account.ceiling()) - account.grant
    }

    /// Whether nothing but memory that can be taken back or moved keeps a tenant that is out from
    /// growing its grant to `level`, with contexts of so much beside it: what it asks for together
    /// with `pending`.
    fn is_firm_for(&self, pending: &Pending, level: Bytes, contexts: Bytes) -> bool {
        let (tenant, device) = (pending.tenant, pending.device);
        let Some(books) = self.ledger.get(device) else {
            return false;
        };
        let Some(account) = books.account(tenant) else {
            return false;
        };
        let guaranteed = level <= account.request && self.is_guaranteed(pending);
        // Memory that its dead processes still hold is not available to its live ones.
        if guaranteed && account.limbo.is_zero() {
            return true;
        }
        let need = books.growth(tenant, level, contexts).firm;
        need.is_zero() || need <= self.free_for(pending, guaranteed).firm
    }

    /// The memory that a tenant is expected to have again soon after it is back. That is waited for
    /// while others are in, whose turns end, and for one round at most.
    fn taken_again(&self, tenant: TenantId, device: DeviceId) -> Option<Bytes> {
        let rotation = self.residency.on(device)?;
        let resident = rotation.get(tenant)?;
        let is_in = |one: &Resident| one.place() != Place::Out && !one.is_empty();
        let mut others = rotation.all().filter(|(other, _)| *other != tenant);
        let waits = others.any(|(_, one)| is_in(one));
        let waits = waits && !self.is_overdue(device, resident.returns()?);
        waits.then(|| resident.stay().again())
    }
}
