//! `gpushare events`: what happened, and what happens.

mod show;

use crate::args::Events;
use crate::daemon;
use crate::failure::Failure;
use crate::select::{self, Wanted};
use crate::{history, output, perfetto, when};
use gpushare_protocol::wire::EventRecord;
use std::process::ExitCode;

/// Events shown without `--since`.
const LAST: usize = 1024;

/// Prints what happened, one line each; with `--follow` what happens from now on too.
pub(crate) fn events(arguments: &Events) -> Result<ExitCode, Failure> {
    let since = arguments.since.as_deref();
    let since = since.map(|text| when::since(text, when::now_ms()));
    let since = since.transpose()?;
    let wanted = Wanted {
        tenants: arguments.tenant.clone(),
        gpu: select::gpu(arguments.gpu.as_deref())?,
        kinds: arguments.kind.clone(),
        since_ms: since.unwrap_or(0),
    };
    if arguments.follow {
        return follow(arguments.json, &wanted, since.is_some());
    }
    let mut daemons = history::daemons()?;
    let mut all = history::read(&mut daemons, wanted.since_ms)?;
    all.retain(|record| wanted.has(record));
    let first = match since {
        Some(_) => 0,
        None => all.len().saturating_sub(LAST),
    };
    if let Some(path) = &arguments.perfetto {
        perfetto::write(path, &all[first..], &mut daemons, when::now_ms())?;
        return Ok(ExitCode::SUCCESS);
    }
    for record in &all[first..] {
        print(record, arguments.json)?;
    }
    if all.is_empty() && !arguments.json {
        output::note("note: no such event is known");
    }
    Ok(ExitCode::SUCCESS)
}

/// Until the daemons leave. The past is what they remember, and with `--since` what the journals
/// have, too.
fn follow(as_json: bool, wanted: &Wanted, with_journals: bool) -> Result<ExitCode, Failure> {
    output::ends_with_its_reader();
    let mut daemons = daemon::some()?;
    let mut seen = std::collections::BTreeSet::new();
    if with_journals {
        for record in history::read(&mut [], wanted.since_ms)? {
            seen.insert((record.instance, record.number));
            if wanted.has(&record) {
                print(&record, as_json)?;
            }
        }
    }
    let seen = &seen;
    std::thread::scope(|scope| {
        let each: Vec<_> = daemons
            .iter_mut()
            .map(|daemon| {
                scope.spawn(move || {
                    daemon.follow(u32::MAX, |record: EventRecord| {
                        let known =
                            record.number > 0 && seen.contains(&(record.instance, record.number));
                        match wanted.has(&record) && !known {
                            true => print(&record, as_json),
                            false => Ok(()),
                        }
                    })
                })
            })
            .collect();
        let ends = each.into_iter().map(|one| one.join());
        ends.filter_map(Result::ok)
            .collect::<Result<Vec<()>, Failure>>()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn print(record: &EventRecord, as_json: bool) -> Result<(), Failure> {
    output::data(&match as_json {
        true => gpushare_journal::json(record),
        false => show::line(record, output::width()),
    })
}
