//! I9: a tenant that waits for the rotation is in within its bound.

use super::Node;
use gpushare_core::{Bytes, DeviceId, Nanos, Notice, TenantId};
use std::collections::{BTreeMap, BTreeSet};

/// The tenants that wait to return.
#[derive(Debug, Default)]
pub struct Returns {
    /// Since when each waits, and until when at the latest as things were then.
    pub waiting: BTreeMap<(TenantId, DeviceId), (Nanos, Nanos)>,
    /// Devices on which all tenants keep the rules though not all do on the node.
    pub trusted: BTreeSet<DeviceId>,
    /// Tenants that do not obey: the bound is the others'.
    pub liars: BTreeSet<TenantId>,
    /// How many returned, and the longest wait in thousandths of its bound.
    pub done: u64,
    pub longest: u64,
}

impl Returns {
    pub(super) fn forget(&mut self, tenant: TenantId) {
        self.waiting.retain(|(of, _), _| *of != tenant);
    }
}

impl Node {
    /// A tenant is in again.
    pub(super) fn returned(&mut self, tenant: TenantId, device: DeviceId) {
        let waited = self.returns.waiting.remove(&(tenant, device));
        if let Some((since, _)) = waited
            && !self.returns.liars.contains(&tenant)
        {
            let bound = self.world.rotation_bound(device, since) - since;
            let part = u128::from((self.now - since).0) * 1000 / u128::from(bound.0.max(1));
            let part = u64::try_from(part).expect("thousandths");
            self.returns.done += 1;
            self.returns.longest = self.returns.longest.max(part);
        }
    }

    /// No tenant waits longer than its bound.
    pub fn check_returns(&mut self) {
        let Returns {
            waiting,
            trusted,
            liars,
            ..
        } = &mut self.returns;
        if !self.guarantees && trusted.is_empty() {
            return;
        }
        for ((_, device), (since, bound)) in waiting.iter_mut() {
            // Requests were granted since that leave no room for it: no turn is certain now.
            if self.world.device(*device).is_none_or(|view| !view.rotates) {
                (*since, *bound) = (self.now, self.now);
            }
        }
        let small = self.policy.swap.host < Bytes::gib(256);
        let full = |one: &Notice| matches!(one, Notice::HostFull { .. });
        if small && self.notices.iter().any(full) {
            return;
        }
        for ((tenant, device), (since, bound)) in waiting.iter() {
            let trusted = self.guarantees || trusted.contains(device);
            let honest = trusted && self.devices[device].foreign.is_zero();
            let bound = self.world.rotation_bound(*device, *since).max(*bound);
            assert!(
                !honest || liars.contains(tenant) || self.now <= bound,
                "I9: {tenant:?} waits for {device:?} since {since:?}, until {bound:?} at the latest"
            );
        }
    }
}
