//! The bare driver in virtual time: several tenants on one device without steering. These figures
//! are the baseline of steering. They also show that the model agrees with softgpu and real
//! processes (`gpushare bench share --bare` on two cores), whose figures are given beside them.
//! They are printed: `cargo test -p gpushare-core --test main together_bare:: -- --nocapture`.
#![allow(
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people"
)]

use crate::together::{MS, NoSteering, Pace, Program, Report, Rig, S, US};

/// The wake-up time of a thread of a real process on the machine of those figures.
const SLOW_WAKE: u64 = 55 * US;

fn rig(pace: Pace, programs: &[Program]) -> Rig<NoSteering> {
    let mut rig = Rig::new(pace, NoSteering, 1);
    for program in programs {
        rig.add(program.clone());
    }
    rig
}

fn bare(programs: &[Program]) -> Report {
    rig(Pace::default(), programs).measured(S, 5 * S)
}

/// Prints the tenants' shares, and asserts them (percent, within so much).
fn shares(what: &str, report: &Report, expected: &[f64], within: f64) {
    let had: Vec<f64> = (0..expected.len()).map(|at| report.share(at)).collect();
    println!(
        "{what}: {had:.1?}, device {:.1} %, idle while pending {:.1} %",
        report.used(),
        report.idle()
    );
    for (had, expected) in had.iter().zip(expected) {
        let far = (had - expected).abs();
        assert!(far <= within, "{what}: {had:.2}, expected {expected}");
    }
}

/// Kernels of so many microseconds, one at a time.
fn sync(us: u64) -> Program {
    Program::sync(us * US, 0)
}

#[test]
fn tenants_that_leave_gaps_fit_together_on_the_bare_driver() {
    let report = bare(&[
        Program::server().mixed(&[200 * US]),
        Program::server().mixed(&[200 * US]),
    ]);
    shares("2 of 200 us every 1 ms", &report, &[20.0, 20.0], 0.1);
    let half = || Program::every(500 * US, 200 * US);
    let report = bare(&[half(), half()]);
    // Real processes: 72.2 % of the device, p99 0.30 ms.
    shares("2 of 200 us every 500 us", &report, &[40.0, 40.0], 0.1);
    assert!(report.tenants[1].wait(990) <= 405 * US);
    let report = bare(&vec![Program::every(MS, 200 * US); 4]);
    // Real processes: 79.0 %, 0.77 ms.
    shares("4 of 200 us every 1 ms", &report, &[20.0; 4], 0.1);
    assert_eq!(report.tenants[3].wait(990), 805 * US, "behind the others");
    assert_eq!(report.tenants[3].missed, 0);
}

#[test]
fn a_deep_queue_starves_a_server_on_the_bare_driver() {
    // Real processes: 87.0 and 13.0 %, p99 1.96 ms.
    let report = bare(&[Program::trainer(), Program::server()]);
    shares("deep queue and server", &report, &[87.0, 13.0], 0.1);
    let server = &report.tenants[1];
    assert!((1900 * US..2300 * US).contains(&server.wait(990)));
    assert!(server.missed > server.done, "{} done", server.done);
    assert!((43.0..44.0).contains(&server.of_asked()));
    assert_eq!(report.busy, report.time);
}

#[test]
fn a_trainer_that_empties_its_queue_leaves_a_server_its_time() {
    // Real processes: 29.9 %, p99 0.54 ms, the device idle for 2.9 %.
    let report = bare(&[sync(500), Program::server()]);
    shares("500 us at a time and server", &report, &[69.0, 30.0], 0.2);
    assert!(report.tenants[1].wait(990) <= 805 * US);
    let mut slow = rig(Pace::default(), &[sync(500), Program::server()]);
    slow.wake = SLOW_WAKE;
    let report = slow.measured(S, 5 * S);
    println!("with slow wake-ups: device {:.1} %", report.used());
    assert!((report.used() - 97.1).abs() < 1.0, "{}", report.used());
    let mut alone = rig(Pace::default(), &[sync(500)]);
    alone.wake = SLOW_WAKE;
    let report = alone.measured(S, 5 * S);
    // Real processes: the device idle for 10.2 %.
    shares("500 us at a time alone", &report, &[89.8], 1.0);
}

#[test]
fn what_is_submitted_at_a_time_decides_what_a_server_gets() {
    // Real processes: 22.3, 13.0 and 14.7 %.
    for (us, expected) in [(1_000, 23.1), (2_000, 13.0), (5_000, 15.3)] {
        let report = bare(&[sync(us), Program::server()]);
        let what = format!("{us} us at a time and server");
        shares(&what, &report, &[100.0 - expected, expected], 0.1);
    }
    // Real processes: 13.0 %.
    let report = bare(&[Program::trainer().depth(2), Program::server()]);
    shares("never empty and server", &report, &[87.0, 13.0], 0.1);
}

