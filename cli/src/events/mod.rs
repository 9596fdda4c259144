//! `gpushare events`: what happened, and what happens.

mod kinds;
mod show;

pub(crate) use kinds::Kind;

use crate::args::Events;
use crate::daemon;
use crate::failure::Failure;
use crate::perfetto::{self, Lives, Window};
use crate::select::{self, Wanted};
use crate::{history, names, output, threads, when};
use gpushare_protocol::wire::EventRecord;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Events shown without `--since`.
const LAST: usize = 1024;

/// Prints what happened, one line each; with `--follow` what happens from now on too.
pub(crate) fn events(arguments: &Events) -> Result<ExitCode, Failure> {
    let since = arguments.since.as_deref();
    let since = since.map(|text| when::since(text, when::now_ms()));
    let since = since.transpose()?;
    let mut wanted = Wanted {
        tenants: arguments.tenant.clone(),
        words: arguments.tenant.clone(),
        gpu: select::gpu(arguments.gpu.as_deref())?,
        kinds: arguments.kind.clone(),
        since_ms: since.unwrap_or(0),
        ..Wanted::default()
    };
    if arguments.follow {
        return follow(arguments.json, wanted, since.is_some());
    }
    let mut daemons = history::daemons()?;
    wanted.find_places(&mut daemons)?;
    let from = match arguments.perfetto {
        // A tenant's end is known also where that event is not asked for.
        Some(_) => 0,
        None => wanted.since_ms,
    };
    let mut all = history::read(&mut daemons, from, None)?;
    wanted.learn_places(&all);
    if !all.iter().any(|record| wanted.is_on_gpu(record)) {
        select::is_there(wanted.gpu.as_ref(), &mut daemons)?;
    }
    let unknown = wanted.find_tenants(&mut daemons, &all);
    are_known(&unknown, "and no event of that time tells of one")?;
    if let Some(path) = &arguments.perfetto {
        let lives = Lives::of(&all);
        all.retain(|record| wanted.is_of_any_kind(record));
        let window = window(&wanted, since, &all);
        perfetto::write(path, (&all, lives, window), &wanted, &mut daemons)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Those since then are what was read.
    wanted.since_ms = 0;
    all.retain(|record| wanted.has(record));
    let first = match since {
        Some(_) => 0,
        None => all.len().saturating_sub(LAST),
    };
    for record in &all[first..] {
        print(record, arguments.json)?;
    }
    if all.is_empty() && !arguments.json {
        output::note("note: no such event is known");
    }
    Ok(ExitCode::SUCCESS)
}

/// The part of the events that a trace shows, of the tenants and the GPU that are asked for.
/// Without `--since` it begins with the first of the last events of the kinds that are asked for.
fn window(wanted: &Wanted, since: Option<u64>, all: &[EventRecord]) -> Window {
    let of_kinds = all.iter().filter(|record| wanted.has(record));
    let mut last: Vec<u64> = of_kinds.rev().take(LAST).map(|one| one.at_ms).collect();
    if last.is_empty() {
        last = all.iter().rev().take(LAST).map(|one| one.at_ms).collect();
    }
    let first = match last.len() < LAST {
        true => 0,
        false => last.into_iter().min().unwrap_or(0),
    };
    Window {
        from_ms: since.unwrap_or(first),
        all_from_ms: since.unwrap_or(0),
        kinds: wanted.kinds.clone(),
        has_some: !wanted.tenants.is_empty(),
    }
}

/// Says which words of `--tenant` mean no tenant.
///
/// # Errors
/// If one of them can only be short for a name: there is no tenant of that pod, or with that id.
fn are_known(unknown: &[String], and: &str) -> Result<(), Failure> {
    for word in unknown {
        let text = format!("no daemon has a tenant {word}, {and}");
        match names::may_be_short(word) {
            true => return Err(Failure::ours(text)),
            false => output::note(&format!("note: {text}")),
        }
    }
    Ok(())
}

/// The end of a thread of [`follow`].
enum Ended {
    /// A daemon left, or could not be followed.
    Daemon(Result<(), Failure>),
    /// Nothing reads what is printed.
    Reader,
}

/// Until the daemons leave, or nothing reads it. The past is what they remember, and with `--since`
/// what the journals have, too.
fn follow(as_json: bool, mut wanted: Wanted, with_journals: bool) -> Result<ExitCode, Failure> {
    let mut daemons = daemon::some()?;
    select::is_there(wanted.gpu.as_ref(), &mut daemons)?;
    wanted.find_places(&mut daemons)?;
    let mut seen = BTreeSet::new();
    let past = match with_journals {
        true => history::beside_daemons(wanted.since_ms)?,
        false => Vec::new(),
    };
    for word in wanted.find_tenants(&mut daemons, &past) {
        output::note(&format!(
            "note: no daemon has a tenant {word} yet: its events follow once there is one"
        ));
    }
    if with_journals {
        wanted.learn_places(&past);
        for record in past {
            seen.insert((record.instance, record.number));
            if wanted.is_of_any_time(&record) {
                print(&record, as_json)?;
            }
        }
    }
    let mut left = daemons.len();
    let (say, said) = channel();
    let shared = Arc::new((wanted, seen));
    for mut daemon in daemons {
        let shared = Arc::clone(&shared);
        in_thread(&say, move || {
            let (wanted, seen) = &*shared;
            let (mut wanted, mut next) = (wanted.clone(), 0);
            Ended::Daemon(daemon.follow(u32::MAX, |record: EventRecord| {
                note_missing(next, record.number);
                wanted.learn_tenant(&record);
                next = record.number + 1;
                let known = record.number > 0 && seen.contains(&(record.instance, record.number));
                match wanted.has_next(&record) && !known {
                    true => print(&record, as_json),
                    false => Ok(()),
                }
            }))
        })?;
    }
    in_thread(&say, || {
        output::wait_until_unread();
        Ended::Reader
    })?;
    let mut all = Ok(());
    while left > 0 {
        match said.recv() {
            Ok(Ended::Daemon(ended)) => all = all.and(ended),
            Ok(Ended::Reader) | Err(_) => break,
        }
        left -= 1;
    }
    all.map(|()| ExitCode::SUCCESS)
}

/// Says how many events of a daemon are missing before this one, where one with the number `next`
/// would follow: 0 or 1 if none has been told yet, or the daemon gives no numbers.
fn note_missing(next: u64, number: u64) {
    if next > 1 && number > next {
        output::note(&format!(
            "note: {} events are missing here: the daemon cut this off, because it was read more slowly than they came",
            number - next
        ));
    }
}

/// Does it in a thread that says its result; the program's end ends it.
fn in_thread(
    say: &Sender<Ended>,
    does: impl FnOnce() -> Ended + Send + 'static,
) -> Result<(), Failure> {
    let say = say.clone();
    threads::begin(move || {
        let _ = say.send(does());
    })
}

fn print(record: &EventRecord, as_json: bool) -> Result<(), Failure> {
    output::data(&match as_json {
        true => gpushare_journal::json(record),
        false => show::line(record, output::width()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_begins_with_the_first_event_that_a_list_would_have() {
        let record = |at_ms: u64, kind: &str| EventRecord {
            instance: 1,
            number: at_ms,
            at_ms,
            kind: kind.to_owned(),
            tenant: Some("web".to_owned()),
            device: None,
            text: String::new(),
            facts: vec![],
        };
        let many = LAST as u64 + 100;
        let all: Vec<_> = (1..=many).map(|at| record(at, "left")).collect();
        let of = |since: Option<u64>, kind: Option<&str>, all: &[EventRecord]| {
            let wanted = Wanted {
                since_ms: since.unwrap_or(0),
                kinds: kind.into_iter().map(str::to_owned).collect(),
                ..Wanted::default()
            };
            let window = window(&wanted, since, all);
            (window.from_ms, window.all_from_ms)
        };
        assert_eq!(of(None, None, &all), (101, 0));
        assert_eq!(of(None, None, &all[..50]), (0, 0), "all are shown");
        assert_eq!(of(None, Some("gone"), &all), (101, 0), "none is a mark");
        assert_eq!(of(Some(30), None, &all), (30, 30));
    }
}
