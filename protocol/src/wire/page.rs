//! Lists in pages, since minor 3: a list of any length, each answer of which fits a frame.

use super::control::{DeviceRow, EndRow, GangRow, ShareRow, TenantRow};
use super::metrics::{
    AloneRow, BusyRow, EventCountRow, ExcessRow, FurtherRow, GrantsRow, HealthRow, LeasesRow,
    MetricsRow, PodRow, RefusedRow, SeriesRow, UseRow,
};
use super::record::TenantStatusRow;
use super::residency::ResidencyRow;
use super::sharing::SharingRow;
use super::swap::SwapRow;
use serde::{Deserialize, Serialize};

/// The list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Listing {
    /// As [`super::Control::List`].
    Tenants,
    /// As [`super::Control::Devices`].
    Devices,
    /// As [`super::Control::Shares`].
    Shares,
    /// As [`super::Control::Ends`].
    Ends,
    /// Tenants with a process that is an MPS client. Since minor 4.
    MpsClients,
    /// Tenants that belong to a named gang. Since minor 4.
    Gangs,
    /// How each device's time is shared. Since minor 5.
    Sharing,
    /// Where the memory of each tenant that can move is. Since minor 6.
    Residency,
    /// The status of every tenant, queued ones too. Since minor 8.
    TenantStatus,
    /// The daemon's counts and measurements. Since minor 9.
    Metrics,
    /// Each tenant's last hour. Since minor 9.
    History,
    /// The last changes of tenants' leases. Since minor 13.
    Leases,
    /// The moves between the devices and the host. Since minor 15.
    Swaps,
    /// The pods of tenants that are their containers. Since minor 15.
    Pods,
    /// How busy each device is, its power and its temperature. Since minor 15.
    Health,
    /// Each tenant's grants in the last hour. Since minor 16.
    Grants,
    /// Allocations refused on each device. Since minor 18.
    Refused,
    /// Memory that tenants hold beyond what they may. Since minor 20.
    Excess,
    /// How many events of each kind there were. Since minor 21.
    EventCounts,
    /// For how long each tenant's kernels ran. Since minor 21.
    Busy,
    /// What each tenant had of its devices lately while it was alone. Since minor 25.
    Alone,
    /// More of each tenant's last hour. Since minor 25.
    Uses,
    /// Counts that [`Listing::Metrics`] has no place for. Since minor 26.
    Further,
}

/// Where a page begins. The default is the list's beginning; any other one came from the daemon,
/// and means something to it alone.
///
/// A row that exists throughout is listed once, whatever comes and goes between two pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The daemon's number of a tenant.
    pub tenant: u64,
    /// A device's place.
    pub device: u32,
    /// The daemon's number of a process.
    pub process: u64,
}

/// Rows of a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Rows {
    /// Of [`Listing::Tenants`]. A row whose processes do not fit continues with the rest of them
    /// at the beginning of the next page.
    Tenants(Vec<TenantRow>),
    /// Of [`Listing::Devices`].
    Devices(Vec<DeviceRow>),
    /// Of [`Listing::Shares`].
    Shares(Vec<ShareRow>),
    /// Of [`Listing::Ends`].
    Ends(Vec<EndRow>),
    /// Of [`Listing::MpsClients`]: their names.
    MpsClients(Vec<String>),
    /// Of [`Listing::Gangs`].
    Gangs(Vec<GangRow>),
    /// Of [`Listing::Sharing`]: a row a device.
    Sharing(Vec<SharingRow>),
    /// Of [`Listing::Residency`]: a row for each tenant and device.
    Residency(Vec<ResidencyRow>),
    /// Of [`Listing::TenantStatus`]: a row a tenant.
    TenantStatus(Vec<TenantStatusRow>),
    /// Of [`Listing::Metrics`].
    Metrics(Vec<MetricsRow>),
    /// Of [`Listing::History`].
    History(Vec<SeriesRow>),
    /// Of [`Listing::Leases`].
    Leases(Vec<LeasesRow>),
    /// Of [`Listing::Swaps`].
    Swaps(Vec<SwapRow>),
    /// Of [`Listing::Pods`].
    Pods(Vec<PodRow>),
    /// Of [`Listing::Health`]: a row a device.
    Health(Vec<HealthRow>),
    /// Of [`Listing::Grants`].
    Grants(Vec<GrantsRow>),
    /// Of [`Listing::Refused`]: a row a device.
    Refused(Vec<RefusedRow>),
    /// Of [`Listing::Excess`]: a row for each tenant and device where there is some.
    Excess(Vec<ExcessRow>),
    /// Of [`Listing::EventCounts`]: a row for each kind that the daemon knows.
    EventCounts(Vec<EventCountRow>),
    /// Of [`Listing::Busy`]: a row for each tenant and device of which NVML tells.
    Busy(Vec<BusyRow>),
    /// Of [`Listing::Alone`]: a row for each tenant and device of which NVML tells, once the tenant
    /// has processes there.
    Alone(Vec<AloneRow>),
    /// Of [`Listing::Uses`].
    Uses(Vec<UseRow>),
    /// Of [`Listing::Further`].
    Further(Vec<FurtherRow>),
}
