//! Sentences about a tenant's end: by whom it was ended, and that it is being ended.

use super::answer::Facts;
use super::past::kind;
use crate::when::{local, span};
use gpushare_protocol::wire::{EndsBy, EventRecord};

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

/// Of one that is being ended: by what, when it is killed, and the event that told it to end, if
/// that is known.
pub(super) fn ending(facts: &Facts, life: &[EventRecord]) -> Option<String> {
    let end = facts
        .ends
        .iter()
        .find(|end| end.name == facts.name && end.told)?;
    let told = kind(life, "ended").rfind(|record| record.word_of("reason") != Some("command"));
    let by = match (told, end.by) {
        (Some(told), _) => format!("At {}: {}.", local(told.at_ms), told.text),
        (None, EndsBy::IdleEnd) => "Its --idle-end has come.".to_owned(),
        (None, EndsBy::RunLimit) => "Its --run-limit has come.".to_owned(),
        (None, EndsBy::Collision) => "Another tenant gets its memory.".to_owned(),
        (None, _) => "This version does not know the cause.".to_owned(),
    };
    let then = match end.in_ms {
        0 => "SIGKILL was sent".to_owned(),
        in_ms => format!("SIGKILL is sent in {}", span(in_ms)),
    };
    Some(format!(
        "It is being ended, and gets no new memory; {then}. {by}"
    ))
}

/// The events behind the last one of some.
fn after_last(life: &[EventRecord], is_one: impl Fn(&EventRecord) -> bool) -> &[EventRecord] {
    let after = life.iter().rposition(is_one).map_or(0, |at| at + 1);
    &life[after..]
}
