//! From the moment a lowered limit is set, no charge succeeds that leaves a tenant above it,
//! however its processes race. Its pools and graphs use the memory that they have, and what they
//! give back is credited.

use gpushare_protocol::wire::{Control, ControlReply};
use gpushare_tests::daemon::{Commands, Tenant};
use gpushare_tests::{Daemon, Gpu, Guest, MIB, sweep};

const HIGH: u64 = 2048;
const LOW: u64 = 256;
const OUT_OF_MEMORY: &str = "2";

fn set(commands: &mut Commands, mib: u64) {
    let changes = vec![("GPUSHARE_MEM_LIMIT".to_owned(), format!("{mib}MiB"))];
    let tenant = "one".to_owned();
    let done = commands.ask(&Control::Set { tenant, changes });
    assert_eq!(done, ControlReply::Done);
}

#[test]
fn memory_freed_above_a_lowered_limit_is_not_charged_again() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let mut guests = [(); 2].map(|()| tenant.client("quota", &[]).started());
    for guest in &mut guests {
        assert_eq!(
            guest.ask(&format!("fill {}", 128 * MIB)).split(' ').next(),
            Some("fill")
        );
    }
    let mut commands = daemon.commands();
    set(&mut commands, 1024);
    assert_eq!(daemon.row("one").charged, HIGH * MIB);
    assert_eq!(guests[0].ask("free 4"), "free 0");
    for guest in &mut guests {
        assert_eq!(guest.ask("alloc 512"), "alloc 2");
    }
    assert_eq!(guests[0].ask("free 4"), "free 0");
    assert_eq!(
        guests[1].ask("alloc 512"),
        "alloc 2",
        "exactly at the limit"
    );
    assert_eq!(guests[0].ask("free 1"), "free 0");
    assert_eq!(guests[1].ask(&format!("alloc {}", 128 * MIB)), "alloc 0");
    assert_eq!(guests[0].ask("alloc 512"), "alloc 2");
    set(&mut commands, HIGH);
    assert_eq!(guests[0].ask(&format!("alloc {}", 512 * MIB)), "alloc 0");
}

/// The program `ordered` in the tenant "one" of 2 GiB: 1 GiB is allocated in stream 1, from a pool
/// that keeps it if it does. Then the limit is lowered to 256 MiB.
fn lowered_below_a_pool(daemon: &Daemon, keeps: bool) -> (Tenant, Guest) {
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let mut guest = tenant.client("ordered", &[]).started();
    if keeps {
        guest.does("keep");
    }
    guest.does(&format!("alloc {} 1", 1024 * MIB));
    set(&mut daemon.commands(), LOW);
    (tenant, guest)
}

#[test]
fn memory_that_a_pool_gives_back_above_a_lowered_limit_is_credited() {
    for (keeps, giving_back) in [(false, "sync 1"), (true, "trim -1")] {
        let gpu = Gpu::new("mem=16GiB");
        let daemon = Daemon::start(&gpu);
        let (_tenant, mut guest) = lowered_below_a_pool(&daemon, keeps);
        guest.does("free 0 1");
        guest.does("sync-all");
        guest.does(giving_back);
        assert_eq!(daemon.row("one").charged, 0, "{giving_back}");
        guest.does(&format!("alloc {} 1", LOW * MIB));
        guest.answers(&format!("alloc {} 1", 32 * MIB), OUT_OF_MEMORY);
        guest.finish().silently();
    }
}

#[test]
fn a_pool_above_a_lowered_limit_serves_what_it_has_and_does_not_grow() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let (_tenant, mut guest) = lowered_below_a_pool(&daemon, true);
    guest.answers(&format!("alloc {} 1", 512 * MIB), OUT_OF_MEMORY);
    guest.does("free 0 1");
    guest.does(&format!("alloc {} 1", 512 * MIB));
    guest.answers(&format!("alloc {} 1", 1024 * MIB), OUT_OF_MEMORY);
    assert!(daemon.row("one").charged <= 1024 * MIB);
    guest.finish().silently();
}

#[test]
fn a_graph_that_has_its_memory_runs_above_a_lowered_limit() {
    let gpu = Gpu::new("mem=16GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let mut guest = tenant.client("ordered", &[]).started();
    for bytes in [1024 * MIB, 1536 * MIB] {
        guest.does(&format!("graph {bytes} 1"));
    }
    guest.does("launch 0 1");
    guest.does("sync 1");
    set(&mut daemon.commands(), LOW);
    guest.does("launch 0 1");
    guest.answers("launch 1 1", OUT_OF_MEMORY);
    guest.does("sync 1");
    guest.does("trim-graphs");
    assert_eq!(daemon.row("one").charged, 0);
    guest.answers("launch 0 1", OUT_OF_MEMORY);
    guest.finish().silently();
}

#[test]
fn racing_processes_never_grow_above_a_limit_once_it_is_set() {
    let gpu = Gpu::new("mem=16GiB,ctx=16MiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "2GiB")]);
    let mut guests = [0, 1, 2, 3].map(|seed| {
        let mut guest = tenant.client("churn", &[]);
        guest.send(&format!("start {seed} {}", 120 * MIB));
        guest
    });
    for guest in &mut guests {
        assert_eq!(guest.line(), "start 0");
    }
    let (mut commands, mut grown, mut above) = (daemon.commands(), 0, 0);
    let rounds = if sweep::is_every_step() { 60 } else { 20 };
    for _ in 0..rounds {
        set(&mut commands, HIGH);
        daemon.until("one", |row| row.charged > 2 * LOW * MIB);
        set(&mut commands, LOW);
        let mut most = u64::MAX;
        for _ in 0..40 {
            let Some(charged) = commands.charged("one") else {
                continue;
            };
            above += u32::from(charged > LOW * MIB);
            grown += u32::from(charged > most.max(LOW * MIB));
            most = charged;
        }
    }
    println!("{above} readings above the limit, {grown} of them after a growth");
    assert!(above > 0, "nothing was above the limit to begin with");
    assert_eq!(grown, 0);
    for guest in &mut guests {
        guest.send("stop");
        let stopped = guest.line();
        assert!(
            stopped.ends_with(" 0"),
            "only served or out of memory: {stopped}"
        );
    }
}
