//! Requests below a higher class, where tenants ask for less than theirs or are several, in virtual
//! time. Figures: `cargo test -p gpushare-core --test main together_guarantees:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, Report, S, US, at_least, near, request};
use gpushare_core::Compute;

fn deep() -> Program {
    Program::queue(500 * US)
}

/// It asks for 5 % of the device.
fn light() -> Program {
    Program::every(MS, 50 * US)
}

/// A deep queue of class 900, and two tenants below it with requests of 20 and 30 %.
fn below(what: &str, lower: [Program; 2], classes: [u16; 2]) -> Case {
    let programs: Vec<Program> = std::iter::once(deep()).chain(lower).collect();
    let case = Case::new(what, &programs).times(3 * S, 5 * S);
    case.of(0, 900, Compute::default())
        .of(1, classes[0], request(20))
        .of(2, classes[1], request(30))
}

/// Without a price of changes of contexts, and with an H100's.
fn both(case: &Case) -> [Report; 2] {
    [case.clone(), case.clone().h100()].map(|case| case.steered().report)
}

#[test]
fn a_request_is_kept_beside_one_that_asks_for_less_than_its_own() {
    for classes in [[500, 500], [500, 600], [600, 500]] {
        let what = format!("light and deep of {classes:?}");
        for report in both(&below(&what, [light(), deep()], classes)) {
            near(&what, report.useful(2), 30.0, 1.0);
            at_least(&what, report.tenants[1].of_asked(), 90.0);
        }
    }
}

/// What the others do not ask for is the highest class's.
#[test]
fn the_highest_class_has_what_requests_below_it_leave() {
    let case = below("what is left", [light(), deep()], [500, 600]);
    at_least("the highest", case.steered().report.useful(0), 60.0);
}

/// Each has its turns as a whole: changes of contexts cost no more than beside one request.
#[test]
fn two_requests_below_a_higher_class_are_both_kept() {
    for report in both(&below("two deep ones", [deep(), deep()], [500, 500])) {
        near("20 %", report.useful(1), 20.0, 1.0);
        near("30 %", report.useful(2), 30.0, 1.0);
        at_least("all", report.all_useful(), 94.0);
    }
}

/// It asks for 5 of its 50 %, and from 4 s on for all there is. The work that it has queued until
/// the others wait for it is 100 ms.
#[test]
fn a_tenant_that_asked_for_little_shuts_no_higher_class_out_later() {
    let programs = [deep(), light().until(4 * S)];
    let case = Case::new("light, then deep", &programs).process(1, deep().from(4 * S));
    let case = case.of(0, 600, Compute::default()).of(1, 500, request(50));
    let mut rig = case.rig(case.brain());
    rig.run(4 * S + 200 * MS);
    rig.measure();
    for quarter in 0..8 {
        let report = rig.measured(0, 250 * MS);
        let what = format!("quarter {quarter} of a second");
        at_least(&what, report.useful(0), 40.0);
        at_least(&what, report.useful(1), 40.0);
    }
    assert_eq!(rig.steering.broken, None);
}

/// A server of class 900 and a deep queue of 600, and this one of 500 with or without a request.
fn below_a_server(lowest: Program, compute: Compute) -> Report {
    let server = Program::every(MS, 300 * US);
    let case = Case::new("server above", &[server, deep(), lowest]).h100();
    let case = case
        .of(0, 900, Compute::default())
        .of(1, 600, Compute::default())
        .of(2, 500, compute);
    case.times(3 * S, 5 * S).steered().report
}

#[test]
fn a_request_below_does_not_hold_a_higher_class_that_leaves_gaps() {
    let wait = |compute| below_a_server(light(), compute).tenants[0].wait(990);
    let (bare, beside) = (wait(Compute::default()), wait(request(20)));
    assert!(beside * 2 <= bare * 3, "{beside} ns, {bare} without");
}

/// The opposite: those that leave none are held for it.
#[test]
fn a_request_is_kept_below_a_server_and_a_deep_queue() {
    let report = below_a_server(deep(), request(20));
    near("the lowest", report.useful(2), 20.0, 1.0);
    let report = below_a_server(light(), request(20));
    at_least("a light one", report.useful(2), 2.5);
}

/// So many of class 900 that launch 5 ms, wait for it and think for 1 ms: they leave gaps, and ask
/// for 83 % each. Below them a deep queue of class 500.
fn below_loops(above: usize, lowest: Compute) -> (usize, [Report; 2]) {
    let mut programs = vec![Program::sync(5 * MS, MS); above];
    programs.push(deep());
    let case = Case::new(&format!("below {above} that wait"), &programs).times(3 * S, 5 * S);
    let case = (0..above).fold(case, |case, at| case.of(at, 900, Compute::default()));
    (above, both(&case.of(above, 500, lowest)))
}

