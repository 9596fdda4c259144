//! Lists in pages: as many rows as certainly fit a frame, and where the next page begins.

use gpushare_core::{Nanos, ProcessId, TenantId};
use gpushare_protocol::wire::{
    ControlReply, Cursor, DeviceRow, GangRow, LeasesRow, Listing, MetricsRow, PodRow, ProcessRow,
    Rows, SeriesRow, ShareRow, SharingRow, SwapRow, TenantRow, TenantStatusRow,
};

use super::Node;
use super::tenant::Tenant;

/// Bytes of the rows of a page, by the maximum size of each: far below the size limit of a frame.
const PAGE: usize = 64 << 10;
/// The maximum size of a row of any kind, without its texts.
const ROW: usize = 144;
/// The maximum size of a row with two histograms, without its texts.
const MEASURED: usize = 640;
/// The maximum size of a value in a history.
const POINT: usize = 29;
/// The maximum size of a change of a lease.
const CHANGE: usize = 11;
/// The maximum size of a process in a row.
const PROCESS: usize = 64;

/// Room for rows.
struct Room(usize);

impl Room {
    /// Takes room for a row with so many bytes of text; whether there is. There is for the first of
    /// a page.
    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0 || self.0 == PAGE;
        self.0 = self.0.saturating_sub(bytes);
        fits
    }
}

impl Node {
    /// The page of a list that begins there.
    pub(super) fn page(&self, now: Nanos, of: Listing, from: Cursor) -> Option<ControlReply> {
        let (rows, next) = match of {
            Listing::Tenants => {
                let (rows, next) = self.tenants_from(now, from);
                (Rows::Tenants(rows), next)
            }
            Listing::Devices => {
                let (rows, next) = self.devices_from(from);
                (Rows::Devices(rows), next)
            }
            Listing::Shares => {
                let place = |(id, device_index): (TenantId, usize)| {
                    let known = self.tenants.get(&id)?;
                    let device = *known.device_ids().get(device_index)?;
                    self.share_row(now, (id, known), (device_index, device))
                };
                // The name of the tenant for which it yields or is held.
                let more = |row: &ShareRow| {
                    let other = row.steered.as_ref().and_then(|one| one.tenant.as_ref());
                    other.map_or(0, String::len)
                };
                let (rows, next) = self.each_with(from, place, more);
                (Rows::Shares(rows), next)
            }
            Listing::Ends => {
                let place = |(id, device_index)| {
                    (device_index == 0).then(|| self.end_row(now, id)).flatten()
                };
                let (rows, next) = self.each_from(from, place);
                (Rows::Ends(rows), next)
            }
            Listing::MpsClients => {
                let place = |(id, device_index)| {
                    let known = self.tenants.get(&id).filter(|_| device_index == 0)?;
                    let name = known.name();
                    self.has_mps_clients(known).then(|| name.to_owned())
                };
                let (rows, next) = self.each_from(from, place);
                (Rows::MpsClients(rows), next)
            }
            Listing::Sharing => {
                let (rows, next) = self.sharing_from(from);
                (Rows::Sharing(rows), next)
            }
            Listing::Residency => {
                let place = |(id, device_index)| self.residency_row(id, device_index);
                let (rows, next) = self.each_from(from, place);
                (Rows::Residency(rows), next)
            }
            Listing::TenantStatus => {
                let place = |(id, device_index)| {
                    (device_index == 0)
                        .then(|| self.status_row(now, id))
                        .flatten()
                };
                // Each device it asks for, and the reason why it waits.
                let more = |row: &TenantStatusRow| {
                    let why = row.queued.as_ref().map_or(0, String::len);
                    row.asks.len() * PROCESS + why
                };
                let (rows, next) = self.each_with(from, place, more);
                (Rows::TenantStatus(rows), next)
            }
            Listing::Metrics => {
                let (rows, next) = self.metrics_from(now, from);
                (Rows::Metrics(rows), next)
            }
            Listing::History => {
                let (rows, next) = self.history_from(now, from);
                (Rows::History(rows), next)
            }
            Listing::Leases => {
                let (rows, next) = self.leases_from(now, from);
                (Rows::Leases(rows), next)
            }
            Listing::Swaps => {
                let (rows, next) = self.swaps_from(from);
                (Rows::Swaps(rows), next)
            }
            Listing::Pods => {
                let place = |(id, device_index)| {
                    let known = self.tenants.get(&id).filter(|_| device_index == 0)?;
                    super::pods::row(known)
                };
                let more = |row: &PodRow| row.namespace.len() + row.pod.len() + row.container.len();
                let (rows, next) = self.each_with(from, place, more);
                (Rows::Pods(rows), next)
            }
            Listing::Health => (Rows::Health(self.health_rows()), None),
            Listing::Excess => {
                let place = |(id, device_index)| self.excess_row(id, device_index);
                let (rows, next) = self.each_from(from, place);
                (Rows::Excess(rows), next)
            }
            Listing::EventCounts => (Rows::EventCounts(self.event_counts()), None),
            Listing::Gangs => {
                let place = |(id, device_index)| {
                    let known = self.tenants.get(&id).filter(|_| device_index == 0)?;
                    let name = known.name().to_owned();
                    let gang = self.world.spec(id)?.gang.clone()?.name;
                    Some(GangRow { name, gang })
                };
                let (rows, next) = self.each_from(from, place);
                (Rows::Gangs(rows), next)
            }
            _ => return None,
        };
        Some(ControlReply::Page { rows, next })
    }

