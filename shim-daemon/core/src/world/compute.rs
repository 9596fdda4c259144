//! Compute in the world: which tenants take turns on which device, and what their schedules
//! decide.

use super::World;
use crate::decision::{Decision, Notice};
use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::lease::{DeviceTally, Input, Lease, LeasePolicy, Output, ShareView, SharingView, Work};
use crate::spec::{SpecError, TenantSpec};
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Permille;

impl World {
    /// A process has a context and obeys this daemon's page: it takes turns from now on. A process
    /// that still obeys the previous daemon's page is bound by that page's last content.
    pub(super) fn joins_device(&mut self, process: ProcessId, device: DeviceId) {
        let Some(known) = self
            .tenants
            .process(process)
            .filter(|known| known.is_adopted())
        else {
            return;
        };
        let (tenant, gated) = (known.tenant(), known.is_gated());
        let Some(owner) = self.tenants.get(tenant) else {
            return;
        };
        let joined = Input::Joined {
            tenant,
            process,
            gated,
            class: owner.spec().priority,
            compute: owner.spec().compute(device),
        };
        self.tell_device(device, joined);
        self.is_member(process, device);
    }

    /// A tenant's terms changed.
    pub(super) fn change_terms(&mut self, tenant: TenantId, device: DeviceId) {
        let Some(known) = self.tenants.get(tenant) else {
            return;
        };
        let changed = Input::Set {
            tenant,
            class: known.spec().priority,
            compute: known.spec().compute(device),
        };
        self.tell_device(device, changed);
    }

    /// Tells a device's schedule what happened.
    pub(super) fn tell_device(&mut self, device: DeviceId, input: Input) {
        let now = self.timers.now();
        self.leases.tell(device, |time| time.handle(now, input));
        let bands = self.leases.has_bands();
        match input {
            Input::Joined { tenant, .. } | Input::Set { tenant, .. } => {
                self.form_bands(Some(tenant));
            }
            Input::Left { .. } => self.form_bands(None),
            _ => {}
        }
        // A process that has ended leaves decisions on all its devices.
        self.carry_out((!bands).then_some(device));
    }

    /// The devices whose processes' pages are to be read at `now`, each with those processes. The
    /// results return as [`Event::Served`](crate::Event::Served).
    pub fn due_samples(&self, now: Nanos) -> Vec<(DeviceId, Vec<ProcessId>)> {
        self.leases.due_samples(now)
    }

    /// The same for the devices of a process that has ended, while its page is there.
    pub fn last_samples(&self, process: ProcessId) -> Vec<(DeviceId, Vec<ProcessId>)> {
        self.leases.last_samples(process)
    }

    /// When pages are to be read next.
    pub fn next_sample(&self) -> Option<Nanos> {
        self.leases.next_sample()
    }

    /// The pages of a device's processes were read.
    pub(super) fn served(&mut self, device: DeviceId, works: &[(ProcessId, Work)]) {
        let now = self.timers.now();
        self.leases.tell(device, |time| time.sampled(now, works));
        self.carry_out(Some(device));
    }

    /// Processes ran on a device. It decides nothing by itself.
    pub(super) fn ran(
        &mut self,
        device: DeviceId,
        span: Nanos,
        ran: &[(Option<ProcessId>, Nanos)],
    ) {
        let now = self.timers.now();
        self.leases.tell(device, |time| time.ran(now, span, ran));
    }

    /// How a device is shared now. `None`: it is not known.
    pub fn sharing(&self, device: DeviceId) -> Option<SharingView> {
        self.leases.sharing(self.timers.now(), device)
    }

    /// The counters of a device's time since it was added. `None`: the device is not known.
    pub fn tally(&self, device: DeviceId) -> Option<DeviceTally> {
        self.leases.tally(device)
    }

    /// The time a schedule asked for has come.
    pub(super) fn device_due(&mut self, device: DeviceId) {
        let now = self.timers.now();
        self.leases.tell(device, |time| time.advance(now));
        self.carry_out(Some(device));
    }

    /// Passes on the decisions of a device's schedule, with their consequences for other devices
    /// where there are gangs; without a device, those of all schedules.
    pub(super) fn carry_out(&mut self, device: Option<DeviceId>) {
        for decided in self.leases.decided(self.timers.now(), device) {
            let device = decided.device;
            match decided.next {
                Some(at) => self.timers.set(Timer::Turn(device), at),
                None => self.timers.stop(Timer::Turn(device)),
            }
            for output in decided.outputs {
                self.pass_on(device, output);
            }
        }
    }

    fn pass_on(&mut self, device: DeviceId, output: Output) {
        match output {
            Output::Lease { tenant, lease } => self.decide(Decision::Lease {
                tenant,
                device,
                lease,
            }),
            Output::Overrun { tenant, after } => self.notice(Notice::Overrun {
                tenant,
                device,
                after,
            }),
            Output::Ungated { tenant } => {
                self.notice(Notice::Ungated { tenant, device });
            }
        }
    }

    /// Whether the guarantees of each device's time fit beside those of other tenants, waiting ones
    /// included. The time of a lost device is nobody's.
    pub(super) fn check_compute(
        &self,
        tenant: TenantId,
        spec: &TenantSpec,
    ) -> Result<(), SpecError> {
        for (device, compute) in &spec.compute {
            let there = self.ledger.get(*device);
            let Some(request) = there.and(compute.request) else {
                continue;
            };
            let taken: u64 = self
                .tenants
                .all()
                .filter(|(other, _)| *other != tenant)
                .filter_map(|(_, known)| known.spec().compute(*device).request)
                .map(|request| u64::from(request.get()))
                .sum();
            let over = (taken + u64::from(request.get())).saturating_sub(1000);
            let short = u16::try_from(over.min(u64::from(request.get()))).ok();
            if let Some(short) = short.and_then(Permille::new) {
                return Err(SpecError::ComputeTaken {
                    device: *device,
                    request,
                    short,
                });
            }
        }
        Ok(())
    }

    /// Other settings for turns, from now on.
    pub fn set_lease_policy(&mut self, now: Nanos, policy: LeasePolicy) {
        self.advance(now);
        self.leases.set_policy(self.timers.now(), policy);
        self.carry_out(None);
    }

    /// The lease of a tenant's page on a device. `None`: it has no context there.
    pub fn lease(&self, tenant: TenantId, device: DeviceId) -> Option<Lease> {
        self.leases.lease(tenant, device)
    }

    /// A tenant's share of a device as it stands. `None`: it has no context there.
    pub fn share(&self, tenant: TenantId, device: DeviceId) -> Option<ShareView> {
        self.leases.share(self.timers.now(), tenant, device)
    }
}
