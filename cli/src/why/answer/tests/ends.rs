//! Tenants that are ended, were ended, or were spared.

use super::*;

fn ended(text: &str, reason: &str) -> EventRecord {
    let mut ended = event("ended", text, &[]);
    let reason = Fact::Word(reason.to_owned());
    ended.facts.push(("reason".to_owned(), reason));
    ended
}

#[test]
fn a_tenant_that_was_ended_is_told_for_whom() {
    let ended = ended("SIGTERM: tenant big needs memory", "collision");
    let mut facts = facts();
    facts.past = vec![
        event("admitted", "may run", &[]),
        ended.clone(),
        event("ended", "SIGKILL: tenant big needs memory", &[]),
        event("gone", "ran for 3 s", &[("exit_status", 143)]),
    ];
    says(
        &facts,
        State::Gone,
        &[
            "gone since",
            "ran for 3 s",
            "SIGTERM: tenant big",
            "--mem-request",
        ],
        &["SIGKILL", "another party"],
    );
    // The next tenant of that name ended by itself.
    facts.past.extend([
        event("admitted", "may run", &[]),
        event("gone", "ran for 9 s", &[("exit_status", 1)]),
    ]);
    says(
        &facts,
        State::Gone,
        &["ran for 9 s", "ended by itself or another party"],
        &["SIGTERM", "ran for 3 s"],
    );
    facts.past.extend([
        event("admitted", "may run", &[]),
        event("gone", "ran for 4 s", &[("exit_status", 0)]),
    ]);
    says(&facts, State::Gone, &["ran for 4 s"], &["another party"]);
    // The daemon died with it.
    facts.past.push(event("admitted", "may run", &[]));
    says(
        &facts,
        State::Unknown,
        &[
            "Whether web still runs is not known",
            "its end is in no journal",
        ],
        &["ran for"],
    );
}

#[test]
fn an_end_is_told_by_whom_also_after_a_restart_of_the_daemon() {
    let ended = ended("SIGTERM: root ended it", "command");
    let mut facts = facts();
    facts.past = vec![
        event("admitted", "may run", &[]),
        ended,
        event("admitted", "may run", &[]),
        event("gone", "ran for 3 s", &[("exit_status", 143)]),
    ];
    let words = ["ran for 3 s", "gpushare ended it"];
    says(&facts, State::Gone, &words, &["another party"]);
}

#[test]
fn a_tenant_that_was_spared_and_ended_by_itself_was_not_ended() {
    let mut facts = facts();
    let spared = event("spared", "is not ended", &[]);
    let gone = event("gone", "ran for 9 h", &[("exit_status", 1)]);
    let (by_us, not) = ("gpushare ended it", "gpushare did not end it");
    let of_idle = ended("SIGTERM: its idle end", "idle_end");
    facts.past = vec![
        event("admitted", "may run", &[]),
        of_idle.clone(),
        spared,
        gone.clone(),
    ];
    says(&facts, State::Gone, &["ran for 9 h", not], &[by_us]);
    // It was ended later, too.
    let of_run = ended("SIGTERM: its run limit", "run_limit");
    facts.past.splice(3.., [of_run, gone]);
    let words = [by_us, "SIGTERM: its run limit"];
    says(&facts, State::Gone, &words, &[not, "idle end"]);
}

fn told(by: EndsBy, in_ms: u64) -> EndRow {
    EndRow {
        name: "web".to_owned(),
        in_ms,
        by,
        told: true,
    }
}

#[test]
fn a_tenant_that_is_being_ended_is_not_said_to_run_freely() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    facts.ends = vec![told(EndsBy::RunLimit, 8_000)];
    let free = "nothing holds it up";
    let words = [
        "is being ended",
        "no new memory",
        "SIGKILL is sent in 8 s",
        "SIGTERM: its run limit",
    ];
    let of_run = ended("SIGTERM: its run limit", "run_limit");
    facts.past = vec![event("admitted", "may run", &[]), of_run];
    says(&facts, State::Running, &words, &[free, "will be ended"]);
    facts.shares = vec![share("web", ShareState::Capped { for_us: 5 })];
    says(&facts, State::Throttled, &words, &[]);
    facts.shares.clear();
    // It was called off, or is over.
    facts.ends.clear();
    says(&facts, State::Running, &[free], &words);
    // A key of `top` sends a signal, and no more.
    facts.past[1] = ended("SIGTERM: user 7 ended it", "command");
    says(&facts, State::Running, &[free], &["being ended"]);
}

#[test]
fn the_cause_of_an_end_is_told_where_its_event_is_not_known() {
    for (by, words) in [
        (EndsBy::IdleEnd, "Its --idle-end has come"),
        (EndsBy::RunLimit, "Its --run-limit has come"),
        (EndsBy::Collision, "Another tenant gets its memory"),
    ] {
        let mut facts = facts();
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
        facts.ends = vec![told(by, 0)];
        let words = ["is being ended", "SIGKILL was sent", words];
        says(&facts, State::Running, &words, &["nothing holds it up"]);
    }
}
