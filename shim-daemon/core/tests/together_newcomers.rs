//! Tenants that come to a shared device that another one keeps busy, and whose kernels were never
//! measured, in virtual time. Figures: `cargo test -p gpushare-core --test main
//! together_newcomers:: -- --nocapture`.
#![allow(clippy::float_arithmetic, clippy::print_stdout, reason = "figures")]

use crate::together::{Brain, Case, MS, Program, Rig, S, SLICES, US, at_least};

/// For how long the newcomer's kernels are guesses: not at all; until three were timed, with room
/// for times that were interrupted; and for ever.
const GUESSED: [u64; 3] = [0, 20 * MS, u64::MAX / 2];

/// A newcomer's service in the first tenth of a second in which it launches, and in the second one,
/// in percent of the time. Then it leaves.
fn newcomer(rig: &mut Rig<Brain>, program: &Program, guesses: u64) -> [f64; 2] {
    let at = rig.now();
    let program = program.clone().guesses(at + program.starts + guesses);
    let starts = program.starts;
    let tenant = rig.add(program.from(at).until(at + 2 * S));
    rig.run(starts);
    rig.measure();
    let had = [0, 1].map(|_| rig.measured(0, 100 * MS).useful(tenant));
    rig.run(at + 2 * S - rig.now());
    had
}

/// The least that a newcomer had in its first tenth of a second and in its second one, in ten
/// visits every two seconds.
fn visits(
    what: &str,
    residents: &[Program],
    program: &Program,
    guesses: u64,
    slice: u64,
) -> [f64; 2] {
    let case = Case::new(what, residents).slice(slice);
    let mut rig = case.rig(case.brain());
    rig.run(S);
    let had = [(); 10].map(|()| newcomer(&mut rig, program, guesses));
    assert_eq!(rig.steering.broken, None);
    let least = |at: usize| had.iter().map(|had| had[at]).fold(f64::MAX, f64::min);
    println!(
        "{what} L={} guesses for {} ms: first 100 ms {:.1} %, then {:.1} %",
        slice / US,
        guesses / MS,
        least(0),
        least(1)
    );
    [least(0), least(1)]
}

#[test]
fn a_newcomer_of_unmeasured_kernels_has_its_part_within_100_ms() {
    for slice in SLICES {
        for guesses in GUESSED {
            let [_, had] = visits(
                "server",
                &[Program::trainer()],
                &Program::server(),
                guesses,
                slice,
            );
            at_least("of 30 % asked", had, 27.0);
            let [_, had] = visits(
                "trainer",
                &[Program::trainer()],
                &Program::trainer(),
                guesses,
                slice,
            );
            at_least("of its half", had, 45.0);
        }
    }
}

/// Kernels as long as the driver's slice are never measured beside others.
#[test]
fn a_newcomer_of_long_kernels_has_its_part_within_100_ms() {
    for slice in SLICES {
        for guesses in GUESSED {
            let long = Program::queue(5 * MS);
            let [_, had] = visits(
                "kernels of 5 ms",
                &[Program::trainer()],
                &long,
                guesses,
                slice,
            );
            at_least("of its half", had, 45.0);
            let rare = Program::every(25 * MS, 5 * MS);
            let [_, had] = visits("5 of 25 ms", &[Program::trainer()], &rare, guesses, slice);
            at_least("of 20 % asked", had, 18.0);
        }
    }
}

/// Neither the newcomer's service nor that of the resident is measured.
#[test]
fn a_newcomer_beside_unmeasured_kernels_has_its_part_within_100_ms() {
    for slice in SLICES {
        for guesses in GUESSED {
            let resident = Program::trainer().guesses(u64::MAX);
            let [_, had] = visits(
                "unmeasured",
                &[resident],
                &Program::trainer(),
                guesses,
                slice,
            );
            at_least("of its half", had, 45.0);
        }
    }
}

/// Both come at once, and nothing of either is measured: their parts of the time are taken to be
/// those of the time in flight, which is wrong for a server.
#[test]
fn two_newcomers_have_their_parts_within_100_ms() {
    for slice in SLICES {
        let what = "trainer and server at once";
        let programs = [Program::trainer(), Program::server()].map(|one| one.guesses(GUESSED[1]));
        let case = Case::new(what, &programs).slice(slice);
        let report = case.times(100 * MS, 100 * MS).steered().report;
        at_least(what, report.useful(1), 27.0);
        at_least(what, report.used(), 95.0);
    }
}

/// While it makes its context and loads its modules, the resident's queue gets short: its launches
/// are bounded from the newcomer's arrival on.
#[test]
fn a_newcomer_that_starts_for_as_long_as_others_queue_is_served_at_once() {
    for slice in SLICES {
        for guesses in GUESSED {
            for starts in [120, 900] {
                let server = Program::server().starts(starts * MS);
                let [had, _] = visits(
                    "starts first",
                    &[Program::trainer()],
                    &server,
                    guesses,
                    slice,
                );
                at_least("of 30 % asked", had, 27.0);
                let trainer = Program::trainer();
                let newcomer = trainer.clone().starts(starts * MS);
                let [had, _] = visits("starts first", &[trainer], &newcomer, guesses, slice);
                at_least("of its half", had, 45.0);
            }
        }
    }
}

/// The resident was alone, and has a queue of `ahead` ns when the newcomer launches. Until that is
/// done the driver gives a whole slice for each request: no daemon can take it back.
#[test]
fn a_newcomer_that_launches_at_once_has_what_the_residents_queue_leaves() {
    for slice in SLICES {
        for launches in [8, 20, 60, 200] {
            let resident = Program::trainer().depth(launches);
            let [had, _] = visits(
                "at once",
                &[resident],
                &Program::server(),
                GUESSED[1],
                slice,
            );
            let ahead = launches as f64 * 0.5;
            let (s, slice) = (0.3, slice as f64 / MS as f64);
            let drained = (ahead * (1.0 + s / slice)).min(100.0);
            let bound = drained * s / (s + slice) + (100.0 - drained) * 0.3;
            at_least("of what is left", had, 0.9 * bound);
        }
    }
}

/// A newcomer that launches nothing for a second after it came costs the resident nothing.
#[test]
fn one_that_starts_costs_others_no_time_whatever_its_class() {
    for class in [500, 900] {
        for slice in SLICES {
            let newcomer = Program::server().from(100 * MS).starts(10 * S);
            let case = Case::new("starts for ever", &[Program::trainer(), newcomer]).slice(slice);
            let case = case.of(1, class, gpushare_core::Compute::default());
            let steered = case.times(50 * MS, 2 * S).steered();
            at_least("the resident", steered.report.useful(0), 99.9);
            assert_eq!(steered.changes, 0);
        }
    }
}

#[test]
fn a_newcomer_pays_no_debt_of_a_tenant_that_left() {
    let hog = Program::queue(2_500 * MS).depth(1).until(1);
    let late = Program::trainer().from(9 * S);
    let case = Case::new(
        "credit",
        &[hog, Program::trainer(), Program::trainer(), late],
    )
    .process(0, Program::every(100 * MS, 10 * US).until(8_500 * MS))
    .requests(&[5, 10, 10, 75])
    .times(9 * S, 10 * S);
    let report = case.steered().report;
    at_least("the newcomer", report.useful(3), 77.9);
}
