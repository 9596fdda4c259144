//! The daemon dies, is absent, and restarts. Its clients continue with their grants.

use gpushare_tests::{Daemon, GIB, Gpu, Guest, MIB, Tenant, alloc};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const GRANTED: &str = "alloc 0";
const REFUSED: &str = "alloc 2";

fn ready(tenant: &Tenant) -> Guest {
    tenant.client("quota", &[]).started()
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("it lives");
}

#[test]
fn without_its_daemon_a_tenant_keeps_its_grant_and_gets_no_more() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "8GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "100ms"),
    ];
    let tenant = daemon.tenant("one", &limits);
    let (mut a, mut b) = (ready(&tenant), ready(&tenant));
    assert_eq!(a.ask(&alloc(4 * GIB)), GRANTED);
    assert_eq!(a.ask("check"), "check 1");
    daemon.kill();
    assert_eq!(
        b.ask(&alloc(4 * GIB)),
        REFUSED,
        "no growth beyond the grant"
    );
    assert_eq!(a.ask("kept"), "kept 1", "the process keeps its memory");
    assert_eq!(a.ask("free 1"), "free 0");
    assert_eq!(b.ask(&alloc(4 * GIB)), GRANTED, "the grant is the tenant's");
    assert_eq!(a.ask(&alloc(GIB)), REFUSED);
    daemon.restart();
    daemon.until("one", |row| {
        row.charged == 4 * GIB && row.processes.len() == 2
    });
    let mut taken = a.ask(&alloc(GIB));
    while taken == REFUSED {
        taken = a.ask(&alloc(GIB));
    }
    daemon.until("one", |row| row.charged == 5 * GIB);
    assert_eq!(
        (a.ask("check"), b.ask("check")),
        ("check 1".into(), "check 1".into())
    );
}

#[test]
fn the_next_daemon_counts_busy_clients_exactly_and_serves_waiting_ones() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "512MiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "1h"),
    ];
    let tenants: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| daemon.tenant(name, &limits))
        .collect();
    let mut guests: Vec<Guest> = (0..9).map(|at| ready(&tenants[at % 3])).collect();
    let mut waiter = ready(&tenants[1]);
    for guest in &mut guests {
        assert_eq!(guest.ask(&alloc(GIB)), GRANTED);
    }
    waiter.send(&alloc(8 * GIB));
    daemon.until_one_waits("b");
    daemon.kill();
    for guest in &mut guests {
        assert_eq!(guest.ask("free 1"), "free 0");
        assert_eq!(
            guest.ask(&alloc(900 * MIB)),
            GRANTED,
            "within the last grant"
        );
    }
    daemon.restart();
    for (name, processes) in [("a", 3), ("b", 4), ("c", 3)] {
        daemon.until(name, |row| {
            row.charged == 2700 * MIB && row.processes.len() == processes
        });
    }
    for guest in &mut guests {
        assert_eq!(guest.ask("free 1"), "free 0");
    }
    assert_eq!(waiter.line(), GRANTED);
    daemon.until("b", |row| row.charged == 8 * GIB && row.limbo == 0);
    daemon.until("a", |row| row.charged == 0);
    let requested: u64 = gpu
        .truth()
        .processes
        .iter()
        .map(softgpu::inspect::ProcessTruth::requested_total)
        .sum();
    assert_eq!(requested, 8 * GIB);
}

#[test]
fn a_process_that_died_between_two_daemons_leaks_nothing() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let (a, mut b) = (ready(&tenant), ready(&tenant));
    let mut a = a;
    assert_eq!(a.ask(&alloc(3 * GIB)), GRANTED);
    assert_eq!(b.ask(&alloc(512 * MIB)), GRANTED);
    daemon.kill();
    a.kill();
    daemon.restart();
    daemon.until("one", |row| row.charged == 512 * MIB && row.limbo == 0);
    let filled = b.ask(&format!("fill {}", 512 * MIB));
    assert_eq!(filled, "fill 7 2");
}

#[test]
fn a_process_that_was_stopped_all_the_while_is_still_counted() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let (mut a, mut b) = (ready(&tenant), ready(&tenant));
    assert_eq!(a.ask(&alloc(3 * GIB)), GRANTED);
    assert_eq!(a.ask("check"), "check 1");
    gpu.stop(Pid::from_raw(a.id().cast_signed()));
    daemon.restart();
    // A new process is registered only when the next daemon has stopped waiting for known
    // processes.
    let mut late = ready(&tenant);
    assert_eq!(late.ask(&alloc(2 * GIB)), REFUSED);
    assert_eq!(b.ask(&alloc(2 * GIB)), REFUSED);
    signal(a.id(), Signal::SIGCONT);
    daemon.until("one", |row| {
        row.charged == 3 * GIB && row.processes.len() == 3
    });
    assert_eq!(a.ask("kept"), "kept 1");
    assert_eq!(a.ask("free 1"), "free 0");
    assert_eq!(late.ask(&alloc(4 * GIB)), GRANTED);
}

