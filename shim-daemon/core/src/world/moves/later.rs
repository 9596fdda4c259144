//! Memory that no tenant gives now, and that can be moved once a tenant has it.

use crate::ids::{DeviceId, TenantId};
use crate::ledger::{Account, Device};
use crate::residency::Place;
use crate::world::World;
use crate::world::pending::Want;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeSet;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Later {
    pub(super) all: Bytes,
    /// The part of it that takes nothing of the host budget then.
    pub(super) managed: Bytes,
}

impl Later {
    fn add(&mut self, account: &Account, bytes: Bytes) {
        self.all += bytes;
        if account.loan.paged {
            self.managed += bytes;
        }
    }
}

impl World {
    /// The memory of tenants that are coming back, what tenants were granted and have not charged
    /// yet, and what ends or leaves, where a tenant that is served `before` the asker counts on
    /// that and can be moved later. Others keep it.
    pub(super) fn moves_later(
        &self,
        device: DeviceId,
        asker: TenantId,
        before: &[TenantId],
    ) -> Later {
        let mut later = Later::default();
        let (Some(books), Some(rotation)) = (self.ledger.get(device), self.residency.on(device))
        else {
            return later;
        };
        for (tenant, resident) in rotation.all().filter(|(tenant, _)| *tenant != asker) {
            let Some(account) = books.account(tenant) else {
                continue;
            };
            match resident.place() {
                Place::Entering => later.add(account, account.load().bytes),
                Place::In if may_move(account) => {
                    later.add(account, account.on_card() - account.in_use);
                }
                _ => {}
            }
        }
        let movable = |tenant: &TenantId| books.account(*tenant).filter(|one| may_move(one));
        if before.iter().any(|tenant| movable(tenant).is_some()) {
            let ends = self.lasting(device).0.taken;
            later.all += ends;
            let mut movable = before.iter().filter_map(movable);
            if movable.any(|account| account.loan.paged) {
                later.managed += ends - self.wanted_by_others(books, device, before);
            }
        }
        later
    }

    /// What tenants of these wait for whose memory stays, or needs the host.
    fn wanted_by_others(&self, books: &Device, device: DeviceId, all: &[TenantId]) -> Bytes {
        let all: BTreeSet<TenantId> = all.iter().copied().collect();
        let others = |tenant: TenantId| {
            let account = books.account(tenant).filter(|_| all.contains(&tenant));
            account.filter(|account| !(account.loan.paged && may_move(account)))
        };
        let asked = self.asks.on(device).filter_map(|(_, pending)| {
            others(pending.tenant).map(|_| match pending.want {
                Want::Credit { bytes, .. } | Want::Physical { bytes, .. } => bytes,
                Want::Context { cost, .. } => cost,
            })
        });
        let away = all.iter().filter_map(|tenant| others(*tenant));
        asked.sum::<Bytes>() + away.map(|account| account.away).sum()
    }
}

fn may_move(account: &Account) -> bool {
    account.loan.moves && account.loan.revocable
}
