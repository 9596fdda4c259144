//! The daemon's counts and measurements, as it reports them: over real sockets and pages.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::Ordering;

use crate::driver::{Backend, Driver};
use crate::support::gate::{Gated, is_closed};
use crate::support::{Client, Daemon, FakeDevices, GPU, SECOND, create, until};
use gpushare_core::Nanos;
use gpushare_protocol::units::{Bytes, GIB};
use gpushare_protocol::wire::*;
use gpushared::devices::Devices as _;
use gpushared::node::{ConnId, Effect, Node, Settings};

/// All rows of a list, page by page.
pub(crate) fn rows(daemon: &Daemon, of: Listing) -> Vec<Rows> {
    let (mut wire, mut from, mut all) = (daemon.command(), Cursor::default(), Vec::new());
    loop {
        match wire.call(&Control::Page { of, from }) {
            ControlReply::Page { rows, next } => {
                all.push(rows);
                match next {
                    Some(next) => from = next,
                    None => return all,
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn metrics(daemon: &Daemon) -> Vec<MetricsRow> {
    let pages = rows(daemon, Listing::Metrics).into_iter();
    let each = |page| match page {
        Rows::Metrics(rows) => rows,
        other => panic!("{other:?}"),
    };
    pages.flat_map(each).collect()
}

fn node(daemon: &Daemon) -> NodeMetrics {
    match metrics(daemon).into_iter().next() {
        Some(MetricsRow::Node(node)) => node,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn device(daemon: &Daemon, uuid: [u8; 16]) -> DeviceMetrics {
    let found = metrics(daemon).into_iter().find_map(|row| match row {
        MetricsRow::Device(row) if row.device == uuid => Some(row),
        _ => None,
    });
    found.unwrap()
}

pub(crate) fn tenant(daemon: &Daemon, name: &str) -> TenantMetrics {
    let found = metrics(daemon).into_iter().find_map(|row| match row {
        MetricsRow::Tenant(row) if row.name == name && row.device == GPU => Some(row),
        _ => None,
    });
    found.unwrap()
}

pub(crate) const HALF: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "12GiB"),
];

#[test]
fn a_tenants_peak_stays_when_it_frees() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a) = daemon.tenant("a", &HALF);
    let (_b, _) = daemon.tenant("b", &HALF);
    let mut client = Client::register(&a);
    client.open();
    client.grow(0, 3 * GIB);
    client.charge(3 * GIB);
    client.free(2 * GIB);
    assert_eq!(tenant(&daemon, "a").peak, 3 * GIB);
    assert_eq!(tenant(&daemon, "b").peak, 0);
    // A claim of charges that were never granted raises nothing.
    client.grow(20 * GIB, GIB);
    assert_eq!(tenant(&daemon, "a").peak, 3 * GIB);
}

#[test]
fn refusals_are_counted_by_reason_also_after_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::without_ticks());
    let short = [&HALF[..], &[("GPUSHARE_WAIT_TIMEOUT", "50ms")]].concat();
    let fails = [&HALF[..], &[("GPUSHARE_ON_COLLISION", "fail")]].concat();
    let (_a, a) = daemon.tenant("a", &HALF);
    let (_b, b) = daemon.tenant("b", &short);
    let (_c, c) = daemon.tenant("c", &fails);
    let mut holder = Client::register(&a);
    holder.open();
    holder.grow(0, 10 * GIB);
    holder.charge(10 * GIB);
    let refusals = |client: &Client| {
        let line = client.page().line(client.slot, 0).unwrap();
        line.refused.fetch_add(1, Ordering::Relaxed);
    };
    let mut waits = Client::register(&b);
    waits.open();
    let reply = waits.grow(0, 10 * GIB);
    assert!(
        matches!(reply, Reply::Refused(Refusal::TimedOut { .. })),
        "{reply:?}"
    );
    refusals(&waits);
    // The library's own, for its limit.
    refusals(&waits);
    let mut fails = Client::register(&c);
    fails.open();
    let reply = fails.grow(0, 10 * GIB);
    assert_eq!(reply, Reply::Refused(Refusal::NoMemory));
    refusals(&fails);
    let reasons = |name| {
        let row = tenant(&daemon, name);
        let own = (row.refused_limit, row.refused_wait_timeout);
        (own, row.refused_no_room, row.allocation_waits.count() > 0)
    };
    assert_eq!(reasons("a"), ((0, 0), 0, false));
    assert_eq!(reasons("b"), ((1, 1), 0, true));
    assert_eq!(reasons("c"), ((0, 0), 1, false));
    drop(waits);
    until("its process has gone", || {
        let pages = rows(&daemon, Listing::Tenants);
        let Some(Rows::Tenants(rows)) = pages.first() else {
            return false;
        };
        rows.iter()
            .any(|row| row.name == "b" && row.processes.is_empty())
    });
    assert_eq!(reasons("b"), ((1, 1), 0, true));
}

#[test]
fn refusals_on_a_device_are_counted_also_after_the_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_stays, stays) = daemon.tenant("stays", &HALF);
    let (ends, socket) = daemon.tenant("ends", &HALF);
    let [first, second] = [stays, socket].map(|socket| Client::register(&socket));
    for client in [&first, &second, &second] {
        let line = client.page().line(client.slot, 0).unwrap();
        line.refused.fetch_add(1, Ordering::Relaxed);
    }
    let three = Refusals {
        limit: 3,
        ..Refusals::default()
    };
    assert_eq!(device(&daemon, GPU).refused, three);
    drop((second, ends));
    until("its tenant has ended", || {
        let pages = rows(&daemon, Listing::Tenants);
        matches!(pages.first(), Some(Rows::Tenants(rows)) if rows.len() == 1)
    });
    assert_eq!(device(&daemon, GPU).refused, three);
    drop(first);
}

