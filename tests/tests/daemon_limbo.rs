//! Device memory that a dead process's forked child keeps counts against its tenant's limit, under
//! a daemon and across its restarts.

use gpushare_tests::{Daemon, Gpu, MIB, Tenant, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LIMITS: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_LIMIT", "512MiB"),
    ("GPUSHARE_WAIT_TIMEOUT", "400ms"),
];
const REFUSED: &str = "alloc 2";

fn alloc(mib: u64) -> String {
    format!("alloc {}", mib * MIB)
}

/// A program allocates this much, forks a child that does nothing, and dies. Returns its answer,
/// and the child.
fn leave(tenant: &Tenant, mib: u64) -> (String, Pid) {
    let mut guest = tenant.client("quota", &[]).started();
    let answer = guest.ask(&alloc(mib));
    let forked = guest.ask("fork");
    let child = forked
        .strip_prefix("fork ")
        .and_then(|pid| pid.parse().ok());
    guest.kill();
    (answer, Pid::from_raw(child.expect("a pid")))
}

#[test]
fn allocating_forking_and_dying_again_and_again_stays_within_the_limit() {
    let gpu = Gpu::new("mem=4GiB,ctx=16MiB");
    let daemon = Daemon::start(&gpu);
    let neighbour = daemon.tenant("neighbour", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let tenant = daemon.tenant("one", &LIMITS);
    let left: Vec<(String, Pid)> = (0..5).map(|_| leave(&tenant, 500)).collect();
    let granted = left
        .iter()
        .filter(|(answer, _)| answer == "alloc 0")
        .count();
    let truth = gpu.truth();
    assert_eq!(granted, 1, "{left:?}");
    assert!(truth.requested_now <= 512 * MIB, "{truth:?}");
    let mut guest = neighbour.client("quota", &[]).started();
    assert_eq!(guest.ask(&alloc(2048)), "alloc 0", "the guaranteed memory");
    let mut small = tenant.client("quota", &[]).started();
    assert_eq!(small.ask(&alloc(12)), "alloc 0", "the rest of the limit");
    assert_eq!(small.ask(&alloc(13)), REFUSED);
    for (_, child) in left {
        kill(child, Signal::SIGKILL).expect("it lives");
    }
    daemon.until("one", |row| row.limbo == 0);
    assert_eq!(small.ask(&alloc(500)), "alloc 0");
}

#[test]
fn a_wait_for_a_dead_processs_memory_ends_when_it_returns() {
    let gpu = Gpu::new("mem=4GiB,ctx=16MiB");
    let daemon = Daemon::start(&gpu);
    let patient = [LIMITS[0], ("GPUSHARE_WAIT_TIMEOUT", "1h")];
    let tenant = daemon.tenant("one", &patient);
    let mut busy = tenant.client("quota", &[]).started();
    let (answer, child) = leave(&tenant, 500);
    assert_eq!(answer, "alloc 0");
    let mut next = tenant.client("quota", &[]).started();
    next.send(&alloc(500));
    daemon.until_one_waits("one");
    kill(child, Signal::SIGKILL).expect("it lives");
    // The software GPU returns memory as operations pass.
    for _ in 0..40 {
        assert!(busy.ask("info").starts_with("info"));
    }
    assert_eq!(next.line(), "alloc 0");
}

#[test]
fn a_program_that_is_started_again_after_a_crash_gets_its_memory() {
    let gpu = Gpu::new("mem=4GiB,ctx=16MiB");
    let daemon = Daemon::start(&gpu);
    for resolver in ["wait", "fail"] {
        let tenant = daemon.tenant(resolver, &[LIMITS[0], ("GPUSHARE_ON_COLLISION", resolver)]);
        for round in 0..8 {
            let mut guest = tenant.client("quota", &[]).started();
            assert_eq!(guest.ask(&alloc(500)), "alloc 0", "{resolver}, {round}");
            guest.kill();
        }
    }
}

#[test]
fn a_new_daemon_knows_the_memory_dead_processes_still_hold() {
    let gpu = Gpu::new("mem=4GiB,ctx=16MiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &LIMITS);
    let mut sibling = tenant.client("quota", &[]).started();
    let (answer, first) = leave(&tenant, 300);
    assert_eq!(answer, "alloc 0");
    daemon.until("one", |row| row.limbo >= 300 * MIB);
    let runtime = tenant.folder().ancestors().nth(2);
    let file = runtime
        .expect("the runtime folder")
        .join("registered/one.json");
    let charged = format!("\"charged\":{}", 300 * MIB);
    until("the dead are written down", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&charged))
    });
    let mut dies_unseen = tenant.client("quota", &[]).started();
    assert_eq!(dies_unseen.ask(&alloc(100)), "alloc 0");
    let forked = dies_unseen.ask("fork");
    let second = forked
        .strip_prefix("fork ")
        .and_then(|pid| pid.parse().ok());
    daemon.kill();
    dies_unseen.kill();
    daemon.restart();
    daemon.until("one", |row| {
        row.processes.len() == 1 && row.limbo >= 400 * MIB
    });
    assert_eq!(sibling.ask(&alloc(200)), REFUSED);
    assert_eq!(sibling.ask(&alloc(112)), "alloc 0");
    for child in [first, Pid::from_raw(second.expect("a pid"))] {
        kill(child, Signal::SIGKILL).expect("it lives");
    }
    daemon.until("one", |row| row.limbo == 0);
    assert_eq!(sibling.ask(&alloc(400)), "alloc 0");
}