#[test]
fn a_request_is_kept_below_higher_classes_that_wait_for_their_work() {
    for (above, percent) in [(1, 30), (1, 50), (2, 50), (3, 40)] {
        let (lowest, reports) = below_loops(above, request(percent));
        let what = format!("{percent} % below {above}");
        for report in reports {
            near(&what, report.useful(lowest), f64::from(percent), 1.0);
        }
    }
}

/// Most of what it asks for is more than what the server leaves.
#[test]
fn a_large_request_is_kept_below_a_server() {
    let server = Program::every(MS, 300 * US);
    let case = Case::new("80 % below a server", &[server, deep()]).times(3 * S, 5 * S);
    let case = case.of(0, 900, Compute::default()).of(1, 500, request(80));
    for report in both(&case) {
        near("80 %", report.useful(1), 80.0, 1.0);
    }
}

/// The opposite: without a request it has the gaps.
#[test]
fn without_a_request_a_tenant_has_the_gaps_of_a_higher_class() {
    let (lowest, [free, _]) = below_loops(1, Compute::default());
    at_least("the higher", free.useful(0), 70.0);
    at_least("the gaps", free.useful(lowest), 25.0);
}

/// The limit: a tenant that leaves gaps itself has what they leave, whatever it requests.
#[test]
fn a_request_of_a_tenant_with_gaps_closes_none_that_wait_for_their_work() {
    let waits = || Program::sync(5 * MS, MS);
    let programs = [waits(), waits(), Program::sync(500 * US, 100 * US)];
    let case = Case::new("40 % with gaps below two that wait", &programs).times(3 * S, 5 * S);
    let case = (0..2).fold(case, |case, at| case.of(at, 900, Compute::default()));
    let [report, _] = both(&case.of(2, 500, request(40)));
    at_least("the higher", report.useful(0) + report.useful(1), 80.0);
    at_least("what they leave", report.useful(2), 10.0);
}

/// A request of 20 % whose tenant copies most of the time claims less than the clock says: no other
/// tenant is steered for it, and the request of 40 % beside it is kept.
#[test]
fn a_request_is_kept_beside_one_whose_claims_are_doubted() {
    let copies = || Program::queue(100 * US).depth(8).copies(2 * MS);
    let all = [deep(), copies(), Program::queue(50 * US)];
    let terms = |case: Case| {
        let case = case.times(2 * S, 10 * S);
        case.of(0, 900, Compute::default()).of(1, 500, request(20))
    };
    for report in both(&terms(Case::new("copies, 40 %", &all)).of(2, 500, request(40))) {
        at_least("40 %", report.useful(2), 38.0);
    }
    // Where nothing else was promised the highest class has nearly all.
    for report in both(&terms(Case::new("copies", &all[..2]))) {
        at_least("the highest", report.useful(0), 85.0);
    }
    // The opposite: one that works is repaid.
    let all = [deep(), deep()];
    for report in both(&terms(Case::new("works", &all))) {
        near("20 %", report.useful(1), 20.0, 1.0);
    }
}

/// A training step of ten launches and so much time of the host, beside a loop of 300 us with 300
/// us of its own and a request of 50 %, or none: what the latter has.
fn beside_a_step(think: u64, asks: bool) -> [Report; 2] {
    let step = Program::sync(500 * US, think * US).burst(10);
    let program = Program::sync(300 * US, 300 * US);
    let case = Case::new(&format!("a step of {think} us"), &[step, program]).times(2 * S, 6 * S);
    both(&if asks {
        case.of(1, 500, request(50))
    } else {
        case
    })
}

#[test]
fn a_request_is_kept_beside_a_step_that_thinks_for_a_part_of_it() {
    for think in [300, 400, 600, 1000] {
        let [plain, h100] = beside_a_step(think, true);
        at_least("it has", plain.useful(1), 34.0);
        at_least("it has on an H100", h100.useful(1), 25.0);
        assert!(plain.idle() <= 6.0, "{:.1} % idle", plain.idle());
    }
}

/// The opposite: without a request it has what the driver gives it, where the device has gaps.
#[test]
fn without_a_request_none_is_steered_for_on_a_device_with_gaps() {
    let [plain, h100] = beside_a_step(1000, false);
    for report in [plain, h100] {
        let changes: u64 = report.tenants.iter().map(|one| one.gate_changes).sum();
        assert_eq!(changes, 0);
    }
}
