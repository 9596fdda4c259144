//! `gpushare ps` and `set`: the daemon's truth, shown and changed.

mod files;
mod known;
mod places;
mod row;
mod table;

use crate::args::{Ps, Set};
use crate::failure::Failure;
use crate::{daemon, names, order, output, select, settings, sharing};
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{Control, TenantRow};
use known::Known;
pub(crate) use row::Row;
use std::process::ExitCode;

/// The output of `ps`: data, and notes.
pub(crate) struct Listed {
    text: String,
    notes: Vec<String>,
}

impl Listed {
    /// Prints it. Of the notes those that are not `shown` yet. Returns all of them.
    pub(crate) fn print(self, shown: &[String]) -> Result<Vec<String>, Failure> {
        output::data(&self.text)?;
        let new = self.notes.iter().filter(|note| !shown.contains(note));
        new.for_each(|note| output::note(note));
        Ok(self.notes)
    }
}

/// Tenants and their processes.
pub(crate) fn listed(arguments: &Ps) -> Result<Listed, Failure> {
    let gpu = select::gpu(arguments.gpu.as_deref())?;
    let (mut rows, mut notes) = (files::rows(), Vec::new());
    let mut daemons = match daemon::some_with(&mut notes) {
        Ok(daemons) => daemons,
        Err(failure) if rows.is_empty() => return Err(failure),
        Err(failure) => {
            notes.push(format!("note: {}", failure.message));
            Vec::new()
        }
    };
    let (mut kept, mut shared, mut devices) = (Vec::new(), Vec::new(), Vec::new());
    for known in daemon::those_that_answer_with(&mut daemons, Known::of, &mut notes)? {
        devices.extend(known.places());
        kept.extend(known.rows());
        shared.extend(known.sharing);
    }
    rows.splice(0..0, kept);
    let unknown = gpu.as_ref().map_or_else(Vec::new, |gpu| {
        places::keep(&mut rows, gpu, &mut devices, places::of_driver)
    });
    if rows.is_empty() {
        select::is_among(gpu.as_ref(), &devices)?;
    }
    if arguments.json {
        let text = serde_json::to_string(&rows).map_err(Failure::ours)?;
        return Ok(Listed { text, notes });
    }
    let place = arguments.gpu.as_ref().map(|gpu| format!(" on GPU {gpu}"));
    let place = place.unwrap_or_default();
    let unused = match arguments.all {
        true => 0,
        false => leave_out_unused(&mut rows, gpu.is_some()),
    };
    match (rows.is_empty(), unused) {
        (true, 0) => notes.push(format!("note: there is no tenant{place}")),
        (false, 0) => {}
        (_, 1) => notes.push(format!(
            "note: 1 tenant may use the GPU and has used nothing{place}: `ps --all` lists it"
        )),
        (_, many) => notes.push(format!(
            "note: {many} tenants may use the GPU and have used nothing{place}: `ps --all` lists them"
        )),
    }
    if !unknown.is_empty() {
        notes.push(format!(
            "note: the index of {} is not known here: tenants without a daemon on it are listed with any",
            unknown.join(", ")
        ));
    }
    notes.extend(shared.iter().filter_map(sharing::note));
    Ok(Listed {
        text: table::of(&rows, output::width()),
        notes,
    })
}

/// Leaves out rows of devices of which a tenant holds and had nothing: by default it may use all of
/// the node. Each tenant keeps one, which says how many there are more; but for those on `one_gpu`,
/// of which this returns how many are left out.
fn leave_out_unused(rows: &mut Vec<Row>, one_gpu: bool) -> usize {
    if one_gpu {
        let before = rows.len();
        rows.retain(|row| row.used);
        return before - rows.len();
    }
    let all = std::mem::take(rows);
    for own in all.chunk_by(|a, b| (&a.name, a.owner, a.daemon) == (&b.name, b.owner, b.daemon)) {
        let mut kept: Vec<Row> = own.iter().filter(|row| row.used).cloned().collect();
        if kept.is_empty() {
            kept.extend(own.first().cloned());
        }
        let more = own.len() - kept.len();
        if let Some(first) = kept.first_mut() {
            first.more = more;
        }
        rows.extend(kept);
    }
    0
}