#[test]
fn a_forged_count_does_not_hide_what_others_are_refused_on_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limit = || device(&daemon, GPU).refused.limit;
    let ended = || {
        until("its tenant has ended", || {
            let pages = rows(&daemon, Listing::Tenants);
            matches!(pages.first(), Some(Rows::Tenants(rows)) if rows.is_empty())
        });
    };
    for name in ["forges", "forges-too"] {
        let (kept, socket) = daemon.tenant(name, &HALF);
        let client = Client::register(&socket);
        let mut last = limit();
        for forged in [1 << 63, 0, 1 << 63] {
            let line = client.page().line(client.slot, 0).unwrap();
            line.refused.store(forged, Ordering::Relaxed);
            assert!(limit() >= last, "{} after {last}", limit());
            last = limit();
        }
        drop((client, kept));
        ended();
        assert_eq!(limit(), last, "it goes on after the tenant");
    }
    let before = limit();
    let (kept, socket) = daemon.tenant("honest", &HALF);
    let client = Client::register(&socket);
    let line = client.page().line(client.slot, 0).unwrap();
    line.refused.fetch_add(4, Ordering::Relaxed);
    assert_eq!(limit(), before + 4);
    drop((client, kept));
    ended();
    assert_eq!(limit(), before + 4);
    assert!(limit() < 1 << 53, "a metric is a float");
}

#[test]
fn a_queued_tenant_has_a_row_until_it_is_admitted() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let big = [
        ("GPUSHARE_MEM_REQUEST", "12GiB"),
        ("GPUSHARE_MEM_LIMIT", "13GiB"),
    ];
    let (first, _) = daemon.tenant("first", &big);
    assert_eq!(
        (node(&daemon).queued, node(&daemon).admissions.count()),
        (0, 1)
    );
    let mut second = daemon.command();
    let id = second.ask(&create("second", &big));
    let queued: ControlReply = second.answer(id);
    assert!(matches!(queued, ControlReply::Queued { .. }), "{queued:?}");
    let row = metrics(&daemon).into_iter().find_map(|row| match row {
        MetricsRow::Queued(row) => Some(row),
        _ => None,
    });
    let row = row.unwrap();
    assert_eq!((row.name.as_str(), row.limit), ("second", 13 * GIB));
    // Both requests, and a context each, in 16 GiB.
    assert!(
        row.request == 12 * GIB && row.short > 8 * GIB && row.short < 10 * GIB,
        "{row:?}"
    );
    assert_eq!(node(&daemon).queued, 1);
    drop(first);
    assert!(matches!(second.answer(id), ControlReply::Created { .. }));
    let all = metrics(&daemon);
    assert!(!all.iter().any(|row| matches!(row, MetricsRow::Queued(_))));
    assert!(
        all.iter()
            .any(|row| matches!(row, MetricsRow::Identity(id) if id.name == "second"))
    );
    assert_eq!(
        (node(&daemon).queued, node(&daemon).admissions.count()),
        (0, 2)
    );
}

