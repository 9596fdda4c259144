//! Containers on several devices, whose kernels wait for each other: their turns begin and end together. In virtual time.
//! The figures are printed: `cargo test -p gpushare-core --test main gangs:: -- --nocapture`.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_arithmetic,
    clippy::print_stdout,
    reason = "figures for people; the schedule itself has no floats"
)]

use crate::machine;
use crate::machine::{Length, Process, Program, Rig, request};
use gpushare_core::{Compute, ContainerId, Nanos};

const PRIORITY: u16 = 500;
const EQUAL: Compute = Compute {
    request: None,
    limit: None,
};

fn fixed(micros: u64) -> Length {
    Length::Fixed(Nanos::micros(micros))
}

fn collective(micros: u64) -> Program {
    Program::Collective(fixed(micros))
}

fn deep(micros: u64) -> Program {
    Program::Deep(fixed(micros))
}

fn gang(rig: &mut Rig, container: u64, devices: &[usize], program: Program) -> Process {
    let programs: Vec<(usize, Program)> = devices.iter().map(|device| (*device, program)).collect();
    rig.start(container, PRIORITY, EQUAL, &programs)
}

/// What each device's time went to, in percent, and what it cost.
fn print(name: &str, rig: &Rig) {
    println!(
        "{name}: collectives {:?}, overruns {}",
        rig.met,
        rig.overruns()
    );
    for (device, machine) in rig.devices.iter().enumerate() {
        let meter = &machine.meter;
        let part = |time: u64| 100.0 * time as f64 / meter.total as f64;
        let had: Vec<String> = meter
            .had
            .iter()
            .map(|(container, time)| format!("{}: {:.2}", container.0, part(*time)))
            .collect();
        println!(
            "  GPU {device}: {}; idle while wanted {:.2}, waiting for peers {:.2}, grants {}",
            had.join(", "),
            part(meter.wasted),
            part(rig.spun[device]),
            machine.grants,
        );
    }
}

/// What a container had of a device's time.
fn share(rig: &Rig, device: usize, container: u64) -> f64 {
    let meter = &rig.devices[device].meter;
    let had = meter.had.get(&ContainerId(container)).copied().unwrap_or(0);
    had as f64 / meter.total as f64
}

fn even(rig: &Rig, device: usize, containers: &[u64]) {
    for container in containers {
        let share = share(rig, device, *container);
        let error = share - 1.0 / containers.len() as f64;
        assert!(error.abs() <= 0.01, "{container} has {share} of {device}");
    }
}

#[test]
fn a_collective_runs_on_both_its_gpus_at_once() {
    let run = |rig: Rig| {
        let mut rig = rig;
        gang(&mut rig, 1, &[0, 1], collective(250));
        gang(&mut rig, 2, &[0], deep(300));
        gang(&mut rig, 3, &[1], deep(500));
        rig.run(Nanos::secs(10));
        rig
    };
    let (apart, together) = (run(Rig::new(2, 1).apart()), run(Rig::new(2, 1)));
    print("each device by itself", &apart);
    print("together", &together);
    let count = |rig: &Rig| rig.met[&ContainerId(1)];
    assert!(count(&together) >= 3 * count(&apart));
    assert_eq!(together.overruns(), 0);
    even(&together, 0, &[1, 2]);
    even(&together, 1, &[1, 3]);
}

#[test]
fn two_gangs_in_opposite_order_both_go_on() {
    let mut rig = Rig::new(2, 2);
    gang(&mut rig, 1, &[0, 1], collective(200));
    gang(&mut rig, 2, &[1, 0], collective(300));
    rig.run(Nanos::secs(3));
    print("two gangs", &rig);
    for device in 0..2 {
        even(&rig, device, &[1, 2]);
    }
    assert!(rig.met.values().all(|count| *count > 3_000));
}

