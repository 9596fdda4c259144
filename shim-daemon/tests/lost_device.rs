//! A GPU falls off the bus: asks for it are refused, and nothing else ends because of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Client, Daemon, FakeDevices, GPU, SECOND, Wire, create, until};
use gpushare_protocol::units::{Bytes, GIB};
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::*;
use std::sync::atomic::Ordering;

const LIMITS: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "12GiB"),
];

fn ask(wire: &mut Wire, device_index: u8, bytes: u64) -> u32 {
    wire.ask(&Request::Ask(Ask {
        device_index,
        held: 0,
        bytes,
        patience_ms: None,
    }))
}

/// Loses the first device and waits until the daemon has noticed.
fn lose(daemon: &Daemon, command: &mut Wire) {
    daemon.devices.0.lock().unwrap().lost = true;
    // Several looks have to say so.
    until("it is lost", || is_lost(&devices(command)[0]));
    assert!(!is_lost(&devices(command)[1]));
}

fn devices(command: &mut Wire) -> Vec<DeviceRow> {
    match command.call(&Listing::Devices.first()) {
        ControlReply::Page {
            rows: Rows::Devices(rows),
            ..
        } => rows,
        other => panic!("{other:?}"),
    }
}

fn is_lost(row: &DeviceRow) -> bool {
    row.capabilities.iter().any(|word| word == "lost")
}

/// A list of one page.
fn page(command: &mut Wire, of: Listing) -> Rows {
    let from = Cursor::default();
    match command.call(&Control::Page { of, from }) {
        ControlReply::Page { rows, next: None } => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lost_device_keeps_its_place_and_has_no_memory_to_give() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let (mut command, socket) = daemon.tenant("a", &LIMITS);
    let mut client = Client::register(&socket);
    assert!(matches!(client.open(), Reply::Granted { .. }));
    assert!(matches!(client.grow(0, 2 * GIB), Reply::Granted { .. }));
    let before = devices(&mut command);
    assert!(!before.iter().any(is_lost) && before[0].granted > 0);
    lose(&daemon, &mut command);
    let rows = devices(&mut command);
    assert_eq!(
        page(&mut command, Listing::Devices),
        Rows::Devices(rows.clone())
    );
    assert_eq!([rows[0].uuid, rows[1].uuid], [GPU, SECOND]);
    let gone = &rows[0];
    let held = gone.granted + gone.overhead + gone.limbo + gone.unmanaged;
    assert_eq!((held, gone.reserve), (0, gone.capacity));
    assert_eq!(
        (gone.capacity, &gone.name),
        (before[0].capacity, &before[0].name)
    );
    assert!(rows[1].reserve < rows[1].capacity, "{:?}", rows[1]);
    // Events count the devices alike.
    let lost = told(&mut command, "lost").device.unwrap();
    assert_eq!((lost.uuid, lost.index), (GPU, 0));
}

/// The first event of a kind.
fn told(command: &mut Wire, kind: &str) -> EventRecord {
    let id = command.ask(&Control::Follow { past: 100 });
    loop {
        let ControlReply::Event(record) = command.answer(id) else {
            panic!("an event")
        };
        if record.kind == kind {
            break record;
        }
    }
}

/// What `ps` and `why` tell of such a tenant by: it has no account.
#[test]
fn the_status_of_a_tenant_of_a_lost_device_alone_has_what_it_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let mut command = daemon.command();
    let alone = Control::Create {
        name: Some("alone".to_owned()),
        environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "12GiB".to_owned())],
        devices: vec![GPU],
    };
    let created: ControlReply = command.call(&alone);
    assert!(
        matches!(created, ControlReply::Created { .. }),
        "{created:?}"
    );
    let accounts = |command: &mut Wire| match page(command, Listing::Tenants) {
        Rows::Tenants(rows) => rows.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(accounts(&mut command), 1);
    lose(&daemon, &mut command);
    assert_eq!(accounts(&mut command), 0);
    let Rows::TenantStatus(rows) = page(&mut command, Listing::TenantStatus) else {
        panic!("a status")
    };
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let asks = row.asks.iter().map(|asked| (asked.device, asked.limit));
    assert_eq!(asks.collect::<Vec<_>>(), [(GPU, 12 * GIB)]);
    assert_eq!((&*row.name, &row.queued), ("alone", &None));
}

