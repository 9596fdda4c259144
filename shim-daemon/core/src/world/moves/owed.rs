//! Of equals that wait the one goes first that had the card for less. That is owed to it, and it is
//! bounded: a tenant is ahead of the least that works or waits by its memory for a round at most.
//! Without a bound one that was quiet for hours would have every second turn for as many hours.
//! Why: ADR 270.

use crate::ids::{DeviceId, TenantId};
use crate::residency::{Place, residency};
use crate::world::World;
use crate::world::pending::Want;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

impl World {
    /// A tenant starts at the least residency of the others: it owes and claims nothing. It is new,
    /// or waits here and is stalled.
    pub(in crate::world) fn claims_nothing(&mut self, tenant: TenantId, device: DeviceId) {
        let rotation = self.residency.on(device).into_iter();
        let others = rotation.flat_map(|rotation| rotation.all());
        let others = others.filter(|(other, one)| *other != tenant && !one.is_empty());
        let least = others
            .map(|(other, _)| self.used_so_far(other, device))
            .min();
        let resident = self.residency.get_mut(device, tenant);
        if let Some((resident, least)) = resident.zip(least) {
            resident.start_at(least);
        }
    }

    /// Each tenant that waits here counts as having had as much as any equal that works or waits,
    /// but for its own memory for a round.
    pub(in crate::world) fn bound_owed(&mut self, device: DeviceId) {
        let waiting = self.waiting_residents(device);
        if waiting.is_empty() {
            return;
        }
        let round = self.round(device);
        let active = self.active_residents(device, &waiting);
        for (tenant, asked) in waiting {
            let priority = self.tenants.priority(tenant);
            let others = active.iter().filter(|(other, ..)| *other != tenant);
            let equals = others.filter(|(_, of, _)| *of == priority);
            let Some(least) = equals.map(|(.., had)| *had).min() else {
                continue;
            };
            let lead = residency(self.load(tenant, device).bytes + asked, round);
            let floor = least.saturating_sub(lead);
            let more = floor.saturating_sub(self.used_so_far(tenant, device));
            if let Some(resident) = self.residency.get_mut(device, tenant) {
                resident.had_more(more);
            }
        }
    }

    /// The tenants that swap and wait for a device, to return or for so much memory.
    fn waiting_residents(&self, device: DeviceId) -> BTreeMap<TenantId, Bytes> {
        let returning = self.returning(device);
        let returning = returning.map(|(tenant, _)| (tenant, Bytes::ZERO));
        let mut waiting: BTreeMap<TenantId, Bytes> = returning.collect();
        for (_, pending) in self.asks.on(device) {
            if self.residency.get(device, pending.tenant).is_some() {
                let asked = waiting.entry(pending.tenant).or_default();
                if let Want::Credit { bytes, .. } = pending.want {
                    *asked += bytes;
                }
            }
        }
        waiting
    }

    /// Those, and the tenants that are in and work: their priorities, and what they have had.
    fn active_residents(
        &self,
        device: DeviceId,
        waiting: &BTreeMap<TenantId, Bytes>,
    ) -> Vec<(TenantId, u16, u64)> {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        let active = all.filter(|(tenant, resident)| {
            let known = self.tenants.get(*tenant);
            let works = known.is_some_and(|known| !known.is_idle());
            let has = !self.in_use(*tenant, device).is_zero();
            waiting.contains_key(tenant) || (works && has && resident.place() == Place::In)
        });
        let had = |tenant| self.used_so_far(tenant, device);
        active
            .map(|(tenant, _)| (tenant, self.tenants.priority(tenant), had(tenant)))
            .collect()
    }
}
