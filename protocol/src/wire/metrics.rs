//! The daemon's counts and measurements: for metrics, `top` and the report page.

use crate::histogram::Histogram;
use serde::{Deserialize, Serialize};

/// One row of [`super::Listing::Metrics`]. Counts begin with the daemon, those of a tenant with the
/// tenant's registration at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MetricsRow {
    /// The daemon: one row, the first.
    Node(NodeMetrics),
    /// A device.
    Device(DeviceMetrics),
    /// A tenant that waits for admission.
    Queued(QueuedTenant),
    /// Whose a tenant is: one row for each admitted tenant.
    Identity(Identity),
    /// An admitted tenant on one of its devices.
    Tenant(TenantMetrics),
}

/// The daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMetrics {
    /// Its version.
    pub version: String,
    /// The driver's version; empty where it does not say.
    pub driver: String,
    /// Milliseconds since it started.
    pub up_ms: u64,
    /// Tenants that wait for admission.
    pub queued: u32,
    /// How long new tenants waited for admission.
    pub admissions: Histogram,
    /// Tenants ended for another tenant's allocation.
    pub ended_collision: u64,
    /// Tenants ended by their idle end.
    pub ended_idle: u64,
    /// Tenants ended by their run limit.
    pub ended_run_limit: u64,
    /// Processes of no tenant that were ended.
    pub ended_unmanaged: u64,
    /// Tenants that a command ended, each once.
    pub ended_command: u64,
}

/// A device. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMetrics {
    /// Its UUID.
    pub device: [u8; 16],
    /// In exclusive turns: from the end of a turn, or the order to stop, to the next tenant's turn.
    pub handoffs: Histogram,
    /// Time in which no tenant could work although one wanted to, because of its hard cap.
    pub idle_capped_ns: u64,
    /// The same, because a tenant was held for another that had no work.
    pub idle_held_ns: u64,
    /// Processes on it that belong to no tenant.
    pub unmanaged: u32,
    /// Looks at it that failed.
    pub look_failures: u64,
    /// The time in which memory of tenants was on its way to or from it. Moves at the same time
    /// count once.
    pub moving_ns: u64,
    /// The refusals there.
    pub refused: Refusals,
}

/// A tenant that waits for admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedTenant {
    /// Its name.
    pub name: String,
    /// Its user; `None` for a tenant of the machine.
    pub owner: Option<u32>,
    /// Milliseconds since it was registered.
    pub for_ms: u64,
    /// The largest limit that it asks for on a device, in bytes.
    pub limit: u64,
    /// The largest request, in bytes.
    pub request: u64,
    /// The bytes that are missing on the device where most are missing; 0 while processes of the
    /// previous daemon are counted.
    pub short: u64,
}

/// Whose a tenant is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its user; `None` for a tenant of the machine.
    pub owner: Option<u32>,
    /// Its container's cgroup, where a container runtime made one.
    pub cgroup: Option<String>,
    /// Milliseconds since it was admitted, also under an earlier daemon.
    pub age_ms: u64,
}

/// A tenant on a device. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantMetrics {
    /// The tenant's name.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// The most bytes that were charged at once: as granted to its processes, and as read every
    /// second.
    pub peak: u64,
    /// Allocations refused because of the tenant's own limit.
    pub refused_limit: u64,
    /// Allocations refused after they had waited as long as they may.
    pub refused_wait_timeout: u64,
    /// Allocations refused because there was no room and waiting could not help.
    pub refused_no_room: u64,
    /// Allocations that the driver refused within the grant.
    pub refused_driver: u64,
    /// How long allocations waited, of those that had to.
    pub allocation_waits: Histogram,
    /// Device time it was billed for. A tenant that is alone on a device without a cap is not
    /// billed.
    pub gpu_ns: u64,
    /// How long its gate was closed while it wanted the device, each time.
    pub gate_waits: Histogram,
    /// For how long that is so now.
    pub waiting_ns: u64,
    /// Turns it was given; on a shared device, times it was held.
    pub turns: u64,
    /// Times it had not drained when it should have.
    pub overruns: u64,
    /// For how long the kernels of all its processes together ran, by NVML's samples: also while it
    /// was alone, in which time nothing is billed. `None` where NVML does not tell.
    pub busy_ns: Option<u64>,
}

