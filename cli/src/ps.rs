//! `gpushare ps` and `set`: the daemon's truth, shown and changed.

use crate::args::{Ps, Set};
use crate::daemon;
use crate::devices::named;
use crate::failure::Failure;
use crate::{output, settings, shares, sharing};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{
    Control, EndRow, EndsBy, ProcessState, ShareRow, SharingRow, TenantRow,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Lists tenants and their processes.
pub(crate) fn ps(arguments: &Ps) -> Result<ExitCode, Failure> {
    let (mut rows, mut known) = (Vec::new(), Known::default());
    for mut daemon in daemon::some()? {
        rows.extend(daemon.tenants()?);
        let devices = daemon.devices()?;
        let names = devices.iter().map(|row| (row.uuid, named(row)));
        known.names.extend(names);
        known.times.extend(daemon.shares()?);
        known.ends.extend(daemon.ends()?);
        known.mps.extend(daemon.mps_clients()?);
        known.devices.extend(daemon.sharing()?);
        let gangs = daemon.gangs()?.into_iter();
        known.gangs.extend(gangs.map(|row| (row.name, row.gang)));
    }
    let text = if arguments.json {
        let rows = rows.iter().map(|row| tenant(row, &known));
        Value::from(rows.collect::<Vec<_>>()).to_string()
    } else {
        table(&rows, &known)
    };
    output::data(&text)?;
    if !arguments.json {
        let notes = known.devices.iter().filter_map(sharing::note);
        notes.for_each(|note| output::note(&note));
    }
    Ok(ExitCode::SUCCESS)
}

/// The context in which rows are shown.
#[derive(Default)]
struct Known {
    /// Devices as `CUDA_VISIBLE_DEVICES` names them.
    names: BTreeMap<[u8; 16], String>,
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
}

impl Known {
    fn name_of(&self, device: [u8; 16]) -> String {
        let known = self.names.get(&device).cloned();
        known.unwrap_or_else(|| Uuid(device).to_string())
    }

    fn end_of(&self, row: &TenantRow) -> Option<(u64, &'static str)> {
        let end = self.ends.iter().find(|end| end.name == row.name)?;
        let by = match end.by {
            EndsBy::IdleEnd => "idle end",
            EndsBy::RunLimit => "run limit",
            _ => "a limit this version does not know",
        };
        Some((end.in_ms, by))
    }
}

fn tenant(row: &TenantRow, known: &Known) -> Value {
    let processes = row.processes.iter().map(|process| {
        let (state, waits_for, for_ms) = state_data(&process.state);
        json!({
            "pid": process.pid,
            "charged": process.charged,
            "overhead": process.overhead,
            "state": state,
            "waits_for": waits_for,
            "for_ms": for_ms,
        })
    });
    json!({
        "name": row.name,
        "device": known.name_of(row.device),
        "request": row.request,
        "limit": row.limit,
        "grant": row.grant,
        "charged": row.charged,
        "overhead": row.overhead,
        "limbo": row.limbo,
        "time": shares::of(row, &known.times)
            .map(|share| shares::data(share, known.mps.contains(&row.name))),
        "sharing": sharing::of(row.device, &known.devices).map(sharing::data),
        "gang": known.gangs.get(&row.name),
        "ends": known.end_of(row).map(|(in_ms, by)| json!({"in_ms": in_ms, "by": by})),
        "processes": processes.collect::<Vec<_>>(),
    })
}

/// A state's name; the bytes waited for; how long it lasts, in milliseconds.
fn state_data(state: &ProcessState) -> (&'static str, Option<u64>, Option<u64>) {
    match state {
        ProcessState::Running => ("running", None, None),
        ProcessState::Idle { for_ms } => ("idle", None, Some(*for_ms)),
        ProcessState::Waiting(want) => ("waiting", Some(want.bytes), Some(want.since_ms)),
        _ => ("unknown", None, None),
    }
}

fn state(state: &ProcessState) -> String {
    match state {
        ProcessState::Running => "running".to_owned(),
        ProcessState::Idle { for_ms } => format!("idle for {} s", for_ms / 1000),
        ProcessState::Waiting(want) => {
            format!(
                "waiting for {} since {} ms",
                Bytes(want.bytes).human(),
                want.since_ms
            )
        }
        _ => "unknown to this version".to_owned(),
    }
}

fn table(rows: &[TenantRow], known: &Known) -> String {
    let mut lines = vec![format!(
        "{:<28} {:<13} {:>10} {:>10} {:>10} {:>10} {:>10}  {:<24}  PROCESSES",
        "TENANT", "DEVICE", "REQUEST", "LIMIT", "CHARGED", "GRANT", "OVERHEAD", "TIME"
    )];
    for row in rows {
        let uuid = known.name_of(row.device);
        let [request, limit, charged, grant, overhead] =
            [row.request, row.limit, row.charged, row.grant, row.overhead]
                .map(|bytes| Bytes(bytes).human());
        let processes = row.processes.iter().map(|process| {
            format!(
                "{} {} ({})",
                process.pid,
                state(&process.state),
                Bytes(process.charged).human()
            )
        });
        let end = known.end_of(row);
        let end = end.map(|(in_ms, by)| format!("ends in {} s ({by})", in_ms / 1000));
        lines.push(format!(
            "{:<28} {:<13} {request:>10} {limit:>10} {charged:>10} {grant:>10} {overhead:>10}  {:<24}  {}",
            row.name,
            &uuid[..12.min(uuid.len())],
            shares::text(
                shares::of(row, &known.times),
                known.mps.contains(&row.name)
            ),
            processes.chain(end).collect::<Vec<_>>().join(", ")
        ));
    }
    lines.join("\n")
}

/// Changes a tenant's limits while it runs.
pub(crate) fn set(arguments: &Set) -> Result<ExitCode, Failure> {
    let changes = arguments.changes()?;
    let request = Control::Set {
        tenant: arguments.tenant.clone(),
        changes,
    };
    let mut last = None;
    for mut daemon in daemon::some()? {
        match daemon.call(&request) {
            Ok(_) => return Ok(ExitCode::SUCCESS),
            // Another daemon may have the tenant; the daemon that has it gives the reason of a
            // refusal.
            Err(failure) if failure.message.starts_with("no tenant is named") => {
                last = Some(failure.into());
            }
            Err(failure) => return Err(arguments.in_flags(failure.into())),
        }
    }
    Err(last.unwrap_or_else(|| Failure::ours("no daemon is running")))
}

impl Set {
    /// Blames the flag where the daemon blames the variable that came from it.
    fn in_flags(&self, mut failure: Failure) -> Failure {
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
        let terms = self.terms.given();
        changes.extend(terms.map(|(_, variable, value)| (variable.to_owned(), value.to_owned())));
        if changes.is_empty() {
            return Err(Failure::ours(
                "there is nothing to change; give a flag such as --mem-limit 4GiB",
            ));
        }
        Ok(changes)
    }
}
