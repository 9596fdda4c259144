//! The tenants that one daemon lists, as rows of `ps`.

use super::row::{Ends, Pod, Process, Queued, Row, SCHEMA};
use crate::daemon::Talk;
use crate::devices::named;
use crate::failure::Failure;
use crate::select::Seen;
use crate::{names, residency, shares, sharing};
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{
    AskedRow, DeviceRow, EndRow, EndsBy, PodRow, ProcessRow, ProcessState, ResidencyRow, ShareRow,
    ShareState, SharingRow, TenantRow, TenantStatusRow, TenantSwaps,
};
use std::collections::{BTreeMap, BTreeSet};

/// The line below a tenant whose device is lost.
const LOST: &str = "the GPU does not answer any more";

/// The lists of one daemon. Names are unique within it.
#[derive(Default)]
pub(super) struct Known {
    /// Its devices.
    devices: Vec<DeviceRow>,
    /// Owners, ages, and what queued tenants wait for.
    status: Vec<TenantStatusRow>,
    /// The accounts of those that are admitted, one for each of their devices that answer.
    tenants: Vec<TenantRow>,
    /// How their time is shared.
    times: Vec<ShareRow>,
    /// Tenants with an end.
    ends: Vec<EndRow>,
    /// Tenants with MPS clients.
    mps: BTreeSet<String>,
    /// How each device's time is shared.
    pub(super) sharing: Vec<SharingRow>,
    /// The gangs of tenants in one.
    gangs: BTreeMap<String, String>,
    /// The pods of tenants that are containers of one.
    pods: BTreeMap<String, Pod>,
    /// Where memory is that can move.
    residency: Vec<ResidencyRow>,
    /// Its moves between the device and the host.
    swaps: Vec<TenantSwaps>,
}

impl Known {
    /// Asks a daemon.
    pub(super) fn of(daemon: &mut Talk) -> Result<Self, Failure> {
        // A tenant may be admitted meanwhile. In this order it is in one of the two lists at least.
        let (status, tenants) = (daemon.status()?, daemon.tenants()?);
        let gangs = daemon.gangs()?.into_iter();
        let pods = daemon.pods()?.into_iter();
        Ok(Self {
            devices: daemon.devices()?,
            status,
            tenants,
            times: daemon.shares()?,
            ends: daemon.ends()?,
            mps: daemon.mps_clients()?.into_iter().collect(),
            sharing: daemon.sharing()?,
            gangs: gangs.map(|row| (row.name, row.gang)).collect(),
            pods: pods.map(|row| (row.name.clone(), pod(row))).collect(),
            residency: daemon.residency()?,
            swaps: residency::swaps(daemon)?,
        })
    }

    /// Its devices and their places.
    pub(super) fn places(&self) -> impl Iterator<Item = Seen> {
        (0..)
            .zip(&self.devices)
            .map(|(place, row)| (row.uuid, Some(place)))
    }

    /// Rows of admitted tenants, then of those that wait.
    pub(super) fn rows(&self) -> Vec<Row> {
        let queued = |row: &&TenantStatusRow| row.queued.is_some();
        let waits = self.status.iter().filter(queued);
        let waits: BTreeSet<&str> = waits.map(|row| &*row.name).collect();
        let admitted = self.tenants.iter();
        let admitted = admitted.filter(|row| !waits.contains(&*row.name));
        let mut rows: Vec<Row> = admitted.map(|row| self.row(row)).collect();
        for row in self.status.iter().filter(|row| row.queued.is_none()) {
            let lost = row.asks.iter().filter(|asked| self.has_lost(row, asked));
            rows.extend(lost.map(|asked| self.lost(row, asked)));
        }
        for row in self.status.iter().filter(queued) {
            rows.extend(row.asks.iter().map(|asked| self.queued(row, asked)));
        }
        rows
    }

