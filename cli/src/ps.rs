//! `gpushare ps` and `set`: the daemon's truth, shown and changed.

mod files;
mod row;
mod table;

use crate::args::{Ps, Set};
use crate::daemon::{self, Talk};
use crate::devices::named;
use crate::failure::Failure;
use crate::{order, output, residency, select, settings, shares, sharing};
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{
    AskedRow, Control, EndRow, EndsBy, ProcessRow, ProcessState, ResidencyRow, ShareRow,
    SharingRow, TenantRow, TenantStatusRow, TenantSwaps,
};
use row::{Ends, Process, Queued, Row, SCHEMA};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Lists tenants and their processes.
pub(crate) fn ps(arguments: &Ps) -> Result<ExitCode, Failure> {
    let gpu = select::gpu(arguments.gpu.as_deref())?;
    let (mut rows, mut known) = (files::rows(), Known::default());
    let daemons = match daemon::some() {
        Ok(daemons) => daemons,
        Err(failure) if rows.is_empty() => return Err(failure),
        Err(failure) => {
            output::note(&format!("note: {}", failure.message));
            Vec::new()
        }
    };
    let mut kept = Vec::new();
    for mut daemon in daemons {
        kept.extend(known.ask(&mut daemon)?);
    }
    rows.splice(0..0, kept);
    rows.retain(|row| {
        let uuid = Uuid::parse(&row.device, '-').map(|uuid| uuid.0);
        gpu.as_ref()
            .is_none_or(|gpu| uuid.is_some_and(|uuid| gpu.is(uuid, row.gpu)))
    });
    if rows.is_empty() {
        let devices = known
            .names
            .iter()
            .map(|(uuid, (_, place))| (*uuid, Some(*place)));
        select::is_among(gpu.as_ref(), &devices.collect::<Vec<_>>())?;
    }
    let text = match arguments.json {
        true => serde_json::to_string(&rows).map_err(Failure::ours)?,
        false => table::of(&rows, output::width()),
    };
    output::data(&text)?;
    if rows.is_empty() && !arguments.json {
        let place = arguments.gpu.as_ref().map(|gpu| format!(" on GPU {gpu}"));
        output::note(&format!(
            "note: there is no tenant{}",
            place.unwrap_or_default()
        ));
    }
    if !arguments.json {
        let notes = known.devices.iter().filter_map(sharing::note);
        notes.for_each(|note| output::note(&note));
    }
    Ok(ExitCode::SUCCESS)
}

/// The context in which rows are shown.
#[derive(Default)]
struct Known {
    /// Devices as `CUDA_VISIBLE_DEVICES` names them, and their places.
    names: BTreeMap<[u8; 16], (String, u32)>,
    /// How their time is shared.
    times: Vec<ShareRow>,
    /// Tenants with an end.
    ends: Vec<EndRow>,
    /// Tenants with MPS clients.
    mps: BTreeSet<String>,
    /// How each device's time is shared.
    devices: Vec<SharingRow>,
    /// The gangs of tenants in one.
    gangs: BTreeMap<String, String>,
    /// Where memory is that can move.
    residency: Vec<ResidencyRow>,
    /// Its moves between the device and the host.
    swaps: Vec<TenantSwaps>,
    /// Owners, ages, and what queued tenants wait for.
    status: BTreeMap<String, TenantStatusRow>,
}

impl Known {
    /// Asks one daemon. Its rows: of admitted tenants, then of those that wait.
    fn ask(&mut self, daemon: &mut Talk) -> Result<Vec<Row>, Failure> {
        let tenants = daemon.tenants()?;
        let devices = daemon.devices()?;
        let names = (0..).zip(&devices);
        self.names
            .extend(names.map(|(place, row)| (row.uuid, (named(row), place))));
        self.times.extend(daemon.shares()?);
        self.ends.extend(daemon.ends()?);
        self.mps.extend(daemon.mps_clients()?);
        self.devices.extend(daemon.sharing()?);
        self.residency.extend(daemon.residency()?);
        self.swaps.extend(residency::swaps(daemon)?);
        let gangs = daemon.gangs()?.into_iter();
        self.gangs.extend(gangs.map(|row| (row.name, row.gang)));
        let status = daemon.status()?;
        let named = |row: &TenantStatusRow| (row.name.clone(), row.clone());
        self.status.extend(status.iter().map(named));
        let queued = status.iter().filter(|row| row.queued.is_some());
        let waits: BTreeSet<&str> = queued.clone().map(|row| &*row.name).collect();
        let admitted = tenants.iter().filter(|row| !waits.contains(&*row.name));
        let mut rows: Vec<Row> = admitted.map(|row| self.row(row)).collect();
        for row in queued {
            rows.extend(row.asks.iter().map(|asked| self.queued(row, asked)));
        }
        Ok(rows)
    }

