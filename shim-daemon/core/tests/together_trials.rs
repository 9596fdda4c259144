//! When it is tried whether steering is worth its cost, for which tenants, and for how long it is
//! given up; in virtual time, with an H100's changes of contexts. Figures: `cargo test -p
//! gpushare-core --test main together_trials:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Pair, Program, S, US, at_least, limit, request};
use gpushare_core::Compute;

fn case(what: &str, programs: &[Program]) -> Case {
    Case::new(what, programs).h100()
}

/// The last tenant has half as much again as by the driver alone.
fn helps_the_last(what: &str, pair: &Pair) {
    let last = pair.bare.tenants.len() - 1;
    let (had, bare) = (pair.steered.useful(last), pair.bare.useful(last));
    at_least(what, had, 1.5 * bare);
}

/// Beside deep queues of 20 launches a server of 50 %, and one without a request that comes later.
fn promised_beside(small: Option<Program>) -> Case {
    let deep = Program::trainer().depth(20);
    let server = Program::server().from(2 * S).starts(300 * MS);
    let mut programs = vec![deep.clone(), server, deep];
    programs.extend(small);
    let case = case("server of 50 % beside two trainers", &programs);
    case.of(1, 500, request(50)).times(8 * S, 8 * S)
}

/// Steering for the small one is not worth its cost, and it is far behind.
#[test]
fn a_request_is_kept_beside_a_small_tenant_that_asks_for_nothing() {
    let small = Program::sync(50 * US, 450 * US).from(6 * S);
    let report = promised_beside(Some(small)).steered().report;
    at_least("the server", report.tenants[1].of_asked(), 70.0);
}

#[test]
fn a_request_is_kept_without_a_small_tenant() {
    let report = promised_beside(None).steered().report;
    at_least("the server", report.tenants[1].of_asked(), 70.0);
}

#[test]
fn a_deep_queue_keeps_its_share_beside_a_small_tenant() {
    let deep = || Program::queue(900 * US);
    let small = Program::sync(50 * US, 300 * US);
    let what = "60 % and a small one";
    let case = case(what, &[deep(), deep(), small]).of(0, 500, request(60));
    let report = case.times(5 * S, 20 * S).steered().report;
    // Of requests of 60, 20 and 20 %, what the small one does not use is divided as 3 to 1.
    at_least(what, report.useful(0), 1.5 * report.useful(1));
}

/// While it makes its context the resident is alone, and keeps the device busier than both will.
#[test]
fn a_server_that_starts_slowly_is_helped_at_once() {
    for starts in [0, 100, 300, 900] {
        let server = Program::server().from(2 * S).starts(starts * MS);
        let what = format!("starts for {starts} ms");
        let case = case(&what, &[Program::trainer().depth(20), server]);
        helps_the_last(&what, &case.times(3 * S, 3 * S).pair());
    }
}

fn tiny() -> Program {
    Program::every(MS, 50 * US)
}

/// Steering for the six is not worth it: by 18 s it is given up until 33 s.
#[test]
fn a_newcomer_is_helped_though_help_for_others_was_given_up() {
    let what = "after six small servers";
    let mut programs = vec![Program::trainer()];
    programs.extend(vec![tiny().until(18 * S); 6]);
    programs.push(Program::server().from(20 * S));
    let case = case(what, &programs).times(21 * S, 10 * S);
    helps_the_last(what, &case.pair());
}

#[test]
fn help_that_is_not_worth_it_stays_given_up_for_the_same_tenants() {
    let what = "six small servers";
    let mut programs = vec![Program::trainer()];
    programs.extend(vec![tiny(); 6]);
    let pair = case(what, &programs).times(5 * S, 15 * S).pair();
    at_least(what, pair.useful_of_bare(), 97.0);
}

/// Each second another tenant comes for half a second: the trial does not begin anew for ever.
#[test]
fn tenants_that_come_and_go_do_not_make_bad_help_go_on() {
    let what = "six small servers and others that come and go";
    let mut programs = vec![Program::trainer()];
    programs.extend(vec![tiny(); 6]);
    for at in 0..24 {
        let guest = Program::every(20 * MS, 100 * US);
        programs.push(guest.from(at * S + S / 3).until(at * S + S * 5 / 6));
    }
    let pair = case(what, &programs).times(5 * S, 19 * S).pair();
    at_least(what, pair.useful_of_bare(), 90.0);
}

