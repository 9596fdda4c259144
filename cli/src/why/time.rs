//! Sentences about a tenant and the time of a device.

use super::answer::Facts;
use crate::when::span;
use gpushare_exporter::Had;
use gpushare_protocol::wire::{ProcessState, ShareRow, ShareState, SteeredBy, TenantRow};

/// Why it may not use the device's time now.
pub(super) fn throttled(facts: &Facts, row: &ShareRow) -> Option<String> {
    let (name, device) = (&row.name, facts.device(row.device));
    let got = had(row);
    let others = |state| others(facts, row, state);
    Some(match &row.state {
        ShareState::Capped { for_us } => format!(
            "{name} has used up its cap of {} on {device} and has waited {} for its next part; `gpushare set {name} --sm-limit PERCENT` changes the cap.",
            row.cap.map_or_else(|| "the time".to_owned(), percent),
            span(for_us / 1000)
        ),
        ShareState::Held { for_us } => format!(
            "{name} has been closed on {device} for {}{}{got}",
            span(for_us / 1000),
            cause(row)
        ),
        ShareState::Yielding { .. } => format!(
            "{name} works in short slices on {device}{}{got}",
            cause(row)
        ),
        ShareState::Waiting { for_us } => format!(
            "{name} has waited {} for its turn on {device}, which {} has.{got}",
            span(for_us / 1000),
            others(|state| matches!(
                state,
                ShareState::Holding { .. } | ShareState::Draining { .. }
            ))
        ),
        ShareState::Draining { for_us } => format!(
            "The turn of {name} on {device} is over: it has had {} to finish what it submitted.{got}",
            span(for_us / 1000)
        ),
        _ => return None,
    })
}

/// For which tenant it yields or is held, and why.
fn cause(row: &ShareRow) -> String {
    let Some(steered) = &row.steered else {
        return ".".to_owned();
    };
    let other = steered.tenant.as_deref().unwrap_or("another tenant");
    let name = &row.name;
    let why = match (steered.cause, row.weight) {
        (SteeredBy::Gang, _) => {
            return ": its gang is closed on all its GPUs, for a tenant on one of them.".to_owned();
        }
        (SteeredBy::Share, _) => {
            "it is ahead of its share, and that tenant is behind its own (--sm-request).".to_owned()
        }
        (SteeredBy::Request, _) => "the request of that tenant is due (--sm-request).".to_owned(),
        (SteeredBy::Priority, 0) => format!(
            "that tenant is of a higher priority, and nothing is guaranteed to {name}. `gpushare set {name} --sm-request PERCENT` guarantees it a share, and --priority ranks it."
        ),
        (SteeredBy::Priority, _) => "that tenant is of a higher priority (--priority).".to_owned(),
        (SteeredBy::Turn, _) => {
            "they take turns, because the GPU would lose more time by changes between them."
                .to_owned()
        }
        _ => "for a cause that this version does not know.".to_owned(),
    };
    format!(", for {other}: {why}")
}

/// The time that it had lately, as `ps` tells it.
fn had(row: &ShareRow) -> String {
    let Some(part) = Had::of(row).part else {
        return String::new();
    };
    let due = match row.weight {
        0 => String::new(),
        weight => format!(
            ", and {} is its share while all want the device",
            percent(weight)
        ),
    };
    let over = span(row.over_ms);
    format!(" It had {} of the last {over}{due}.", percent(part))
}

/// The other tenants on the device of a row that are in such a state.
fn others(facts: &Facts, row: &ShareRow, state: fn(&ShareState) -> bool) -> String {
    let others = facts.shares.iter().filter(|other| {
        other.device == row.device && other.name != row.name && state(&other.state)
    });
    let names: Vec<&str> = others.map(|other| &*other.name).collect();
    match names.is_empty() {
        true => "another tenant".to_owned(),
        false => names.join(", "),
    }
}

/// Since when none of its processes has submitted any work.
pub(super) fn idle(rows: &[&TenantRow]) -> Option<String> {
    // Since the last work of any of its processes.
    let mut least: Option<u64> = None;
    for process in rows.iter().flat_map(|row| &row.processes) {
        match process.state {
            ProcessState::Idle { for_ms } => {
                least = Some(least.map_or(for_ms, |ms| ms.min(for_ms)));
            }
            _ => return None,
        }
    }
    least.map(|ms| format!("It has submitted no GPU work for {}.", span(ms)))
}

fn percent(part: u32) -> String {
    format!("{} %", f64::from(part) / 10.0)
}
