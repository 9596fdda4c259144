//! Turns that a daemon gives to real processes. A process that holds the device for too long, dies,
//! stops or lies costs other tenants a bounded time. A daemon that exits ends no program.

use std::time::{Duration, Instant};

use gpushare_tests::threads::until_thread_waits;
use gpushare_tests::{Daemon, Gpu, Guest, Tenant, assert_measured, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::compute_alone::is_capped_on_the_second;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn started(tenant: &Tenant) -> Guest {
    tenant.client("turns", &[]).started()
}

fn working(tenant: &Tenant, ns: u64) -> Guest {
    let mut guest = started(tenant);
    assert_eq!(guest.ask(&format!("work {ns}")), "work 0");
    guest
}

#[test]
fn two_tenants_take_turns() {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut a, mut b) = (working(&one, 500 * US), working(&two, 500 * US));
    for _ in 0..3 {
        a.goes_on(50);
        b.goes_on(50);
    }
    daemon.turns_go_round(&["one", "two"], 10);
    a.stops();
    b.stops();
}

#[test]
fn a_tenant_with_a_larger_request_holds_the_device_longer() {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let share = |percent| [("GPUSHARE_SM_REQUEST", percent)];
    let (most, rest) = (
        daemon.tenant("most", &share("80")),
        daemon.tenant("rest", &share("20")),
    );
    let (a, b) = (working(&most, 500 * US), working(&rest, 500 * US));
    // The time before both wanted the device is outside the counted window.
    let counted = |daemon: &Daemon| daemon.share("rest").over_ms;
    daemon.turns_go_round(&["most", "rest"], 5);
    until("time enough is counted", || counted(&daemon) >= 1000);
    let (before, began) = (gpu.served(), Instant::now());
    let rows = daemon.turns_go_round(&["most", "rest"], 25);
    let used = (gpu.served() - before) as f64 / began.elapsed().as_nanos() as f64;
    println!(
        "80:20 held {}:{} over {} ms, {:.1} % of the device used",
        rows[0].held,
        rows[1].held,
        rows[0].over_ms,
        used * 100.0
    );
    // Four times as long; it is the daemon's own count, on the clock that it deals by.
    assert_measured!(rows[0].held >= 2 * rows[1].held, "{rows:?}");
    assert_measured!(rows[1].held > 0, "{rows:?}");
    a.stops();
    b.stops();
}

#[test]
fn the_first_preemption_of_a_deep_queue_is_bounded() {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let mut deep = started(&one);
    // Ten seconds of work, submitted while no other tenant existed.
    assert_eq!(deep.ask(&format!("launch 1000 {}", 10 * MS)), "launch 0");
    let mut late = started(&two);
    let began = Instant::now();
    assert_eq!(late.ask(&format!("launch 1 {MS}")), "launch 0");
    assert_eq!(late.ask("sync 1"), "sync 0");
    let took = began.elapsed();
    println!("first preemption of 10 s of work: {took:?}");
    assert_measured!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(
        deep.ask("query 1"),
        "query 600",
        "the deep queue is not done"
    );
    late.finish().silently();
    deep.kill();
}

#[test]
fn a_holder_that_is_stopped_or_killed_does_not_keep_the_device() {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut a, mut b) = (working(&one, 500 * US), working(&two, 500 * US));
    a.goes_on(20);
    let holder = a.pid();
    gpu.stop(holder);
    b.goes_on(200);
    kill(holder, Signal::SIGCONT).expect("it lives");
    a.goes_on(20);
    b.goes_on(20);
    kill(holder, Signal::SIGKILL).expect("it lives");
    b.goes_on(200);
    b.stops();
}

#[test]
fn a_kernel_that_does_not_end_costs_its_owner() {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let mut hung = started(&one);
    let mut other = working(&two, 500 * US);
    other.goes_on(20);
    assert_eq!(hung.ask(&format!("launch 1 {}", 600_000 * MS)), "launch 0");
    other.goes_on(200);
    let row = daemon.share("one");
    assert!(row.overruns > 0, "it did not drain in its turn: {row:?}");
    assert_eq!(hung.ask("query 1"), "query 600");
    assert_eq!(hung.ask("sync 2"), "sync 0", "its other calls still return");
    hung.kill();
    other.stops();
}

#[test]
fn captures_survive_other_tenants_turns() {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut a, b) = (working(&one, 200 * US), working(&two, 200 * US));
    let turns = || daemon.share("one").turns;
    let before = turns();
    assert_eq!(a.ask("capture 40 0"), "capture 40 0");
    until("ten turns have passed over captures", || {
        assert_eq!(a.ask("capture 5 0"), "capture 5 0");
        turns() >= before + 10
    });
    a.stops();
    b.stops();
}

#[test]
fn the_next_daemon_gives_turns_to_the_existing_tenants() {
    let gpu = Gpu::new("");
    let mut daemon = Daemon::in_turns(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut a, mut b) = (working(&one, 500 * US), working(&two, 500 * US));
    a.goes_on(20);
    b.goes_on(20);
    daemon.kill();
    for guest in [&mut a, &mut b] {
        guest.goes_on(200);
    }
    daemon.restart();
    daemon.until("one", |row| row.processes.len() == 1);
    for _ in 0..2 {
        a.goes_on(100);
        b.goes_on(100);
    }
    a.stops();
    b.stops();
}

