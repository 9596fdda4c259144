//! A tenant's limit, less the memory that its own dead processes still hold.
//!
//! Bytes of a dead process count against their tenant's limit until the device no longer shows
//! them. An ask that fits the limit but not beside them waits for them. It is not above the limit,
//! and no other tenant has to give memory.

use super::World;
use super::pending::Pending;
use super::settle::Pass;
use crate::decision::{Answer, Decision, Denial};
use crate::ids::{AskKey, DeviceId, ProcessId, TenantId};
use crate::ledger::Account;
use crate::limbo::Limbo;
use crate::resolver::Resolver;
use crate::room::Room;
use gpushare_protocol::units::Bytes;

impl World {
    /// An ask of which `over` bytes must first come back from its tenant's dead processes. It waits
    /// as its resolvers say. If they do not wait, it waits as long as the bytes count as on their
    /// way.
    pub(super) fn wait_for_dead(
        &mut self,
        pass: &mut Pass,
        ask: AskKey,
        pending: &Pending,
        over: Bytes,
    ) {
        let coming = self.dead_coming(pending.tenant, pass.device) >= over;
        if coming {
            pass.coming.lasting = pass.coming.lasting - Room::both(over);
            self.tell_waiting(ask, over, None);
        } else if self.is_guaranteed(pending) || self.waits(pending.tenant) {
            self.tell_waiting(ask, over, Some(Resolver::Wait));
        } else {
            let denial = Denial::NoRoom { short: over };
            self.answer(ask, Answer::Denied(denial));
        }
    }

    /// Whether its own dead are in its way.
    pub(super) fn is_beside_dead(&self, pending: &Pending) -> bool {
        let account = self.ledger.account(pending.device, pending.tenant);
        account.is_some_and(|account| pending.want.beside_dead(account))
    }

    fn waits(&self, tenant: TenantId) -> bool {
        let known = self.tenants.get(tenant);
        known.is_some_and(|known| known.spec().on_collision.contains(&Resolver::Wait))
    }

    /// The part of its limit that its dead processes may give back soon.
    fn dead_coming(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let limbo = self.ledger.get(device).map(|books| books.limbo());
        let limbo = limbo.into_iter().flatten().map(|(_, entry)| entry);
        let coming = limbo.filter(|entry| {
            let own = entry.tenant == Some(tenant);
            own && entry.since + self.policy.limbo_grace(entry) > self.timers.now()
        });
        coming.map(|entry| entry.charged).sum()
    }

    /// A dead process of the previous daemon: its memory counts until a look shows otherwise.
    pub(super) fn remembered(
        &mut self,
        process: ProcessId,
        tenant: TenantId,
        device: DeviceId,
        (bytes, charged): (Bytes, Bytes),
    ) {
        let known = self.ledger.get_mut(device);
        let Some(books) = known.filter(|books| books.account(tenant).is_some()) else {
            return;
        };
        let charged = charged.min(bytes);
        let paged = |account: &Account| account.loan.paged;
        let is_paged = books.account(tenant).is_some_and(paged);
        let entry = Limbo {
            tenant: Some(tenant),
            bytes,
            charged,
            told: charged,
            overhead: bytes - charged,
            most: if is_paged { bytes } else { Bytes::MAX },
            evictable: Bytes::ZERO,
            since: self.timers.now(),
            ended: false,
        };
        books.reap(process, entry);
        self.show_grant(tenant, device);
        self.facts_changed(device);
        self.look_soon(device);
    }

    /// A process that died while there was no daemon, by its row. Beside its tenant's other dead it
    /// held no more than the tenant could have, and no more than the device has. A row that names a
    /// dead process of another tenant says nothing.
    pub(super) fn unseen(
        &mut self,
        process: ProcessId,
        tenant: TenantId,
        device: DeviceId,
        charged: Bytes,
    ) {
        let most = self.ledger.get(device).and_then(|books| {
            let account = books.account(tenant)?;
            let mut dead = books.limbo();
            let known = dead.find(|(dead, _)| *dead == process);
            let is_own = known.is_none_or(|(_, entry)| entry.tenant == Some(tenant));
            is_own.then_some(())?;
            Some(account.most_presented().min(books.capacity()) - account.limbo_charged)
        });
        let charged = charged.min(most.unwrap_or(Bytes::ZERO));
        if !charged.is_zero() {
            self.remembered(process, tenant, device, (charged, charged));
        }
    }

    /// Updates the grant in the control page if it changed.
    pub(super) fn show_grant(&mut self, tenant: TenantId, device: DeviceId) {
        let changed = self.ledger.change(device, tenant, |account| {
            let due = account.page_due();
            (std::mem::replace(&mut account.page, due) != due).then_some(due)
        });
        if let Some(grant) = changed.flatten() {
            self.decide(Decision::SetGrant {
                tenant,
                device,
                grant,
            });
        }
    }

    /// [`Self::show_grant`] for all tenants on a device: its dead may hold less now.
    pub(super) fn show_grants(&mut self, device: DeviceId) {
        let Some(books) = self.ledger.get(device) else {
            return;
        };
        let due = books
            .accounts()
            .filter(|(_, account)| account.page != account.page_due());
        let due: Vec<TenantId> = due.map(|(tenant, _)| tenant).collect();
        for tenant in due {
            self.show_grant(tenant, device);
        }
    }
}
