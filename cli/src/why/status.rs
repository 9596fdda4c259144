//! A tenant's present state: queued, waiting, throttled, or running freely.

use super::answer::{Facts, InFiles, State};
use super::ends::ending;
use super::memory::{above, holds, waits};
use super::time::{idle, throttled};
use crate::residency;
use crate::when::span;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{
    EndsBy, EventRecord, Place, ResidencyRow, TenantRow, TenantStatusRow,
};

/// Its state and why, if a daemon has it. Of its life these events are known.
pub(super) fn now(facts: &Facts, life: &[EventRecord]) -> Option<(State, Vec<String>)> {
    let name = &facts.name;
    let status = facts.status.iter().find(|row| row.name == *name);
    if let Some((row, why)) = status.and_then(|row| Some((row, row.queued.as_ref()?))) {
        let text = format!(
            "{name} has been queued for {} and its program is not started yet: it {why}.",
            span(row.for_ms)
        );
        return Some((State::Queued, vec![text]));
    }
    let rows: Vec<&TenantRow> = facts
        .tenants
        .iter()
        .filter(|row| row.name == *name)
        .collect();
    if rows.is_empty() && status.is_none() {
        return None;
    }
    let waits: Vec<String> = rows.iter().flat_map(|row| waits(facts, row)).collect();
    let shares = facts.shares.iter().filter(|row| row.name == *name);
    let throttled: Vec<String> = shares.filter_map(|row| throttled(facts, row)).collect();
    let moved = facts.residency.iter().filter(|row| row.name == *name);
    let moved: Vec<String> = moved.filter_map(|row| place(facts, row)).collect();
    let lost: Vec<String> = status.map_or_else(Vec::new, |row| lost(facts, row));
    let state = match (waits.is_empty(), moved.is_empty(), throttled.is_empty()) {
        (false, ..) => State::Waiting,
        (true, false, _) => State::Out,
        (true, true, false) => State::Throttled,
        (true, true, true) if !lost.is_empty() => State::Lost,
        (true, true, true) => State::Running,
    };
    let mut sentences = lost;
    sentences.extend(waits);
    sentences.extend(moved);
    sentences.extend(throttled);
    if state == State::Lost {
        sentences.extend(rows.iter().map(|row| holds(facts, row)));
    }
    let served = rows.iter().filter(|row| !facts.lost.contains(&row.device));
    let over: Vec<String> = served.filter_map(|row| above(facts, row)).collect();
    let ending = ending(facts, life);
    if state == State::Running {
        let since = status.map(|row| format!(" for {}", span(row.for_ms)));
        let since = since.unwrap_or_default();
        let held_up = match (&ending, over.is_empty()) {
            (None, true) => "; nothing holds it up now",
            (None, false) => "; it gets no new memory",
            (Some(_), _) => "",
        };
        sentences.push(format!("{name} has been running{since}{held_up}."));
        sentences.extend(ending);
        sentences.extend(over);
        sentences.extend(rows.iter().map(|row| holds(facts, row)));
        sentences.extend(idle(&rows));
    } else {
        sentences.extend(over);
        sentences.extend(ending);
    }
    let own = facts.residency.iter().filter(|row| row.name == *name);
    for row in own {
        sentences.extend(leaves(facts, row));
        sentences.extend(moves(facts, row));
    }
    sentences.extend(ends(facts));
    Some((state, sentences))
}

/// The state of one without a daemon, if there is one.
pub(super) fn in_files(facts: &Facts) -> Option<(State, Vec<String>)> {
    let of_one = |row: &InFiles| {
        let processes = match row.processes {
            1 => "its process is".to_owned(),
            many => format!("its {many} processes are"),
        };
        let limit = row.limit.map_or_else(
            || "it has no limit".to_owned(),
            |limit| format!("its limit is {}", Bytes(limit).human()),
        );
        let charged = Bytes(row.charged).human();
        format!("On {} {processes} charged {charged}; {limit}.", row.device)
    };
    let mut sentences = vec![format!(
        "{} runs without a daemon: the library alone keeps its limits; nothing is guaranteed, nothing waits for others' memory, and no events are kept of it.",
        facts.name
    )];
    sentences.extend(facts.in_files.iter().map(of_one));
    (!facts.in_files.is_empty()).then_some((State::Running, sentences))
}

/// Its devices that are lost.
fn lost(facts: &Facts, row: &TenantStatusRow) -> Vec<String> {
    let devices = row.asks.iter().map(|asked| asked.device);
    let lost = devices.filter(|device| facts.lost.contains(device));
    let told = lost.map(|device| {
        format!(
            "{} does not answer any more: the calls of {} there fail until the GPU is back and the daemon is started again.",
            facts.device(device),
            row.name
        )
    });
    told.collect()
}

/// Where its memory is, if it is not all on the device.
pub(super) fn place(facts: &Facts, row: &ResidencyRow) -> Option<String> {
    let (name, device, since) = (&row.name, facts.device(row.device), span(row.for_ms));
    let away = Bytes(row.away).human();
    let swaps = residency::swaps_of(&facts.swaps, (name, row.device));
    let tier = residency::tier(row, swaps, residency::has_others(&facts.residency, row));
    Some(match row.place {
        Place::In => return None,
        Place::Sealed => format!(
            "{name} is kept from {device} since {since}: its work is finished there first, then its memory is moved to the host."
        ),
        Place::Leaving => format!("The memory of {name} has been leaving {device} for {since}."),
        Place::Out if row.suspended => format!(
            "{name} is suspended: {away} of {device} have been {tier} for {since}. `gpushare resume {name}` brings them back, and so does its next call that uses the GPU."
        ),
        Place::Out => format!(
            "{away} of {name} have been {tier} for {since}, because tenants that do not fit together on {device} take turns. They come back in its turn, once it uses the GPU."
        ),
        Place::Entering => {
            format!("The memory of {name} has been coming back to {device} for {since}.")
        }
        _ => return None,
    })
}

/// Whether it is on a device although a command wants it out.
fn leaves(facts: &Facts, row: &ResidencyRow) -> Option<String> {
    let (name, device) = (&row.name, facts.device(row.device));
    let is_to_leave = row.suspended && row.place == Place::In;
    is_to_leave.then(|| {
        format!(
            "{name} is to leave {device} by command, and has not: it is asked again until it does. `gpushare resume {name}` ends that."
        )
    })
}

/// The moves of its memory so far, and how long they took.
fn moves(facts: &Facts, row: &ResidencyRow) -> Option<String> {
    let swaps = residency::swaps_of(&facts.swaps, (&row.name, row.device));
    let moved = residency::moved(row, swaps)?;
    let device = facts.device(row.device);
    Some(format!("Its memory on {device} {moved}."))
}

fn ends(facts: &Facts) -> Option<String> {
    let mut own = facts.ends.iter();
    let end = own.find(|end| end.name == facts.name && !end.told)?;
    let by = match end.by {
        EndsBy::IdleEnd => "--idle-end",
        EndsBy::RunLimit => "--run-limit",
        _ => "a limit that this version does not know",
    };
    Some(format!(
        "It will be ended in {} by its {by}, unless that is changed: `gpushare set {} {by} TIME`.",
        span(end.in_ms),
        facts.name
    ))
}
