//! Sentences about a tenant's end: by whom it was ended, and that it is being ended.

use super::answer::Facts;
use super::past::kind;
use crate::when::local;
use gpushare_protocol::wire::EventRecord;

/// Why it was ended, if it was: by us, or by itself.
pub(super) fn ended(life: &[EventRecord]) -> Vec<String> {
    let after = after_last(life, |record| record.kind == "spared");
    let Some(first) = kind(after, "ended").next() else {
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

/// Since which event a tenant that lives is being ended, if it is.
///
/// An end for another tenant's sake is over with the last process that was there. An end by a limit
/// of its own is for all that starts meanwhile, and is given up in the end where nothing is left
/// that a signal reaches. No event tells that either is over: a process that has begun since does.
/// A command sends a signal, and no more.
pub(super) fn ending<'a>(facts: &Facts, life: &'a [EventRecord]) -> Option<&'a EventRecord> {
    // The next daemon begins anew.
    let is_off = |record: &EventRecord| matches!(&*record.kind, "spared" | "admitted");
    let on = after_last(life, is_off);
    let by_us = |record: &EventRecord| {
        record.kind == "ended" && record.word_of("reason") != Some("command")
    };
    let last = on.iter().rfind(|record| by_us(record))?;
    let given_up = kind(after_last(on, by_us), "will-not-yield").next_back();
    let bound = match last.word_of("reason") {
        Some("collision") => Some(last),
        _ => given_up,
    };
    let is_over = bound.is_some_and(|bound| {
        let mut own = facts.tenants.iter().filter(|row| row.name == facts.name);
        let has_none = own.all(|row| row.processes.is_empty());
        has_none || facts.oldest_ms.is_some_and(|began| began > bound.at_ms)
    });
    (!is_over).then_some(last)
}

/// The events behind the last one of some.
fn after_last(life: &[EventRecord], is_one: impl Fn(&EventRecord) -> bool) -> &[EventRecord] {
    let after = life.iter().rposition(is_one).map_or(0, |at| at + 1);
    &life[after..]
}