#[test]
fn gangs_that_overlap_in_a_ring_all_go_on() {
    let mut rig = Rig::new(3, 3);
    for (container, devices) in [(1, [0, 1]), (2, [1, 2]), (3, [2, 0])] {
        gang(&mut rig, container, &devices, collective(200));
    }
    rig.run(Nanos::secs(3));
    print("a ring", &rig);
    let least = rig.met.values().min().copied().unwrap_or(0);
    assert_eq!(rig.met.len(), 3);
    // Any two of them share a device, so one at a time works.
    assert!(least > 3_000, "{:?}", rig.met);
}

#[test]
fn where_a_gang_gets_less_than_its_part_others_get_more() {
    let mut rig = Rig::new(2, 4);
    gang(&mut rig, 1, &[0, 1], collective(200));
    for container in 2..5 {
        gang(&mut rig, container, &[0], deep(300));
    }
    gang(&mut rig, 5, &[1], deep(400));
    rig.run(Nanos::secs(6));
    print("three beside it and one", &rig);
    even(&rig, 0, &[1, 2, 3, 4]);
    assert!(
        share(&rig, 1, 5) > 0.70,
        "what the gang cannot use is another's"
    );
}

#[test]
fn a_gpu_on_which_a_gang_is_idle_is_not_kept_from_others() {
    let mut rig = Rig::new(2, 6);
    let programs = [(0, deep(200)), (1, Program::Sleeps)];
    rig.start(1, PRIORITY, EQUAL, &programs);
    gang(&mut rig, 2, &[0], deep(300));
    gang(&mut rig, 3, &[1], deep(300));
    rig.run(Nanos::secs(3));
    print("idle on GPU 1", &rig);
    even(&rig, 0, &[1, 2]);
    assert!(share(&rig, 1, 3) > 0.99);
}

#[test]
fn a_gang_whose_process_dies_gives_all_its_gpus_back() {
    let mut rig = Rig::new(2, 7);
    let process = gang(&mut rig, 1, &[0, 1], collective(200));
    gang(&mut rig, 2, &[0], deep(300));
    gang(&mut rig, 3, &[1], deep(300));
    // Wherever in its turn it is.
    rig.run(Nanos::micros(100_700));
    rig.kill(&process);
    rig.run(Nanos::secs(1));
    let before: Vec<f64> = vec![share(&rig, 0, 2), share(&rig, 1, 3)];
    assert!(before.iter().all(|share| *share > 0.9), "{before:?}");
}

#[test]
fn independent_work_on_two_gpus_gets_its_part_of_both() {
    let mut rig = Rig::new(2, 8);
    gang(&mut rig, 1, &[0, 1], deep(700));
    gang(&mut rig, 2, &[0], deep(300));
    gang(&mut rig, 3, &[1], deep(900));
    rig.run(Nanos::secs(4));
    print("no collectives", &rig);
    for device in 0..2 {
        // It pays for its looking whether what it does on one needs the other.
        let share = share(&rig, device, 1);
        assert!((0.475..=0.51).contains(&share), "{share}");
    }
    assert_eq!(rig.overruns(), 0);
}

#[test]
fn a_cap_on_one_gpu_holds_the_gang_on_both() {
    let mut rig = Rig::new(2, 9);
    let programs = [(0, collective(200)), (1, collective(200))];
    rig.start(1, PRIORITY, machine::cap(20), &programs);
    gang(&mut rig, 2, &[0], deep(300));
    gang(&mut rig, 3, &[1], deep(300));
    rig.run(Nanos::secs(4));
    print("a cap of 20 %", &rig);
    for device in 0..2 {
        let (least, most) = rig.devices[device]
            .meter
            .windows(ContainerId(1), Nanos::secs(1));
        println!("  in any second on GPU {device}: {least} to {most}");
        assert!(most <= 0.22, "{most}");
        assert!(share(&rig, device, 1) > 0.15);
    }
}