/// The pod of a tenant that is a container of it, a row of [`super::Listing::Pods`]. Empty where
/// its engine did not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRow {
    /// The tenant's name.
    pub name: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The container's name within the pod.
    pub container: String,
}

/// A device as NVML shows it, a row of [`super::Listing::Health`]. `None` where NVML does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthRow {
    /// The device's UUID.
    pub device: [u8; 16],
    /// The part of the last sample's time in which kernels ran, in percent.
    pub busy: Option<u32>,
    /// The power that the board draws, in watts.
    pub watts: Option<u32>,
    /// Its temperature, in degrees Celsius.
    pub celsius: Option<u32>,
}

/// Refusals on a device since the daemon began, also of tenants that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// Allocations refused because of a tenant's own limit.
    pub limit: u64,
    /// Allocations refused after they had waited as long as they may.
    pub wait_timeout: u64,
    /// Allocations refused because there was no room and waiting could not help.
    pub no_room: u64,
    /// Allocations that the driver refused within the grant.
    pub driver: u64,
    /// Times that no tenant could be moved because the host had no room, at most one a minute.
    pub host_full: u64,
}

/// Memory of a tenant that its device shows beyond its grant and its overhead: a row of
/// [`super::Listing::Excess`]. It was never asked for, and the device has that much less for
/// others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcessRow {
    /// The tenant's name.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// The bytes, more than 0.
    pub bytes: u64,
}

/// How many events of a kind there were since the daemon began, told or left out because there were
/// too many: a row of [`super::Listing::EventCounts`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCountRow {
    /// The kind, as in [`super::EventRecord`].
    pub kind: String,
    /// The events.
    pub count: u64,
}

/// A tenant's last hour on a device, a row of [`super::Listing::History`]. The lists are equally
/// long, the newest value last, and a value every `step_ms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesRow {
    /// The tenant's name; it may have ended.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// Milliseconds between two values.
    pub step_ms: u64,
    /// Milliseconds since the last value.
    pub age_ms: u64,
    /// Bytes charged, in MiB, rounded up.
    pub charged_mib: Vec<u32>,
    /// The device's time that it was billed for, in thousandths.
    pub held: Vec<u16>,
    /// The time that it waited at its gate, in thousandths.
    pub waited: Vec<u16>,
    /// Bytes granted, in MiB, rounded up.
    pub grant_mib: Vec<u32>,
    /// The device's time that it had, in thousandths: what it was billed for, and what its kernels
    /// ran while it was alone there, in which time nothing is billed. Without the latter where NVML
    /// does not tell it.
    pub had: Vec<u16>,
    /// Bytes charged but for those of `away_mib`, in MiB.
    pub on_mib: Vec<u32>,
    /// Bytes charged and off the device, in MiB, rounded up.
    pub away_mib: Vec<u32>,
}

/// The last changes of a tenant's lease on a device, oldest first, a row of
/// [`super::Listing::Leases`]. Earlier changes are forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesRow {
    /// The tenant's name; it may have ended.
    pub name: String,
    /// The device's UUID.
    pub device: [u8; 16],
    /// The changes, oldest first: the newest [`Self::MOST`] at most.
    pub changes: Vec<LeaseChange>,
}

impl LeasesRow {
    /// The most changes of a row: far fewer bytes than a frame may have. Of a row with so many
    /// nothing is known from before its first change.
    pub const MOST: usize = 4_096;
}

/// A lease from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseChange {
    /// Microseconds ago.
    pub ago_us: u64,
    /// The lease's new state.
    pub was: LeaseWas,
}

/// The work that a lease allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LeaseWas {
    /// All work, and nothing was counted: the tenant was alone.
    Free,
    /// All work, beside other tenants.
    Shared,
    /// Work in slices, beside other tenants.
    Yielding,
    /// All work, while the tenant had its turn.
    Turn,
    /// No work: the tenant's gate was closed.
    Closed,
    /// None: the tenant's last process on the device had ended.
    Gone,
}

#[cfg(test)]
mod tests;
