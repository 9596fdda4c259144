//! Devices and containers come and go.

use super::{Container, World};
use crate::decision::{Answer, Decision, Denial, Notice};
use crate::ids::{ContainerId, DeviceId};
use crate::lease::DeviceTime;
use crate::ledger::Device;
use crate::spec::{ContainerSpec, DeviceSpec, SpecError};
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeSet;

impl World {
    pub(super) fn device_added(&mut self, device: DeviceId, spec: DeviceSpec) {
        self.devices
            .entry(device)
            .or_insert_with(|| Device::new(spec));
        let policy = self.policy.lease;
        self.schedules
            .entry(device)
            .or_insert_with(|| DeviceTime::new(policy));
    }

    pub(super) fn device_lost(&mut self, device: DeviceId) {
        let Some(books) = self.devices.remove(&device) else {
            return;
        };
        for ask in books.waiting {
            self.answer(ask, Answer::Denied(Denial::DeviceLost));
        }
        for process in self.processes.values_mut() {
            process.opened.remove(&device);
        }
        self.schedules.remove(&device);
        self.timers.stop(Timer::Settle(device));
        self.timers.stop(Timer::Look(device));
        self.timers.stop(Timer::Turn(device));
        self.guess_no_more(device);
        self.form_bands(None);
        self.carry_out_all();
        self.refuse_stranded(device);
        self.admit_waiting();
    }

    /// Whoever is queued for a device that is gone would wait for ever.
    fn refuse_stranded(&mut self, device: DeviceId) {
        let names_it = |(_, _, container): &&(_, _, ContainerId)| {
            let known = self.containers.get(container);
            known.is_some_and(|known| known.spec.quota(device).is_some())
        };
        let stranded = self.queue.iter().filter(names_it);
        let stranded: Vec<ContainerId> = stranded.map(|(_, _, container)| *container).collect();
        for container in stranded {
            let error = SpecError::Device(device);
            self.decide(Decision::Refuse { container, error });
            self.container_gone(container);
        }
    }

    pub(super) fn register(
        &mut self,
        container: ContainerId,
        mut spec: ContainerSpec,
        running: Option<Nanos>,
    ) {
        self.fill_in(None, &mut spec);
        if let Err(error) = self.check_registration(container, &spec) {
            self.decide(Decision::Refuse { container, error });
            return;
        }
        let registered = Container {
            spec,
            registered: self.now,
            admitted: None,
            processes: BTreeSet::new(),
            worked: self.now,
            idle: false,
            warned: None,
            spared: None,
            ending: None,
        };
        self.containers.insert(container, registered);
        if let Some(since) = running {
            self.admit(container, since.min(self.now));
            return;
        }
        self.enqueue(container);
        self.admit_waiting();
        if self
            .containers
            .get(&container)
            .is_some_and(|known| known.admitted.is_none())
        {
            self.notice(Notice::Queued { container });
        }
    }

    fn check_registration(
        &self,
        container: ContainerId,
        spec: &ContainerSpec,
    ) -> Result<(), SpecError> {
        if self.containers.contains_key(&container) {
            return Err(SpecError::Registered);
        }
        self.check_spec(container, spec)
    }

    /// Whether these limits could ever hold on this node.
    pub(super) fn check_spec(
        &self,
        container: ContainerId,
        spec: &ContainerSpec,
    ) -> Result<(), SpecError> {
        spec.check()?;
        self.check_compute(container, spec)?;
        for (device, quota) in &spec.quotas {
            let books = self.devices.get(device).ok_or(SpecError::Device(*device))?;
            let most = books.spec.usable() - self.context_cost(*device);
            if quota.request > most {
                return Err(SpecError::TooLarge {
                    device: *device,
                    request: quota.request,
                    most,
                });
            }
        }
        Ok(())
    }

    /// What a context on this device is expected to take.
    pub fn context_cost(&self, device: DeviceId) -> Bytes {
        let class = self.devices.get(&device).map(|books| books.spec.class);
        class.map_or(Bytes::ZERO, |class| {
            self.costs.expected(class, self.policy.first_overhead)
        })
    }

    pub(super) fn container_gone(&mut self, container: ContainerId) {
        let Some(known) = self.containers.get(&container) else {
            return;
        };
        for process in known.processes.clone() {
            self.process_gone(process, &[]);
        }
        let devices = self.devices_of(container);
        self.dequeue(container);
        self.step_down(container);
        self.containers.remove(&container);
        for timer in [
            Timer::Idle(container),
            Timer::End(container),
            Timer::Ladder(container),
        ] {
            self.timers.stop(timer);
        }
        for device in devices {
            if let Some(books) = self.devices.get_mut(&device) {
                books.close(container);
            }
            self.settle(device);
        }
        self.admit_waiting();
    }
}
