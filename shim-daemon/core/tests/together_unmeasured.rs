//! Tenants whose service is never measured, all of them: their kernels always wait for another
//! stream, say. In virtual time. Figures: `cargo test -p gpushare-core --test main
//! together_unmeasured:: -- --nocapture`.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, SLICES, US, at_least, near};

/// A deep queue, with estimates of so many thousandths of the truth for ever.
fn unmeasured(kernel: u64, thousandths: u64) -> Program {
    Program::queue(kernel)
        .estimates(thousandths)
        .guesses(u64::MAX)
}

#[test]
fn several_that_are_never_measured_have_the_hardwares_equal_slices() {
    for slice in SLICES {
        for tenants in [2_u8, 3, 4] {
            let lengths = [500, 200, 50, 800].map(|us| us * US);
            let guesses = [1_000, 200, 4_000, 700];
            let all = lengths.iter().zip(guesses).take(tenants.into());
            let programs: Vec<Program> = all.map(|(ns, guess)| unmeasured(*ns, guess)).collect();
            let what = format!("{tenants} never measured");
            let report = Case::new(&what, &programs).slice(slice).steered().report;
            for at in 0..programs.len() {
                near(&what, report.useful(at), 100.0 / f64::from(tenants), 1.0);
            }
            assert!(report.idle() <= 2.0, "{what}: idle {:.2}", report.idle());
            assert!(report.longest_idle <= MS, "{what}: {}", report.longest_idle);
        }
    }
}

/// Nothing says what a server of theirs lacks: it has at least what the bare driver gives it.
#[test]
fn a_server_among_the_never_measured_does_not_starve() {
    for slice in SLICES {
        let server = Program::every(MS, 300 * US).guesses(u64::MAX);
        let programs = [
            unmeasured(500 * US, 1_000),
            server,
            unmeasured(200 * US, 500),
        ];
        let pair = Case::new("a server among them", &programs)
            .slice(slice)
            .pair();
        let (bare, steered) = (&pair.bare, &pair.steered);
        for at in 0..programs.len() {
            at_least(
                "a part of the bare",
                steered.useful(at),
                0.9 * bare.useful(at),
            );
        }
        assert!(steered.idle() <= 2.0, "idle {:.2}", steered.idle());
    }
}

/// One measured tenant tells the others' time: then weights hold.
#[test]
fn beside_a_measured_one_the_never_measured_have_what_it_leaves() {
    for slice in SLICES {
        let programs = [Program::queue(500 * US), unmeasured(500 * US, 300)];
        let case = Case::new("one is measured", &programs).requests(&[70, 30]);
        let report = case.slice(slice).steered().report;
        near("the measured", report.useful(0), 70.0, 1.0);
        near("the other", report.useful(1), 30.0, 1.0);
    }
}

/// Changes of contexts take a fourteenth of the time that two have. That is no service of theirs.
#[test]
fn the_never_measured_do_not_pay_for_changes_of_contexts() {
    let long = unmeasured(20 * MS, 1_000);
    let two = vec![Program::queue(50 * US), long];
    let three = vec![
        Program::queue(200 * US),
        unmeasured(2 * MS, 1_000),
        unmeasured(10 * MS, 1_000),
    ];
    for (programs, percent) in [(two, vec![50, 50]), (three, vec![50, 30, 20])] {
        let what = format!("{percent:?}");
        let case = Case::new(&what, &programs).h100().requests(&percent);
        let report = case.steered().report;
        for (at, percent) in percent.iter().enumerate() {
            let part = 100.0 * report.useful(at) / report.all_useful();
            near(&what, part, f64::from(*percent), 1.0);
        }
    }
}

/// Where nothing is requested, a tenth of a part is within what a guess is wrong by (ADR 230).
#[test]
fn two_equals_of_which_one_is_guessed_lack_at_most_a_tenth() {
    let queue = || Program::queue(500 * US);
    for guess in [300, 1_000, 3_000] {
        let of = |what: &str, programs: &[Program]| Case::new(what, programs).h100();
        let guessed = || unmeasured(500 * US, guess);
        let looped = Program::sync(9 * MS, 0).guesses(u64::MAX);
        let cases = [
            of("a guess", &[queue(), guessed()]),
            of("a long guess", &[queue(), unmeasured(9 * MS, guess)]),
            of("two processes", &[queue(), guessed()]).process(0, queue()),
            of("two guessed processes", &[guessed(), queue()]).process(0, guessed()),
            of("a guessed loop", &[queue(), looped]),
        ];
        for case in cases {
            let report = case.steered().report;
            let part = 100.0 * report.useful(0) / report.all_useful();
            near(&case.what, part, 50.0, 5.5);
        }
    }
}
