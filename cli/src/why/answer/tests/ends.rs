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

#[test]
fn a_tenant_that_is_being_ended_is_not_said_to_run_freely() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    let free = "nothing holds it up";
    let words = ["is being ended", "no new memory", "SIGTERM: its run limit"];
    let of_run = ended("SIGTERM: its run limit", "run_limit");
    facts.past = vec![event("admitted", "may run", &[]), of_run];
    says(&facts, State::Running, &words, &[free]);
    facts.shares = vec![share("web", ShareState::Held { for_us: 5 })];
    says(&facts, State::Throttled, &words, &[]);
    facts.shares.clear();
    // It was called off, or the daemon that ended it is gone.
    for kind in ["spared", "admitted"] {
        let mut off = facts.past.clone();
        off.push(event(kind, "is not ended", &[]));
        let facts = Facts {
            tenants: facts.tenants.clone(),
            past: off,
            ..self::facts()
        };
        says(&facts, State::Running, &[free], &words);
    }
    // A key of `top` sends a signal, and no more.
    facts.past[1] = ended("SIGTERM: user 7 ended it", "command");
    says(&facts, State::Running, &[free], &["being ended"]);
}

#[test]
fn a_program_that_began_after_a_collision_is_not_being_ended() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    let of_other = ended("SIGTERM: tenant big needs memory", "collision");
    facts.past = vec![event("admitted", "may run", &[]), of_other];
    let at_ms = facts.past[1].at_ms;
    let (free, ending) = ("nothing holds it up", "is being ended");
    for (oldest_ms, said, not) in [
        (None, ending, free),
        (Some(at_ms - 1), ending, free),
        (Some(at_ms + 1), free, ending),
    ] {
        facts.oldest_ms = oldest_ms;
        says(&facts, State::Running, &[said], &[not]);
    }
    // A shell, say, whose programs it was.
    facts.oldest_ms = None;
    facts.tenants[0].processes.clear();
    says(&facts, State::Running, &[free], &[ending]);
}

#[test]
fn a_container_whose_programs_were_ended_may_start_the_next_one() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    let mut stays = event("will-not-yield", "is still there", &[]);
    stays.at_ms += 15_000;
    let at_ms = stays.at_ms;
    let of_idle = ended("SIGKILL: its idle end", "idle_end");
    facts.past = vec![event("admitted", "may run", &[]), of_idle];
    let (free, ending) = ("nothing holds it up", "is being ended");
    // The next program waits for the end of all of it until that is given up.
    facts.oldest_ms = Some(at_ms - 1);
    says(&facts, State::Running, &[ending], &[free]);
    facts.past.push(stays);
    says(&facts, State::Running, &[ending], &[free]);
    facts.oldest_ms = Some(at_ms + 1);
    says(&facts, State::Running, &[free], &[ending]);
    facts.tenants[0].processes.clear();
    says(&facts, State::Running, &[free], &[ending]);
}