#[test]
fn what_a_lost_device_refuses_is_not_blamed_on_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let (mut command, socket) = daemon.tenant("a", &LIMITS);
    let mut a = Client::register(&socket);
    assert!(matches!(a.open(), Reply::Granted { .. }));
    lose(&daemon, &mut command);
    let asked = ask(&mut a.wire, 0, GIB);
    let lost = Reply::Refused(Refusal::DeviceLost);
    assert_eq!(a.wire.answer::<Reply>(asked), lost);
    let line = a.page().line(a.slot, 0).unwrap();
    line.refused.fetch_add(1, Ordering::Relaxed);
    let record = told(&mut command, "refused");
    let facts = ["gone", "over_limit", "limit_bytes"].map(|name| record.number_of(name));
    assert_eq!(facts, [Some(1), None, None], "{record:?}");
    assert!(!record.text.contains("0 B"), "{}", record.text);
}

#[test]
fn events_of_a_tenant_on_several_devices_name_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let (mut command, _) = daemon.tenant("both", &LIMITS);
    let record = told(&mut command, "admitted");
    assert_eq!((record.device, record.word_of("gpus")), (None, Some("0,1")));
    let alone = Control::Create {
        name: Some("alone".to_owned()),
        environment: vec![],
        devices: vec![SECOND],
    };
    let mut other = daemon.command();
    let created: ControlReply = other.call(&alone);
    assert!(
        matches!(created, ControlReply::Created { .. }),
        "{created:?}"
    );
    let set = Control::Set {
        tenant: "alone".to_owned(),
        changes: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "8GiB".to_owned())],
    };
    let done: ControlReply = other.call(&set);
    assert_eq!(done, ControlReply::Done);
    let record = told(&mut other, "set");
    let place = record.device.map(|device| device.index);
    assert_eq!((place, record.word_of("gpus")), (Some(1), None));
}

#[test]
fn a_lost_devices_counts_stay_and_its_health_is_told_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::two();
    devices.0.lock().unwrap().processes = vec![(1, Bytes(GIB))];
    let daemon = Daemon::with(folder.path(), devices);
    let (mut command, _) = daemon.tenant("a", &LIMITS);
    let counted = |command: &mut Wire| {
        let Rows::Metrics(rows) = page(command, Listing::Metrics) else {
            panic!("metrics")
        };
        let of_devices = rows.into_iter().filter_map(|row| match row {
            MetricsRow::Device(row) => Some((row.device, row.unmanaged)),
            _ => None,
        });
        of_devices.collect::<Vec<_>>()
    };
    let healthy = |command: &mut Wire| match page(command, Listing::Health) {
        Rows::Health(rows) => rows.iter().map(|row| row.device).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    daemon.devices.until_looked_at();
    assert_eq!(counted(&mut command), [(GPU, 1), (SECOND, 0)]);
    assert_eq!(healthy(&mut command), [GPU, SECOND]);
    lose(&daemon, &mut command);
    assert_eq!(counted(&mut command), [(GPU, 0), (SECOND, 0)]);
    assert_eq!(healthy(&mut command), [SECOND]);
}

#[test]
fn who_waits_there_is_told_and_goes_on_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let (mut command, a) = daemon.tenant("a", &LIMITS);
    let (_b, b) = daemon.tenant("b", &LIMITS);
    let (mut a, mut b) = (Client::register(&a), Client::register(&b));
    assert!(matches!(a.open(), Reply::Granted { .. }));
    assert!(matches!(a.grow(0, 10 * GIB), Reply::Granted { .. }));
    a.charge(10 * GIB);
    let waits = ask(&mut b.wire, 0, 10 * GIB);
    lose(&daemon, &mut command);
    let lost = Reply::Refused(Refusal::DeviceLost);
    assert_eq!(b.wire.answer::<Reply>(waits), lost);
    let again = ask(&mut b.wire, 0, GIB);
    assert_eq!(b.wire.answer::<Reply>(again), lost);
    for client in [&mut a, &mut b] {
        let elsewhere = ask(&mut client.wire, 1, 4 * GIB);
        let answer: Reply = client.wire.answer(elsewhere);
        assert!(matches!(answer, Reply::Granted { .. }), "{answer:?}");
    }
    let ControlReply::Page {
        rows: Rows::Tenants(rows),
        ..
    } = command.call(&Listing::Tenants.first())
    else {
        panic!("a list")
    };
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row.name.as_str(), row.device))
        .collect();
    assert_eq!(shown, [("a", SECOND), ("b", SECOND)]);
}

