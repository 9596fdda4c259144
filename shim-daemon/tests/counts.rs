//! Events by kind and the time of tenants' kernels, as the daemon counts them from its start.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::metrics::{HALF, in_turns, rows, tenant};
use crate::support::gate::{Gated, is_closed};
use crate::support::{Client, Daemon, FakeDevices, until};
use gpushare_core::Nanos;
use gpushare_protocol::wire::*;

#[test]
fn events_are_counted_by_kind_from_the_daemons_start() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let counts = || -> BTreeMap<String, u64> {
        let [Rows::EventCounts(rows)] = &rows(&daemon, Listing::EventCounts)[..] else {
            panic!("no counts")
        };
        let each = rows.iter().map(|row| (row.kind.clone(), row.count));
        each.collect()
    };
    let none: BTreeMap<String, u64> = EventRecord::KINDS
        .iter()
        .map(|kind| ((*kind).to_owned(), 0))
        .collect();
    assert_eq!(counts(), none, "each kind is there from the beginning");
    let (_a, _) = daemon.tenant("a", &HALF);
    let set = |value: &str| {
        let changes = vec![("GPUSHARE_MEM_LIMIT".to_owned(), value.to_owned())];
        let tenant = "a".to_owned();
        daemon.command().call(&Control::Set { tenant, changes })
    };
    assert_eq!(set("10GiB"), ControlReply::Done);
    assert!(matches!(set("much"), ControlReply::Error(_)));
    let told = counts().into_iter().filter(|(_, count)| *count > 0);
    let told: Vec<(String, u64)> = told.collect();
    let one = |kind: &str| (kind.to_owned(), 1);
    assert_eq!(told, [one("admitted"), one("set")]);
}

/// The names of admitted tenants, each with the time of its kernels on the device.
fn busy(daemon: &Daemon) -> Vec<(String, Option<u64>)> {
    let rows = rows(daemon, Listing::Metrics);
    let rows = rows.iter().flat_map(|rows| match rows {
        Rows::Metrics(rows) => &rows[..],
        other => panic!("{other:?}"),
    });
    let tenants = rows.filter_map(|row| match row {
        MetricsRow::Tenant(row) => Some((row.name.clone(), row.busy_ns)),
        _ => None,
    });
    tenants.collect()
}

#[test]
fn the_time_of_a_tenants_kernels_is_told_also_while_it_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a) = daemon.tenant("a", &HALF);
    let (_b, _) = daemon.tenant("b", &HALF);
    let mut client = Client::register(&a);
    client.open();
    let row = |name: &str, busy_ns| (name.to_owned(), Some(busy_ns));
    assert_eq!(busy(&daemon), [row("a", 0), row("b", 0)]);
    let second = Nanos::secs(1).0;
    let pid = client.process.pid();
    for more in [3 * second, second] {
        // A process of no tenant is nobody's time.
        daemon.devices.0.lock().unwrap().busy = vec![(pid, more), (1, 9 * second)];
        daemon.devices.until_looked_at();
    }
    assert_eq!(busy(&daemon), [row("a", 4 * second), row("b", 0)]);
    assert_eq!(
        tenant(&daemon, "a").gpu_ns,
        0,
        "alone, it is billed nothing"
    );
}

/// A tenant's time alone, where that is told.
fn alone(daemon: &Daemon, name: &str) -> Option<Alone> {
    let [Rows::Shares(rows)] = &rows(daemon, Listing::Shares)[..] else {
        panic!("no shares")
    };
    rows.iter().find(|row| row.name == name)?.alone
}

#[test]
fn a_tenant_that_is_billed_nothing_has_what_nvml_saw() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a) = daemon.tenant("a", &HALF);
    let (_b, _) = daemon.tenant("b", &HALF);
    let first = Gated::join(&a);
    let run = |pid: u32| {
        // More than there is: all of the time between two looks.
        daemon.devices.0.lock().unwrap().busy = vec![(pid, 60 * Nanos::secs(1).0)];
    };
    assert_eq!(alone(&daemon, "b"), None, "it has no process there");
    let pid = first.client.process.pid();
    until("what it had alone is told", || {
        run(pid);
        alone(&daemon, "a").is_some_and(|alone| alone.part == 1000 && alone.over_ms > 0)
    });
}

