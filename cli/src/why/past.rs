//! Sentences from a tenant's events: that it has gone, and what went wrong.

use super::answer::{Facts, State};
use super::ends::ended;
use crate::daemon::Holder;
use crate::when::local;
use gpushare_protocol::wire::EventRecord;
use std::path::PathBuf;

/// The events of one life of a name, of all that are known: of the tenant that a daemon has now, if
/// it `lives`, else of the last one. A restart of the daemon does not end a life, and admits its
/// tenant anew.
///
/// The daemon of that `instance` has the tenant now. Its events after the last `gone` that it wrote
/// are of this life, whatever the labels of other daemons' `gone` events.
pub(super) fn life(past: &[EventRecord], lives: bool, instance: u64) -> Vec<EventRecord> {
    let after = |past: &[EventRecord], of: Option<u64>| {
        let is_end = |record: &EventRecord| {
            record.kind == "gone" && of.is_none_or(|instance| record.instance == instance)
        };
        past.iter().rposition(is_end).map_or(0, |end| end + 1)
    };
    let last = after(past, None);
    if lives {
        let own = past[after(past, Some(instance))..last].iter();
        let own = own.filter(|record| record.instance == instance);
        return own.chain(&past[last..]).cloned().collect();
    }
    if last == 0 || past[last..].iter().any(begins) {
        return past[last..].to_vec();
    }
    past[after(&past[..last - 1], None)..].to_vec()
}

/// Whether a life may begin with it.
pub(super) fn begins(record: &EventRecord) -> bool {
    matches!(&*record.kind, "queued" | "admitted")
}

/// The end of a tenant that no serving daemon has, as far as it is known.
pub(super) fn gone(facts: &Facts, life: &[EventRecord]) -> (State, Vec<String>) {
    let name = &facts.name;
    if !facts.unserved.is_empty() {
        return (State::Unknown, unserved(facts));
    }
    if life.is_empty() {
        let text = format!(
            "Nothing is known of {name} since {}: no daemon has it, and no journal mentions it. `gpushare events` shows all that is known; --since looks further back.",
            local(facts.since_ms)
        );
        return (State::Unknown, vec![text]);
    }
    let gone = life.iter().find(|record| record.kind == "gone");
    let (state, first) = match gone {
        Some(gone) => (
            State::Gone,
            format!(
                "{name} has been gone since {}: it {}.",
                local(gone.at_ms),
                gone.text
            ),
        ),
        None => (
            State::Unknown,
            format!(
                "Whether {name} still runs is not known: no daemon that answers here has it, and its end is in no journal. The daemon that had it was perhaps ended first, or serves from another runtime folder."
            ),
        ),
    };
    let mut sentences = vec![first];
    sentences.extend(ended(life));
    (state, sentences)
}

/// Of one whose programs live on while the daemon that had it does not serve.
fn unserved(facts: &Facts) -> Vec<String> {
    let name = &facts.name;
    let one = |(folder, holder): &(PathBuf, Option<Holder>)| {
        let folder = folder.display();
        match holder {
            None => format!(
                "{name} has programs that live, and its daemon, at {folder}, does not serve: they keep what they were granted and get nothing new, and the next `gpushare run` for that GPU takes them over."
            ),
            Some(holder) => format!(
                "{name} has programs that live, and its daemon, at {folder}, does not answer: they keep what they were granted and get nothing new until {holder} is continued or ended."
            ),
        }
    };
    facts.unserved.iter().map(one).collect()
}

/// Turns it did not end in time.
pub(super) fn overruns(life: &[EventRecord]) -> Option<String> {
    let many = kind(life, "overrun").count();
    let last = kind(life, "overrun").next_back()?;
    Some(format!(
        "{} it did not finish in time for the next tenant, lately at {}.",
        times(many),
        local(last.at_ms)
    ))
}

fn times(many: usize) -> String {
    match many {
        1 => "Once".to_owned(),
        many => format!("{many} times"),
    }
}

/// Moves of its memory that did not go as they should.
pub(super) fn moves(life: &[EventRecord]) -> Option<String> {
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
    let many = life.iter().filter(is_one).count();
    let last = life.iter().rev().find(is_one)?;
    Some(format!(
        "{} a move of its memory did not go well, lately at {}: {}.",
        times(many),
        local(last.at_ms),
        last.text
    ))
}

/// The last warning about it, which may still hold.
pub(super) fn warned(life: &[EventRecord]) -> Option<String> {
    let last = life.iter().rev().find(|record| {
        matches!(
            &*record.kind,
            "excess" | "ungated" | "will-not-yield" | "unsaved" | "awaited" | "unmanaged"
        )
    })?;
    let at = local(last.at_ms);
    Some(match &*last.kind {
        // It begins with the process that it is about.
        "unmanaged" => format!("At {at}: {}.", last.text),
        _ => format!("At {at} it {}.", last.text),
    })
}

/// The events of a kind.
pub(super) fn kind<'a>(
    life: &'a [EventRecord],
    kind: &'a str,
) -> impl DoubleEndedIterator<Item = &'a EventRecord> {
    life.iter().filter(move |record| record.kind == kind)
}
