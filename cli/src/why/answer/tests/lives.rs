//! Which events are of the life that is asked about, also where the clock was set.

use super::*;
use gpushare_journal::in_order;

/// Of the daemon `instance`, its event of this number, labelled so.
fn of(instance: u64, number: u64, at_ms: u64, kind: &str) -> EventRecord {
    let numbers = [("count", 1), ("over_limit", 1)];
    EventRecord {
        instance,
        number,
        at_ms,
        ..event(kind, &format!("{kind} by {instance}"), &numbers)
    }
}

/// The facts that these events are, and the tenant, if it lives, at the daemon 2.
fn known(past: Vec<EventRecord>, lives: bool) -> Facts {
    let mut facts = facts();
    facts.past = in_order(past, 0);
    if lives {
        facts.instance = 2;
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    }
    facts
}

#[test]
fn an_end_is_the_last_of_a_life_whatever_the_clock_was_set_to() {
    // Right, and set back by 10 s while it lived.
    for end in [65_000, 55_000] {
        let past = vec![of(1, 1, 60_000, "admitted"), of(1, 2, end, "gone")];
        says(&known(past, false), State::Gone, &["gone by 1"], &[]);
    }
    let past = vec![of(1, 1, 60_000, "admitted")];
    says(&known(past, false), State::Unknown, &[], &["gone by"]);
}

#[test]
fn a_living_tenants_refusals_are_told_whatever_an_earlier_ends_label() {
    // The clock was right, or it was set back by an hour between the lives.
    for since in [4_000_000, 400_000] {
        let earlier = |instance| {
            vec![
                of(instance, 1, 3_600_000, "admitted"),
                of(instance, 2, 3_700_000, "refused"),
                of(instance, 3, 3_900_000, "gone"),
            ]
        };
        let own = [
            of(2, 4, since, "admitted"),
            of(2, 5, since + 1_000, "refused"),
        ];
        for instance in [1, 2] {
            let past = [&earlier(instance)[..], &own].concat();
            let words = ["1 of its allocations was refused", "refused by 2"];
            says(
                &known(past, true),
                State::Running,
                &words,
                &["refused by 1"],
            );
        }
        // An earlier life's alone are none of the present one's.
        let past = [&earlier(2)[..], &own[..1]].concat();
        says(&known(past, true), State::Running, &[], &["refused by"]);
    }
}

#[test]
fn what_the_daemon_before_told_of_a_living_tenant_is_of_its_life() {
    let past = vec![
        of(1, 1, 50_000, "admitted"),
        of(1, 2, 51_000, "refused"),
        of(2, 1, 52_000, "admitted"),
    ];
    says(&known(past, true), State::Running, &["refused by 1"], &[]);
}

#[test]
fn a_life_within_the_time_that_is_asked_for_is_told_whole() {
    let mut facts = known(vec![], true);
    facts.since_ms = 50_000;
    for (for_ms, whole) in [(10_000, Some(2)), (10_001, None)] {
        facts.status = vec![TenantStatusRow {
            name: "web".to_owned(),
            owner: None,
            for_ms,
            queued: None,
            asks: vec![],
        }];
        assert_eq!(facts.began_since(60_000), whole);
    }
}