#[test]
fn what_several_submit_at_a_time_adds_up() {
    // Real processes: 21.4 and 30.0 %.
    let report = bare(&[sync(500), sync(500), Program::server()]);
    shares("2 of 500 us", &report, &[39.3, 39.3, 21.4], 0.1);
    let report = bare(&[sync(250), sync(250), Program::server()]);
    shares("2 of 250 us", &report, &[35.0, 35.0, 30.0], 0.1);
    let small = || Program::every(MS, 200 * US);
    // Real processes: 19.9, 17.4 and 12.6 %, 50 % together; three times 20 % with 200 us.
    let report = bare(&[sync(500), small(), small(), small()]);
    let servers: f64 = (1..=3).map(|at| report.share(at)).sum();
    println!("500 us and 3 servers: {servers:.1} % together");
    assert!((servers - 50.0).abs() < 0.5);
    let report = bare(&[sync(200), small(), small(), small()]);
    shares(
        "200 us and 3 servers",
        &report,
        &[37.8, 20.0, 20.0, 20.0],
        0.2,
    );
}

#[test]
fn short_launches_one_at_a_time_fill_each_others_gaps() {
    // Real processes: 99.8 %.
    let report = bare(&[sync(50), sync(50)]);
    shares("2 of sync 50 us", &report, &[50.0, 50.0], 0.1);
    let alone = bare(&[sync(50)]);
    shares("1 of sync 50 us", &alone, &[66.7], 0.1);
    // Real processes: 10.6 %.
    let report = bare(&[sync(500), sync(50)]);
    shares("500 us beside 50 us", &report, &[90.9, 9.1], 0.1);
}

#[test]
fn changes_between_contexts_cost_what_the_device_says() {
    let pace = Pace {
        switch: 50 * US,
        preempt: 100 * US,
        ..Pace::default()
    };
    let report = rig(pace, &[Program::trainer(), Program::trainer()]).measured(S, 5 * S);
    shares("2 deep queues", &report, &[47.6, 47.6], 0.1);
    assert_eq!(report.busy + report.changing, report.time);
    let report = rig(pace, &[Program::server(), Program::trainer()]).measured(S, 5 * S);
    // A period is a slice, a change in the middle of work, the kernel, and a change behind it.
    shares("server and deep queue", &report, &[12.2, 81.6], 0.1);
}

#[test]
fn random_requests_wait_in_line() {
    let report = bare(&[Program::poisson(MS, 300 * US)]);
    shares("Poisson, 30 %", &report, &[30.0], 1.0);
    let tenant = &report.tenants[0];
    assert_eq!((tenant.missed, tenant.wait(1)), (0, 305 * US));
    assert!(
        (800 * US..1_100 * US).contains(&tenant.wait(990)),
        "{}",
        tenant.wait(990)
    );
    assert!(tenant.wait(999) > tenant.wait(990));
    assert_eq!(
        bare(&[Program::poisson(MS, 300 * US)]).tenants[0].waits,
        tenant.waits
    );
}

#[test]
fn a_burst_is_complete_with_its_last_launch() {
    let report = bare(&[Program::every(10 * MS, 100 * US).burst(8)]);
    shares("8 of 100 us every 10 ms", &report, &[8.0], 0.1);
    let tenant = &report.tenants[0];
    assert_eq!((tenant.done, tenant.wait(500)), (500, 805 * US));
}

#[test]
fn tenants_join_pause_and_end_when_they_are_told_to() {
    let programs = [
        Program::trainer().until(2 * S),
        Program::trainer().from(S),
        sync(500).pauses(10 * MS, 30 * MS),
    ];
    let mut rig = rig(Pace::default(), &programs[..2]);
    let first = rig.measured(0, S);
    shares("alone", &first, &[100.0, 0.0], 0.1);
    let both = rig.measured(0, S);
    shares("both", &both, &[50.0, 50.0], 0.2);
    // Submitted work continues.
    let second = rig.measured(200 * MS, S);
    shares("the second", &second, &[0.0, 100.0], 0.1);
    let report = bare(&programs[2..]);
    shares("25 % of the time", &report, &[25.0], 0.3);
    assert!(
        report.longest_idle < 30 * US,
        "its pauses are no open requests"
    );
}

#[test]
fn a_tenant_with_two_processes_has_two_seats_on_the_bare_driver() {
    let mut rig = rig(Pace::default(), &[Program::trainer(), Program::trainer()]);
    rig.add_to(0, Program::trainer());
    let report = rig.measured(S, 3 * S);
    shares("two processes against one", &report, &[66.7, 33.3], 0.1);
}

#[test]
fn a_launch_costs_its_thread_time_and_not_the_device() {
    let short = |program| rig(Pace::default(), &[program]).measured(100 * MS, 500 * MS);
    let report = short(Program::queue(3 * US));
    shares("3 us in launches of 5 us", &report, &[60.0], 0.1);
    assert!(report.longest_idle <= 2 * US);
    let report = short(Program::queue(3 * US).launch(US));
    shares("3 us in launches of 1 us", &report, &[100.0], 0.1);
}
