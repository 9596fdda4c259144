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
    facts.tenants = vec![TenantRow {
        limit: 3 * GIB,
        ..row("web", GIB, ProcessState::Running)
    }];
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

#[test]
fn a_limit_that_is_the_request_too_is_raised_alone() {
    let numbers = [
        ("count", 1),
        ("over_limit", 1),
        ("limit_bytes", 15 * GIB),
        ("charged_bytes", 15 * GIB),
        ("largest_bytes", GIB),
    ];
    let mut facts = facts();
    facts.past = vec![event("refused", "REASON", &numbers)];
    let mut own = row("web", 15 * GIB, ProcessState::Running);
    (own.request, own.limit) = (15 * GIB, 15 * GIB);
    facts.tenants = vec![own.clone()];
    let whole = "`gpushare set web --mem-limit 16384MiB --mem-request 15GiB`";
    says(&facts, State::Running, &[whole], &[]);
    own.request = 2 * GIB;
    facts.tenants = vec![own];
    let limit = "`gpushare set web --mem-limit 16384MiB`";
    says(&facts, State::Running, &[limit], &["--mem-request"]);
}

#[test]
fn the_limit_of_one_of_several_devices_is_raised_there_alone() {
    let numbers = [("count", 1), ("over_limit", 1), ("limit_bytes", GIB)];
    let mut refused = event("refused", "REASON", &numbers);
    let uuid = [9; 16];
    refused.device = Some(EventDevice { uuid, index: 1 });
    let mut facts = facts();
    facts.past = vec![refused];
    let first = row("web", GIB, ProcessState::Running);
    let mut second = first.clone();
    (second.device, second.request, second.limit) = (uuid, GIB, GIB);
    let on = format!("GPU-{}", "09090909-0909-0909-0909-090909090909");
    facts.tenants = vec![first, second.clone()];
    let both = format!("--mem-limit {on}=SIZE --mem-request {on}=1GiB`");
    says(&facts, State::Running, &[&both], &[]);
    facts.tenants = vec![second];
    let all = "--mem-limit SIZE --mem-request 1GiB`";
    says(&facts, State::Running, &[all], &[&on]);
}

#[test]
fn a_tenant_that_has_ended_is_told_the_limit_to_start_with() {
    let mut facts = facts();
    let numbers = [("count", 1), ("over_limit", 1), ("limit_bytes", GIB)];
    facts.past = vec![
        event("refused", "REASON", &numbers),
        event("gone", "has ended", &[]),
    ];
    let start = "`gpushare run --mem-limit SIZE`";
    says(&facts, State::Gone, &[start], &["gpushare set"]);
}

#[test]
fn a_limit_that_is_enough_by_now_is_not_lowered_by_an_advice() {
    let mut facts = facts();
    let numbers = [("count", 3), ("over_limit", 3), ("limit_bytes", 4 * GIB)];
    let sizes = [("charged_bytes", 4 * GIB), ("largest_bytes", GIB)];
    let of = |limit| TenantRow {
        limit,
        ..row("web", 4 * GIB, ProcessState::Running)
    };
    let (old, now) = ("own limit of 4 GiB refused 3", "its limit is 16 GiB by now");
    for numbers in [&[&numbers[..], &sizes].concat()[..], &numbers] {
        facts.past = vec![event("refused", "REASON", numbers)];
        facts.tenants = vec![of(16 * GIB)];
        says(&facts, State::Running, &[old, now], &["set web"]);
        facts.tenants = vec![of(4 * GIB)];
        says(&facts, State::Running, &[old, "set web"], &["by now"]);
    }
    // It was raised, and by too little.
    facts.past = vec![event("refused", "REASON", &[&numbers[..], &sizes].concat())];
    facts.tenants = vec![of(4 * GIB + 1)];
    let set = "set web --mem-limit 5120MiB";
    says(&facts, State::Running, &[old, set], &["by now"]);
}

#[test]
fn a_container_that_has_ended_is_told_the_annotation_to_start_with() {
    let mut facts = facts();
    facts.name = "3f9c0d5512e1".repeat(6)[..64].to_owned();
    let numbers = [("count", 1), ("over_limit", 1), ("limit_bytes", GIB)];
    facts.past = vec![
        event("refused", "REASON", &numbers),
        event("gone", "has ended", &[]),
    ];
    let start = "`gpushare.io/mem-limit=SIZE`";
    says(&facts, State::Gone, &[start], &["gpushare run"]);
}

#[test]
fn the_limit_is_that_of_the_last_refusal_by_a_limit() {
    let of = |numbers: &[(&str, u64)], device: u8| EventRecord {
        device: Some(EventDevice {
            uuid: [device; 16],
            index: u32::from(device),
        }),
        ..event("refused", "REASON", numbers)
    };
    let by_limit = [("count", 40), ("over_limit", 40), ("limit_bytes", 2 * GIB)];
    let timed_out = [("count", 1), ("timed_out", 1), ("limit_bytes", 40 * GIB)];
    let on = |device: u8, limit| TenantRow {
        device: [device; 16],
        limit,
        ..row("web", GIB, ProcessState::Running)
    };
    let mut facts = facts();
    facts.tenants = vec![on(8, 2 * GIB), on(9, 40 * GIB)];
    facts.past = vec![of(&by_limit, 8), of(&timed_out, 9)];
    let words = ["own limit of 2 GiB refused 40", "--mem-limit GPU-08080808"];
    says(&facts, State::Running, &words, &["GPU-09090909"]);
    facts.past.push(of(&by_limit, 9));
    let words = ["limit of 2 GiB refused 80", "limit is 40 GiB by now"];
    says(&facts, State::Running, &words, &["GPU-08080808"]);
}
