//! A hard cap without a daemon: the gate closes and opens without a daemon, for all processes of a
//! tenant together, and only launches are affected.

use std::time::{Duration, Instant};

use gpushare_tests::threads::until_thread_waits;
use gpushare_tests::{Alone, Gpu, Guest, assert_measured, until};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn started(gpu: &Gpu, flags: &[&str]) -> Guest {
    Guest::client(gpu, flags, "turns").started()
}

/// The share of the device that is used while `body` runs, over a second and a half at least.
fn share(gpu: &Gpu, guests: &mut [Guest]) -> f64 {
    until("every guest has launched", || {
        guests.iter_mut().all(|guest| guest.number("count") > 0)
    });
    used(gpu, || std::thread::sleep(Duration::from_millis(1500)))
}

/// The share of the device that is used while `meanwhile` runs.
fn used(gpu: &Gpu, meanwhile: impl FnOnce()) -> f64 {
    let (began, before) = (Instant::now(), gpu.served());
    meanwhile();
    let used = gpu.served() - before;
    used as f64 / began.elapsed().as_nanos() as f64
}

/// 200 ms at one percent are repaid after twenty seconds: the gate stays closed long enough for the
/// test.
fn closed(gpu: &Gpu) -> Guest {
    let mut guest = started(gpu, &["--sm-limit", "1"]);
    assert_eq!(guest.ask(&format!("launch 1 {}", 200 * MS)), "launch 0");
    assert_eq!(guest.ask("sync 1"), "sync 0");
    guest
}

#[test]
fn a_closed_gate_blocks_only_launches() {
    let gpu = Gpu::new("");
    let mut guest = closed(&gpu);
    let before = gpu.served();
    assert_eq!(guest.ask(&format!("post {}", 5 * MS)), "post 0");
    until_thread_waits(guest.pid(), "poster");
    for line in ["sync 0", "sync 1", "sync 2", "query 1", "copies"] {
        let word = line.split(' ').next().expect("a word");
        assert_eq!(guest.ask(line), format!("{word} 0"), "{line}");
    }
    assert_eq!(guest.ask("posted"), "posted 0", "the launch waits");
    assert!(gpu.served() < before + MS, "and does not run");
    guest.kill();
}

#[test]
fn a_program_ends_while_its_launch_waits() {
    let gpu = Gpu::new("");
    let mut guest = closed(&gpu);
    assert_eq!(guest.ask(&format!("post {MS}")), "post 0");
    // A launch that a thread begins while the process ends reaches the driver as without gpushare.
    until_thread_waits(guest.pid(), "poster");
    let ended = guest.finish();
    assert!(ended.status.success(), "{ended:?}");
}

/// The time that its processes owe at a cap of one percent, in whole milliseconds of the device.
fn debt(alone: &Alone<'_>) -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("there is such a clock");
    let now = u64::try_from(Duration::from(now).as_nanos()).expect("it fits");
    alone.page().devices[0].empty_at.saturating_sub(now) / 100 / MS
}

#[test]
fn a_program_that_ends_in_its_kernel_pays_for_it_too() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let capped = || alone.client(&["--sm-limit", "1"], "turns").started();
    let mut first = capped();
    assert_eq!(debt(&alone), 0);
    let before = gpu.served();
    first.does(&format!("launch 1 {}", 5_000 * MS));
    until("it has run for a while", || {
        gpu.served() >= before + 200 * MS
    });
    first.finish().silently();
    // What the gate's thread has seen of it: it has to run meanwhile.
    assert_measured!(debt(&alone) >= 100, "{} ms", debt(&alone));
    let mut next = capped();
    next.does(&format!("post {}", 500 * MS));
    until_thread_waits(next.pid(), "poster");
    next.answers("posted", "0");
    next.kill();
}

#[test]
fn a_launch_that_waited_goes_when_the_gate_opens() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, &["--sm-limit", "20"]);
    assert_eq!(guest.ask(&format!("launch 1 {}", 100 * MS)), "launch 0");
    assert_eq!(guest.ask(&format!("post {MS}")), "post 0");
    until("the launch goes", || guest.ask("posted") == "posted 1");
    guest.finish().silently();
}

#[test]
fn a_cap_holds_for_a_deep_queue_and_for_one_kernel_at_a_time() {
    for how in ["work", "each"] {
        let gpu = Gpu::new("");
        let mut guest = started(&gpu, &["--sm-limit", "30"]);
        guest.ask(&format!("{how} {}", 500 * US));
        let mut guests = [guest];
        let share = share(&gpu, &mut guests);
        println!(
            "{how}: {:.1} % of the device under a cap of 30 %",
            share * 100.0
        );
        // One at a time, each kernel also costs its wait.
        let least = if how == "work" { 0.15 } else { 0.05 };
        assert_measured!((least..=0.40).contains(&share), "{how}: {share}");
        guests.into_iter().for_each(Guest::stops);
    }
}

#[test]
fn a_cap_of_one_device_binds_there_and_nowhere_else() {
    let gpu = Gpu::new("count=2");
    let guest = Guest::client(&gpu, &["--sm-limit", "1=20"], "devices");
    is_capped_on_the_second(&gpu, guest);
}

