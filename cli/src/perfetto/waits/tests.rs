use super::super::tests::{group, of, record};
use super::super::{Kept, Lives, trace};
use super::*;
use gpushare_protocol::wire::{Fact, ProcessRow, Want};
use serde_json::Value;

const NOW: u64 = 50_000;

/// The waits of a tenant: track, begin and end in milliseconds, and how it ended.
fn waits(trace: &Value, name: &str) -> Vec<(u64, u64, u64, String)> {
    let pid = group(trace, &format!("tenant {name}"));
    let number = |value: &Value| value.as_u64().expect("a number");
    let all = of(trace, "X").into_iter();
    all.filter(|event| event["pid"] == pid && event["name"] == "waits for memory")
        .map(|event| {
            let (from, long) = (number(&event["ts"]) / 1000, number(&event["dur"]) / 1000);
            let text = event["args"]["text"].as_str().expect("words").to_owned();
            (number(&event["tid"]), from, from + long, text)
        })
        .collect()
}

fn number(name: &'static str, many: u64) -> (&'static str, Fact) {
    (name, Fact::Number(many))
}

fn waiting(at: u64) -> EventRecord {
    record(at, "waiting", "web", &[])
}

/// It is told again: another resolver lets it wait.
fn again(at: u64, waited: u64) -> EventRecord {
    record(at, "waiting", "web", &[number("waited_ms", waited)])
}

fn served(at: u64, waited: u64) -> EventRecord {
    record(at, "served", "web", &[number("waited_ms", waited)])
}

fn refused(at: u64, why: &'static str) -> EventRecord {
    record(at, "refused", "web", &[number(why, 1)])
}

fn told(records: &[EventRecord]) -> Value {
    let lives = Lives::of(records);
    let kept = Kept {
        lives,
        ..Kept::default()
    };
    trace(records, &kept, NOW)
}

/// A daemon has the tenant, with processes that wait for so long.
fn present(since: &[u64]) -> Kept {
    let process = |since_ms: &u64| ProcessRow {
        pid: 1,
        charged: 0,
        overhead: 0,
        state: ProcessState::Waiting(Want {
            bytes: 1,
            since_ms: *since_ms,
        }),
    };
    let mut row = TenantRow {
        name: "web".to_owned(),
        device: [7; 16],
        request: 0,
        limit: 0,
        grant: 0,
        charged: 0,
        overhead: 0,
        limbo: 0,
        processes: since.iter().map(process).collect(),
    };
    row.processes.push(ProcessRow {
        state: ProcessState::Running,
        ..process(&0)
    });
    let mut kept = Kept::default();
    kept.waiting.extend(WaitsNow::of(&row));
    kept.lives.is_present(row.name);
    kept
}

fn wait(track: u32, from: u64, to: u64, text: &str) -> (u64, u64, u64, String) {
    (track.into(), from, to, text.to_owned())
}

const SERVED: &str = "it has its memory";

#[test]
fn a_wait_that_ends_in_a_refusal_is_a_span() {
    for why in ["timed_out", "cycle"] {
        let found = told(&[waiting(6_000), refused(36_000, why)]);
        assert_eq!(
            waits(&found, "web"),
            [wait(2, 6_000, 36_000, "refused web")]
        );
    }
}

#[test]
fn a_cycle_ends_the_youngest_wait_and_a_timeout_the_oldest() {
    for (why, kept) in [("cycle", 1_000), ("timed_out", 10_000)] {
        let refused_one = 11_000 - kept;
        let found = told(&[
            waiting(1_000),
            waiting(10_000),
            refused(15_000, why),
            served(40_000, 40_000 - kept),
        ]);
        let mut found = waits(&found, "web");
        found.sort_by_key(|wait| wait.2);
        let spans: Vec<_> = found.iter().map(|wait| (wait.1, wait.2)).collect();
        assert_eq!(spans, [(refused_one, 15_000), (kept, 40_000)], "{why}");
        assert_eq!((&*found[0].3, &*found[1].3), ("refused web", SERVED));
    }
}

#[test]
fn a_refusal_that_says_how_many_had_waited_ends_so_many_waits() {
    let refused = |why, waited| {
        let facts = [number(why, 2), number("waited", waited)];
        record(7_000, "refused", "web", &facts)
    };
    for why in ["over_limit", "no_room", "driver", "timed_out"] {
        let found = told(&[waiting(6_000), refused(why, 1)]);
        assert_eq!(waits(&found, "web"), [wait(2, 6_000, 7_000, "refused web")]);
        // None of them had.
        let found = told(&[waiting(6_000), refused(why, 0), served(9_000, 3_000)]);
        assert_eq!(waits(&found, "web"), [wait(2, 6_000, 9_000, SERVED)]);
    }
}

