//! The time of all devices of a node, and the gangs that are steered as one on several of them.

use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::lease::{
    Band, Bands, DeviceTally, DeviceTime, Lease, LeasePolicy, Output, ShareView, SharingView,
};
use crate::time::Nanos;
use std::collections::BTreeMap;

/// See the module's page. The effects of inputs to a device are carried out once [`Self::decided`]
/// is called.
#[derive(Debug)]
pub(super) struct Leases {
    policy: LeasePolicy,
    devices: BTreeMap<DeviceId, DeviceTime>,
    bands: Bands,
}

/// A device's decisions, and the time of its next call if no event comes before.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) device: DeviceId,
    pub(super) outputs: Vec<Output>,
    pub(super) next: Option<Nanos>,
}

impl Leases {
    pub(super) fn new(policy: LeasePolicy) -> Self {
        Self {
            policy,
            devices: BTreeMap::new(),
            bands: Bands::default(),
        }
    }

    pub(super) fn add(&mut self, device: DeviceId) {
        let policy = self.policy;
        let time = self.devices.entry(device);
        time.or_insert_with(|| DeviceTime::new(policy));
    }

    pub(super) fn remove(&mut self, device: DeviceId) {
        self.devices.remove(&device);
    }

    /// Calls `what` with the schedule of one device.
    pub(super) fn tell(&mut self, device: DeviceId, what: impl FnOnce(&mut DeviceTime)) {
        if let Some(time) = self.devices.get_mut(&device) {
            what(time);
        }
    }

    /// Other settings from now on.
    pub(super) fn set_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.policy = policy;
        for time in self.devices.values_mut() {
            time.set_policy(now, policy);
        }
    }

    /// The gangs there are.
    pub(super) fn bands(&self) -> Vec<Band> {
        self.bands.all()
    }

    /// Finds out anew where a gang is.
    pub(super) fn form(&mut self, now: Nanos, band: Band, members: &[TenantId]) {
        self.bands.form(now, &mut self.devices, band, members);
    }

    pub(super) fn has_bands(&self) -> bool {
        !self.bands.is_empty()
    }

    /// The decisions: of all devices where there are gangs, which may have moved all of them, or
    /// where no `device` is named.
    pub(super) fn decided(&mut self, now: Nanos, device: Option<DeviceId>) -> Vec<Decided> {
        let one = device.filter(|_| self.bands.is_empty());
        if let Some(device) = one {
            let time = self.devices.get_mut(&device);
            return time
                .map(|time| decided((&device, time)))
                .into_iter()
                .collect();
        }
        self.bands.settle(now, &mut self.devices);
        self.devices.iter_mut().map(decided).collect()
    }

    /// The devices whose processes' pages are to be read at `now`, each with those processes.
    pub(super) fn due_samples(&self, now: Nanos) -> Vec<(DeviceId, Vec<ProcessId>)> {
        let due = self.devices.iter().filter(|(_, time)| {
            let next = time.next_sample();
            next.is_some_and(|at| at <= now)
        });
        due.map(|(device, time)| (*device, time.processes()))
            .collect()
    }

    /// The devices whose pages are read now and then, and that a process has worked on, each with
    /// their processes: its page is read once more before it goes.
    pub(super) fn last_samples(&self, process: ProcessId) -> Vec<(DeviceId, Vec<ProcessId>)> {
        let steered = self.devices.iter().filter_map(|(device, time)| {
            time.next_sample()?;
            let processes = time.processes();
            processes.contains(&process).then_some((*device, processes))
        });
        steered.collect()
    }

    /// When pages are to be read next.
    pub(super) fn next_sample(&self) -> Option<Nanos> {
        let devices = self.devices.values();
        devices.filter_map(DeviceTime::next_sample).min()
    }

    /// How a device is shared now. `None`: it is not known.
    pub(super) fn sharing(&self, now: Nanos, device: DeviceId) -> Option<SharingView> {
        Some(self.devices.get(&device)?.sharing(now))
    }

    /// The counters of a device. `None`: the device is not known.
    pub(super) fn tally(&self, device: DeviceId) -> Option<DeviceTally> {
        Some(self.devices.get(&device)?.tally())
    }

    /// The lease of a tenant's page on a device. `None`: it has no context there.
    pub(super) fn lease(&self, tenant: TenantId, device: DeviceId) -> Option<Lease> {
        self.devices.get(&device)?.lease(tenant)
    }

    /// A tenant's share of a device. `None`: it has no context there.
    pub(super) fn share(
        &self,
        now: Nanos,
        tenant: TenantId,
        device: DeviceId,
    ) -> Option<ShareView> {
        self.devices.get(&device)?.share(tenant, now)
    }

    /// [`DeviceTime::check`] of a device.
    ///
    /// # Errors
    /// As there.
    pub(super) fn check(&self, device: DeviceId) -> Result<(), String> {
        self.devices.get(&device).map_or(Ok(()), DeviceTime::check)
    }
}

fn decided((device, time): (&DeviceId, &mut DeviceTime)) -> Decided {
    Decided {
        device: *device,
        outputs: std::iter::from_fn(|| time.poll()).collect(),
        next: time.next_timeout(),
    }
}
