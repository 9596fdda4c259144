//! `gpushare why`: gathers what is known of a tenant; [`answer`] says it.

mod answer;
mod past;
mod status;

use crate::args;
use crate::devices::named;
use crate::failure::Failure;
use crate::select::Wanted;
use crate::{history, output, residency, when};
use answer::Facts;
use serde_json::json;
use std::process::ExitCode;

/// The version of what `--json` prints.
const SCHEMA: u32 = 1;
/// Nothing is known of the tenant.
const UNKNOWN: u8 = 1;

/// Says in sentences why a tenant is as it is.
pub(crate) fn why(arguments: &args::Why) -> Result<ExitCode, Failure> {
    let since_ms = when::since(&arguments.since, when::now_ms())?;
    let mut facts = Facts {
        name: arguments.tenant.clone(),
        since_ms,
        ..Facts::default()
    };
    let mut daemons = history::daemons()?;
    for daemon in &mut daemons {
        let devices = daemon.devices()?;
        let named = devices.iter().enumerate().map(|(at, row)| {
            let name = named(row);
            let short = name.get(..12).unwrap_or(&name);
            (row.uuid, format!("GPU {at} ({short})"))
        });
        facts.devices.extend(named);
        facts.tenants.extend(daemon.tenants()?);
        facts.shares.extend(daemon.shares()?);
        facts.ends.extend(daemon.ends()?);
        facts.status.extend(daemon.status()?);
        facts.residency.extend(daemon.residency()?);
        facts.swaps.extend(residency::swaps(daemon)?);
    }
    let wanted = Wanted {
        tenants: vec![arguments.tenant.clone()],
        since_ms,
        ..Wanted::default()
    };
    facts.past = history::read(&mut daemons, since_ms)?;
    facts.past.retain(|record| wanted.has(record));
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
        answer::State::Unknown => ExitCode::from(UNKNOWN),
        _ => ExitCode::SUCCESS,
    })
}
