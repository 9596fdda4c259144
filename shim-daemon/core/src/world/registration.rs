//! Devices and tenants come and go.

use super::World;
use crate::decision::{Answer, Decision, Denial, Notice};
use crate::event::Running;
use crate::ids::{DeviceId, TenantId};
use crate::lease::{Lease, LeaseKind};
use crate::spec::{DeviceSpec, Oversubscribe, SpecError, TenantSpec};
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;

impl World {
    pub(super) fn device_added(&mut self, device: DeviceId, spec: DeviceSpec) {
        self.ledger.add(device, spec);
        self.leases.add(device);
    }

    pub(super) fn device_lost(&mut self, device: DeviceId) {
        if !self.ledger.remove(device) {
            return;
        }
        for ask in self.asks.on(device).map(|(ask, _)| ask).collect::<Vec<_>>() {
            self.answer(ask, Answer::Denied(Denial::DeviceLost));
        }
        for (_, process) in self.tenants.processes_mut() {
            process.close(device);
        }
        self.free_gates(device);
        self.leases.remove(device);
        self.forget_moves(device);
        self.timers.stop(Timer::Settle(device));
        self.timers.stop(Timer::Look(device));
        self.timers.stop(Timer::Turn(device));
        self.guess_no_more(device);
        self.form_bands(None);
        self.carry_out(None);
        self.refuse_stranded(device);
        self.admit_waiting();
    }

    /// No tenant waits for a turn on a device that is lost: the driver answers its calls.
    fn free_gates(&mut self, device: DeviceId) {
        let tenants: Vec<TenantId> = self.tenants.all().map(|(tenant, _)| tenant).collect();
        for tenant in tenants {
            let lease = self.leases.lease(tenant, device);
            if let Some(lease) = lease.filter(|lease| lease.kind != LeaseKind::Free) {
                let lease = Lease {
                    epoch: lease.epoch + 1,
                    kind: LeaseKind::Free,
                };
                self.decide(Decision::Lease {
                    tenant,
                    device,
                    lease,
                });
            }
        }
    }

    /// Tenants queued for a device that is lost would wait for ever.
    fn refuse_stranded(&mut self, device: DeviceId) {
        let names_it = |tenant: &TenantId| {
            let known = self.tenants.get(*tenant);
            known.is_some_and(|known| known.spec().quota(device).is_some())
        };
        let stranded: Vec<TenantId> = self.tenants.queued().filter(names_it).collect();
        for tenant in stranded {
            let error = SpecError::Device(device);
            self.decide(Decision::Refuse { tenant, error });
            self.tenant_gone(tenant);
        }
    }

    pub(super) fn register(
        &mut self,
        tenant: TenantId,
        mut spec: TenantSpec,
        running: Option<Running>,
    ) {
        self.fill_in(None, &mut spec);
        // A tenant that runs is taken as it is: it may have memory on the host, and its request
        // fitted beside the contexts that its daemon knew.
        let error = self.check_registration(tenant, &spec).err();
        let ran = |error: &SpecError| {
            matches!(error, SpecError::NoHost | SpecError::TooLarge { .. }) && running.is_some()
        };
        let error = error.filter(|error| !ran(error));
        if let Some(error) = error {
            self.decide(Decision::Refuse { tenant, error });
            return;
        }
        self.tenants.register(tenant, spec, self.timers.now());
        if let Some(running) = running {
            self.admit(tenant, running.since.min(self.timers.now()));
            for (device, grant) in running.above {
                self.ledger
                    .change(device, tenant, |account| account.had_above(grant));
            }
            self.find(tenant);
            let devices = self.devices_of(tenant);
            self.set_suspended(tenant, &devices, running.suspended);
            return;
        }
        self.admit_waiting();
        if self
            .tenants
            .get(tenant)
            .is_some_and(|known| known.admitted().is_none())
        {
            self.notice(Notice::Queued { tenant });
        }
    }

    fn check_registration(&self, tenant: TenantId, spec: &TenantSpec) -> Result<(), SpecError> {
        if self.tenants.get(tenant).is_some() {
            return Err(SpecError::Registered);
        }
        let mut devices = spec.quotas.iter().map(|(device, _)| *device);
        match devices.find(|device| self.ledger.get(*device).is_none()) {
            Some(device) => Err(SpecError::Device(device)),
            None => self.check_spec(tenant, spec, |_| None),
        }
    }

    /// Whether these limits could ever hold on this node, where the tenant has such a request on a
    /// device. What they say of a device that is lost is not checked, nor is a request that does
    /// not rise: contexts may have turned out dearer since it was granted.
    pub(super) fn check_spec(
        &self,
        tenant: TenantId,
        spec: &TenantSpec,
        granted: impl Fn(DeviceId) -> Option<Bytes>,
    ) -> Result<(), SpecError> {
        self.check_terms(spec)?;
        self.check_compute(tenant, spec)?;
        self.check_sizes(spec, granted)
    }

    /// Whether this node, without any other tenant, could hold to these limits.
    ///
    /// # Errors
    /// Why it could not.
    pub fn could_hold(&self, spec: &TenantSpec) -> Result<(), SpecError> {
        self.check_terms(spec)?;
        self.check_sizes(spec, |_| None)
    }

    fn check_terms(&self, spec: &TenantSpec) -> Result<(), SpecError> {
        spec.check()?;
        if spec.oversubscribe == Oversubscribe::Swap && self.residency.host.budget().is_zero() {
            return Err(SpecError::NoHost);
        }
        Ok(())
    }

    fn check_sizes(
        &self,
        spec: &TenantSpec,
        granted: impl Fn(DeviceId) -> Option<Bytes>,
    ) -> Result<(), SpecError> {
        for (device, quota) in &spec.quotas {
            let Some(most) = self.most_guaranteed(*device) else {
                continue;
            };
            if quota.request > most && granted(*device).is_none_or(|had| quota.request > had) {
                return Err(SpecError::TooLarge {
                    device: *device,
                    request: quota.request,
                    most,
                });
            }
        }
        Ok(())
    }

    /// The largest request that this device can hold, beside one context. `None`: it is lost.
    pub fn most_guaranteed(&self, device: DeviceId) -> Option<Bytes> {
        let books = self.ledger.get(device)?;
        Some(books.usable() - self.context_cost(device))
    }

    /// The expected memory of a context on this device.
    pub fn context_cost(&self, device: DeviceId) -> Bytes {
        let class = self.ledger.get(device).map(|books| books.class());
        class.map_or(Bytes::ZERO, |class| {
            self.costs.expected(class, self.policy.first_overhead)
        })
    }

    pub(super) fn tenant_gone(&mut self, tenant: TenantId) {
        let members = self.tenants.members(tenant);
        for process in members.map(|(process, _)| process).collect::<Vec<_>>() {
            self.process_gone(process, &[]);
        }
        let devices = self.devices_of(tenant);
        self.step_down(tenant);
        self.holds_nothing(tenant);
        self.tenants.remove(tenant);
        for timer in [
            Timer::Idle(tenant),
            Timer::End(tenant),
            Timer::Ladder(tenant),
        ] {
            self.timers.stop(timer);
        }
        for device in devices {
            self.stays_nowhere(tenant, device);
            if let Some(books) = self.ledger.get_mut(device) {
                books.close(tenant);
            }
            self.settle(device);
        }
        self.admit_waiting();
    }
}