/// Changes a tenant's limits while it runs.
pub(crate) fn set(arguments: &Set) -> Result<ExitCode, Failure> {
    let changes = arguments.changes()?;
    let name = names::of_living(&arguments.tenant)?;
    let request = Control::Set {
        tenant: name.clone(),
        changes,
    };
    let tenant = (&*name, arguments.json);
    let change = |daemon: &mut daemon::Talk| {
        daemon.call(&request)?;
        // It is done, and a daemon that leaves now takes nothing back.
        for row in daemon.tenants().unwrap_or_default() {
            above(&row, &name).inspect(|note| output::note(note));
        }
        Ok(())
    };
    order::give(tenant, change).map_err(|mut failure| {
        settings::blame_flags(&arguments.amounts, &arguments.terms, &mut failure.message);
        failure
    })
}

/// A note that this tenant holds more on a device than its limit is now.
fn above(row: &TenantRow, tenant: &str) -> Option<String> {
    let is_above = row.name == tenant && row.charged > row.limit;
    is_above.then(|| {
        format!(
            "note: {tenant} holds {} on {}: it keeps them, and gets nothing new there until it holds less than {}",
            Bytes(row.charged).human(),
            Uuid(row.device),
            Bytes(row.limit).human()
        )
    })
}

/// A daemon's rows of one tenant, as `ps --json` prints rows.
pub(crate) fn json_of(tenant: &str, daemon: &mut daemon::Talk) -> Result<String, Failure> {
    let mut rows = Known::of(daemon)?.rows();
    rows.retain(|row| row.name == tenant);
    serde_json::to_string(&rows).map_err(Failure::ours)
}

/// This user's tenant of that name without a daemon, whose books are files: a row for each device.
pub(crate) fn in_files(tenant: &str) -> Vec<Row> {
    let mut rows = files::rows();
    rows.retain(|row| row.name == tenant);
    rows
}

/// Whether there is one.
pub(crate) fn has_files_only(tenant: &str) -> bool {
    !in_files(tenant).is_empty()
}

impl Set {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, gpu: u32, used: bool) -> Row {
        Row {
            schema: row::SCHEMA,
            name: name.to_owned(),
            device: format!("GPU-{gpu}"),
            gpu: Some(gpu),
            daemon: true,
            used,
            ..Row::default()
        }
    }

    #[test]
    fn gpus_that_a_tenant_never_used_are_a_number_and_not_lines() {
        let all = || -> Vec<Row> {
            let web = (0..8).map(|gpu| row("web", gpu, gpu == 5));
            let new = (0..8).map(|gpu| row("new", gpu, false));
            let two = (0..2).map(|gpu| row("two", gpu, true));
            web.chain(new).chain(two).collect()
        };
        let mut rows = all();
        assert_eq!(leave_out_unused(&mut rows, false), 0);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (&*row.name, row.gpu, row.more))
            .collect();
        assert_eq!(
            shown,
            [
                ("web", Some(5), 7),
                ("new", Some(0), 7),
                ("two", Some(0), 0),
                ("two", Some(1), 0)
            ]
        );
        let text = table::of(&rows, Some(100));
        assert_eq!(text.matches("7 more GPUs without use").count(), 2, "{text}");
        // Of one GPU the rows of those that use it.
        let mut rows: Vec<Row> = all().into_iter().filter(|row| row.gpu == Some(0)).collect();
        assert_eq!(leave_out_unused(&mut rows, true), 2);
        assert!(rows.len() == 1 && rows[0].name == "two", "{rows:?}");
    }

    #[test]
    fn a_tenant_above_its_lowered_limit_is_noted_and_one_at_it_is_not() {
        let mut row = TenantRow {
            name: "web".to_owned(),
            device: [7; 16],
            request: 0,
            limit: 2 << 30,
            grant: 0,
            charged: 9 << 30,
            overhead: 0,
            limbo: 0,
            processes: Vec::new(),
        };
        let note = above(&row, "web").unwrap();
        let words = ["web holds 9 GiB on GPU-", "less than 2 GiB"];
        assert!(words.iter().all(|words| note.contains(words)), "{note}");
        assert_eq!(above(&row, "other"), None);
        row.charged = row.limit;
        assert_eq!(above(&row, "web"), None);
    }
}
