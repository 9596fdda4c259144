//! Lists in pages: a list of any length, each answer of which fits a frame.

use super::control::{Control, DeviceRow, EndRow, GangRow, ShareRow, TenantRow};
use super::metrics::{
    EventCountRow, ExcessRow, HealthRow, LeasesRow, MetricsRow, PodRow, SeriesRow,
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
    /// All tenants.
    Tenants,
    /// The devices.
    Devices,
    /// How each tenant shares in the devices' time.
    Shares,
    /// The tenants that have an idle end or a run limit.
    Ends,
    /// Tenants with a process that is an MPS client.
    MpsClients,
    /// Tenants that belong to a named gang.
    Gangs,
    /// How each device's time is shared.
    Sharing,
    /// Where the memory of each tenant that can move is.
    Residency,
    /// The status of every tenant, queued ones too.
    TenantStatus,
    /// The daemon's counts and measurements.
    Metrics,
    /// Each tenant's last hour.
    History,
    /// The last changes of tenants' leases.
    Leases,
    /// The moves between the devices and the host.
    Swaps,
    /// The pods of tenants that are their containers.
    Pods,
    /// How busy each device is, its power and its temperature.
    Health,
    /// Memory that tenants hold beyond what they may.
    Excess,
    /// How many events of each kind there were.
    EventCounts,
}

impl Listing {
    /// The request for its first page.
    #[must_use]
    pub fn first(self) -> Control {
        Control::Page {
            of: self,
            from: Cursor::default(),
        }
    }
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
    /// Of [`Listing::Shares`]: a row for each tenant and device.
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
    /// Of [`Listing::Excess`]: a row for each tenant and device where there is some.
    Excess(Vec<ExcessRow>),
    /// Of [`Listing::EventCounts`]: a row for each kind that the daemon knows.
    EventCounts(Vec<EventCountRow>),
}