#[test]
fn unmanaged_processes_are_counted_on_their_device() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::two();
    devices.0.lock().unwrap().processes = vec![(1, Bytes(GIB))];
    let daemon = Daemon::with(folder.path(), devices);
    until("the look has shown it", || {
        device(&daemon, GPU).unmanaged == 1
    });
    assert_eq!(device(&daemon, SECOND).unmanaged, 0);
    daemon.devices.0.lock().unwrap().processes.clear();
    until("it has gone", || device(&daemon, GPU).unmanaged == 0);
}

/// A daemon that deals turns.
pub(crate) fn in_turns(folder: &std::path::Path, devices: FakeDevices) -> Daemon {
    let settings = Settings {
        policy: gpushare_core::Policy {
            lease: gpushare_core::LeasePolicy::turns(),
            ..Settings::default().policy
        },
        ..Settings::default()
    };
    Daemon::with_settings(folder, devices, settings)
}

/// Waits until a tenant's only process has gone.
fn until_gone(daemon: &Daemon, name: &str) {
    until("its process has gone", || {
        daemon.row(name).processes.is_empty()
    });
}

#[test]
fn turns_and_waits_outlive_the_process_that_had_them() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = in_turns(folder.path(), FakeDevices::without_ticks());
    let (_a, a) = daemon.tenant("a", &HALF);
    let (_b, b) = daemon.tenant("b", &HALF);
    let (mut a, mut b) = (Gated::join(&a), Gated::join(&b));
    let epoch = |gated: &Gated| gated.turn().word.epoch();
    b.want(epoch(&b));
    let closed = a.until(is_closed).word.epoch();
    a.drained(closed);
    b.until(|turn| !is_closed(turn));
    let row = tenant(&daemon, "b");
    assert_eq!((row.turns, row.gate_waits.count()), (1, 1), "{row:?}");
    assert!(row.gate_waits.sum_ns > 0);
    assert_eq!(device(&daemon, GPU).handoffs.count(), 1);
    assert_eq!(tenant(&daemon, "a").gate_waits.count(), 0);
    drop(b);
    until_gone(&daemon, "b");
    let after = tenant(&daemon, "b");
    assert_eq!((after.turns, after.gate_waits), (1, row.gate_waits));
    assert!(after.gpu_ns > 0);
}

#[test]
fn a_wait_at_a_closed_gate_outlives_the_last_process_that_waited() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = in_turns(folder.path(), FakeDevices::without_ticks());
    let (_a, a) = daemon.tenant("a", &HALF);
    let (_b, b) = daemon.tenant("b", &HALF);
    let (a, mut b) = (Gated::join(&a), Gated::join(&b));
    let waited = || {
        let row = tenant(&daemon, "b");
        row.gate_waits.sum_ns + row.waiting_ns
    };
    b.want(b.turn().word.epoch());
    // The other tenant is told to stop, and never says that it has.
    a.until(is_closed);
    until("its wait is counted", || waited() > 0);
    let before = waited();
    drop(b);
    until_gone(&daemon, "b");
    assert!(waited() >= before, "{} of {before} ns", waited());
    assert_eq!(tenant(&daemon, "b").waiting_ns, 0);
    drop(a);
}

#[test]
fn a_lease_ends_when_the_last_process_leaves_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a) = daemon.tenant("a", &HALF);
    let [first, second] = [(); 2].map(|()| Gated::join(&a));
    let last = || match &rows(&daemon, Listing::Leases)[..] {
        [Rows::Leases(rows)] => rows[0].changes.last().map(|change| change.was),
        other => panic!("{other:?}"),
    };
    drop(first);
    until("one of them has gone", || {
        let pages = rows(&daemon, Listing::Tenants);
        matches!(pages.first(), Some(Rows::Tenants(rows)) if rows[0].processes.len() == 1)
    });
    assert_eq!(last(), Some(LeaseWas::Free));
    drop(second);
    until_gone(&daemon, "a");
    assert_eq!(last(), Some(LeaseWas::Gone));
    let again = Gated::join(&a);
    assert_eq!(last(), Some(LeaseWas::Free));
    drop(again);
}

