//! A daemon's listings, of any length: page by page.

use crate::{Talk, TalkError};
use gpushare_protocol::wire::{
    Control, ControlReply, Cursor, DeviceRow, EndRow, EventCountRow, ExcessRow, GangRow, HealthRow,
    LeasesRow, Listing, MetricsRow, PodRow, ResidencyRow, Rows, SeriesRow, ShareRow, SharingRow,
    SwapRow, TenantRow, TenantStatusRow,
};

/// Lists of rows: the method, the list, and the kind of row.
macro_rules! lists {
    ($($(#[$what:meta])+ $name:ident: $list:ident of $row:ty,)+) => {
        impl Talk {
            $(
                $(#[$what])+
                ///
                /// # Errors
                /// As [`Talk::tenants`].
                pub fn $name(&mut self) -> Result<Vec<$row>, TalkError> {
                    let mut all = Vec::new();
                    self.pages(Listing::$list, |rows| {
                        if let Rows::$list(rows) = rows {
                            all.extend(rows);
                        }
                    })?;
                    Ok(all)
                }
            )+
        }
    };
}

lists! {
    /// The devices.
    devices: Devices of DeviceRow,
    /// How the devices' time is shared: a row for each tenant and device.
    shares: Shares of ShareRow,
    /// Tenants with an end.
    ends: Ends of EndRow,
    /// Names of tenants with MPS clients.
    mps_clients: MpsClients of String,
    /// How each device's time is shared.
    sharing: Sharing of SharingRow,
    /// Tenants of named gangs.
    gangs: Gangs of GangRow,
    /// The status of all tenants, queued ones too.
    status: TenantStatus of TenantStatusRow,
    /// The daemon's counts and measurements.
    metrics: Metrics of MetricsRow,
    /// Each tenant's last hour.
    history: History of SeriesRow,
    /// Where the memory of each tenant that can move is.
    residency: Residency of ResidencyRow,
    /// The moves between the devices and the host.
    swaps: Swaps of SwapRow,
    /// The pods of tenants that are containers of one.
    pods: Pods of PodRow,
    /// The devices as NVML shows them.
    health: Health of HealthRow,
    /// Memory that tenants hold beyond what they may.
    excess: Excess of ExcessRow,
    /// How many events of each kind there were.
    event_counts: EventCounts of EventCountRow,
    /// The last changes of tenants' leases.
    leases: Leases of LeasesRow,
}

impl Talk {
    /// All tenants.
    ///
    /// # Errors
    /// The daemon hung up, refused, or gave an answer that this version does not know.
    pub fn tenants(&mut self) -> Result<Vec<TenantRow>, TalkError> {
        let mut all: Vec<TenantRow> = Vec::new();
        self.pages(Listing::Tenants, |rows| {
            if let Rows::Tenants(rows) = rows {
                rows.into_iter().for_each(|row| join(&mut all, row));
            }
        })?;
        Ok(all)
    }

    fn pages(&mut self, of: Listing, mut each: impl FnMut(Rows)) -> Result<(), TalkError> {
        let mut from = Cursor::default();
        loop {
            match self.call(&Control::Page { of, from })? {
                ControlReply::Page { rows, next } => {
                    each(rows);
                    match next {
                        Some(next) if next != from => from = next,
                        _ => return Ok(()),
                    }
                }
                _ => {
                    return Err(TalkError::new(
                        "the daemon gave an answer this version does not know",
                    ));
                }
            }
        }
    }
}

/// Appends a row, or the rest of the last one's processes.
fn join(all: &mut Vec<TenantRow>, row: TenantRow) {
    match all.last_mut() {
        Some(last) if (&last.name, last.device) == (&row.name, row.device) => {
            last.processes.extend(row.processes);
        }
        _ => all.push(row),
    }
}
