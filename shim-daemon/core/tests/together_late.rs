//! A busy host: the daemon's samples are late, and threads of the tenants are not scheduled for a
//! while. What was promised holds, as far as a thread that does not run can use it.
#![allow(clippy::float_arithmetic, reason = "figures")]

use crate::together::{Case, MS, Program, Report, S, SLICES, US, at_least, near, request};

/// How late samples are, at most, and one of a thousand wakes of a thread (ns).
#[derive(Clone, Copy)]
struct Late {
    samples: u64,
    threads: u64,
}

fn measured(case: &Case, late: Late) -> Report {
    let mut rig = case.rig(case.brain());
    (rig.late, rig.stall) = (late.samples, late.threads);
    rig.measured(500 * MS, 10 * S)
}

#[test]
fn no_honest_tenant_is_doubted_where_samples_are_late() {
    for slice in SLICES {
        for late in [0, 6, 15, 30] {
            let shares = [60, 25, 15];
            let programs = [500 * US, 50 * US, 200 * US].map(Program::queue);
            let case = Case::new("late", &programs).requests(&shares).slice(slice);
            let samples = late * MS;
            let report = measured(
                &case,
                Late {
                    samples,
                    threads: 0,
                },
            );
            for (at, share) in shares.iter().enumerate() {
                let what = format!("samples up to {late} ms late");
                near(&what, report.useful(at), f64::from(*share), 2.0);
            }
        }
    }
}

#[test]
fn a_thread_that_does_not_run_for_a_while_keeps_its_share() {
    let late = Late {
        samples: 30 * MS,
        threads: 60 * MS,
    };
    for slice in SLICES {
        let case = Case::new(
            "70:30, threads late",
            &[Program::trainer(), Program::trainer()],
        );
        let report = measured(&case.requests(&[70, 30]).slice(slice), late);
        near("70", report.useful(0), 70.0, 2.0);
        near("30", report.useful(1), 30.0, 2.0);
    }
}

#[test]
fn a_server_gets_what_it_asks_where_samples_and_threads_are_late() {
    for (samples, threads) in [(50 * MS, 0), (10 * MS, 20 * MS), (30 * MS, 60 * MS)] {
        for slice in SLICES {
            let what = format!("samples {samples} ns late, threads {threads}");
            let case = Case::new(&what, &[Program::trainer(), Program::server()]).slice(slice);
            let report = measured(&case, Late { samples, threads });
            at_least(&what, report.tenants[1].of_asked(), 90.0);
            at_least(&what, report.all_useful(), 95.0);
        }
    }
}

/// The half second after a look that comes so late, because the daemon stood still.
fn after_a_look(case: &Case, late: u64) -> Report {
    let mut rig = case.rig(case.brain());
    rig.run(6 * S);
    rig.late = late;
    // The next look is drawn as late as that, or nearly.
    rig.run(2 * MS);
    rig.late = 50 * US;
    rig.run(late);
    rig.measured(0, 500 * MS)
}

/// Each bill of such a look is a second at most, and some work was not recorded.
#[test]
fn a_guarantee_is_not_owed_what_a_look_too_late_did_not_show() {
    for share in [20, 50, 80] {
        for late in [0, 10 * S] {
            let what = format!("{share} %, a look up to {late} ns late");
            let case = Case::new(&what, &[Program::trainer(), Program::trainer()]);
            let case = case.of(0, 100, request(share)).of(1, 900, request(0));
            let had = after_a_look(&case, late).share(0);
            near(&what, had, f64::from(share), 5.0);
        }
    }
}

#[test]
fn a_look_too_late_is_no_verdict_on_steering() {
    for late in [0, 10 * S] {
        let what = format!("a look up to {late} ns late");
        let case = Case::new(&what, &[Program::trainer(), Program::server()]).h100();
        at_least(&what, after_a_look(&case, late).useful(1), 15.0);
    }
}
