//! Limits change while a container runs.
//!
//! A raised request must fit like a new one. A lowered limit takes back what is unused at once, and the rest as the
//! container frees it: until then its grant stays above the limit in the books, because charges cannot be wished away,
//! while its control page shows the new limit at once. What it
//! holds above a lowered request is a burst like any other, so who needs it may take it by policy.

use super::World;
use crate::decision::Decision;
use crate::ids::{ContainerId, DeviceId};
use crate::spec::{ContainerSpec, Quota, SpecError};
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;

impl World {
    pub(super) fn set(&mut self, container: ContainerId, mut spec: ContainerSpec) {
        self.fill_in(Some(container), &mut spec);
        if let Err(error) = self.check_change(container, &spec) {
            self.decide(Decision::Refuse { container, error });
            return;
        }
        let Some(known) = self.containers.get(&container) else {
            return;
        };
        if known.admitted.is_some() {
            self.change_accounts(container, &spec);
            self.replace(container, spec);
        } else {
            self.dequeue(container);
            self.replace(container, spec);
            self.enqueue(container);
        }
        for device in self.devices_of(container) {
            self.change_terms(container, device);
            self.trim(container, device);
            self.freed(device);
        }
        self.admit_waiting();
    }

    fn replace(&mut self, container: ContainerId, spec: ContainerSpec) {
        let Some(known) = self.containers.get_mut(&container) else {
            return;
        };
        let idle_at = known.worked + spec.idle_after;
        known.spec = spec;
        if known.admitted.is_some() {
            if !known.idle {
                self.timers.set(Timer::Idle(container), idle_at);
            }
            self.check_end(container);
        }
    }

    fn change_accounts(&mut self, container: ContainerId, spec: &ContainerSpec) {
        for (device, quota) in &spec.quotas {
            let cost = self.context_cost(*device);
            let Some(books) = self.devices.get_mut(device) else {
                continue;
            };
            books.change(container, |account| {
                account.set(*quota, spec.preemptible, cost)
            });
        }
    }

    fn check_change(&self, container: ContainerId, spec: &ContainerSpec) -> Result<(), SpecError> {
        let known = self.containers.get(&container).ok_or(SpecError::Unknown)?;
        self.check_spec(container, spec)?;
        let same = known.spec.quotas.len() == spec.quotas.len()
            && known
                .spec
                .quotas
                .iter()
                .all(|(device, _)| spec.quota(*device).is_some());
        if !same {
            return Err(SpecError::Devices);
        }
        if known.admitted.is_none() {
            return Ok(());
        }
        spec.quotas.iter().try_for_each(|(device, quota)| {
            let short = self.short_for_change(container, spec, *device, *quota);
            if short.is_zero() {
                Ok(())
            } else {
                Err(SpecError::NoRoom {
                    device: *device,
                    short,
                })
            }
        })
    }

    /// What is missing to keep firm what the change makes firm; nothing if it makes no more firm than now.
    fn short_for_change(
        &self,
        container: ContainerId,
        spec: &ContainerSpec,
        device: DeviceId,
        quota: Quota,
    ) -> Bytes {
        let Some(books) = self.devices.get(&device) else {
            return Bytes::ZERO;
        };
        let Some(account) = books.account(container) else {
            return Bytes::ZERO;
        };
        // Limbo and excess pass; what is made firm stays, so they must not cover for it.
        let mut now = account.clone();
        (now.limbo, now.limbo_charged, now.excess) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        let mut after = now.clone();
        after.set(quota, spec.preemptible, self.context_cost(device));
        let more = after.room().firm - now.room().firm;
        if more.is_zero() {
            Bytes::ZERO
        } else {
            books.total().firm + more - books.spec.usable()
        }
    }
}