    fn row(&self, row: &TenantRow) -> Row {
        let (device, gpu) = self.name_of(row.device);
        let share = shares::of(row, &self.times);
        let mps = self.mps.contains(&row.name);
        let status = self.status.get(&row.name);
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
            sharing: sharing::of(row.device, &self.devices).map(sharing::data),
            gang: self.gangs.get(&row.name).cloned(),
            residency: place.map(|place| residency::data(place, swaps)),
            residency_text: place.map_or_else(Vec::new, |place| {
                let moved = residency::moved(place, swaps);
                [residency::text(place, swaps)]
                    .into_iter()
                    .chain(moved)
                    .collect()
            }),
            ends: self.end_of(&row.name),
            processes: row.processes.iter().map(process).collect(),
            time_text: shares::text(share, mps),
        }
    }

    /// A device that a tenant waits for.
    fn queued(&self, row: &TenantStatusRow, asked: &AskedRow) -> Row {
        let (device, gpu) = self.name_of(asked.device);
        Row {
            schema: SCHEMA,
            name: row.name.clone(),
            device,
            gpu,
            owner: row.owner,
            daemon: true,
            queued: row.queued.clone().map(|why| Queued {
                for_ms: row.for_ms,
                why,
            }),
            age_ms: None,
            request: asked.request,
            limit: Some(asked.limit),
            grant: 0,
            charged: 0,
            overhead: 0,
            limbo: 0,
            time: None,
            sharing: sharing::of(asked.device, &self.devices).map(sharing::data),
            gang: self.gangs.get(&row.name).cloned(),
            residency: None,
            residency_text: Vec::new(),
            ends: None,
            processes: Vec::new(),
            time_text: "-".to_owned(),
        }
    }

    fn name_of(&self, device: [u8; 16]) -> (String, Option<u32>) {
        let known = self.names.get(&device).cloned();
        known.map_or_else(
            || (Uuid(device).to_string(), None),
            |(name, place)| (name, Some(place)),
        )
    }

    fn end_of(&self, name: &str) -> Option<Ends> {
        let end = self.ends.iter().find(|end| end.name == name)?;
        Some(Ends {
            in_ms: end.in_ms,
            by: match end.by {
                EndsBy::IdleEnd => "idle end",
                EndsBy::RunLimit => "run limit",
                _ => "a limit this version does not know",
            },
        })
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

/// Bytes of its contexts, if the process measured them. The library marks a context that it did not
/// measure, because the daemon does, by one byte.
fn measured(overhead: u64) -> Option<u64> {
    Some(overhead).filter(|bytes| *bytes > 1)
}

/// Changes a tenant's limits while it runs.
pub(crate) fn set(arguments: &Set) -> Result<ExitCode, Failure> {
    let changes = arguments.changes()?;
    let request = Control::Set {
        tenant: arguments.tenant.clone(),
        changes,
    };
    order::give(&arguments.tenant, |daemon| daemon.call(&request).map(drop))
        .map_err(|failure| arguments.in_flags(failure))
}

/// Whether this user's tenant of that name has no daemon: its books are files.
pub(crate) fn has_files_only(tenant: &str) -> bool {
    files::rows().iter().any(|row| row.name == tenant)
}

impl Set {
    /// Blames the flag where the daemon blames the variable that came from it.
    fn in_flags(&self, mut failure: Failure) -> Failure {
        for set in settings::chosen(&self.amounts).unwrap_or_default() {
            let blamed = format!("{}={:?} ", set.variable, set.value);
            if failure.message.starts_with(&blamed) {
                let flag = format!("{}={:?} ", set.flag, set.given);
                failure.message.replace_range(..blamed.len(), &flag);
                return failure;
            }
        }
        let terms = self
            .terms
            .given()
            .map(|(flag, variable, _)| (flag, variable));
        let mut given = settings::given(&self.amounts).chain(terms);
        if let Some((flag, variable)) =
            given.find(|(_, variable)| failure.message.starts_with(variable))
        {
            failure.message.replace_range(..variable.len(), flag);
        }
        failure
    }

    /// The changes, as variables.
    pub(crate) fn changes(&self) -> Result<Vec<(String, String)>, Failure> {
        let mut changes = settings::variables(&self.amounts)?;
        changes.extend(settings::terms(&self.terms)?);
        if changes.is_empty() {
            return Err(Failure::usage(
                "there is nothing to change; give a flag such as --mem-limit 4GiB",
            ));
        }
        Ok(changes)
    }
}
