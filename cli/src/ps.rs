//! `gpushare ps`, `set` and `events`: the daemon's truth, shown and changed.

use crate::args::{Events, Ps, Set};
use crate::daemon::{self, Talk};
use crate::failure::Failure;
use crate::{output, settings};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{ContainerRow, Control, ControlReply, EventRow, ProcessState};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lists containers and their processes.
pub(crate) fn ps(arguments: &Ps) -> Result<ExitCode, Failure> {
    let mut rows = Vec::new();
    for mut daemon in daemon::some()? {
        if let ControlReply::Containers(more) = daemon.call(&Control::List)? {
            rows.extend(more);
        }
    }
    let text = if arguments.json {
        Value::from(rows.iter().map(container).collect::<Vec<_>>()).to_string()
    } else {
        table(&rows)
    };
    output::data(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn container(row: &ContainerRow) -> Value {
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
        "device": Uuid(row.device).to_string(),
        "request": row.request,
        "limit": row.limit,
        "grant": row.grant,
        "charged": row.charged,
        "overhead": row.overhead,
        "limbo": row.limbo,
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

fn table(rows: &[ContainerRow]) -> String {
    let mut lines = vec![format!(
        "{:<28} {:<13} {:>10} {:>10} {:>10} {:>10} {:>10}  PROCESSES",
        "CONTAINER", "DEVICE", "REQUEST", "LIMIT", "CHARGED", "GRANT", "OVERHEAD"
    )];
    for row in rows {
        let uuid = Uuid(row.device).to_string();
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
        lines.push(format!(
            "{:<28} {:<13} {request:>10} {limit:>10} {charged:>10} {grant:>10} {overhead:>10}  {}",
            row.name,
            &uuid[..12.min(uuid.len())],
            processes.collect::<Vec<_>>().join(", ")
        ));
    }
    lines.join("\n")
}

/// Changes a container's limits while it runs.
pub(crate) fn set(arguments: &Set) -> Result<ExitCode, Failure> {
    let changes = arguments.changes()?;
    let request = Control::Set {
        container: arguments.container.clone(),
        changes,
    };
    let mut last = None;
    for mut daemon in daemon::some()? {
        match daemon.call(&request) {
            Ok(_) => return Ok(ExitCode::SUCCESS),
            // Another daemon may have the container; one that has it and refuses says why.
            Err(failure) if failure.message.starts_with("no container is named") => {
                last = Some(failure)
            }
            Err(failure) => return Err(arguments.in_flags(failure)),
        }
    }
    Err(last.unwrap_or_else(|| Failure::ours("no daemon is running")))
}

/// Prints what happened, one line each; with `--follow` what happens from now on too.
pub(crate) fn events(arguments: &Events) -> Result<ExitCode, Failure> {
    let mut daemons = daemon::some()?;
    if !arguments.follow {
        for daemon in &mut daemons {
            let follow = daemon.ask(&Control::Follow { past: u32::MAX })?;
            let end = daemon.ask(&Control::Devices)?;
            // Replies come in order: what precedes the answer to the later question is the past.
            loop {
                match daemon.next().map_err(Failure::ours)? {
                    (id, ControlReply::Event(row)) if id == follow => show(&row, arguments.json)?,
                    (id, _) if id == end => break,
                    _ => {}
                }
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    std::thread::scope(|scope| {
        let each: Vec<_> = daemons
            .iter_mut()
            .map(|daemon| scope.spawn(|| follow(daemon, arguments.json)))
            .collect();
        let ends = each.into_iter().map(|one| one.join());
        ends.filter_map(Result::ok)
            .collect::<Result<Vec<()>, Failure>>()
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Until the daemon leaves.
fn follow(daemon: &mut Talk, as_json: bool) -> Result<(), Failure> {
    let id = daemon.ask(&Control::Follow { past: u32::MAX })?;
    loop {
        match daemon.next() {
            Ok((known, ControlReply::Event(row))) if known == id => show(&row, as_json)?,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(Failure::ours(error)),
        }
    }
}

fn show(row: &EventRow, as_json: bool) -> Result<(), Failure> {
    let device = row.device.map(|uuid| Uuid(uuid).to_string());
    let text = if as_json {
        let (at_ms, kind, container, text) = (row.at_ms, &row.kind, &row.container, &row.text);
        json!({"at_ms": at_ms, "kind": kind, "container": container, "device": device, "text": text}).to_string()
    } else {
        let (seconds, millis) = (row.at_ms / 1000, row.at_ms % 1000);
        let container = row.container.as_deref().unwrap_or("-");
        format!(
            "{seconds}.{millis:03}  {:<14} {container:<28} {}",
            row.kind, row.text
        )
    };
    output::data(&text)
}

impl Set {
    /// Blames the flag where the daemon blames the variable that came from it.
    fn in_flags(&self, mut failure: Failure) -> Failure {
        let sizes = [
            ("--mem-limit", "GPUSHARE_MEM_LIMIT", &self.mem_limit),
            ("--mem-request", "GPUSHARE_MEM_REQUEST", &self.mem_request),
        ];
        let sizes = sizes.into_iter().filter(|(.., values)| !values.is_empty());
        let terms = self
            .terms
            .given()
            .map(|(flag, variable, _)| (flag, variable));
        let mut given = sizes
            .map(|(flag, variable, _)| (flag, variable))
            .chain(terms);
        if let Some((flag, variable)) =
            given.find(|(_, variable)| failure.message.starts_with(variable))
        {
            failure.message.replace_range(..variable.len(), flag);
        }
        failure
    }

    /// What changes, as variables.
    fn changes(&self) -> Result<Vec<(String, String)>, Failure> {
        let limits = self
            .mem_limit
            .iter()
            .map(|value| settings::size("--mem-limit", "GPUSHARE_MEM_LIMIT", value));
        let requests = self
            .mem_request
            .iter()
            .map(|value| settings::size("--mem-request", "GPUSHARE_MEM_REQUEST", value));
        let terms = self
            .terms
            .given()
            .map(|(_, variable, value)| Ok((variable.to_owned(), value.to_owned())));
        let changes = limits
            .chain(requests)
            .chain(terms)
            .collect::<Result<Vec<_>, Failure>>()?;
        if changes.is_empty() {
            return Err(Failure::ours(
                "there is nothing to change; give a flag such as --mem-limit 4GiB",
            ));
        }
        Ok(changes)
    }
}
