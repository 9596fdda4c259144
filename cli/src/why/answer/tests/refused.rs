//! Refused allocations, and what would have helped.

use super::*;

#[test]
fn refusals_come_with_what_would_have_helped() {
    let advice = ["--mem-limit SIZE", "--wait-timeout", "--on-collision wait"];
    for (at, name) in ["over_limit", "timed_out", "no_room"]
        .into_iter()
        .enumerate()
    {
        let mut facts = facts();
        facts.tenants = vec![row("web", GIB, ProcessState::Running)];
        let numbers = [("count", 2), (name, 2), ("limit_bytes", 40 * GIB)];
        facts.past = vec![
            event("refused", "earlier", &numbers),
            event("refused", "REASON", &numbers),
        ];
        let others: Vec<&str> = (0..3)
            .filter(|other| *other != at)
            .map(|at| advice[at])
            .collect();
        says(
            &facts,
            State::Running,
            &["4 of its allocations were refused", "REASON", advice[at]],
            &others,
        );
    }
}

#[test]
fn a_limit_is_named_that_the_largest_refused_allocation_fits() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    let told = |largest: &[(&str, u64)]| {
        let limit = [("limit_bytes", 3 * GIB), ("charged_bytes", 2 * GIB + 1)];
        let numbers = [&[("count", 2), ("over_limit", 2)], &limit[..], largest].concat();
        vec![event("refused", "REASON", &numbers)]
    };
    facts.past = told(&[("largest_bytes", 2 * GIB)]);
    says(&facts, State::Running, &["--mem-limit 4097MiB"], &["SIZE"]);
    // Not known, and what would fit now: it has freed since.
    for largest in [&[][..], &[("largest_bytes", GIB / 2)]] {
        facts.past = told(largest);
        says(&facts, State::Running, &["--mem-limit SIZE"], &["MiB`"]);
    }
}

#[test]
fn refusals_are_counted_from_the_begin_of_the_life_that_had_them() {
    let mut facts = facts();
    facts.tenants = vec![row("web", GIB, ProcessState::Running)];
    facts.since_ms = 1_000;
    let numbers = [("count", 2), ("over_limit", 2)];
    let refused = event("refused", "REASON", &numbers);
    let of = |ms| format!("Since {} 2 of its", crate::when::local(ms));
    facts.past = vec![refused.clone()];
    says(&facts, State::Running, &[&of(1_000)], &[]);
    facts.past = vec![event("admitted", "may run", &[]), refused];
    let began = facts.past[0].at_ms;
    says(&facts, State::Running, &[&of(began)], &[]);
}
