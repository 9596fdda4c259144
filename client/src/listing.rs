//! A daemon's listings, of any length: page by page, or in one answer from a daemon before minor 3.

use crate::{Talk, TalkError};
use gpushare_protocol::wire::{
    AloneRow, BusyRow, Control, ControlReply, Cursor, DeviceRow, EndRow, EventCountRow, ExcessRow,
    FurtherRow, GangRow, GrantsRow, HealthRow, LeasesRow, Listing, MetricsRow, PodRow, RefusedRow,
    ResidencyRow, Rows, SeriesRow, ShareRow, SharingRow, SwapRow, TenantRow, TenantStatusRow,
    UseRow,
};

impl Talk {
    /// All tenants.
    pub fn tenants(&mut self) -> Result<Vec<TenantRow>, TalkError> {
        let mut all: Vec<TenantRow> = Vec::new();
        if self.minor() < 3 {
            if let ControlReply::Tenants(rows) = self.call(&Control::List)? {
                all = rows;
            }
            return Ok(all);
        }
        self.pages(Listing::Tenants, |rows| {
            if let Rows::Tenants(rows) = rows {
                rows.into_iter().for_each(|row| join(&mut all, row));
            }
        })?;
        Ok(all)
    }

    /// The devices.
    pub fn devices(&mut self) -> Result<Vec<DeviceRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 3 {
            if let ControlReply::Devices(rows) = self.call(&Control::Devices)? {
                all = rows;
            }
            return Ok(all);
        }
        self.pages(Listing::Devices, |rows| {
            if let Rows::Devices(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// How the devices' time is shared; nothing from a daemon of before minor 1.
    pub fn shares(&mut self) -> Result<Vec<ShareRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 3 {
            if self.minor() >= 1
                && let ControlReply::Shares(rows) = self.call(&Control::Shares)?
            {
                all = rows;
            }
            return Ok(all);
        }
        self.pages(Listing::Shares, |rows| {
            if let Rows::Shares(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Tenants with an end; none from a daemon before minor 1.
    pub fn ends(&mut self) -> Result<Vec<EndRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 3 {
            if self.minor() >= 1
                && let ControlReply::Ends(rows) = self.call(&Control::Ends)?
            {
                all = rows;
            }
            return Ok(all);
        }
        self.pages(Listing::Ends, |rows| {
            if let Rows::Ends(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Names of tenants with MPS clients; nothing from a daemon of before minor 4.
    pub fn mps_clients(&mut self) -> Result<Vec<String>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 4 {
            return Ok(all);
        }
        self.pages(Listing::MpsClients, |rows| {
            if let Rows::MpsClients(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// How each device's time is shared; nothing from a daemon of before minor 5.
    pub fn sharing(&mut self) -> Result<Vec<SharingRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 5 {
            return Ok(all);
        }
        self.pages(Listing::Sharing, |rows| {
            if let Rows::Sharing(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Tenants of named gangs; nothing from a daemon of before minor 4.
    pub fn gangs(&mut self) -> Result<Vec<GangRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 4 {
            return Ok(all);
        }
        self.pages(Listing::Gangs, |rows| {
            if let Rows::Gangs(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// The status of all tenants, queued ones too; nothing from a daemon before minor 8.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn status(&mut self) -> Result<Vec<TenantStatusRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 8 {
            return Ok(all);
        }
        self.pages(Listing::TenantStatus, |rows| {
            if let Rows::TenantStatus(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// The daemon's counts and measurements; none from a daemon before minor 9.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn metrics(&mut self) -> Result<Vec<MetricsRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 9 {
            return Ok(all);
        }
        self.pages(Listing::Metrics, |rows| {
            if let Rows::Metrics(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Each tenant's last hour; nothing from a daemon of before minor 9.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn history(&mut self) -> Result<Vec<SeriesRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 9 {
            return Ok(all);
        }
        self.pages(Listing::History, |rows| {
            if let Rows::History(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Where the memory of each tenant that can move is; nothing from a daemon of before minor 6.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn residency(&mut self) -> Result<Vec<ResidencyRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 6 {
            return Ok(all);
        }
        self.pages(Listing::Residency, |rows| {
            if let Rows::Residency(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// The moves between the devices and the host; empty from a daemon before minor 15.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn swaps(&mut self) -> Result<Vec<SwapRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 15 {
            return Ok(all);
        }
        self.pages(Listing::Swaps, |rows| {
            if let Rows::Swaps(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// The pods of tenants that are containers of one; nothing from a daemon of before minor 15.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn pods(&mut self) -> Result<Vec<PodRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 15 {
            return Ok(all);
        }
        self.pages(Listing::Pods, |rows| {
            if let Rows::Pods(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// The devices as NVML shows them; nothing from a daemon of before minor 15.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn health(&mut self) -> Result<Vec<HealthRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 15 {
            return Ok(all);
        }
        self.pages(Listing::Health, |rows| {
            if let Rows::Health(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Allocations refused on each device; empty from a daemon before minor 18.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn refused(&mut self) -> Result<Vec<RefusedRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 18 {
            return Ok(all);
        }
        self.pages(Listing::Refused, |rows| {
            if let Rows::Refused(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Memory that tenants hold beyond what they may; `None` from a daemon before minor 20.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn excess(&mut self) -> Result<Option<Vec<ExcessRow>>, TalkError> {
        if self.minor() < 20 {
            return Ok(None);
        }
        let mut all = Vec::new();
        self.pages(Listing::Excess, |rows| {
            if let Rows::Excess(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(Some(all))
    }

    /// For how long tenants' kernels ran; `None` from a daemon before minor 21.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn busy(&mut self) -> Result<Option<Vec<BusyRow>>, TalkError> {
        if self.minor() < 21 {
            return Ok(None);
        }
        let mut all = Vec::new();
        self.pages(Listing::Busy, |rows| {
            if let Rows::Busy(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(Some(all))
    }

    /// The time that tenants had lately while alone; `None` from a daemon before minor 25.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn alone(&mut self) -> Result<Option<Vec<AloneRow>>, TalkError> {
        if self.minor() < 25 {
            return Ok(None);
        }
        let mut all = Vec::new();
        self.pages(Listing::Alone, |rows| {
            if let Rows::Alone(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(Some(all))
    }

    /// How many events of each kind there were; `None` from a daemon before minor 21.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn event_counts(&mut self) -> Result<Option<Vec<EventCountRow>>, TalkError> {
        if self.minor() < 21 {
            return Ok(None);
        }
        let mut all = Vec::new();
        self.pages(Listing::EventCounts, |rows| {
            if let Rows::EventCounts(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(Some(all))
    }

    /// Further counts of the daemon; nothing from one of before minor 26.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn further(&mut self) -> Result<Vec<FurtherRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 26 {
            return Ok(all);
        }
        self.pages(Listing::Further, |rows| {
            if let Rows::Further(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// Tenants' grants in the last hour; nothing from a daemon of before minor 16.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn grants(&mut self) -> Result<Vec<GrantsRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 16 {
            return Ok(all);
        }
        self.pages(Listing::Grants, |rows| {
            if let Rows::Grants(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// More of each tenant's last hour; nothing from a daemon of before minor 25.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn uses(&mut self) -> Result<Vec<UseRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 25 {
            return Ok(all);
        }
        self.pages(Listing::Uses, |rows| {
            if let Rows::Uses(rows) = rows {
                all.extend(rows);
            }
        })?;
        Ok(all)
    }

    /// The last changes of tenants' leases; nothing from a daemon of before minor 13.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn leases(&mut self) -> Result<Vec<LeasesRow>, TalkError> {
        let mut all = Vec::new();
        if self.minor() < 13 {
            return Ok(all);
        }
        self.pages(Listing::Leases, |rows| {
            if let Rows::Leases(rows) = rows {
                all.extend(rows);
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
