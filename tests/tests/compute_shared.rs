//! Real processes of several tenants on a shared device. No tenant waits for a turn, and a tenant
//! ahead of its share yields. A process that dies, stops or never finishes takes nothing from the
//! others. Shares are asserted in virtual time (`shim-daemon/core/tests/together_*.rs`) and only
//! printed here.

use std::time::{Duration, Instant};

use gpushare_protocol::wire::{ShareRow, ShareState, Steered, SteeredBy};
use gpushare_tests::guest::plain;
use gpushare_tests::{Daemon, Gpu, Guest, Tenant, assert_measured, clients, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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

fn share(percent: &'static str) -> [(&'static str, &'static str); 1] {
    [("GPUSHARE_SM_REQUEST", percent)]
}

fn works(row: &ShareRow) -> bool {
    matches!(
        row.state,
        ShareState::Sharing { .. } | ShareState::Yielding { .. } | ShareState::Held { .. }
    )
}

#[test]
fn a_lone_active_tenant_is_unbound_until_a_neighbour_launches() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let mut a = working(&one, 500 * US);
    let mut b = started(&two);
    a.goes_on(20);
    until("the idle neighbour is not counted", || {
        daemon.share("one").state == ShareState::Free
            && daemon.share("two").state == ShareState::Idle
    });
    assert_eq!(b.ask(&format!("work {}", 500 * US)), "work 0");
    until("both work", || {
        works(&daemon.share("one")) && works(&daemon.share("two"))
    });
    a.goes_on(20);
    b.goes_on(20);
    b.stops();
    until("the first is alone again", || {
        daemon.share("one").state == ShareState::Free
    });
    a.stops();
}

#[test]
fn a_tenant_ahead_of_its_share_gives_way_until_the_other_is_repaid() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let (most, rest) = (
        daemon.tenant("most", &share("80")),
        daemon.tenant("rest", &share("20")),
    );
    let (mut a, mut b) = (working(&most, 500 * US), working(&rest, 500 * US));
    let steered = Some(Steered {
        cause: SteeredBy::Request,
        tenant: Some("most".to_owned()),
    });
    until("the one ahead gives way to the one behind", || {
        let row = daemon.share("rest");
        let state = row.state;
        matches!(state, ShareState::Yielding { .. } | ShareState::Held { .. })
            && row.steered == steered
    });
    // The time before both were measured is outside the counted window.
    until("time enough is counted", || {
        daemon.share("rest").over_ms >= 2000
    });
    let (held, other) = (daemon.share("most").held, daemon.share("rest").held);
    println!("80:20 got {held}:{other} thousandths");
    assert_measured!(held > other, "{held} {other}");
    assert_measured!(other > 0, "{other}");
    a.goes_on(20);
    b.goes_on(20);
    a.stops();
    b.stops();
}

/// The daemon has the driver's samples of it.
#[test]
fn tenants_divide_as_asked_what_a_program_without_the_library_leaves() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let (most, rest) = (
        daemon.tenant("most", &share("80")),
        daemon.tenant("rest", &share("20")),
    );
    let outside = Guest::start(plain(&gpu, &clients::compile("turns", &[]))).started();
    let mut all = [outside, started(&most), started(&rest)];
    for guest in &mut all {
        assert_eq!(guest.ask(&format!("work {}", 500 * US)), "work 0");
    }
    let pids = all.each_mut().map(|guest| guest.pid().as_raw());
    let served = || {
        let truth = gpu.truth().processes;
        let of = |pid: i32| truth.iter().find(|one| one.pid == pid);
        pids.map(|pid| of(pid).map_or(0, |one| one.served[0]))
    };
    // These samples are read each second, and are told of a second or two late.
    std::thread::sleep(Duration::from_secs(4));
    let before = served();
    std::thread::sleep(Duration::from_secs(4));
    let after = served();
    let [outside, most, rest] = [0, 1, 2].map(|at| (after[at] - before[at]) / MS);
    println!("80:20 beside {outside} ms of no tenant's got {most}:{rest} ms");
    assert_measured!(outside > 500, "{outside} ms");
    assert_measured!(most > 2 * rest, "{most} {rest}");
    assert_measured!(rest > 0, "{rest} ms");
    for guest in &mut all {
        guest.goes_on(20);
    }
    for guest in all {
        guest.stops();
    }
}