#[test]
fn a_new_tenant_gets_what_is_left_but_not_the_lost_device() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let mut command = daemon.command();
    lose(&daemon, &mut command);
    let all: ControlReply = command.call(&create("all", &LIMITS));
    assert!(matches!(all, ControlReply::Created { .. }), "{all:?}");
    let ControlReply::Page {
        rows: Rows::Tenants(rows),
        ..
    } = command.call(&Listing::Tenants.first())
    else {
        panic!("a list")
    };
    let devices: Vec<_> = rows.iter().map(|row| row.device).collect();
    assert_eq!(devices, [SECOND]);
    let named = Control::Create {
        name: Some("named".to_owned()),
        environment: vec![],
        devices: vec![GPU],
    };
    let ControlReply::Error(error) = command.call(&named) else {
        panic!("an error")
    };
    assert!(
        error.message.contains(&Uuid(GPU).to_string()) && error.message.contains("lost"),
        "{error:?}"
    );
}

#[test]
fn who_is_queued_for_the_lost_device_is_told_and_waits_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let wants = |name: &str| Control::Create {
        name: Some(name.to_owned()),
        environment: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "12GiB".to_owned())],
        devices: vec![GPU],
    };
    let mut command = daemon.command();
    let first: ControlReply = command.call(&wants("a"));
    assert!(matches!(first, ControlReply::Created { .. }), "{first:?}");
    let mut waiter = daemon.command();
    let id = waiter.ask(&wants("b"));
    let queued: ControlReply = waiter.answer(id);
    assert!(matches!(queued, ControlReply::Queued { .. }), "{queued:?}");
    lose(&daemon, &mut command);
    let told: ControlReply = waiter.answer(id);
    let ControlReply::Error(error) = told else {
        panic!("{told:?}")
    };
    assert!(error.message.contains("gone"), "{error:?}");
}

#[test]
fn a_tenant_of_a_lost_device_is_changed_and_joined_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(folder.path(), FakeDevices::two());
    let (mut command, socket) = daemon.tenant("a", &LIMITS);
    let a = Client::register(&socket);
    lose(&daemon, &mut command);
    let set = |name: &str, value: &str| Control::Set {
        tenant: "a".to_owned(),
        changes: vec![(name.to_owned(), value.to_owned())],
    };
    let lowered = set("GPUSHARE_MEM_LIMIT", "8GiB");
    let done: ControlReply = command.call(&lowered);
    assert_eq!(done, ControlReply::Done);
    let limit = |at: usize| a.page().devices[at].limit.load(Ordering::Relaxed);
    assert_eq!(limit(1), 8 * GIB);
    // More than the device that is there can guarantee.
    for name in ["GPUSHARE_MEM_REQUEST_1", "GPUSHARE_MEM_REQUEST"] {
        let ControlReply::Error(error) = command.call(&set(name, "70GiB")) else {
            panic!("{name} is more than there is")
        };
        assert!(!error.message.contains("gone"), "{error:?}");
    }
    // CUDA shows the programs of another command what is left.
    let joins = |limit: &str| Control::Create {
        name: Some("a".to_owned()),
        environment: vec![
            ("GPUSHARE_MEM_REQUEST".to_owned(), "1GiB".to_owned()),
            ("GPUSHARE_MEM_LIMIT".to_owned(), limit.to_owned()),
        ],
        devices: vec![SECOND],
    };
    let joined: ControlReply = daemon.command().call(&joins("8GiB"));
    assert!(matches!(joined, ControlReply::Created { .. }), "{joined:?}");
    let other: ControlReply = daemon.command().call(&joins("9GiB"));
    let ControlReply::Error(error) = other else {
        panic!("{other:?}")
    };
    assert!(error.message.contains("other limits"), "{error:?}");
}