/// A program with a deep queue on each of two devices has 20 % of the second, and most of the
/// first.
#[track_caller]
pub(crate) fn is_capped_on_the_second(gpu: &Gpu, guest: Guest) {
    let mut guest = guest.started();
    for device in 0..2 {
        guest.does(&format!("work {device} {}", 500 * US));
        until("it launches", || {
            guest.number(&format!("count {device}")) > 0
        });
    }
    let (began, before) = (Instant::now(), gpu.served_by_each());
    std::thread::sleep(Duration::from_millis(1500));
    let (after, time) = (gpu.served_by_each(), began.elapsed().as_nanos() as f64);
    let used = [0, 1].map(|device| (after[device] - before[device]) as f64 / time);
    assert_measured!(used[0] > 0.6, "{used:?}");
    assert_measured!((0.05..=0.30).contains(&used[1]), "{used:?}");
    guest.stops();
}

/// 300 ms at one percent are repaid after half a minute. A process that is idle looks at its bucket
/// once a second.
#[test]
fn an_idle_process_launches_nothing_against_the_debt_of_its_sibling() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let [mut idle, mut works] =
        [(); 2].map(|()| alone.client(&["--sm-limit", "1"], "turns").started());
    for guest in [&mut idle, &mut works] {
        guest.does("launch 1 1000");
        guest.does("sync 1");
    }
    works.does(&format!("launch 1 {}", 300 * MS));
    works.does("sync 1");
    // Its gate's thread pays for the kernel once it has seen its end, or its launch does.
    let before = gpu.served();
    for guest in [&mut works, &mut idle] {
        guest.does(&format!("post {}", 500 * MS));
        until_thread_waits(guest.pid(), "poster");
        guest.answers("posted", "0");
        until("the kernel is paid for", || debt(&alone) >= 100);
    }
    assert_eq!(gpu.served(), before, "neither launch runs");
    works.kill();
    idle.kill();
}

#[test]
fn two_processes_have_one_cap_together() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let start = || {
        let mut guest = alone.client(&["--sm-limit", "20"], "turns").started();
        guest.ask(&format!("work {}", 500 * US));
        guest
    };
    let mut guests = [start(), start()];
    let share = share(&gpu, &mut guests);
    println!(
        "two processes: {:.1} % of the device under a cap of 20 %",
        share * 100.0
    );
    assert_measured!((0.05..=0.30).contains(&share), "{share}");
    guests.into_iter().for_each(Guest::stops);
}

#[test]
fn a_stopped_or_killed_process_costs_its_sibling_nothing() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let start = || alone.client(&["--sm-limit", "30"], "turns").started();
    let (mut stopped, mut other) = (start(), start());
    stopped.ask(&format!("work {}", 500 * US));
    stopped.goes_on(1);
    let pid = stopped.pid();
    gpu.stop(pid);
    other.ask(&format!("work {}", 500 * US));
    other.goes_on(100);
    kill(pid, Signal::SIGKILL).expect("it lives");
    let mut guests = [other];
    let share = share(&gpu, &mut guests);
    assert_measured!((0.15..=0.40).contains(&share), "{share}");
    guests.into_iter().for_each(Guest::stops);
}

#[test]
fn captures_of_every_mode_survive_dozens_of_closes() {
    const CLOSES: u64 = 24;
    for mode in [0, 1, 2] {
        let gpu = Gpu::new("");
        let alone = Alone::on(&gpu);
        let mut guest = alone.client(&["--sm-limit", "30"], "turns").started();
        guest.does(&format!("work {}", 200 * US));
        guest.goes_on(1);
        let mut captures = 0;
        let used = used(&gpu, || {
            until("the gate has closed over captures", || {
                let answer = guest.ask(&format!("capture 10 {mode}"));
                assert_eq!(answer, "capture 10 0", "mode {mode}");
                captures += 10;
                alone.closes() >= CLOSES
            });
        });
        println!(
            "mode {mode}: {captures} captures and {} closes, {:.1} % of the device",
            alone.closes(),
            used * 100.0
        );
        assert_measured!((0.05..=0.40).contains(&used), "the cap is kept: {used}");
        guest.stops();
    }
}

#[test]
fn threads_own_streams_are_drained_too() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, &["--sm-limit", "50"]);
    for _ in 0..3 {
        let answer = guest.ask(&format!("threads 4 {}", 300 * US));
        assert_eq!(answer, "threads 0");
    }
    guest.finish().silently();
}

#[test]
fn contexts_destroyed_while_they_drain_are_harmless() {
    let gpu = Gpu::new("");
    let mut guest = started(&gpu, &["--sm-limit", "50"]);
    guest.ask(&format!("work {}", 200 * US));
    let answer = guest.ask(&format!("contexts 30 {}", 200 * US));
    assert_eq!(answer, "contexts 0");
    assert_eq!(guest.ask("stop"), "stop 0");
    assert_eq!(guest.ask("reset"), "reset 0");
    assert_eq!(guest.ask(&format!("launch 30 {}", 200 * US)), "launch 0");
    assert_eq!(guest.ask("sync 1"), "sync 0");
    guest.finish().silently();
}

#[test]
fn a_forked_child_begins_with_an_open_gate_and_the_same_cap() {
    let gpu = Gpu::new("");
    let mut guest = Guest::client(&gpu, &["--sm-limit", "30"], "turns");
    for _ in 0..3 {
        assert_eq!(guest.ask(&format!("fork {MS}")), "fork 0");
    }
    assert_eq!(guest.ask("init"), "init 0");
    guest.ask(&format!("work {}", 500 * US));
    let mut guests = [guest];
    let share = share(&gpu, &mut guests);
    assert_measured!((0.05..=0.40).contains(&share), "{share}");
    guests.into_iter().for_each(Guest::stops);
}
