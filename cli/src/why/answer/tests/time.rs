//! Tenants and the time of a device.

use super::*;

#[test]
fn a_throttled_tenant_is_told_by_what_and_for_whom() {
    let for_us = 12_000;
    let sharing = share("late", ShareState::Sharing { for_us });
    let turn = share("other", ShareState::Holding { for_us });
    for (state, words) in [
        (
            ShareState::Capped { for_us },
            ["cap of 12.5 %", "--sm-limit"],
        ),
        (ShareState::Held { for_us }, ["late", "ahead of its share"]),
        (ShareState::Yielding { for_us }, ["short slices", "late"]),
        (
            ShareState::Waiting { for_us },
            ["waited 12 ms for its turn", "other has"],
        ),
        (
            ShareState::Draining { for_us },
            ["is over", "12 ms to finish"],
        ),
    ] {
        let mut facts = facts();
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
        facts.shares = vec![share("web", state), sharing.clone(), turn.clone()];
        says(&facts, State::Throttled, &words, &["nothing holds it up"]);
    }
    for state in [
        ShareState::Free,
        ShareState::Idle,
        ShareState::Holding { for_us },
        ShareState::Sharing { for_us },
    ] {
        let mut facts = facts();
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
        facts.shares = vec![share("web", state), sharing.clone()];
        says(&facts, State::Running, &["nothing holds it up"], &["late"]);
    }
}

#[test]
fn an_idle_tenant_is_told_when_it_will_be_ended() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Idle { for_ms: 840_000 })];
    facts.ends = vec![EndRow {
        name: "web".to_owned(),
        in_ms: 2_760_000,
        by: EndsBy::IdleEnd,
    }];
    says(
        &facts,
        State::Running,
        &[
            "submitted no GPU work for 14 min",
            "ended in 46 min by its --idle-end",
        ],
        &[],
    );
}

#[test]
fn one_below_a_higher_priority_is_not_said_to_be_ahead() {
    let for_us = 40_000_000;
    let (held, slices) = (ShareState::Held { for_us }, ShareState::Yielding { for_us });
    let server = share("server", ShareState::Sharing { for_us });
    for state in [held, slices] {
        let mut facts = facts();
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
        let mut own = share("web", state.clone());
        own.weight = 0;
        facts.shares = vec![own, server.clone()];
        let words = ["server", "higher priority", "--sm-request"];
        says(&facts, State::Throttled, &words, &["ahead", "0 % is"]);
        // Its part does not tell why. It may be any of these.
        facts.shares = vec![share("web", state), server.clone()];
        let words = [
            "server",
            "ahead of its share",
            "lower priority",
            "--sm-request",
        ];
        says(&facts, State::Throttled, &words, &["higher priority"]);
    }
}