#[test]
fn a_server_with_gaps_goes_on_beside_a_deep_queue() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let (deep, server) = (daemon.tenant("deep", &[]), daemon.tenant("server", &[]));
    let mut a = working(&deep, 500 * US);
    let mut b = started(&server);
    a.goes_on(20);
    for _ in 0..100 {
        assert_eq!(b.ask(&format!("launch 1 {}", 200 * US)), "launch 0");
        assert_eq!(b.ask("sync 1"), "sync 0");
    }
    a.goes_on(20);
    a.stops();
    b.kill();
}

#[test]
fn a_stopped_or_killed_tenant_blocks_no_other_tenant() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let (one, two) = (
        daemon.tenant("one", &share("80")),
        daemon.tenant("two", &share("20")),
    );
    let (mut a, mut b) = (working(&one, 500 * US), working(&two, 500 * US));
    a.goes_on(20);
    let ahead = a.pid();
    gpu.stop(ahead);
    b.goes_on(200);
    kill(ahead, Signal::SIGCONT).expect("it lives");
    a.goes_on(20);
    b.goes_on(20);
    kill(ahead, Signal::SIGKILL).expect("it lives");
    b.goes_on(200);
    b.stops();
}

#[test]
fn an_endless_kernel_takes_no_more_than_its_share() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let (one, two) = (daemon.tenant("one", &[]), daemon.tenant("two", &[]));
    let mut hung = started(&one);
    let mut other = working(&two, 500 * US);
    other.goes_on(20);
    assert_eq!(hung.ask(&format!("launch 1 {}", 600_000 * MS)), "launch 0");
    other.goes_on(20);
    let pids = [hung.pid(), other.pid()];
    let had = || pids.map(|pid| served_to(&gpu, pid));
    let before = had();
    other.goes_on(1_000);
    let after = had();
    let [hungs, others] = [0, 1].map(|at| after[at] - before[at]);
    let part = others as f64 / (hungs + others) as f64;
    println!("beside an endless kernel: {:.1} %", part * 100.0);
    assert_measured!(part >= 0.3, "{part}");
    assert_eq!(hung.ask("query 1"), "query 600");
    assert_eq!(hung.ask("sync 2"), "sync 0", "its other calls still return");
    hung.kill();
    other.goes_on(20);
    other.stops();
}

#[test]
fn a_daemon_that_dies_or_hangs_leaves_no_gate_closed() {
    let gpu = Gpu::new("");
    let mut daemon = Daemon::start(&gpu);
    let (one, two) = (
        daemon.tenant("one", &share("90")),
        daemon.tenant("two", &share("10")),
    );
    let (mut a, mut b) = (working(&one, 500 * US), working(&two, 500 * US));
    until("one is held or yields", || {
        let state = daemon.share("two").state;
        matches!(state, ShareState::Yielding { .. } | ShareState::Held { .. })
    });
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).expect("a pid"));
    gpu.stop(pid);
    a.goes_on(50);
    b.goes_on(50);
    kill(pid, Signal::SIGCONT).expect("it lives");
    daemon.kill();
    a.goes_on(50);
    b.goes_on(50);
    daemon.restart();
    a.goes_on(50);
    b.goes_on(50);
    until("the next daemon steers them", || {
        works(&daemon.share("one")) && works(&daemon.share("two"))
    });
    a.stops();
    b.stops();
}

