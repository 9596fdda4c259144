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
        if let Some(times) = waited {
            self.check_turn((tenant, device), times);
        }
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
        let small = self.policy.swap.host < Bytes::gib(256);
        let full = |one: &Notice| matches!(one, Notice::HostFull { .. });
        let excused = small && self.notices.iter().any(full);
        for device in self.devices.keys().copied().collect::<Vec<_>>() {
            self.count_turns_anew(device);
            if !excused {
                self.check_turns(device);
            }
        }
    }

    /// The same on one device of a node that does not keep its notices.
    pub(super) fn check_returns_to(&mut self, device: DeviceId) {
        self.count_turns_anew(device);
        self.check_turns(device);
    }

    /// From now on turns are certain on a device, and were not.
    pub fn trusts(&mut self, device: DeviceId) {
        let waits = self.returns.waiting.iter_mut();
        for (_, times) in waits.filter(|((_, on), _)| *on == device) {
            *times = (self.now, self.now);
        }
        self.returns.trusted.insert(device);
    }

    /// Where requests were granted that leave no room for all, no turn is certain now.
    fn count_turns_anew(&mut self, device: DeviceId) {
        let view = self.world.device(device);
        if view.is_some_and(|view| view.rotates) {
            return;
        }
        let waits = self.returns.waiting.iter_mut();
        for (_, times) in waits.filter(|((_, on), _)| *on == device) {
            *times = (self.now, self.now);
        }
    }

    fn check_turns(&self, device: DeviceId) {
        let waiting = self.returns.waiting.iter();
        for (wait, times) in waiting.filter(|((_, on), _)| *on == device) {
            self.check_turn(*wait, *times);
        }
    }

    /// A tenant waits, or waited until now, no longer than its bound.
    fn check_turn(&self, (tenant, device): (TenantId, DeviceId), (since, bound): (Nanos, Nanos)) {
        let trusted = self.guarantees || self.returns.trusted.contains(&device);
        let honest = trusted && self.devices[&device].foreign.is_zero();
        let in_time = || {
            let latest = self.world.rotation_bound(device, since);
            self.now <= bound.max(latest)
        };
        assert!(
            !honest || self.returns.liars.contains(&tenant) || self.now <= bound || in_time(),
            "I9: {tenant:?} waits for {device:?} since {since:?}, until {bound:?} at the latest"
        );
    }
}
