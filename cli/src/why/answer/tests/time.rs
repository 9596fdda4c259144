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
        told: false,
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
fn one_that_is_held_or_yields_is_told_for_whom_and_why() {
    use SteeredBy::{Gang, Priority, Request, Share, Turn};
    let for_us = 40_000_000;
    for (cause, words, not) in [
        (Share, "for late: it is ahead of its share", "priority"),
        (Request, "for late: the request of that tenant", "ahead"),
        (Priority, "for late: that tenant is of a higher", "ahead"),
        (Turn, "for late: they take turns", "priority"),
        (Gang, "its gang is closed on all its GPUs", "late"),
    ] {
        let held = (ShareState::Held { for_us }, "closed on GPU 0");
        let slices = (ShareState::Yielding { for_us }, "short slices");
        for (state, doing) in [held, slices] {
            let mut facts = facts();
            facts.tenants = vec![row("web", GIB, ProcessState::Running)];
            facts.shares = vec![
                steered("web", state, cause, "late"),
                share("other", ShareState::Sharing { for_us }),
            ];
            let not = [not, "other", "nothing holds it up"];
            says(&facts, State::Throttled, &[doing, words], &not);
        }
    }
}

#[test]
fn one_without_a_share_below_a_priority_is_told_how_to_get_one() {
    let for_us = 40_000_000;
    for (weight, said) in [(0, true), (300, false)] {
        let mut facts = facts();
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
        let state = ShareState::Held { for_us };
        let mut own = steered("web", state, SteeredBy::Priority, "server");
        own.weight = weight;
        facts.shares = vec![own];
        let advice = ["set web --sm-request"];
        let (has, not): (&[&str], &[&str]) = match said {
            true => (&advice, &["0 % is"]),
            false => (&["30 % is its share"], &advice),
        };
        says(&facts, State::Throttled, has, not);
    }
}

/// The sentence about a tenant that yields has its time as `ps` does: what it had alone, too.
#[test]
fn one_that_was_alone_a_moment_ago_is_told_what_it_had_by_then() {
    let alone = |part| {
        Some(Alone {
            part,
            over_ms: 9_000,
        })
    };
    let state = ShareState::Yielding { for_us: 1_000 };
    for (held, over_ms, alone, has) in [
        (30, 9_000, alone(900), "It had 93 % of the last 9 s"),
        (30, 9_000, None, "It had 3 % of the last 9 s"),
        (0, 0, None, "short slices"),
    ] {
        let mut facts = facts();
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
        let mut own = steered("web", state.clone(), SteeredBy::Share, "late");
        (own.held, own.over_ms, own.alone) = (held, over_ms, alone);
        facts.shares = vec![own];
        let not: &[&str] = match over_ms {
            0 => &["It had"],
            _ => &[],
        };
        says(&facts, State::Throttled, &[has], not);
    }
}
