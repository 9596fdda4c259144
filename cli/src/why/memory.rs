//! Sentences about a tenant's memory on a device, and about that of others.

use super::answer::Facts;
use crate::residency;
use crate::when::span;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ProcessState, TenantRow};

/// Its waiting allocations on a device, and whose memory they wait for.
pub(super) fn waits(facts: &Facts, row: &TenantRow) -> Vec<String> {
    let mut sentences = Vec::new();
    for process in &row.processes {
        if let ProcessState::Waiting(want) = &process.state {
            sentences.push(format!(
                "Process {} of {} has waited {} for {} on {}.",
                process.pid,
                row.name,
                span(want.since_ms),
                Bytes(want.bytes).human(),
                facts.device(row.device)
            ));
        }
    }
    if !sentences.is_empty() {
        sentences.push(holds(facts, row));
        sentences.extend(others(facts, row));
        sentences.extend(besides(facts, row));
        sentences.extend(promised(facts, row));
        sentences.push(
            "It goes on when enough is freed, or gets an out-of-memory when its --wait-timeout is over."
                .to_owned(),
        );
    }
    sentences
}

/// That it holds more than it may on a device, since its limit was lowered.
pub(super) fn above(facts: &Facts, row: &TenantRow) -> Option<String> {
    let more = row
        .charged
        .checked_sub(row.limit)
        .filter(|more| *more > 0)?;
    let (device, limit) = (facts.device(row.device), Bytes(row.limit).human());
    Some(format!(
        "On {device} it holds {} more than its limit of {limit}: each further allocation there is refused until it has freed that; `gpushare set {} --mem-limit SIZE` raises the limit.",
        Bytes(more).human(),
        row.name
    ))
}

/// Its memory on one device.
pub(super) fn holds(facts: &Facts, row: &TenantRow) -> String {
    let beyond = row.charged.saturating_sub(row.request);
    let borrowed = match beyond {
        0 => String::new(),
        _ => format!(", {} of it above the request", Bytes(beyond).human()),
    };
    format!(
        "On {} it is charged {}{borrowed}; its request is {} and its limit {}.",
        facts.device(row.device),
        Bytes(row.charged).human(),
        Bytes(row.request).human(),
        Bytes(row.limit).human()
    )
}

/// The other tenants with memory there, the most borrowed first. Memory that is off the device is
/// not there.
fn others(facts: &Facts, row: &TenantRow) -> Option<String> {
    let others = facts.tenants.iter();
    let others = others.filter(|other| other.device == row.device && other.name != row.name);
    let mut others: Vec<(u64, u64, &str)> = others
        .map(|other| {
            let moved = residency::of(&facts.residency, (&other.name, other.device));
            let there = other
                .charged
                .saturating_sub(moved.map_or(0, |row| row.away));
            (there.saturating_sub(other.request), there, &*other.name)
        })
        .filter(|(_, there, _)| *there > 0)
        .collect();
    others.sort_by_key(|(borrowed, there, _)| std::cmp::Reverse((*borrowed, *there)));
    let each: Vec<String> = others
        .iter()
        .map(|(borrowed, there, name)| {
            let more = match borrowed {
                0 => String::new(),
                bytes => format!(" ({} above its request)", Bytes(*bytes).human()),
            };
            format!("{name} {}{more}", Bytes(*there).human())
        })
        .collect();
    (!each.is_empty()).then(|| format!("The others there are charged: {}.", each.join(", ")))
}

/// Memory on that device that no tenant is charged.
fn besides(facts: &Facts, row: &TenantRow) -> Option<String> {
    let device = facts.rows.iter().find(|known| known.uuid == row.device)?;
    let excess = facts.excess.iter().filter(|one| one.device == row.device);
    let parts = [
        (
            device.unmanaged,
            "by processes of no tenant (`gpushare events --kind unmanaged`)",
        ),
        (
            device.limbo,
            "by dead processes, whose memory the driver has not given back",
        ),
        (
            excess.map(|one| one.bytes).sum(),
            "by tenants beyond what they may",
        ),
        (device.overhead, "by contexts"),
        (device.reserve, "by the node, which keeps them back"),
    ];
    let parts = parts.iter().filter(|(bytes, _)| *bytes > 0);
    let each: Vec<String> = parts
        .map(|(bytes, whose)| format!("{} {whose}", Bytes(*bytes).human()))
        .collect();
    (!each.is_empty()).then(|| format!("Held there besides: {}.", each.join(", ")))
}

/// Memory on that device that is promised to other tenants and not in use, the most first.
fn promised(facts: &Facts, row: &TenantRow) -> Option<String> {
    let others = facts.tenants.iter();
    let others = others.filter(|other| other.device == row.device && other.name != row.name);
    let unused = |other: &TenantRow| other.request.saturating_sub(other.charged);
    let mut kept: Vec<(u64, &str)> = others.map(|other| (unused(other), &*other.name)).collect();
    kept.retain(|(bytes, _)| *bytes > 0);
    kept.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let (_, first) = kept.first()?;
    let each: Vec<String> = kept
        .iter()
        .map(|(bytes, name)| format!("{} to {name}", Bytes(*bytes).human()))
        .collect();
    Some(format!(
        "Promised to others as part of their requests, and not in use: {}. Only a tenant from which it can be taken back (--preemptible) may use that; `gpushare set {first} --mem-request SIZE` frees it.",
        each.join(", ")
    ))
}