/// Only the registration tells the next daemon of a process that does not come.
fn until_written_down(tenant: &Tenant, pid: u32) {
    let runtime = tenant
        .folder()
        .ancestors()
        .nth(2)
        .expect("the runtime folder");
    let file = runtime.join("registered/one.json");
    let pid = format!("\"pid\":{pid},");
    let is_there = || std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&pid));
    while !is_there() {
        std::thread::yield_now();
    }
}

#[test]
fn a_program_that_starts_while_all_others_are_stopped_shares_their_page() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut old = ready(&tenant);
    assert_eq!(old.ask(&alloc(3 * GIB)), GRANTED);
    until_written_down(&tenant, old.id());
    gpu.stop(Pid::from_raw(old.id().cast_signed()));
    daemon.restart();
    // It is admitted when the recovery is over.
    let _other = daemon.tenant("two", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    let mut late = tenant.client("quota", &[]);
    late.send("init");
    signal(old.id(), Signal::SIGCONT);
    assert_eq!(late.line(), "init 0");
    assert_eq!(late.ask(&alloc(2 * GIB)), REFUSED);
    daemon.until("one", |row| {
        row.charged == 3 * GIB && row.processes.len() == 2
    });
    assert_eq!(old.ask("free 1"), "free 0");
    assert_eq!(late.ask(&alloc(4 * GIB)), GRANTED);
}

#[test]
fn a_daemon_that_hangs_blocks_programs_for_a_bounded_time() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "8GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "100ms"),
    ];
    let tenant = daemon.tenant("one", &limits);
    let mut guest = ready(&tenant);
    assert_eq!(guest.ask(&alloc(4 * GIB)), GRANTED);
    gpu.stop(Pid::from_raw(daemon.pid().cast_signed()));
    assert_eq!(guest.ask(&alloc(2 * GIB)), REFUSED);
    assert_eq!(guest.ask("free 1"), "free 0");
    assert_eq!(guest.ask(&alloc(4 * GIB)), GRANTED);
    signal(daemon.pid(), Signal::SIGCONT);
    let mut answer = guest.ask(&alloc(2 * GIB));
    while answer == REFUSED {
        answer = guest.ask(&alloc(2 * GIB));
    }
    daemon.until("one", |row| row.charged == 6 * GIB);
}

#[test]
fn memory_kept_by_a_forked_child_is_not_granted_until_it_ends() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let (first, second) = (daemon.tenant("a", &limits), daemon.tenant("b", &limits));
    let (mut a, mut b) = (ready(&first), ready(&second));
    assert_eq!(a.ask(&alloc(10 * GIB)), GRANTED);
    let forked = a.ask("fork");
    let child: u32 = forked.strip_prefix("fork ").unwrap().parse().unwrap();
    a.kill();
    daemon.until("a", |row| row.processes.is_empty() && row.limbo >= 10 * GIB);
    b.send(&alloc(10 * GIB));
    daemon.until_one_waits("b");
    signal(child, Signal::SIGKILL);
    assert_eq!(b.line(), GRANTED);
    daemon.until("a", |row| row.limbo == 0 && row.charged == 0);
}

#[test]
fn a_program_that_starts_while_the_daemon_is_away_waits_for_it() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    daemon.kill();
    let mut guest = tenant.client("quota", &[]);
    guest.send("init");
    daemon.restart();
    assert_eq!(guest.line(), "init 0");
    assert_eq!(guest.ask(&format!("fill {}", 512 * MIB)), "fill 2 2");
}

#[test]
fn a_program_whose_daemon_never_comes_gets_no_cuda_and_says_why() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    daemon.kill();
    let mut guest = tenant.client("quota", &[("GPUSHARE_DISABLE", "1")]);
    assert_eq!(guest.ask("init"), "init 1", "CUDA_ERROR_INVALID_VALUE");
    let ended = guest.finish();
    let socket = tenant.folder().join("gpushare.sock");
    assert!(
        ended.stderr.starts_with("gpushare: ")
            && ended.stderr.contains(socket.to_str().unwrap())
            && ended.stderr.contains("is gpushared running?")
            && ended.stderr.lines().count() == 1,
        "{ended:?}"
    );
}