    /// Whether a device of a tenant does not answer any more: then the daemon has no account there.
    fn has_lost(&self, row: &TenantStatusRow, asked: &AskedRow) -> bool {
        let mut accounts = self.tenants.iter();
        let mut devices = self.devices.iter();
        devices.any(|device| device.uuid == asked.device && device.is_lost())
            && !accounts.any(|account| account.name == row.name && account.device == asked.device)
    }

    fn row(&self, row: &TenantRow) -> Row {
        let (device, gpu) = self.name_of(row.device);
        let share = shares::of(row, &self.times);
        let mps = self.mps.contains(&row.name);
        let status = self.status.iter().find(|one| one.name == row.name);
        let place = residency::of(&self.residency, (&row.name, row.device));
        let swaps = residency::swaps_of(&self.swaps, (&row.name, row.device));
        Row {
            schema: SCHEMA,
            name: row.name.clone(),
            device,
            gpu,
            owner: status.and_then(|status| status.owner),
            daemon: true,
            queued: None,
            age_ms: status.map(|status| status.for_ms),
            request: row.request,
            limit: Some(row.limit),
            grant: row.grant,
            charged: row.charged,
            overhead: row.overhead,
            limbo: row.limbo,
            time: share.map(|share| shares::data(share, mps)),
            sharing: sharing::of(row.device, &self.sharing).map(sharing::data),
            gang: self.gangs.get(&row.name).cloned(),
            pod: self.pods.get(&row.name).cloned(),
            residency: place.map(|place| residency::data(place, swaps)),
            residency_text: place.map_or_else(Vec::new, |place| {
                let moved = residency::moved(place, swaps);
                let others = residency::has_others(&self.residency, place);
                [residency::text(place, swaps, others)]
                    .into_iter()
                    .chain(moved)
                    .collect()
            }),
            ends: self.end_of(&row.name),
            used: is_used(row, share, place),
            more: 0,
            processes: row.processes.iter().map(process).collect(),
            time_text: shares::text(share, mps),
        }
    }

    /// A device that a tenant had and that is lost.
    fn lost(&self, row: &TenantStatusRow, asked: &AskedRow) -> Row {
        Row {
            age_ms: Some(row.for_ms),
            residency_text: vec![LOST.to_owned()],
            ends: self.end_of(&row.name),
            ..self.asked(row, asked)
        }
    }

    /// A device that a tenant waits for.
    fn queued(&self, row: &TenantStatusRow, asked: &AskedRow) -> Row {
        let why = row.queued.clone();
        Row {
            queued: why.map(|why| Queued {
                for_ms: row.for_ms,
                why,
            }),
            ..self.asked(row, asked)
        }
    }

    /// A device of which a tenant has nothing.
    fn asked(&self, row: &TenantStatusRow, asked: &AskedRow) -> Row {
        let (device, gpu) = self.name_of(asked.device);
        Row {
            schema: SCHEMA,
            name: row.name.clone(),
            device,
            gpu,
            owner: row.owner,
            daemon: true,
            queued: None,
            age_ms: None,
            request: asked.request,
            limit: Some(asked.limit),
            grant: 0,
            charged: 0,
            overhead: 0,
            limbo: 0,
            time: None,
            sharing: sharing::of(asked.device, &self.sharing).map(sharing::data),
            gang: self.gangs.get(&row.name).cloned(),
            pod: self.pods.get(&row.name).cloned(),
            residency: None,
            residency_text: Vec::new(),
            ends: None,
            used: true,
            more: 0,
            processes: Vec::new(),
            time_text: "-".to_owned(),
        }
    }

    fn name_of(&self, device: [u8; 16]) -> (String, Option<u32>) {
        let mut all = (0..).zip(&self.devices);
        all.find(|(_, row)| row.uuid == device).map_or_else(
            || (Uuid(device).to_string(), None),
            |(place, row)| (named(row), Some(place)),
        )
    }

    fn end_of(&self, name: &str) -> Option<Ends> {
        let end = self.ends.iter().find(|end| end.name == name)?;
        Some(Ends {
            in_ms: end.in_ms,
            told: end.told,
            by: match end.by {
                EndsBy::IdleEnd => "idle end",
                EndsBy::RunLimit => "run limit",
                EndsBy::Collision => "collision",
                _ => "a limit this version does not know",
            },
        })
    }
}

