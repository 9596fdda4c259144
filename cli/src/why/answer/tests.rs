//! The answers, each from the facts that lead to it, and the opposite.

mod ends;
mod lives;
mod memory;
mod moved;
mod refused;
mod time;

use super::*;
use gpushare_protocol::histogram::Histogram;
use gpushare_protocol::wire::{
    Alone, AskedRow, DeviceRow, EndsBy, EventDevice, ExcessRow, Fact, Place, ProcessRow,
    ProcessState, Residue, ShareState, Steered, SteeredBy, Want,
};

const GPU: [u8; 16] = [7; 16];
const GIB: u64 = 1 << 30;

fn row(name: &str, charged: u64, state: ProcessState) -> TenantRow {
    TenantRow {
        name: name.to_owned(),
        device: GPU,
        request: 8 * GIB,
        limit: 40 * GIB,
        grant: charged,
        charged,
        overhead: 0,
        limbo: 0,
        processes: vec![ProcessRow {
            pid: 42,
            charged,
            overhead: 0,
            state,
        }],
    }
}

fn share(name: &str, state: ShareState) -> ShareRow {
    ShareRow {
        name: name.to_owned(),
        device: GPU,
        weight: 300,
        request: None,
        cap: Some(125),
        held: 298,
        over_ms: 9_000,
        state,
        turns: 4,
        overruns: 1,
        ungated: 0,
        alone: None,
        steered: None,
    }
}

/// Of one that yields or is held for that cause.
fn steered(name: &str, state: ShareState, cause: SteeredBy, other: &str) -> ShareRow {
    let tenant = Some(other.to_owned());
    ShareRow {
        steered: Some(Steered { cause, tenant }),
        ..share(name, state)
    }
}

fn facts() -> Facts {
    Facts {
        name: "web".to_owned(),
        devices: [(GPU, "GPU 0 (GPU-0707)".to_owned())].into(),
        ..Facts::default()
    }
}

fn event(kind: &str, text: &str, facts: &[(&str, u64)]) -> EventRecord {
    EventRecord {
        instance: 1,
        number: 1,
        at_ms: 50_000,
        kind: kind.to_owned(),
        tenant: Some("web".to_owned()),
        device: None,
        text: text.to_owned(),
        facts: facts
            .iter()
            .map(|(name, number)| ((*name).to_owned(), Fact::Number(*number)))
            .collect(),
    }
}

/// The answer's state and its text, which has these words, in this order, and not those.
#[track_caller]
fn says(facts: &Facts, state: State, words: &[&str], not: &[&str]) {
    let answer = answer(facts);
    let text = answer.sentences.join(" ");
    assert_eq!(answer.state, state, "{text}");
    let mut rest = &*text;
    for word in words {
        let at = rest.find(word);
        rest = &rest[at.unwrap_or_else(|| panic!("{word:?} in {text}")) + word.len()..];
    }
    for word in not {
        assert!(!text.contains(word), "{word:?} in {text}");
    }
}

#[test]
fn an_unknown_name_is_said_to_be_unknown() {
    let mut facts = facts();
    facts.tenants = vec![row("other", GIB, ProcessState::Running)];
    says(&facts, State::Unknown, &["Nothing is known of web"], &[]);
}

#[test]
fn a_tenant_above_its_lowered_limit_is_told_that_it_gets_nothing_new() {
    let mut facts = facts();
    let mut above = row("web", 9 * GIB, ProcessState::Running);
    above.limit = 2 * GIB;
    facts.tenants = vec![above];
    let words = [
        "no new memory",
        "7 GiB more than its limit of 2 GiB",
        "set web",
    ];
    says(&facts, State::Running, &words, &["nothing holds it up"]);
    facts.tenants[0].charged = 2 * GIB;
    says(
        &facts,
        State::Running,
        &["nothing holds it up"],
        &["refused"],
    );
}

/// Beside another tenant it is ahead of its share most of the time.
#[test]
fn a_lowered_limit_is_told_whatever_else_holds_a_tenant_up() {
    let words = ["7 GiB more than its limit of 2 GiB", "set web"];
    let mut above = row("web", 9 * GIB, ProcessState::Running);
    above.limit = 2 * GIB;
    let of = |state| Facts {
        tenants: vec![above.clone()],
        shares: vec![share("web", state)],
        ..facts()
    };
    let yielding = of(ShareState::Yielding { for_us: 5 });
    says(
        &yielding,
        State::Throttled,
        &words,
        &["nothing holds it up"],
    );
    let mut within = yielding;
    within.tenants[0].charged = 2 * GIB;
    says(&within, State::Throttled, &["short slices"], &["refused"]);
    says(
        &of(ShareState::Capped { for_us: 5 }),
        State::Throttled,
        &words,
        &[],
    );
    let mut waits = of(ShareState::Free);
    waits.tenants[0].processes[0].state = ProcessState::Waiting(Want {
        bytes: GIB,
        since_ms: 7,
    });
    says(&waits, State::Waiting, &words, &[]);
    // The books of a device that is lost say nothing.
    let mut lost = of(ShareState::Free);
    lost.lost = [GPU].into();
    let answer = answer(&lost).sentences.join(" ");
    assert!(!answer.contains("more than its limit"), "{answer}");
}

#[test]
fn a_queued_tenant_is_told_what_it_waits_for() {
    let mut facts = facts();
    facts.status = vec![TenantStatusRow {
        name: "web".to_owned(),
        owner: None,
        for_ms: 180_000,
        queued: Some("waits until 46 GiB are there".to_owned()),
        asks: vec![],
    }];
    says(
        &facts,
        State::Queued,
        &["queued for 3 min", "waits until 46 GiB are there"],
        &["running"],
    );
}