#[test]
fn a_higher_class_goes_before_a_gang_and_a_gang_before_a_lower_one() {
    let mut rig = Rig::new(2, 10);
    rig.start(1, 600, EQUAL, &[(0, collective(200)), (1, collective(200))]);
    let requests = Program::Requests(fixed(300), 5, Nanos::millis(40));
    rig.start(2, 700, EQUAL, &[(0, requests)]);
    rig.start(3, 500, EQUAL, &[(1, deep(300))]);
    rig.run(Nanos::secs(3));
    print("classes", &rig);
    let waited = rig.devices[0].meter.wait(ContainerId(2), 990);
    println!("  the higher one waits for {waited} us at the 99th percentile");
    assert!(waited <= 3_000);
    assert!(share(&rig, 0, 1) > 0.85);
    assert!(rig.met[&ContainerId(1)] > 9_000);
}

#[test]
fn beside_kernels_of_any_length_a_gang_gets_its_part() {
    for (one, two) in [(15_000, 15_000), (7, 11_000), (50_000, 50_000)] {
        let mut rig = Rig::new(2, 5);
        gang(&mut rig, 1, &[0, 1], collective(200));
        gang(&mut rig, 2, &[0], deep(one));
        gang(&mut rig, 3, &[1], deep(two));
        rig.run(Nanos::secs(6));
        print(&format!("kernels of {one} and {two} us"), &rig);
        even(&rig, 0, &[1, 2]);
        even(&rig, 1, &[1, 3]);
    }
}

#[test]
fn long_kernels_on_one_gpu_cost_a_gang_and_nobody_else() {
    let mut rig = Rig::new(2, 5);
    gang(&mut rig, 1, &[0, 1], collective(200));
    gang(&mut rig, 2, &[0], deep(50));
    gang(&mut rig, 3, &[1], deep(50_000));
    rig.run(Nanos::secs(6));
    print("kernels of 50 and 50000 us", &rig);
    even(&rig, 0, &[1, 2]);
    assert!(share(&rig, 1, 3) >= 0.49);
    assert!(rig.met[&ContainerId(1)] > 2_500);
}

/// Somebody else is there from the beginning, so that no queue is deeper than a window.
fn beside_sleepers(count: usize, seed: u64) -> Rig {
    let mut rig = Rig::new(count, seed);
    for device in 0..count {
        rig.start(90 + device as u64, 1, EQUAL, &[(device, Program::Sleeps)]);
    }
    rig
}

#[test]
fn a_gang_below_a_higher_class_gets_its_guarantee_and_no_more() {
    for (compute, least, most) in [(request(20), 0.18, 0.21), (EQUAL, 0.0, 0.01)] {
        for higher in [vec![0], vec![0, 1]] {
            let mut rig = beside_sleepers(2, 11);
            rig.start(
                1,
                100,
                compute,
                &[(0, collective(200)), (1, collective(200))],
            );
            for device in &higher {
                rig.start(2 + *device as u64, 900, EQUAL, &[(*device, deep(300))]);
            }
            if higher.len() == 1 {
                rig.start(3, 100, EQUAL, &[(1, deep(300))]);
            }
            rig.run(Nanos::secs(4));
            print(&format!("{compute:?} below a class on {higher:?}"), &rig);
            for device in higher {
                let share = share(&rig, device, 1);
                assert!((least..=most).contains(&share), "{share} of {device}");
            }
            assert_eq!(rig.overruns(), 0);
        }
    }
}

#[test]
fn a_guarantee_holds_against_a_gang_of_a_higher_class() {
    for (compute, least, most) in [(request(20), 0.18, 0.21), (EQUAL, 0.0, 0.01)] {
        let mut rig = Rig::new(2, 12);
        rig.start(1, 900, EQUAL, &[(0, collective(200)), (1, collective(200))]);
        rig.start(2, 100, compute, &[(0, deep(300))]);
        rig.start(3, 100, EQUAL, &[(1, deep(300))]);
        rig.run(Nanos::secs(4));
        print(&format!("a gang above {compute:?}"), &rig);
        let share = share(&rig, 0, 2);
        assert!((least..=most).contains(&share), "{share}");
    }
}

