//! `gpushare why`: gathers what is known of a tenant; [`answer`] says it.

mod answer;
mod ends;
mod memory;
mod past;
mod refused;
mod status;
mod time;

use crate::devices::named;
use crate::failure::Failure;
use crate::select::Wanted;
use crate::{args, daemon, history, names, output, ps, residency, when};
use answer::{Facts, InFiles};
use gpushare_client::Talk;
use gpushare_protocol::wire::EventRecord;
use serde_json::json;
use std::process::ExitCode;

/// The version of what `--json` prints.
const SCHEMA: u32 = 1;
/// Whether the tenant runs is not known.
const UNKNOWN: u8 = 1;

/// Says in sentences why a tenant is as it is.
pub(crate) fn why(arguments: &args::Why) -> Result<ExitCode, Failure> {
    let now_ms = when::now_ms();
    let since_ms = when::since(&arguments.since, now_ms)?;
    let in_files = ps::in_files(&arguments.tenant);
    let unserved = daemon::unserved_with(&arguments.tenant);
    let mut daemons = match history::daemons() {
        Err(failure) if !in_files.is_empty() || !unserved.is_empty() => {
            output::note(&format!("note: {}", failure.message));
            Vec::new()
        }
        other => other?,
    };
    let tenant = named_by(&arguments.tenant, &mut daemons, since_ms)?;
    let (mut all, lost) = daemon::answers(&mut daemons, |daemon| {
        let facts = facts_of(daemon, &tenant)?;
        Ok::<_, Failure>((daemon.instance(), facts))
    });
    all.retain(|(_, facts)| facts.has_it());
    match lost {
        // The one that is lost may have been the tenant's.
        Some(failure) if all.is_empty() => return Err(failure),
        Some(failure) => output::note(&format!("note: {}", failure.message)),
        None => {}
    }
    // The machine's daemon before the user's own. One name may have a tenant in each.
    let others = all.split_off(all.len().min(1));
    let mut facts = all.pop().map_or_else(Facts::default, |(_, facts)| facts);
    facts.name.clone_from(&tenant);
    (facts.since_ms, facts.others) = (since_ms, others.len());
    facts.unserved = unserved;
    let wanted = Wanted {
        tenants: vec![tenant],
        ..Wanted::default()
    };
    if facts.has_it() || in_files.is_empty() {
        facts.past = history::read(&mut daemons, since_ms, facts.began_since(now_ms))?;
        let is_others = |instance| others.iter().any(|(other, _)| *other == instance);
        let is_its = |record: &EventRecord| wanted.has(record) && !is_others(record.instance);
        facts.past.retain(is_its);
    } else {
        // Events of that name are those of another tenant, which had a daemon.
        facts.in_files = in_files.iter().map(InFiles::of).collect();
    }
    let answer = answer::answer(&facts);
    if arguments.json {
        let text = json!({
            "schema": SCHEMA,
            "tenant": facts.name,
            "state": answer.state.name(),
            "sentences": answer.sentences,
        });
        output::data(&text.to_string())?;
    } else {
        let width = output::width().unwrap_or(100);
        for sentence in &answer.sentences {
            output::data(&output::wrapped(sentence, width).join("\n"))?;
        }
    }
    Ok(match answer.state {
        answer::State::Unknown if arguments.json => {
            return Err(Failure::ours(answer.sentences.join(" ")));
        }
        answer::State::Unknown => ExitCode::from(UNKNOWN),
        _ => ExitCode::SUCCESS,
    })
}

/// The tenant that a word means: one that a daemon has, or else one that events tell of.
fn named_by(word: &str, daemons: &mut Vec<Talk>, since_ms: u64) -> Result<String, Failure> {
    if !names::may_be_short(word) {
        return Ok(word.to_owned());
    }
    let found = match names::among_living(word, daemons)? {
        None => names::among_past(word, &history::read(daemons, since_ms, None)?)?,
        found => found,
    };
    Ok(found.unwrap_or_else(|| word.to_owned()))
}

/// Where a tenant's memory is and why, if it is not all on its devices.
pub(crate) fn away(daemon: &mut Talk, tenant: &str) -> Result<Option<String>, Failure> {
    let facts = facts_of(daemon, tenant)?;
    let mut own = facts.residency.iter().filter(|row| row.name == tenant);
    Ok(own.find_map(|row| status::place(&facts, row)))
}

/// A daemon's lists of its tenants.
fn facts_of(daemon: &mut Talk, tenant: &str) -> Result<Facts, Failure> {
    // First: a tenant that is admitted meanwhile is told as queued.
    let status = daemon.status()?;
    let devices = daemon.devices()?;
    let named = devices.iter().enumerate().map(|(at, row)| {
        let name = named(row);
        let short = name.get(..12).unwrap_or(&name);
        (row.uuid, format!("GPU {at} ({short})"))
    });
    let lost = devices.iter().filter(|row| row.is_lost());
    Ok(Facts {
        name: tenant.to_owned(),
        instance: daemon.instance(),
        status,
        tenants: daemon.tenants()?,
        shares: daemon.shares()?,
        ends: daemon.ends()?,
        excess: daemon.excess()?,
        residency: daemon.residency()?,
        swaps: residency::swaps(daemon)?,
        devices: named.collect(),
        lost: lost.map(|row| row.uuid).collect(),
        rows: devices,
        ..Facts::default()
    })
}