/// NVML tells of a process's last kernels once it has ended: a job of many short programs would
/// lose half a second of each.
#[test]
fn the_time_of_a_process_that_has_ended_since_the_last_look_counts() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a) = daemon.tenant("a", &HALF);
    let (b, socket) = daemon.tenant("b", &HALF);
    let second = Nanos::secs(1).0;
    let processes = || {
        let [Rows::Tenants(rows)] = &rows(&daemon, Listing::Tenants)[..] else {
            panic!("no tenants")
        };
        rows.iter().map(|row| row.processes.len()).sum::<usize>()
    };
    // What has ended is known for ten seconds: all end together, right before their time is told.
    let running = [&a, &a, &socket].map(|socket| {
        let mut client = Client::register(socket);
        client.open();
        client
    });
    daemon.devices.until_looked_at();
    let ended = running.each_ref().map(|client| client.process.pid());
    drop(running);
    until("they have ended", || processes() == 0);
    drop(b);
    until("their tenant, too", || busy(&daemon).len() == 1);
    daemon.devices.0.lock().unwrap().busy = ended.map(|pid| (pid, second)).to_vec();
    daemon.devices.until_looked_at();
    assert_eq!(busy(&daemon), [("a".to_owned(), Some(2 * second))]);
}

#[test]
fn no_time_of_kernels_is_told_where_nvml_knows_none() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    devices.0.lock().unwrap().mig = true;
    let daemon = Daemon::with(folder.path(), devices);
    let (_a, _) = daemon.tenant("a", &HALF);
    assert_eq!(busy(&daemon), [("a".to_owned(), None)]);
    assert_eq!(alone(&daemon, "a"), None);
}

/// A virtual GPU, or an older driver. A 0 would say that the tenant used nothing.
#[test]
fn no_time_of_kernels_is_told_where_nvml_refuses_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    devices.0.lock().unwrap().without_samples = true;
    let daemon = Daemon::with(folder.path(), devices);
    let (_a, _) = daemon.tenant("a", &HALF);
    daemon.devices.until_looked_at();
    assert_eq!(busy(&daemon), [("a".to_owned(), None)]);
    assert_eq!(alone(&daemon, "a"), None);
}

#[test]
fn a_forgotten_process_of_a_tenant_that_works_is_told_as_idle() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limits = [&HALF[..], &[("GPUSHARE_IDLE_AFTER", "4s")]].concat();
    let (_a, a) = daemon.tenant("a", &limits);
    let (mut busy, mut forgotten) = (Client::register(&a), Client::register(&a));
    busy.open();
    forgotten.open();
    let state = |client: &Client| {
        let [Rows::Tenants(rows)] = &rows(&daemon, Listing::Tenants)[..] else {
            panic!("no tenants")
        };
        let mut all = rows.iter().flat_map(|row| &row.processes);
        let own = all.find(|row| row.pid == client.process.pid());
        own.map(|row| row.state.clone())
    };
    let work = || {
        let line = busy.page().line(busy.slot, 0).unwrap();
        line.submitted.fetch_add(1, Ordering::Relaxed);
    };
    until("the forgotten one is idle", || {
        work();
        assert_eq!(state(&busy), Some(ProcessState::Running));
        matches!(state(&forgotten), Some(ProcessState::Idle { for_ms }) if for_ms >= 4_000)
    });
}

/// A tenant's time is billed once, whatever the number of its processes.
#[test]
fn a_tenant_with_two_processes_is_not_alone_beside_another() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = in_turns(folder.path(), FakeDevices::seldom());
    let (_a, a) = daemon.tenant("a", &HALF);
    let (_b, b) = daemon.tenant("b", &HALF);
    let [mut first, mut second] = [&a, &a].map(|socket| Gated::join(socket));
    let mut other = Gated::join(&b);
    // The next look is a second away.
    daemon.devices.until_looked_at();
    other.want(other.turn().word.epoch());
    for one in [&mut first, &mut second] {
        one.make_way();
    }
    other.until(|turn| !is_closed(turn));
    until("it is billed", || tenant(&daemon, "a").gpu_ns > 0);
    let ran = |pids: &[u32]| {
        let all = pids.iter().map(|pid| (*pid, Nanos::secs(60).0));
        daemon.devices.0.lock().unwrap().busy = all.collect();
        daemon.devices.until_looked_at();
    };
    let told = || {
        let told = alone(&daemon, "a").filter(|alone| alone.over_ms > 0);
        told.map(|alone| alone.part)
    };
    let part = || {
        until("the time of a second is told", || told().is_some());
        told().unwrap()
    };
    let pids = [&first, &second].map(|one| one.client.process.pid());
    ran(&pids);
    assert_eq!(part(), 0, "its bill had grown");
    // The other one has the device, and nothing more is billed.
    ran(&pids);
    until("it is told", || part() > 0);
}