    /// Rows of tenants and their devices, each made from its place.
    fn each_from<R>(
        &self,
        from: Cursor,
        row: impl Fn((TenantId, usize)) -> Option<R>,
    ) -> (Vec<R>, Option<Cursor>) {
        self.each_with(from, row, |_| 0)
    }

    /// As [`Self::each_from`], of rows that take `more` bytes than others.
    fn each_with<R>(
        &self,
        from: Cursor,
        row: impl Fn((TenantId, usize)) -> Option<R>,
        more: impl Fn(&R) -> usize,
    ) -> (Vec<R>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        for (id, known, device_index) in self.places(from) {
            let Some(row) = row((id, device_index)) else {
                continue;
            };
            if !room.take(ROW + known.name().len() + more(&row)) {
                return (rows, Some(cursor(id, device_index, 0)));
            }
            rows.push(row);
        }
        (rows, None)
    }

    fn tenants_from(&self, now: Nanos, from: Cursor) -> (Vec<TenantRow>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        for (id, known, device_index) in self.places(from) {
            let Some((mut row, view)) = self.tenant_row((id, known), device_index) else {
                continue;
            };
            if !room.take(ROW + row.name.len()) {
                return (rows, Some(cursor(id, device_index, 0)));
            }
            let begun = (id.0, device_index) == (from.tenant, usize_of(from.device));
            let first = ProcessId(if begun { from.process } else { 0 });
            for member in known.members_from(first) {
                if !room.take(PROCESS) {
                    rows.push(row);
                    return (rows, Some(cursor(id, device_index, member.0)));
                }
                let shown: Option<ProcessRow> =
                    self.process_row(now, known, &view, (member, device_index));
                row.processes.extend(shown);
            }
            rows.push(row);
        }
        (rows, None)
    }

    fn devices_from(&self, from: Cursor) -> (Vec<DeviceRow>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        let all = self.device_rows().into_iter().enumerate();
        for (at, row) in all.skip(usize_of(from.device)) {
            let words: usize = row.capabilities.iter().map(|word| word.len() + 1).sum();
            if !room.take(ROW + row.name.len() + words) {
                return (rows, Some(cursor(TenantId(0), at, 0)));
            }
            rows.push(row);
        }
        (rows, None)
    }

    /// The daemon and its devices come before all tenants, in the first page.
    fn metrics_from(&self, now: Nanos, from: Cursor) -> (Vec<MetricsRow>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        if from == Cursor::default() {
            rows = self.own_metrics(now);
            room.take(rows.len() * MEASURED);
        }
        for (id, known, device_index) in self.places(from) {
            let texts = known.registration().cgroup.as_ref().map_or(0, String::len);
            let texts = texts + 2 * known.name().len();
            if !room.take(2 * MEASURED + texts) {
                return (rows, Some(cursor(id, device_index, 0)));
            }
            rows.extend(self.tenant_metrics(now, (id, known), device_index));
        }
        (rows, None)
    }

    /// The node's room comes before all tenants, in the first page.
    fn swaps_from(&self, from: Cursor) -> (Vec<SwapRow>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        if from == Cursor::default() {
            rows.extend(self.swap_room());
            room.take(ROW);
        }
        for (id, known, device_index) in self.places(from) {
            let Some(row) = self.swap_row((id, known), device_index) else {
                continue;
            };
            if !room.take(MEASURED + known.name().len()) {
                return (rows, Some(cursor(id, device_index, 0)));
            }
            rows.push(row);
        }
        (rows, None)
    }

    fn history_from(&self, now: Nanos, from: Cursor) -> (Vec<SeriesRow>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        let first = (TenantId(from.tenant), usize_of(from.device));
        for ((id, device_index), row) in self.history.rows(now, first) {
            if !room.take(ROW + row.name.len() + row.held.len() * POINT) {
                return (rows, Some(cursor(id, device_index, 0)));
            }
            rows.push(row);
        }
        (rows, None)
    }

    fn leases_from(&self, now: Nanos, from: Cursor) -> (Vec<LeasesRow>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        let first = (TenantId(from.tenant), usize_of(from.device));
        for ((id, device_index), row) in self.lease_log.rows(now, first) {
            if !room.take(ROW + row.name.len() + row.changes.len() * CHANGE) {
                return (rows, Some(cursor(id, device_index, 0)));
            }
            rows.push(row);
        }
        (rows, None)
    }

    fn sharing_from(&self, from: Cursor) -> (Vec<SharingRow>, Option<Cursor>) {
        let (mut rows, mut room) = (Vec::new(), Room(PAGE));
        let first = usize_of(from.device);
        for (at, view) in self.world.devices().enumerate().skip(first) {
            let Some(row) = self.sharing_row(view.device) else {
                continue;
            };
            if !room.take(ROW) {
                return (rows, Some(cursor(TenantId(0), at, 0)));
            }
            rows.push(row);
        }
        (rows, None)
    }

    /// The places of every tenant and every device, from this cursor on.
    fn places(&self, from: Cursor) -> impl Iterator<Item = (TenantId, &Tenant, usize)> {
        let tenants = self.tenants.range(TenantId(from.tenant)..);
        tenants.flat_map(move |(id, known)| {
            let first = match id.0 == from.tenant {
                true => usize_of(from.device),
                false => 0,
            };
            (first..known.device_ids().len()).map(move |device_index| (*id, known, device_index))
        })
    }
}

fn cursor(tenant: TenantId, device: usize, process: u64) -> Cursor {
    Cursor {
        tenant: tenant.0,
        device: u32::try_from(device).unwrap_or(u32::MAX),
        process,
    }
}

fn usize_of(device: u32) -> usize {
    usize::try_from(device).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
