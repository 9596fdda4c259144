//! Sentences from a tenant's events: its end, and its refusals.

use super::answer::{Facts, State};
use crate::when::local;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::EventRecord;

/// The end of a tenant that no daemon has.
pub(super) fn gone(facts: &Facts) -> (State, Vec<String>) {
    let name = &facts.name;
    if facts.past.is_empty() {
        let text = format!(
            "Nothing is known of {name} since {}: no daemon has it, and no journal mentions it. `gpushare events` shows all that is known; --since looks further back.",
            local(facts.since_ms)
        );
        return (State::Unknown, vec![text]);
    }
    let mut sentences = Vec::new();
    match life(facts).iter().find(|record| record.kind == "gone") {
        Some(gone) => sentences.push(format!(
            "{name} has been gone since {}: it {}.",
            local(gone.at_ms),
            gone.text
        )),
        None => sentences.push(format!(
            "No daemon has {name} now, and its end was not seen: the daemon that had it ended first."
        )),
    }
    sentences.extend(ended(facts));
    (State::Gone, sentences)
}

/// The events of the last tenant of that name: an earlier one may have had it.
fn life(facts: &Facts) -> &[EventRecord] {
    let begins = |record: &EventRecord| record.kind == "admitted";
    let first = facts.past.iter().rposition(begins).unwrap_or(0);
    &facts.past[first..]
}

/// Why it was ended, if it was: by us, or by itself.
fn ended(facts: &Facts) -> Vec<String> {
    let life = life(facts);
    let Some(first) = life.iter().find(|record| record.kind == "ended") else {
        let gone = life.iter().find(|record| record.kind == "gone");
        let status = gone.and_then(|gone| gone.number_of("exit_status"));
        return match status {
            Some(0) | None => Vec::new(),
            Some(_) => vec![
                "gpushare did not end it: the program ended by itself or another party ended it."
                    .to_owned(),
            ],
        };
    };
    let mut sentences = vec![format!(
        "gpushare ended it at {}: {}.",
        local(first.at_ms),
        first.text
    )];
    if first.word_of("reason") == Some("collision") {
        sentences.push(
            "It had agreed to that (--preemptible kill). A higher --mem-request protects what it needs."
                .to_owned(),
        );
    }
    sentences
}

/// The allocations it was refused, and what would have helped.
pub(super) fn refusals(facts: &Facts) -> Vec<String> {
    let refused: Vec<&EventRecord> = kind(facts, "refused").collect();
    let Some(last) = refused.last() else {
        return Vec::new();
    };
    let sum = |name: &str| -> u64 {
        let parts = refused.iter().filter_map(|record| record.number_of(name));
        parts.sum()
    };
    let (count, name) = (sum("count"), &facts.name);
    let many = match count {
        1 => "1 of its allocations was refused, at".to_owned(),
        count => format!("{count} of its allocations were refused, lately at"),
    };
    let mut sentences = vec![format!(
        "Since {} {many} {}: {}.",
        local(facts.since_ms),
        local(last.at_ms),
        last.text
    )];
    if sum("over_limit") > 0 {
        let limit = last
            .number_of("limit_bytes")
            .map(|bytes| Bytes(bytes).human());
        sentences.push(format!(
            "Its own limit{} refused {} of them, whatever others hold; `gpushare set {name} --mem-limit SIZE` raises the limit while it runs.",
            limit.map_or_else(String::new, |limit| format!(" of {limit}")),
            sum("over_limit")
        ));
    }
    if sum("timed_out") > 0 {
        sentences.push(format!(
            "{} of them had waited for others' memory as long as --wait-timeout allows; a --mem-request guarantees memory, and a longer --wait-timeout waits longer.",
            sum("timed_out")
        ));
    }
    if sum("no_room") > 0 {
        sentences.push(format!(
            "{} of them found no free memory and were not to wait: --on-collision wait would have them wait.",
            sum("no_room")
        ));
    }
    sentences
}

/// Turns it did not end in time.
pub(super) fn overruns(facts: &Facts) -> Option<String> {
    let many = kind(facts, "overrun").count();
    let last = last(facts, "overrun")?;
    Some(format!(
        "{many} times it did not finish in time for the next tenant, lately at {}.",
        local(last.at_ms)
    ))
}

/// Moves of its memory that did not go as they should.
pub(super) fn moves(facts: &Facts) -> Option<String> {
    let failed = [
        "did-not-leave",
        "left-less",
        "slow-return",
        "no-return",
        "spill-failed",
        "host-failed",
        "memory-lost",
    ];
    let is_one = |record: &&EventRecord| failed.contains(&&*record.kind);
    let many = facts.past.iter().filter(is_one).count();
    let last = facts.past.iter().rev().find(is_one)?;
    Some(format!(
        "{many} times a move of its memory did not go well, lately at {}: {}.",
        local(last.at_ms),
        last.text
    ))
}

/// The last warning about it, which may still hold.
pub(super) fn warned(facts: &Facts) -> Option<String> {
    let last = facts.past.iter().rev().find(|record| {
        matches!(
            &*record.kind,
            "excess" | "ungated" | "will-not-yield" | "unsaved" | "awaited"
        )
    })?;
    Some(format!("At {} it {}.", local(last.at_ms), last.text))
}

fn kind<'a>(facts: &'a Facts, kind: &'a str) -> impl Iterator<Item = &'a EventRecord> {
    facts.past.iter().filter(move |record| record.kind == kind)
}

fn last<'a>(facts: &'a Facts, kind: &str) -> Option<&'a EventRecord> {
    facts.past.iter().rev().find(|record| record.kind == kind)
}
