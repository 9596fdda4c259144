//! Compute in the world: which containers take turns on which device, and what their schedules decide.

use super::World;
use crate::decision::{Decision, Notice};
use crate::ids::{ContainerId, DeviceId, ProcessId};
use crate::lease::{DeviceTime, Input, Lease, LeasePolicy, Output, ShareView, SharingView, Work};
use crate::spec::{ContainerSpec, SpecError};
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Permille;

impl World {
    /// A process has a context and obeys this daemon's page: it takes turns from now on. One that still obeys the
    /// previous daemon's is bound by what that page said last.
    pub(super) fn joins_device(&mut self, process: ProcessId, device: DeviceId) {
        let Some(known) = self.processes.get(&process).filter(|known| known.adopted) else {
            return;
        };
        let (container, gated) = (known.container, known.gated);
        let Some(owner) = self.containers.get(&container) else {
            return;
        };
        let joined = Input::Joined {
            container,
            process,
            gated,
            class: owner.spec.priority,
            compute: owner.spec.compute(device),
        };
        self.tell_device(device, joined);
    }

    /// A container's terms changed.
    pub(super) fn change_terms(&mut self, container: ContainerId, device: DeviceId) {
        let Some(known) = self.containers.get(&container) else {
            return;
        };
        let changed = Input::Set {
            container,
            class: known.spec.priority,
            compute: known.spec.compute(device),
        };
        self.tell_device(device, changed);
    }

    /// Tells a device's schedule what happened.
    pub(super) fn tell_device(&mut self, device: DeviceId, input: Input) {
        if let Some(schedule) = self.schedules.get_mut(&device) {
            schedule.handle(self.now, input);
        }
        let bands = !self.bands.is_empty();
        match input {
            Input::Joined { container, .. } | Input::Set { container, .. } => {
                self.form_bands(Some(container));
            }
            Input::Left { .. } => self.form_bands(None),
            _ => {}
        }
        // One that is no more leaves decisions on all its devices.
        if bands {
            self.carry_out_all();
        } else {
            self.carry_out_with_gangs(device);
        }
    }

    /// Passes on what a device's schedule decided, and what that means for others.
    fn carry_out_with_gangs(&mut self, device: DeviceId) {
        if self.bands.is_empty() {
            self.carry_out(device);
        } else {
            self.carry_out_all();
        }
    }

    /// Passes on what all schedules decided, gangs in view.
    pub(super) fn carry_out_all(&mut self) {
        self.bands.settle(self.now, &mut self.schedules);
        for device in self.schedules.keys().copied().collect::<Vec<_>>() {
            self.carry_out(device);
        }
    }

    /// The devices whose processes' pages are to be read at `now`, each with those processes. What
    /// they say comes back as [`Event::Served`](crate::Event::Served).
    pub fn due_samples(&self, now: Nanos) -> Vec<(DeviceId, Vec<ProcessId>)> {
        let due = self.schedules.iter().filter(|(_, device)| {
            let next = device.next_sample();
            next.is_some_and(|at| at <= now)
        });
        due.map(|(id, device)| (*id, device.processes())).collect()
    }

    /// When pages are to be read next.
    pub fn next_sample(&self) -> Option<Nanos> {
        let devices = self.schedules.values();
        devices.filter_map(DeviceTime::next_sample).min()
    }

    /// The pages of a device's processes were read.
    pub(super) fn served(&mut self, device: DeviceId, works: &[(ProcessId, Work)]) {
        if let Some(schedule) = self.schedules.get_mut(&device) {
            schedule.sampled(self.now, works);
        }
        self.carry_out_with_gangs(device);
    }

    /// How a device is shared now. `None`: it is not known.
    pub fn sharing(&self, device: DeviceId) -> Option<SharingView> {
        let schedule = self.schedules.get(&device)?;
        Some(schedule.sharing(self.now))
    }

    /// The time a schedule asked for has come.
    pub(super) fn device_due(&mut self, device: DeviceId) {
        if let Some(schedule) = self.schedules.get_mut(&device) {
            schedule.advance(self.now);
        }
        self.carry_out_with_gangs(device);
    }

    /// Passes on what a schedule decided.
    fn carry_out(&mut self, device: DeviceId) {
        let Some(schedule) = self.schedules.get_mut(&device) else {
            return;
        };
        let outputs: Vec<Output> = std::iter::from_fn(|| schedule.poll()).collect();
        match schedule.next_timeout() {
            Some(at) => self.timers.set(Timer::Turn(device), at),
            None => self.timers.stop(Timer::Turn(device)),
        }
        for output in outputs {
            match output {
                Output::Lease { container, lease } => self.decide(Decision::Lease {
                    container,
                    device,
                    lease,
                }),
                Output::Overrun { container, after } => self.notice(Notice::Overrun {
                    container,
                    device,
                    after,
                }),
                Output::Ungated { container } => {
                    self.notice(Notice::Ungated { container, device });
                }
            }
        }
    }

    /// Whether what is guaranteed of each device's time fits beside what others were guaranteed, waiting ones included.
    pub(super) fn check_compute(
        &self,
        container: ContainerId,
        spec: &ContainerSpec,
    ) -> Result<(), SpecError> {
        for (device, compute) in &spec.compute {
            let Some(request) = compute.request else {
                continue;
            };
            let taken: u64 = self
                .containers
                .iter()
                .filter(|(other, _)| **other != container)
                .filter_map(|(_, known)| known.spec.compute(*device).request)
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
        self.policy.lease = policy;
        for device in self.schedules.keys().copied().collect::<Vec<_>>() {
            if let Some(schedule) = self.schedules.get_mut(&device) {
                schedule.set_policy(self.now, policy);
            }
        }
        self.carry_out_all();
    }

    /// What a container's page says of its turn on a device. `None`: it has no context there.
    pub fn lease(&self, container: ContainerId, device: DeviceId) -> Option<Lease> {
        self.schedules.get(&device)?.lease(container)
    }

    /// A container's share of a device as it stands. `None`: it has no context there.
    pub fn share(&self, container: ContainerId, device: DeviceId) -> Option<ShareView> {
        self.schedules.get(&device)?.share(container, self.now)
    }
}