/// The guests are the same tenants each time: they rest for a while.
#[test]
fn tenants_that_pause_do_not_make_bad_help_go_on() {
    // The second ones change the set: in some sets 85 % of the driver's useful time remain. So
    // the verdict depends on the moments at which they pause: over twelve seeds the useful time was
    // near 61.9 % or near 65.2 % (61.8 to 65.5, mean 63.4), 89 to 95 % of the driver's.
    for (pause, least) in [(500 * MS, 92.0), (6 * S, 88.0)] {
        let what = format!(
            "six small servers and three that pause for {} ms",
            pause / MS
        );
        let mut programs = vec![Program::trainer()];
        programs.extend(vec![tiny(); 6]);
        for at in 1..=3 {
            let guest = Program::every(20 * MS, 100 * US).from(at * S / 3);
            programs.push(guest.pauses(pause, pause * at));
        }
        let pair = case(&what, &programs).times(5 * S, 20 * S).pair();
        at_least(&what, pair.useful_of_bare(), least);
    }
}

/// The slower one has all that it can use, and is behind: holding the other one gives it nothing.
/// By events a kernel of 2 us takes twice as long.
#[test]
fn a_program_that_launches_faster_than_another_is_not_held_for_it() {
    let small = |kernel: u64, launch: u64| Program::queue(kernel * US).launch(launch * US);
    for [fast, slow] in [[(2, 6), (2, 8)], [(3, 7), (3, 10)], [(4, 6), (4, 12)]] {
        let both = [fast, slow].map(|(kernel, launch)| small(kernel, launch).depth(3_000));
        let what = format!("{fast:?} and {slow:?} us");
        // Trials of 400 ms, given up for 4 s.
        let timed = |programs: &[Program]| case(&what, programs).times(2 * S, 5 * S);
        let bare = timed(&both).bare();
        let exact = (fast.0 == 2).then_some(1_000);
        for estimates in exact.into_iter().chain([2_000]) {
            let programs = both.clone().map(|program| program.estimates(estimates));
            let steered = timed(&programs).steered().report;
            let what = format!("{what}, estimates of {estimates}");
            let of_bare = 100.0 * steered.all_useful() / bare.all_useful();
            at_least(&what, of_bare, 93.0);
            at_least(&what, steered.useful(1), 0.95 * bare.useful(1));
        }
    }
}

/// While its cap is used up, a tenant of a higher class promises nothing below it.
#[test]
fn a_capped_higher_class_makes_no_bad_help_go_on() {
    for (what, above) in [
        ("a deep queue above", Program::trainer()),
        ("a server above", Program::every(20 * MS, 4 * MS)),
    ] {
        let mut programs = vec![Program::trainer()];
        programs.extend(vec![tiny(); 6]);
        programs.push(above);
        let case = case(what, &programs).of(7, 900, limit(5));
        let pair = case.times(5 * S, 20 * S).pair();
        at_least(what, pair.useful_of_bare(), 85.0);
        assert!(
            pair.changes <= 60,
            "{what}: {} changes of mode",
            pair.changes
        );
    }
}

/// Two programs that are bound by their launches, beside a third tenant of this class that asks for
/// little: the useful time, and the changes of the mode.
fn bound_by_launches_beside(class: u16, estimate: u64) -> (f64, u64) {
    let small = |launch: u64| {
        let small = Program::queue(2 * US).launch(launch * US);
        small.estimates(estimate)
    };
    let rare = Program::every(10 * MS, 200 * US);
    let case = case("launch-bound", &[small(6), small(8), rare]);
    let case = case.of(2, class, Compute::default()).times(4 * S, 4 * S);
    let steered = case.steered();
    (steered.report.all_useful(), steered.changes)
}

/// The lower class pays no attention to which of its betters has the device.
#[test]
fn equals_above_a_lower_class_are_not_steered_in_vain() {
    let estimate = 2000;
    let (equal, _) = bound_by_launches_beside(500, estimate);
    let (useful, changes) = bound_by_launches_beside(100, estimate);
    at_least("useful", useful, equal - 1.0);
    assert!(changes <= 30, "{changes} changes of the mode");
}
