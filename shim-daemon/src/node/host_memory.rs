//! Whether the host can hold a tenant's managed memory ([ADR
//! 127](../../../docs/adr/0127-uvm-moves-by-prefetching-the-whole-set.md)): all of it may be there
//! at a time, as memory of the tenant's own processes, and the kernel ends programs whose memory
//! cgroup is full.

use std::fs;

use gpushare_core::{Oversubscribe, TenantId, TenantSpec};
use gpushare_protocol::limits::Limits;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use crate::groups::{Groups, Mounts};

impl Node {
    /// Refuses managed memory that the container's memory cgroup cannot hold, or the machine. Of
    /// other memory neither is read.
    pub(super) fn host_holds(
        &mut self,
        limits: &Limits,
        spec: &TenantSpec,
        groups: &Groups,
    ) -> Result<(), WireError> {
        if spec.oversubscribe != Oversubscribe::Uvm {
            return Ok(());
        }
        let most = self.known_mounts.memory(groups);
        let held = most.map(|most| (most, "the container's memory cgroup"));
        compared(limits, needed(spec), least_of(held))
    }

    /// Refuses a change that raises what a tenant's managed memory may be above what the memory
    /// cgroups of its container and of its processes hold, or the machine. Other changes are made
    /// whatever those have become since.
    pub(super) fn host_holds_more(
        &mut self,
        tenant: TenantId,
        limits: &Limits,
        spec: &TenantSpec,
    ) -> Result<(), WireError> {
        let before = self.world.spec(tenant).map_or(Bytes::ZERO, needed);
        if spec.oversubscribe != Oversubscribe::Uvm || needed(spec) <= before {
            return Ok(());
        }
        let Some(known) = self.tenants.get(&tenant) else {
            return Ok(());
        };
        let container = known.registration().container.as_ref();
        let members = known.members();
        let members =
            members.filter_map(|process| Some(&self.processes.get(process)?.peer().groups));
        let groups = container.map(|container| &container.groups).into_iter();
        let mounts = &mut self.known_mounts;
        let held = groups
            .chain(members)
            .filter_map(|groups| mounts.memory(groups));
        let held = held.map(|most| (most, "its memory cgroup")).min();
        compared(limits, needed(spec), least_of(held))
    }

    /// Warns where the managed memory of all tenants together comes to be more than the machine
    /// has. Each of them was compared by itself, and few have all of it on the host at a time: so
    /// none is refused for the sum.
    pub(super) fn warn_of_managed(&mut self) {
        let text = self.managed_beyond_machine();
        let was = std::mem::replace(&mut self.managed_is_beyond, text.is_some());
        if let Some(text) = text.filter(|_| !was) {
            tracing::warn!("{text}");
        }
    }

    /// That it is more, in words. `None`: it is not, or the machine does not say what it has.
    #[must_use]
    pub fn managed_beyond_machine(&self) -> Option<String> {
        let specs = self.tenants.keys().filter_map(|id| self.world.spec(*id));
        let managed = specs.filter(|spec| spec.oversubscribe == Oversubscribe::Uvm);
        let all: Bytes = managed.map(needed).sum();
        if all.is_zero() {
            return None;
        }
        let most = Bytes(machine_memory()?);
        (all > most).then(|| {
            format!(
                "the tenants with uvm may have {all} on the host together, and the machine has {most}: the kernel ends programs once that is used up"
            )
        })
    }

    /// Cgroups are mounted as this table says, and not as this process sees them. For tests.
    pub fn mounted(&mut self, mounts: Mounts) {
        self.known_mounts = mounts.into();
    }
}

/// Refuses a tenant whose managed memory may be more than the machine has. The memory cgroup of a
/// program that is not there yet is compared by `run`.
pub(super) fn machine_holds(limits: &Limits, spec: &TenantSpec) -> Result<(), WireError> {
    match spec.oversubscribe {
        Oversubscribe::Uvm => compared(limits, needed(spec), least_of(None)),
        Oversubscribe::Off | Oversubscribe::Swap => Ok(()),
    }
}

/// The bytes that may be on the host, of all devices.
fn needed(spec: &TenantSpec) -> Bytes {
    spec.quotas.iter().map(|(_, quota)| quota.limit).sum()
}

/// The least of what the memory cgroups have, and the machine.
fn least_of(held: Option<(u64, &'static str)>) -> Option<(u64, &'static str)> {
    let machine = machine_memory().map(|most| (most, "the machine"));
    held.into_iter().chain(machine).min()
}

/// Refuses what is more than the `most` that something has.
fn compared(limits: &Limits, needed: Bytes, most: Option<(u64, &str)>) -> Result<(), WireError> {
    let Some((most, whose)) = most.filter(|(most, _)| *most < needed.0) else {
        return Ok(());
    };
    let problem = format!(
        "its memory may all be on the host, where {needed} are needed, and {whose} has {}",
        Bytes(most)
    );
    match limits.policy().refuse_managed(&problem) {
        None => Ok(()),
        Some(error) => Err(WireError::new(ErrorCode::BadLimits, error.to_string())),
    }
}

/// All memory of the machine.
fn machine_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = text.lines();
    let total = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
