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
/// An end for another tenant's sake is over with the last process that was there, which no event
/// tells: who has begun since is not being ended. A command sends a signal, and no more.
pub(super) fn ending<'a>(facts: &Facts, life: &'a [EventRecord]) -> Option<&'a EventRecord> {
    // The next daemon begins anew.
    let is_off = |record: &EventRecord| matches!(&*record.kind, "spared" | "admitted");
    let mut ended = kind(after_last(life, is_off), "ended");
    let last = ended.rfind(|record| record.word_of("reason") != Some("command"))?;
    let is_over = || {
        let mut own = facts.tenants.iter().filter(|row| row.name == facts.name);
        let has_none = own.all(|row| row.processes.is_empty());
        has_none || facts.oldest_ms.is_some_and(|began| began > last.at_ms)
    };
    let is_for_another = last.word_of("reason") == Some("collision");
    (!is_for_another || !is_over()).then_some(last)
}

/// The events behind the last one of some.
fn after_last(life: &[EventRecord], is_one: impl Fn(&EventRecord) -> bool) -> &[EventRecord] {
    let after = life.iter().rposition(is_one).map_or(0, |at| at + 1);
    &life[after..]
}
