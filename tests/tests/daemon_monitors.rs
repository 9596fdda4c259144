//! Programs that ask NVML and never start CUDA, while their daemon ends and the next one begins.

use gpushare_tests::guest::plain;
use gpushare_tests::{Daemon, Dealer, GIB, Gpu, Guest, Tenant, clients, until, until_some};

const LIMIT: (&str, &str) = ("GPUSHARE_MEM_LIMIT", "4GiB");
/// MiB of the tenant's limit, and of the device.
const LIMIT_MIB: u64 = 4 << 10;
const DEVICE_MIB: u64 = 16 << 10;

/// What a monitor sees of the device, in MiB.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    total: u64,
    used: u64,
    processes: u64,
    /// Whether the process that it looks for is listed.
    listed: bool,
}

#[track_caller]
fn look(monitor: &mut Guest, pid: u32) -> Seen {
    let answer = monitor.ask(&format!("look {pid}"));
    let numbers: Vec<u64> = answer
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [0, total, used, processes, listed] => Seen {
            total,
            used,
            processes,
            listed: listed == 1,
        },
        _ => panic!("{answer}"),
    }
}

fn nothing_of(total: u64) -> Seen {
    Seen {
        total,
        used: 0,
        processes: 0,
        listed: false,
    }
}

fn busy(tenant: &Tenant, bytes: u64) -> Guest {
    let mut guest = tenant.client("quota", &[]).started();
    assert_eq!(guest.ask(&format!("alloc {bytes}")), "alloc 0");
    guest
}

/// A program without gpushare that holds 2 GiB of the device.
fn neighbour(gpu: &Gpu) -> Guest {
    let mut guest = Guest::start(plain(gpu, &clients::compile("quota", &[]))).started();
    assert_eq!(guest.ask(&format!("alloc {}", 2 * GIB)), "alloc 0");
    guest
}

#[test]
fn a_monitor_that_outlives_the_daemon_sees_which_processes_come_after() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[LIMIT]);
    let mut monitor = tenant.client("watcher", &[]);
    until("the monitor sees its tenant", || {
        look(&mut monitor, 1) == nothing_of(LIMIT_MIB)
    });
    let guest = busy(&tenant, GIB);
    let seen = look(&mut monitor, guest.id());
    assert!(seen.listed && seen.used >= 1024, "{seen:?}");
    guest.finish().silently();
    daemon.until("one", |row| row.charged == 0 && row.processes.len() == 1);
    daemon.restart();
    let guest = busy(&tenant, 2 * GIB);
    until("the monitor sees the process", || {
        let seen = look(&mut monitor, guest.id());
        assert_eq!(seen.total, LIMIT_MIB);
        seen.listed && seen.used >= 2048 && seen.processes == 1
    });
    monitor.finish().silently();
}

#[test]
fn a_monitor_keeps_what_it_knows_while_the_daemon_is_away() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[LIMIT]);
    let (guest, neighbour) = (busy(&tenant, GIB), neighbour(&gpu));
    let mut monitor = tenant.client("watcher", &[]);
    let seen = until_some("the monitor sees its tenant", || {
        Some(look(&mut monitor, guest.id())).filter(|seen| seen.listed)
    });
    assert_eq!(seen.processes, 1, "{seen:?}");
    daemon.kill();
    assert_eq!(look(&mut monitor, guest.id()), seen);
    daemon.restart();
    daemon.until("one", |row| row.charged == GIB);
    assert_eq!(look(&mut monitor, guest.id()), seen);
    assert!(!look(&mut monitor, neighbour.id()).listed);
}

#[test]
fn a_monitor_that_begins_without_its_daemon_sees_no_neighbour() {
    let gpu = Gpu::new("mem=16GiB");
    let mut daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[LIMIT]);
    let neighbour = neighbour(&gpu);
    // The tenant lives on in the next daemon.
    let guest = busy(&tenant, GIB);
    daemon.until("one", |row| row.charged == GIB);
    daemon.kill();
    let mut bare = tenant.client("watcher", &[]);
    let mut named = tenant.client("watcher", &[LIMIT]);
    for (monitor, total) in [(&mut bare, DEVICE_MIB), (&mut named, LIMIT_MIB)] {
        let seen = look(monitor, neighbour.id());
        assert_eq!(seen, nothing_of(total));
    }
    daemon.restart();
    for monitor in [&mut bare, &mut named] {
        until("the monitor sees its tenant", || {
            let seen = look(monitor, guest.id());
            seen.listed && seen.used >= 1024 && seen.total == LIMIT_MIB && seen.processes == 1
        });
    }
}

#[test]
fn a_monitor_without_a_tenant_sees_the_whole_device() {
    let gpu = Gpu::new("mem=16GiB");
    let neighbour = neighbour(&gpu);
    let mut monitor = Guest::start(plain(&gpu, &clients::compile("watcher", &[])));
    let seen = look(&mut monitor, neighbour.id());
    assert!(
        seen.listed && seen.total == DEVICE_MIB && seen.used >= 2048,
        "{seen:?}"
    );
}

#[test]
fn a_monitor_that_asks_often_registers_once() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut monitor = dealer.client("watcher");
    assert_eq!(monitor.ask("looks 1000"), "looks 0");
    assert_eq!(dealer.rivals().registrations(), 1);
    monitor.finish().silently();
}