#[test]
fn a_daemon_that_hangs_leaves_no_launch_waiting() {
    let gpu = Gpu::new("");
    let daemon = Daemon::in_turns(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let (mut a, mut b) = (working(&one, 500 * US), working(&two, 500 * US));
    a.goes_on(20);
    let hung = Pid::from_raw(daemon.pid().cast_signed());
    gpu.stop(hung);
    for guest in [&mut a, &mut b] {
        assert_eq!(guest.ask("sync 2"), "sync 0");
        guest.goes_on(400);
    }
    kill(hung, Signal::SIGCONT).expect("it lives");
    for guest in [&mut a, &mut b] {
        guest.goes_on(100);
    }
    a.stops();
    b.stops();
}

#[test]
fn without_its_daemon_a_tenant_keeps_its_cap() {
    let gpu = Gpu::new("");
    let mut daemon = Daemon::in_turns(&gpu);
    let capped = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT", "20")]);
    let (mut a, mut b) = (working(&capped, 500 * US), working(&capped, 500 * US));
    for guest in [&mut a, &mut b] {
        guest.goes_on(10);
    }
    for state in ["with its daemon", "without"] {
        let (began, before) = (Instant::now(), gpu.served());
        std::thread::sleep(Duration::from_millis(1500));
        let used = (gpu.served() - before) as f64 / began.elapsed().as_nanos() as f64;
        println!("{state}: {:.1} % under a cap of 20 %", used * 100.0);
        assert_measured!((0.02..=0.35).contains(&used), "{state}: {used}");
        daemon.kill();
    }
    for guest in [&mut a, &mut b] {
        guest.goes_on(10);
    }
    a.stops();
    b.stops();
}

#[test]
fn a_cap_of_one_device_binds_there_under_a_daemon_too() {
    for start in [Daemon::in_turns, Daemon::start] {
        let gpu = Gpu::new("count=2");
        let daemon = start(&gpu);
        let capped = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT_1", "20")]);
        is_capped_on_the_second(&gpu, capped.client("devices", &[]));
    }
}

/// A tenant that has a context on the device, and does nothing.
fn idle(daemon: &Daemon) -> Guest {
    started(&daemon.tenant("idle", &[]))
}

/// 300 ms at one percent are repaid after half a minute, by whatever process.
#[test]
fn a_cap_binds_the_next_program_of_a_tenant_too() {
    let gpu = Gpu::new("");
    for daemon in [Daemon::start(&gpu), Daemon::in_turns(&gpu)] {
        let tenant = daemon.tenant("short", &[("GPUSHARE_SM_LIMIT", "1")]);
        let mut first = started(&tenant);
        let _idle = idle(&daemon);
        first.does(&format!("launch 1 {}", 300 * MS));
        first.does("sync 1");
        first.finish().silently();
        let mut next = started(&tenant);
        next.does(&format!("post {MS}"));
        until_thread_waits(next.pid(), "poster");
        // Another tenant does not wait for it, and works for longer than a debt of a few
        // milliseconds would last.
        let other = daemon.tenant("other", &[]);
        let mut other = started(&other);
        other.does(&format!("post {}", 500 * MS));
        until("it goes", || other.ask("posted") == "posted 1");
        other.finish().silently();
        assert_eq!(next.ask("posted"), "posted 0");
        next.kill();
    }
}

/// The part of the device that is used while a tenant with a cap of 10 % runs kernels of 50 ms, and
/// another one does this every 20 ms or so.
fn used_by_long_kernels(daemon: &Daemon, gpu: &Gpu, mut meanwhile: impl FnMut()) -> f64 {
    let capped = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT", "10")]);
    let mut a = started(&capped);
    meanwhile();
    a.does(&format!("each {}", 50 * MS));
    let (before, began) = (gpu.served(), Instant::now());
    while began.elapsed() < Duration::from_secs(4) {
        meanwhile();
        std::thread::sleep(Duration::from_millis(20));
    }
    let used = (gpu.served() - before) as f64 / began.elapsed().as_nanos() as f64;
    a.kill();
    used
}

/// Each of its kernels ends behind its closed gate.
#[test]
fn a_cap_binds_long_kernels_beside_a_tenant_that_does_nothing() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let _idle = idle(&daemon);
    let used = used_by_long_kernels(&daemon, &gpu, || {});
    println!("{:.1} % under a cap of 10 %", used * 100.0);
    assert_measured!(used <= 0.15, "{used}");
}

/// It has 2 % of the device.
#[test]
fn a_cap_binds_long_kernels_beside_a_tenant_that_works_a_little() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let mut works = idle(&daemon);
    let used = used_by_long_kernels(&daemon, &gpu, || {
        works.does(&format!("launch 1 {}", 300 * US));
        works.does("sync 1");
    });
    println!("{:.1} % of both under a cap of 10 %", used * 100.0);
    assert_measured!(used <= 0.25, "{used}");
}