/// A daemon that has the tenant with the device, which it may have lost with its account.
fn on_a_device(is_lost: bool) -> Facts {
    let mut facts = facts();
    facts.status = vec![TenantStatusRow {
        name: "web".to_owned(),
        owner: None,
        for_ms: 60_000,
        queued: None,
        asks: vec![AskedRow {
            device: GPU,
            request: GIB,
            limit: GIB,
        }],
    }];
    match is_lost {
        true => facts.lost = [GPU].into(),
        false => facts.tenants = vec![row("web", GIB, ProcessState::Running)],
    }
    facts
}

#[test]
fn a_tenant_of_a_lost_device_is_not_said_to_run_freely() {
    let (lost, free) = ("GPU 0 (GPU-0707) does not answer", "nothing holds it up");
    says(&on_a_device(true), State::Lost, &[lost], &[free]);
    says(&on_a_device(false), State::Running, &[free], &[lost]);
    // Another one's.
    let mut facts = on_a_device(false);
    facts.lost = [[8; 16]].into();
    says(&facts, State::Running, &[free], &["does not answer"]);
}

#[test]
fn a_tenant_without_a_daemon_is_known_from_its_books() {
    let mut facts = facts();
    facts.in_files = vec![InFiles {
        device: "GPU-0707".to_owned(),
        processes: 2,
        charged: GIB,
        limit: Some(2 * GIB),
    }];
    let said = [
        "without a daemon",
        "its 2 processes are charged 1 GiB",
        "limit is 2 GiB",
    ];
    says(&facts, State::Running, &said, &["Nothing is known"]);
    facts.in_files.clear();
    says(&facts, State::Unknown, &["Nothing is known"], &said);
}

#[test]
fn a_name_that_two_daemons_have_is_said_to_be() {
    let mut facts = on_a_device(false);
    says(&facts, State::Running, &[], &["Another daemon"]);
    facts.others = 1;
    says(&facts, State::Running, &["Another daemon"], &[]);
}

#[test]
fn a_tenant_whose_daemon_died_is_told_to_live_while_its_programs_do() {
    let mut facts = facts();
    facts.past = vec![event("admitted", "may run", &[])];
    facts.unserved = vec![("/x/gpushare/d/gpu".into(), None)];
    let words = ["/x/gpushare/d/gpu", "does not serve", "takes them over"];
    says(&facts, State::Unknown, &words, &["is not known"]);
    facts.unserved.clear();
    says(
        &facts,
        State::Unknown,
        &["is not known"],
        &["takes them over"],
    );
    // A daemon that has it knows better.
    facts.unserved = vec![("/x/gpushare/d/gpu".into(), None)];
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    says(&facts, State::Running, &["nothing holds it up"], &["takes"]);
}

/// A life of the name with refusals by a small limit, bad moves and a warning, and its end.
fn earlier() -> Vec<EventRecord> {
    let numbers = [("count", 40), ("over_limit", 40), ("limit_bytes", 2 * GIB)];
    vec![
        event("admitted", "may run", &[]),
        event("refused", "40 allocations", &numbers),
        event("overrun", "has not drained", &[]),
        event("no-return", "stays on the host", &[]),
        event("excess", "holds 3 GiB more", &[]),
        event("gone", "ran for 3 s; it failed", &[("exit_status", 1)]),
    ]
}

const OF_EARLIER: [&str; 5] = ["refused", "2 GiB", "in time", "stays on", "holds 3 GiB"];

#[test]
fn a_tenant_that_runs_is_not_told_what_an_earlier_one_met() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    facts.past = earlier();
    facts.past.push(event("admitted", "may run", &[]));
    says(
        &facts,
        State::Running,
        &["nothing holds it up"],
        &OF_EARLIER,
    );
    // Events of its own life are told, also those before a restart of the daemon.
    let own = event("refused", "OWN", &[("count", 3), ("over_limit", 3)]);
    facts.past.push(own);
    facts.past.push(event("admitted", "may run", &[]));
    let words = ["3 of its allocations were refused", "OWN"];
    says(&facts, State::Running, &words, &["2 GiB", "holds 3 GiB"]);
}

#[test]
fn a_tenant_that_queues_is_not_told_what_an_earlier_one_met() {
    let mut facts = facts();
    facts.status = vec![TenantStatusRow {
        name: "web".to_owned(),
        owner: None,
        for_ms: 180_000,
        queued: Some("waits".to_owned()),
        asks: vec![],
    }];
    facts.past = earlier();
    facts.past.push(event("queued", "waits", &[]));
    says(&facts, State::Queued, &["queued for 3 min"], &OF_EARLIER);
}

#[test]
fn a_tenant_that_left_the_queue_is_not_told_an_earlier_end() {
    let mut facts = facts();
    facts.past = earlier();
    facts.past.push(event("queued", "waits", &[]));
    let left = "left the queue before it was admitted";
    facts.past.push(event("gone", left, &[]));
    let not = [&OF_EARLIER[..], &["ran for", "another party"]].concat();
    says(&facts, State::Gone, &["gone since", left], &not);
    // The end that was its own is told, with what was told after it.
    facts.past = earlier();
    facts.past.push(event("fence-failed", "a late word", &[]));
    let words = ["ran for 3 s", "another party", "40 of its", "in time"];
    says(&facts, State::Gone, &words, &["holds 3 GiB"]);
}
