//! Sentences about refused allocations, and what would have helped.

use super::answer::Facts;
use super::past::{begins, kind};
use crate::names;
use crate::when::local;
use gpushare_protocol::units::{self, Bytes};
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{EventRecord, TenantRow};

/// The allocations it was refused, and what would have helped.
pub(super) fn refusals(facts: &Facts, life: &[EventRecord]) -> Vec<String> {
    let refused: Vec<&EventRecord> = kind(life, "refused").collect();
    let Some(last) = refused.last() else {
        return Vec::new();
    };
    let sum = |name: &str| -> u64 {
        let parts = refused.iter().filter_map(|record| record.number_of(name));
        parts.sum()
    };
    let count = sum("count");
    // Of a life that began later: since then.
    let first = life.first().filter(|record| begins(record));
    let since_ms = first.map_or(facts.since_ms, |record| record.at_ms);
    let many = match count {
        1 => "1 of its allocations was refused, at".to_owned(),
        count => format!("{count} of its allocations were refused, lately at"),
    };
    let mut sentences = vec![format!(
        "Since {} {many} {}: {}.",
        local(since_ms),
        local(last.at_ms),
        last.text
    )];
    let by_limit = |record: &&&EventRecord| record.number_of("over_limit").is_some();
    if let Some(last) = refused.iter().rfind(by_limit) {
        let limit = last
            .number_of("limit_bytes")
            .map(|bytes| Bytes(bytes).human());
        sentences.push(format!(
            "Its own limit{} refused {} of them, whatever others hold; {}.",
            limit.map_or_else(String::new, |limit| format!(" of {limit}")),
            sum("over_limit"),
            raising(facts, last)
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

/// How a tenant gets the limit under which the last refused allocations fit. Of one that runs, what
/// it is guaranteed and its limits on other devices stay.
fn raising(facts: &Facts, refused: &EventRecord) -> String {
    let wanted = limit_for(refused);
    let limit = wanted.map_or_else(|| "SIZE".to_owned(), |mib| format!("{mib}MiB"));
    let name = &facts.name;
    if !facts.has_it() && facts.unserved.is_empty() {
        let start = match names::is_container(name) {
            true => format!("the annotation `gpushare.io/mem-limit={limit}`"),
            false => format!("`gpushare run --mem-limit {limit}`"),
        };
        return format!("{start} starts it with a limit that is enough");
    }
    let own = facts.tenants.iter().filter(|row| row.name == *name);
    let own: Vec<&TenantRow> = own.collect();
    let on = refused.device.map(|device| device.uuid);
    let row = match own[..] {
        [only] => Some(only),
        _ => own.iter().copied().find(|row| Some(row.device) == on),
    };
    if let Some(row) = row.filter(|row| is_enough(row.limit, wanted, refused)) {
        return format!("its limit is {} by now", Bytes(row.limit).human());
    }
    let device = match (own.len(), row) {
        (2.., Some(row)) => format!("{}=", Uuid(row.device).text(false)),
        _ => String::new(),
    };
    // Without a request of its own it would be guaranteed as much as its new limit.
    let request = row.filter(|row| row.request == row.limit);
    let request = request.map_or_else(String::new, |row| {
        format!(" --mem-request {device}{}", Bytes(row.request))
    });
    format!(
        "`gpushare set {name} --mem-limit {device}{limit}{request}` raises the limit while it runs"
    )
}

/// Whether the limit of now would have granted what was refused. Where that needs a size that is
/// not known: whether it was raised since.
fn is_enough(limit: u64, wanted: Option<u64>, refused: &EventRecord) -> bool {
    match wanted {
        Some(mib) => limit / units::MIB >= mib,
        None => refused
            .number_of("limit_bytes")
            .is_some_and(|before| limit > before),
    }
}

/// The smallest limit under which the largest of these refused allocations fits beside what was
/// charged then, in whole MiB. None where that is not known, or is no more than the limit.
fn limit_for(refused: &EventRecord) -> Option<u64> {
    let number = |name| refused.number_of(name);
    let charged = number("charged_bytes")?;
    let wanted = charged.saturating_add(number("largest_bytes")?);
    let is_more = number("limit_bytes").is_some_and(|limit| wanted > limit);
    is_more.then(|| wanted.div_ceil(units::MIB))
}