#[test]
fn a_wait_that_is_told_again_is_one_wait() {
    let gone = record(90_000, "gone", "web", &[]);
    let found = told(&[
        waiting(1_000),
        again(31_000, 30_000),
        served(32_000, 31_000),
        gone,
    ]);
    assert_eq!(waits(&found, "web"), [wait(2, 1_000, 32_000, SERVED)]);
    let found = told(&[
        waiting(1_000),
        again(31_000, 30_000),
        refused(32_000, "timed_out"),
    ]);
    assert_eq!(
        waits(&found, "web"),
        [wait(2, 1_000, 32_000, "refused web")]
    );
    // Its first event was left out.
    let found = told(&[again(31_000, 30_000), refused(32_000, "timed_out")]);
    assert_eq!(
        waits(&found, "web"),
        [wait(2, 1_000, 32_000, "refused web")]
    );
    // A new one is another.
    let found = told(&[waiting(1_000), waiting(31_000), served(32_000, 1_000)]);
    assert_eq!(waits(&found, "web").len(), 2);
}

#[test]
fn a_refusal_of_an_allocation_that_did_not_wait_ends_no_wait() {
    for why in ["over_limit", "no_room"] {
        let found = told(&[waiting(6_000), refused(7_000, why), served(9_000, 3_000)]);
        assert_eq!(waits(&found, "web"), [wait(2, 6_000, 9_000, SERVED)]);
    }
    let alone = told(&[refused(7_000, "over_limit")]);
    assert!(waits(&alone, "web").is_empty());
}

#[test]
fn a_wait_that_goes_on_lasts_until_now() {
    // The daemon's figure is a little younger than the event.
    let found = trace(&[waiting(6_000)], &present(&[43_900]), NOW);
    assert_eq!(waits(&found, "web"), [wait(2, 6_000, NOW, "it waits now")]);
    // Its event was left out, or is not shown.
    let found = trace(&[], &present(&[10_000]), NOW);
    assert_eq!(waits(&found, "web"), [wait(2, 40_000, NOW, "it waits now")]);
    // The process has ended, and the tenant has others: no end is known.
    let found = trace(&[waiting(6_000)], &present(&[]), NOW);
    assert!(waits(&found, "web").is_empty());
}

#[test]
fn a_wait_ends_with_its_tenant_or_with_what_is_known_of_it() {
    let gone = record(8_000, "gone", "web", &[]);
    let found = told(&[
        waiting(6_000),
        gone.clone(),
        waiting(9_000),
        served(9_500, 500),
    ]);
    let ended = "no answer before its tenant ended";
    let both = [wait(2, 6_000, 8_000, ended), wait(2, 9_000, 9_500, SERVED)];
    assert_eq!(waits(&found, "web"), both);
    // A refusal is of the tenant that has the name then.
    let found = told(&[
        waiting(6_000),
        gone.clone(),
        waiting(9_000),
        refused(9_500, "timed_out"),
    ]);
    let both = [
        wait(2, 6_000, 8_000, ended),
        wait(2, 9_000, 9_500, "refused web"),
    ];
    assert_eq!(waits(&found, "web"), both);
    // Its end is not shown.
    let kept = Kept {
        lives: Lives::of(&[gone]),
        ..Kept::default()
    };
    let found = trace(&[waiting(6_000)], &kept, NOW);
    assert_eq!(waits(&found, "web"), [wait(2, 6_000, 8_000, ended)]);
    // Its daemon has left.
    let found = told(&[waiting(6_000), record(7_000, "idle", "web", &[])]);
    let unknown = [wait(2, 6_000, 7_000, "no answer is known")];
    assert_eq!(waits(&found, "web"), unknown);
}

#[test]
fn two_waits_of_a_tenant_do_not_cross_on_one_track() {
    let found = told(&[
        waiting(1_000),
        waiting(6_000),
        served(11_000, 10_000),
        served(16_000, 10_000),
        served(17_000, 1_000),
    ]);
    let wanted = [
        wait(2, 1_000, 11_000, SERVED),
        wait(501, 6_000, 16_000, SERVED),
        wait(2, 16_000, 17_000, SERVED),
    ];
    assert_eq!(waits(&found, "web"), wanted);
    let named = of(&found, "M").into_iter();
    let mut titles = named.filter(|event| event["name"] == "thread_name" && event["tid"] == 501);
    assert_eq!(titles.next().expect("a name")["args"]["name"], "memory, 2");
    // One after the other they need no second track.
    let found = told(&[served(2_000, 1_000), served(3_000, 1_000)]);
    assert!(waits(&found, "web").iter().all(|wait| wait.0 == 2));
}

#[test]
fn an_arrow_ends_at_the_memory_of_the_wait_that_it_began_at() {
    let word = ("wanted_by", Fact::Word("web".to_owned()));
    let found = told(&[
        waiting(2_000),
        waiting(6_000),
        record(6_500, "ended", "burst", &[word]),
        served(11_000, 9_000),
        served(16_000, 10_000),
    ]);
    let places = |phase| {
        let found = of(&found, phase);
        assert_eq!(found.len(), 1, "{phase}");
        (found[0]["tid"].clone(), found[0]["ts"].clone())
    };
    assert_eq!(places("s"), (json!(501), json!(6_000_000)));
    assert_eq!(places("f"), (json!(501), json!(16_000_000)));
    // A refused wait has no memory for an arrow to end at.
    let word = ("wanted_by", Fact::Word("web".to_owned()));
    let ended = record(6_500, "ended", "burst", &[word]);
    let found = told(&[waiting(6_000), ended, refused(9_000, "timed_out")]);
    assert_eq!([of(&found, "s").len(), of(&found, "f").len()], [1, 0]);
}
