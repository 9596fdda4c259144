//! I9: a tenant that waits for the rotation is in within its bound: within what the brain promises,
//! and within the two rounds that follow from the tenants' terms.

use super::Node;
use gpushare_core::{Bytes, DeviceId, Nanos, Notice, TenantId};
use std::collections::{BTreeMap, BTreeSet};

/// A tenant waits to return.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    since: Nanos,
    /// Until when at the latest by the brain's bound, as things were then.
    promised: Nanos,
    /// The same by the bound of `bound.rs`.
    most: Nanos,
}

/// The tenants that wait to return.
#[derive(Debug, Default)]
pub struct Returns {
    pub waiting: BTreeMap<(TenantId, DeviceId), Wait>,
    /// Devices on which all tenants keep the rules though not all do on the node.
    pub trusted: BTreeSet<DeviceId>,
    /// Tenants that do not obey: the bound is the others'.
    pub liars: BTreeSet<TenantId>,
    /// By how much the brain lengthens the stays on each device.
    pub stretch: BTreeMap<DeviceId, u64>,
    /// How many returned for which the bound holds, and the longest wait in thousandths of the
    /// bound of `bound.rs`.
    pub done: u64,
    pub longest: u64,
}

impl Returns {
    pub(super) fn forget(&mut self, tenant: TenantId) {
        self.waiting.retain(|(of, _), _| *of != tenant);
    }

    /// A tenant that waits for a device can do nothing on others: its waits for those begin now.
    fn begin_beside(&mut self, device: DeviceId, now: Nanos) {
        let own = self.waiting.keys().filter(|(_, on)| *on == device);
        let own: BTreeSet<TenantId> = own.map(|(tenant, _)| *tenant).collect();
        let waits = self.waiting.iter_mut();
        for (_, wait) in waits.filter(|((of, on), _)| *on != device && own.contains(of)) {
            *wait = Wait {
                since: now,
                promised: now,
                most: now,
            };
        }
    }

    /// Each wait for a device begins now.
    fn begin_anew(&mut self, device: DeviceId, now: Nanos) {
        let waits = self.waiting.iter_mut();
        for (_, wait) in waits.filter(|((_, on), _)| *on == device) {
            *wait = Wait {
                since: now,
                promised: now,
                most: now,
            };
        }
    }
}

impl Node {
    /// A tenant waits to return, from now on or still.
    pub(super) fn note_return(&mut self, tenant: TenantId, device: DeviceId) {
        let known = self.returns.waiting.get(&(tenant, device));
        let since = known.map_or(self.now, |wait| wait.since);
        let wait = Wait {
            since,
            promised: self.world.rotation_bound(device, since),
            most: since + self.two_rounds(device),
        };
        self.returns.waiting.insert((tenant, device), wait);
    }

    /// A tenant is in again.
    pub(super) fn returned(&mut self, tenant: TenantId, device: DeviceId) {
        let Some(wait) = self.returns.waiting.remove(&(tenant, device)) else {
            return;
        };
        self.check_turn((tenant, device), wait);
        if self.has_turn((tenant, device)) {
            let most = wait.most.max(wait.since + self.two_rounds(device)) - wait.since;
            let part = u128::from((self.now - wait.since).0) * 1000 / u128::from(most.0.max(1));
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
        self.returns.begin_anew(device, self.now);
        self.returns.trusted.insert(device);
    }

    /// Where requests were granted that leave no room for all, no turn is certain now.
    fn count_turns_anew(&mut self, device: DeviceId) {
        let view = self.world.device(device);
        let rotates = view.is_some_and(|view| view.rotates);
        if !rotates {
            self.returns.begin_anew(device, self.now);
        }
        if !rotates || !self.is_honest(device) {
            self.returns.begin_beside(device, self.now);
        }
    }

    fn check_turns(&self, device: DeviceId) {
        let waiting = self.returns.waiting.iter();
        for (of, wait) in waiting.filter(|((_, on), _)| *on == device) {
            self.check_turn(*of, *wait);
        }
    }

    /// Whether all on a device keep the rules, and no stranger has memory there.
    pub(super) fn is_honest(&self, device: DeviceId) -> bool {
        let trusted = self.guarantees || self.returns.trusted.contains(&device);
        trusted && self.devices[&device].foreign.is_zero()
    }

    /// Whether the bound holds for a tenant's waits.
    fn has_turn(&self, (tenant, device): (TenantId, DeviceId)) -> bool {
        self.is_honest(device) && !self.returns.liars.contains(&tenant)
    }

    /// A tenant waits, or waited until now, no longer than its bound.
    fn check_turn(&self, of: (TenantId, DeviceId), wait: Wait) {
        if self.now <= wait.promised.min(wait.most) || !self.has_turn(of) {
            return;
        }
        let (tenant, device) = of;
        let promised = self.world.rotation_bound(device, wait.since);
        assert!(
            self.now <= wait.promised.max(promised),
            "I9: {tenant:?} waits for {device:?} until {:?} at the latest: {wait:?}",
            wait.promised.max(promised)
        );
        let most = wait.since + self.two_rounds(device);
        assert!(
            self.now <= wait.most.max(most),
            "I9: {tenant:?} waits for {device:?} longer than until {:?}: {wait:?}",
            wait.most.max(most)
        );
    }
}