#[test]
fn a_lower_priority_yields_to_a_higher_one_that_has_gaps() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let (low, high) = (
        daemon.tenant("low", &[]),
        daemon.tenant("high", &[("GPUSHARE_PRIORITY", "900")]),
    );
    let mut a = working(&low, 500 * US);
    let mut b = started(&high);
    a.goes_on(20);
    let mut yielded = false;
    for _ in 0..200 {
        assert_eq!(b.ask(&format!("launch 1 {}", 200 * US)), "launch 0");
        assert_eq!(b.ask("sync 1"), "sync 0");
        yielded |= matches!(
            daemon.share("low").state,
            ShareState::Yielding { .. } | ShareState::Held { .. }
        );
    }
    assert_measured!(yielded, "low never yielded");
    assert!(!matches!(
        daemon.share("high").state,
        ShareState::Held { .. }
    ));
    a.goes_on(20);
    a.stops();
    b.kill();
}

#[test]
fn a_cap_holds_beside_others_and_alone() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let capped = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT", "20")]);
    let mut a = working(&capped, 500 * US);
    a.goes_on(20);
    let used = |gpu: &Gpu| {
        let (began, before) = (Instant::now(), gpu.served());
        std::thread::sleep(Duration::from_millis(1500));
        (gpu.served() - before) as f64 / began.elapsed().as_nanos() as f64
    };
    let alone = used(&gpu);
    println!("alone: {:.1} % under a cap of 20 %", alone * 100.0);
    assert_measured!((0.02..=0.35).contains(&alone), "{alone}");
    let mut b = working(&daemon.tenant("other", &[]), 500 * US);
    b.goes_on(200);
    a.goes_on(20);
    let row = daemon.share("capped");
    println!(
        "with another tenant: {} thousandths over {} ms",
        row.held, row.over_ms
    );
    assert_measured!(row.held <= 350, "{row:?}");
    a.stops();
    b.stops();
}

#[test]
fn a_capped_tenant_that_is_alone_does_not_pay_for_a_modules_load() {
    let gpu = Gpu::new("load=2s");
    let daemon = Daemon::start(&gpu);
    let capped = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT", "10")]);
    let mut guest = started(&capped);
    let runs = |guest: &mut Guest| {
        let began = Instant::now();
        assert_eq!(guest.ask(&format!("launch 1 {MS}")), "launch 0");
        assert_eq!(guest.ask("sync 1"), "sync 0");
        began.elapsed()
    };
    runs(&mut guest);
    // With its bucket at the most debt, a second, it would wait ten.
    let took = runs(&mut guest);
    println!("the launch after a load of 2 s took {took:?}");
    assert_measured!(took < Duration::from_secs(2), "{took:?}");
    guest.finish().silently();
}

/// The engine time that a process has had (ns).
fn served_to(gpu: &Gpu, pid: Pid) -> u64 {
    let devices = gpu.truths();
    let processes = devices.iter().flat_map(|device| &device.processes);
    let own = processes.filter(|process| process.pid == pid.as_raw());
    own.map(|process| process.served[0]).sum()
}

#[test]
#[ignore = "long tier: 14 s; prints the shares of ADR 208"]
fn a_program_of_many_streams_has_the_share_of_one_with_one() {
    for kernel in [200 * US, 500 * US] {
        let gpu = Gpu::new("");
        let daemon = Daemon::start(&gpu);
        let (one, many) = (daemon.tenant("one", &[]), daemon.tenant("many", &[]));
        let (mut a, mut b) = (working(&one, 200 * US), started(&many));
        assert_eq!(b.ask(&format!("storm 6 {kernel}")), "storm 0");
        until("both are measured", || {
            ["one", "many"].map(|name| daemon.share(name).over_ms >= 2000) == [true, true]
        });
        let pids = [a.pid(), b.pid()];
        let served = || pids.map(|pid| served_to(&gpu, pid));
        let (before, began) = (served(), Instant::now());
        std::thread::sleep(Duration::from_secs(4));
        let after = served();
        let time = began.elapsed().as_nanos() as f64;
        let [one, many] = [0, 1].map(|at| (after[at] - before[at]) as f64 / time * 100.0);
        println!(
            "{} us: one stream {one:.1} %, thirteen {many:.1} %",
            kernel / US
        );
        assert_measured!(many <= one * 1.25, "{many:.1} % beside {one:.1}");
        a.stops();
        b.calms();
    }
}