#[test]
fn a_tenant_of_two_devices_has_a_row_for_each_and_one_identity() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::two();
    let daemon = Daemon::with(folder.path(), devices);
    let _owners: Vec<_> = (0..30)
        .map(|at| daemon.tenant(&format!("{at:-<60}"), &[("GPUSHARE_RUN_LIMIT", "1h")]))
        .collect();
    let pages = rows(&daemon, Listing::Metrics);
    assert!(pages.len() > 1, "it is a list of several pages");
    let all = metrics(&daemon);
    let count = |is: fn(&&MetricsRow) -> bool| all.iter().filter(is).count();
    assert_eq!(count(|row| matches!(row, MetricsRow::Node(_))), 1);
    assert_eq!(count(|row| matches!(row, MetricsRow::Device(_))), 2);
    assert_eq!(count(|row| matches!(row, MetricsRow::Identity(_))), 30);
    assert_eq!(count(|row| matches!(row, MetricsRow::Tenant(_))), 60);
}

#[test]
fn a_tenant_that_is_ended_by_a_command_loses_its_process_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (mut owner, a) = daemon.tenant("a", &HALF);
    let (_other, b) = daemon.tenant("b", &HALF);
    let (_client, _beside) = (Client::register(&a), Client::register(&b));
    let end = Control::End {
        tenant: "a".to_owned(),
        kill: true,
    };
    let done: ControlReply = daemon.command().call(&end);
    assert_eq!(done, ControlReply::Done);
    let told: ControlReply = owner.answer(0);
    let by = format!("user {} ended it", nix::unistd::geteuid());
    assert!(
        matches!(&told, ControlReply::End { signal: 9, why } if why.contains(&by)),
        "{told:?}"
    );
    let processes = |name: &str| {
        let mut wire = daemon.command();
        let ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } = wire.call(&Listing::Tenants.first())
        else {
            return None;
        };
        let row = rows.into_iter().find(|row| row.name == name)?;
        Some(row.processes.len())
    };
    until("its process has ended", || processes("a") == Some(0));
    assert_eq!(processes("b"), Some(1));
    // It is the operator's word, not one of the reasons that the daemon has by itself.
    assert_eq!(node(&daemon).ended_collision, 0);
    // One that is told to end again is one tenant that was ended.
    assert_eq!(node(&daemon).ended_command, 1);
    let done: ControlReply = daemon.command().call(&end);
    assert_eq!((done, node(&daemon).ended_command), (ControlReply::Done, 1));
    // Its next program is ended anew.
    let _next = Client::register(&a);
    until("its next process is there", || processes("a") == Some(1));
    let done: ControlReply = daemon.command().call(&end);
    assert_eq!((done, node(&daemon).ended_command), (ControlReply::Done, 2));
}

#[test]
fn a_tenant_that_used_no_device_takes_no_place_in_the_last_hour() {
    let devices = Driver::of(Backend::Misc).list().unwrap();
    let at = |second: u64| Nanos::secs(1000 + second);
    let mut node = Node::new(&Settings::default(), devices, 1, at(0), false);
    let mut last = 0;
    let mut ask = |node: &mut Node, now: Nanos, request: &Control| {
        last += 1;
        node.command(now, ConnId(last), 1, request);
        let mut answer = None;
        while let Some(effect) = node.poll_effect() {
            if let Effect::Command { to, reply, .. } = effect
                && to == ConnId(last)
            {
                answer = Some(reply);
            }
        }
        answer.unwrap()
    };
    let limits = [("GPUSHARE_RUN_LIMIT", "1h")];
    let reply = ask(&mut node, at(0), &create("a", &limits));
    assert!(matches!(reply, ControlReply::Created { .. }), "{reply:?}");
    (0..=35).for_each(|second| node.tick(at(second)));
    match ask(&mut node, at(37), &Listing::History.first()) {
        ControlReply::Page {
            rows: Rows::History(rows),
            next: None,
        } => assert!(rows.is_empty(), "{rows:?}"),
        other => panic!("{other:?}"),
    }
}