#[test]
fn of_two_gangs_the_higher_goes_first_and_the_lower_has_its_guarantee() {
    for (compute, least, most) in [(request(20), 0.18, 0.21), (EQUAL, 0.0, 0.01)] {
        let mut rig = Rig::new(3, 13);
        rig.start(1, 900, EQUAL, &[(0, collective(200)), (1, collective(200))]);
        rig.start(
            2,
            100,
            compute,
            &[(1, collective(200)), (2, collective(200))],
        );
        rig.start(3, 100, EQUAL, &[(2, deep(300))]);
        rig.run(Nanos::secs(4));
        print(&format!("two gangs, the lower with {compute:?}"), &rig);
        let lower = share(&rig, 1, 2);
        assert!((least..=most).contains(&lower), "{lower}");
        assert!(share(&rig, 0, 1) > 0.97 - most, "nobody else wants GPU 0");
    }
}

/// The 99th percentile of what requests on two devices wait for beside a deep queue on each (us), and the worst device's.
fn preempts(class: u16) -> u64 {
    let mut rig = Rig::new(2, 14);
    let requests = Program::Requests(fixed(200), 5, Nanos::millis(60));
    rig.start(1, class, EQUAL, &[(0, requests), (1, requests)]);
    for device in 0..2 {
        rig.start(2 + device as u64, 500, EQUAL, &[(device, deep(500))]);
    }
    rig.run(Nanos::secs(6));
    print(&format!("a gang of class {class} above 500"), &rig);
    assert_eq!(rig.overruns(), 0);
    let machines = rig.devices.iter_mut();
    let waits = machines.map(|machine| machine.meter.wait(ContainerId(1), 990));
    waits.max().unwrap_or(0)
}

#[test]
fn only_a_gang_of_a_higher_class_preempts_on_both_its_gpus() {
    let (higher, same) = (preempts(900), preempts(500));
    println!("  waits at the 99th percentile: {higher} us above them, {same} us among them");
    assert!(higher <= 3_000);
    assert!(same > 3_000);
}

/// How long a container has waited for this device until now.
fn waits(rig: &Rig, device: usize, container: u64) -> Nanos {
    let mut clients = rig.devices[device].clients.iter();
    let own = clients.find(|client| client.container == ContainerId(container));
    let since = own.and_then(|client| client.waits_since);
    since.map_or(Nanos::ZERO, |since| rig.now() - since)
}

#[test]
fn a_device_that_is_lost_in_a_gangs_turn_leaves_its_other_one_to_others() {
    // Wherever in its turns the gang is: what it has launched on the other device never ends.
    for micros in (200_000..240_000).step_by(3_700) {
        let mut rig = beside_sleepers(2, 15);
        let process = gang(&mut rig, 1, &[0, 1], collective(200));
        gang(&mut rig, 2, &[0], deep(300));
        gang(&mut rig, 3, &[1], deep(300));
        rig.run(Nanos::micros(micros));
        rig.lose(0);
        let had = |rig: &Rig| rig.devices[1].meter.had[&ContainerId(3)];
        // A turn, and the bound of a drain; then it works beside the kernel that waits for ever, in its half of the device. The other one
        // has its turns all the same: each is 20 ms, half of that to catch up, and 10 ms in which it does not drain.
        let mut most = Nanos::ZERO;
        rig.watch(Nanos::millis(31), |_| ());
        let before = had(&rig);
        rig.watch(Nanos::secs(1), |rig| most = most.max(waits(rig, 1, 3)));
        let part = (had(&rig) - before) as f64 / 1e9;
        rig.kill(&process);
        rig.run(Nanos::millis(31));
        let before = had(&rig);
        rig.run(Nanos::millis(200));
        let rest = (had(&rig) - before) as f64 / 2e8;
        println!(
            "lost at {micros} us: {part:.3} of the other device, {most:?} waited at most, {rest:.3} once it has ended"
        );
        assert!(part >= 0.45, "{part}");
        assert!(most <= Nanos::millis(40), "{most:?}");
        assert!(rest >= 0.98, "{rest}");
    }
}