/// Whether a tenant holds, waits for or had something of a device. Each of its processes is in the
/// rows of all devices that it may use: by default all of the node.
fn is_used(row: &TenantRow, share: Option<&ShareRow>, place: Option<&ResidencyRow>) -> bool {
    let mut states = row.processes.iter().map(|process| &process.state);
    let waits = states.any(|state| matches!(state, ProcessState::Waiting(_)));
    let had = share.is_some_and(|share| {
        (share.weight, share.held, share.turns) != (0, 0, 0) || share.state != ShareState::Idle
    });
    let moves = place.is_some_and(|row| (row.movable, row.away, row.moved) != (0, 0, 0));
    waits || had || moves || (row.charged, row.overhead, row.limbo) != (0, 0, 0)
}

fn pod(row: PodRow) -> Pod {
    Pod {
        text: names::pod_text(&row),
        namespace: row.namespace,
        name: row.pod,
        container: row.container,
    }
}

fn process(row: &ProcessRow) -> Process {
    let (state, waits_for, for_ms) = match &row.state {
        ProcessState::Running => ("running", None, None),
        ProcessState::Idle { for_ms } => ("idle", None, Some(*for_ms)),
        ProcessState::Waiting(want) => ("waiting", Some(want.bytes), Some(want.since_ms)),
        _ => ("unknown", None, None),
    };
    Process {
        pid: row.pid,
        charged: row.charged,
        overhead: measured(row.overhead),
        state,
        waits_for,
        for_ms,
    }
}

/// Bytes of its contexts, if the process measured them.
pub(super) fn measured(overhead: u64) -> Option<u64> {
    Some(gpushare_protocol::page::measured(overhead)).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: [u8; 16] = [7; 16];

    fn known(lost: bool, has_account: bool, queued: Option<&str>) -> Known {
        let words = lost.then(|| DeviceRow::LOST.to_owned());
        let name = "web".to_owned();
        let account = TenantRow {
            name: name.clone(),
            device: GPU,
            request: 1,
            limit: 2,
            grant: 0,
            charged: 0,
            overhead: 0,
            limbo: 0,
            processes: Vec::new(),
        };
        Known {
            devices: vec![DeviceRow {
                uuid: GPU,
                name: "a GPU".to_owned(),
                capacity: 9,
                reserve: 0,
                granted: 0,
                overhead: 0,
                limbo: 0,
                unmanaged: 0,
                capabilities: words.into_iter().collect(),
            }],
            status: vec![TenantStatusRow {
                name,
                owner: Some(5),
                for_ms: 77,
                queued: queued.map(str::to_owned),
                asks: vec![AskedRow {
                    device: GPU,
                    request: 1,
                    limit: 2,
                }],
            }],
            tenants: has_account.then_some(account).into_iter().collect(),
            ..Known::default()
        }
    }

    #[test]
    fn a_tenant_whose_device_is_lost_has_a_row_that_says_so() {
        let rows = known(true, false, None).rows();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(
            (row.gpu, row.age_ms, row.limit),
            (Some(0), Some(77), Some(2))
        );
        assert_eq!((row.charged, row.owner), (0, Some(5)));
        assert_eq!(row.residency_text, [LOST]);
        // Its device is there: the tenant ended between the two lists.
        assert!(known(false, false, None).rows().is_empty());
        let rows = known(false, true, None).rows();
        assert!(
            rows.len() == 1 && rows[0].residency_text.is_empty(),
            "{rows:?}"
        );
    }

    #[test]
    fn a_tenant_that_is_in_both_lists_is_shown_as_queued_once() {
        for has_account in [true, false] {
            let rows = known(false, has_account, Some("waits")).rows();
            assert!(rows.len() == 1 && rows[0].queued.is_some(), "{rows:?}");
        }
    }
}
