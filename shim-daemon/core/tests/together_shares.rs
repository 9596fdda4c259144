//! Tenants that share a device, steered by the brain, against the bare driver, in virtual time.
//! Figures: `cargo test -p gpushare-core --test together_shares -- --nocapture`.
#![allow(
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people"
)]

mod together;

use gpushare_core::{Compute, LeasePolicy, Permille};
use together::{Brain, MS, NoSteering, Pace, Program, Report, Rig, S, Steering, US};

fn run<B: Steering>(brain: B, programs: &[Program]) -> (Report, B) {
    let mut rig = Rig::new(Pace::default(), brain, 1);
    for program in programs {
        rig.add(program.clone());
    }
    (rig.measured(S, 10 * S), rig.steering)
}

fn print(what: &str, report: &Report) {
    print!(
        "{what:40} used {:5.1} useful {:5.1} idle {:4.1} longest {:5} us |",
        report.used(),
        report.all_useful(),
        report.idle(),
        report.longest_idle / US
    );
    for (at, tenant) in report.tenants.iter().enumerate() {
        print!(
            " {:5.2}% ({:5.1}% of asked) p50 {} p99 {} us {} gates;",
            report.useful(at),
            tenant.of_asked(),
            tenant.wait(500) / US,
            tenant.wait(990) / US,
            tenant.gate_changes
        );
    }
    println!();
}

fn both(what: &str, brain: Brain, programs: &[Program]) -> (Report, Report) {
    let (bare, _) = run(NoSteering, programs);
    let (steered, brain) = run(brain, programs);
    print(&format!("{what} bare"), &bare);
    print(&format!("{what} steered"), &steered);
    println!("    {:?}", brain.changes());
    assert_eq!(brain.broken, None);
    (bare, steered)
}

fn brain() -> Brain {
    Brain::new(LeasePolicy::default())
}

fn request(part: u16) -> Compute {
    Compute {
        request: Permille::new(part),
        limit: None,
    }
}

#[test]
fn look() {
    let half = || Program::every(500 * US, 200 * US);
    let trainer = || Program::queue(500 * US);
    let server = || Program::every(MS, 300 * US);
    both("2 x 200/500", brain(), &[half(), half()]);
    both(
        "4 x 200/1000",
        brain(),
        &vec![Program::every(MS, 200 * US); 4],
    );
    both("trainer + server", brain(), &[trainer(), server()]);
    both(
        "2 sync 50",
        brain(),
        &[Program::sync(50 * US, 0), Program::sync(50 * US, 0)],
    );
    both(
        "trainer + 3 servers",
        brain(),
        &[
            trainer(),
            Program::every(MS, 200 * US),
            Program::every(MS, 200 * US),
            Program::every(MS, 200 * US),
        ],
    );
    both(
        "2 trainers + server",
        brain(),
        &[trainer(), trainer(), server()],
    );
    both(
        "higher server",
        brain().of(1, 900, Compute::default()),
        &[trainer(), server()],
    );
    for ms in [1, 2, 5, 20] {
        both(
            &format!("trainer {ms} ms + server"),
            brain(),
            &[Program::queue(ms * MS), server()],
        );
    }
    both(
        "100us/10ms",
        brain(),
        &[trainer(), Program::every(10 * MS, 100 * US)],
    );
    both(
        "poisson",
        brain(),
        &[trainer(), Program::poisson(MS, 300 * US)],
    );
    both(
        "70:30",
        brain().of(0, 500, request(700)).of(1, 500, request(300)),
        &[trainer(), trainer()],
    );
    both(
        "90:10",
        brain().of(0, 500, request(900)).of(1, 500, request(100)),
        &[trainer(), trainer()],
    );
    both(
        "50us : 20ms",
        brain(),
        &[Program::queue(50 * US), Program::queue(20 * MS)],
    );
    both(
        "3 tenants 50:30:20",
        brain()
            .of(0, 500, request(500))
            .of(1, 500, request(300))
            .of(2, 500, request(200)),
        &[trainer(), trainer(), Program::queue(5 * MS)],
    );
    both(
        "sync 50 think 20 + deep",
        brain(),
        &[Program::queue(50 * US), Program::sync(50 * US, 20 * US)],
    );
    both(
        "sync 50 think 20 + deep 500",
        brain(),
        &[trainer(), Program::sync(50 * US, 20 * US)],
    );
    both(
        "higher deep",
        brain().of(1, 900, Compute::default()),
        &[trainer(), trainer()],
    );
    both(
        "higher deep, lower 20 %",
        brain()
            .of(0, 500, request(200))
            .of(1, 900, Compute::default()),
        &[trainer(), trainer()],
    );
}
