//! Tenants whose memory moves, over real sockets and pages: their processes played by hand, the
//! daemon as it is, and a device that shows what the test says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod announced;
mod believed;
mod counted;
mod lost;
mod lying;
mod stuck;
mod suspended;
mod two_devices;

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::support::gate::Gated;
use crate::support::{Client, Daemon, FakeDevices, Wire, create, until};
use gpushare_core::{Nanos, Policy, SwapPolicy};
use gpushare_protocol::page::residency::{Movability, Order};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;
use gpushared::node::Settings;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;

const LIMITS: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_LIMIT", "10GiB"),
    ("GPUSHARE_WAIT_TIMEOUT", "20s"),
];

/// A daemon of a node whose tenants swap and need not stay.
fn daemon(folder: &Path, host_gib: u64) -> Daemon {
    daemon_with(folder, host_gib, |_| ())
}

fn daemon_with(folder: &Path, host_gib: u64, change: impl FnOnce(&mut SwapPolicy)) -> Daemon {
    daemon_set(folder, host_gib, |settings| {
        change(&mut settings.policy.swap);
    })
}

fn daemon_set(folder: &Path, host_gib: u64, change: impl FnOnce(&mut Settings)) -> Daemon {
    daemon_of(folder, FakeDevices::default(), host_gib, change)
}

fn daemon_of(
    folder: &Path,
    devices: FakeDevices,
    host_gib: u64,
    change: impl FnOnce(&mut Settings),
) -> Daemon {
    let base = Settings::default();
    let swap = SwapPolicy {
        host: Bytes::gib(host_gib),
        stay: 0,
        urgent_stay: 0,
        stays: (Nanos::ZERO, Nanos::ZERO),
        // The tests play processes, and may be held up.
        look_grace: Nanos::secs(60),
        seal: Nanos::secs(60),
        ..SwapPolicy::default()
    };
    let mut settings = Settings {
        policy: Policy {
            swap,
            first_overhead: Bytes::ZERO,
            ..base.policy
        },
        defaults: vec![("GPUSHARE_OVERSUBSCRIBE".to_owned(), "swap".to_owned())],
        ..base
    };
    change(&mut settings);
    Daemon::with_settings(folder, devices, settings)
}

/// A process that can move its memory, if it says so.
fn mover(daemon: &Daemon, name: &str, capabilities: u64) -> (Gated, Wire) {
    mover_of(daemon, name, capabilities, &LIMITS)
}

fn mover_of(
    daemon: &Daemon,
    name: &str,
    capabilities: u64,
    limits: &[(&str, &str)],
) -> (Gated, Wire) {
    let (command, socket) = daemon.tenant(name, limits);
    let client = Client::register_with(&socket, Hello::GATED | capabilities);
    let mut gated = Gated::map(client);
    assert_eq!(gated.page().movability(), Movability::Swap);
    assert!(matches!(gated.client.open(), Reply::Granted { .. }));
    (gated, command)
}

/// The daemon's clock (ns).
fn clock() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(now.tv_sec()).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap()
}

/// Sets the GiB that the device shows for each of these processes.
fn shows(daemon: &Daemon, processes: &[(&Gated, u64)]) {
    let shown = processes.iter();
    let shown = shown.map(|(gated, gib)| (gated.client.process.pid(), Bytes(gib * GIB)));
    daemon.devices.0.lock().unwrap().processes = shown.collect();
}

impl Gated {
    /// Waits for an order; returns its epoch.
    fn ordered(&self, wanted: Order) -> u32 {
        until(&format!("no order {wanted:?}"), || {
            self.page().devices[0].order().word.order() == wanted
        });
        self.page().devices[0].order().word.epoch()
    }

    fn says(&mut self, request: &Request) {
        self.client.wire.ask(request);
    }

    fn is_sealed(&mut self) {
        let epoch = self.ordered(Order::Seal);
        self.says(&Request::Sealed {
            device_index: 0,
            epoch,
        });
    }

    fn is_away(&mut self, gib: u64) {
        let epoch = self.ordered(Order::Leave);
        self.says(&Request::Away {
            device_index: 0,
            epoch,
            away: gib * GIB,
            residue: 0,
        });
    }

    fn is_back(&mut self) {
        let epoch = self.ordered(Order::Return);
        self.says(&Request::Back {
            device_index: 0,
            epoch,
        });
        self.ordered(Order::In);
    }
}

/// Two tenants of 10 GiB on a device of 16: the first has its memory, the second has asked.
fn two(daemon: &Daemon, capabilities: u64) -> ((Gated, Gated), u32, [Wire; 2]) {
    two_waiting(daemon, capabilities, "20s")
}

fn two_waiting(
    daemon: &Daemon,
    capabilities: u64,
    timeout: &str,
) -> ((Gated, Gated), u32, [Wire; 2]) {
    let limits = [LIMITS[0], ("GPUSHARE_WAIT_TIMEOUT", timeout)];
    let (mut first, one) = mover(daemon, "first", capabilities);
    let granted = first.client.grow(0, 10 * GIB);
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    first.client.charge(10 * GIB);
    shows(daemon, &[(&first, 10)]);
    daemon.devices.until_looked_at();
    let (mut second, two) = mover_of(daemon, "second", capabilities, &limits);
    let ask = second.client.ask(0, 10 * GIB);
    ((first, second), ask, [one, two])
}

fn places(command: &mut Wire) -> Vec<(String, Place, u64)> {
    let page = command.call(&Control::Page {
        of: Listing::Residency,
        from: Cursor::default(),
    });
    match page {
        ControlReply::Page {
            rows: Rows::Residency(rows),
            ..
        } => {
            let row = |row: ResidencyRow| (row.name, row.place, row.away / GIB);
            rows.into_iter().map(row).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tenant_leaves_for_another_and_comes_back_when_it_calls() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let ((mut first, mut second), ask, [mut command, _two]) = two(&daemon, Hello::MOVABLE);
    first.is_sealed();
    first.is_away(10);
    daemon.devices.until_looked_at();
    assert!(!second.client.wire.has_answer(ask));
    assert_eq!(
        places(&mut command)[0].1,
        Place::Leaving,
        "the device shows it still"
    );
    shows(&daemon, &[]);
    let granted: Reply = second.client.wire.answer(ask);
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    first.ordered(Order::Out);
    second.client.charge(10 * GIB);
    shows(&daemon, &[(&second, 10)]);
    let shown = [("first", Place::Out, 10), ("second", Place::In, 0)];
    let shown = shown.map(|(name, place, away)| (name.to_owned(), place, away));
    assert_eq!(places(&mut command), shown);
    first.says(&Request::WantIn { device_index: 0 });
    second.is_sealed();
    second.is_away(10);
    shows(&daemon, &[]);
    first.is_back();
    shows(&daemon, &[(&first, 10)]);
    second.ordered(Order::Out);
    assert_eq!(places(&mut command)[0].1, Place::In);
}

#[test]
fn a_tenant_whose_library_cannot_move_stays() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let ((first, mut second), ask, _commands) = two(&daemon, 0);
    daemon.devices.until_looked_at();
    assert!(!second.client.wire.has_answer(ask));
    let order = first.page().devices[0].order().word;
    assert_eq!((order.order(), order.epoch()), (Order::In, 0));
    second.says(&Request::Cancel { ask });
    let cancelled: Reply = second.client.wire.answer(ask);
    assert_eq!(cancelled, Reply::Refused(Refusal::Cancelled));
}

#[test]
fn a_victim_that_is_busy_runs_on_and_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let ((mut first, _second), _ask, _commands) = two(&daemon, Hello::MOVABLE);
    let epoch = first.ordered(Order::Seal);
    first.says(&Request::SealBusy {
        device_index: 0,
        epoch,
        why: Obstacle::Capture,
        retry_ms: 60_000,
    });
    assert_ne!(first.ordered(Order::In), epoch);
    let mut wire = daemon.command();
    let id = wire.ask(&Control::Follow { past: 100 });
    loop {
        match wire.answer(id) {
            ControlReply::Event(row) if row.kind == "did-not-leave" => {
                assert_eq!(row.tenant.as_deref(), Some("first"));
                return;
            }
            ControlReply::Event(_) => (),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_suspended_tenant_is_out_when_the_command_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (mut one, mut command) = mover(&daemon, "one", Hello::MOVABLE);
    one.client.grow(0, 4 * GIB);
    one.client.charge(4 * GIB);
    shows(&daemon, &[(&one, 4)]);
    let tenant = || "one".to_owned();
    let suspend = command.ask(&Control::Suspend { tenant: tenant() });
    one.is_sealed();
    one.is_away(4);
    daemon.devices.until_looked_at();
    assert!(!command.has_answer(suspend));
    shows(&daemon, &[]);
    assert_eq!(command.answer::<ControlReply>(suspend), ControlReply::Done);
    one.ordered(Order::Out);
    let resume = command.ask(&Control::Resume { tenant: tenant() });
    one.is_back();
    assert_eq!(command.answer::<ControlReply>(resume), ControlReply::Done);
    let nobody = command.call(&Control::Suspend {
        tenant: "nobody".to_owned(),
    });
    assert!(matches!(nobody, ControlReply::Error(error) if error.code == ErrorCode::NotFound));
}

#[test]
fn a_tenant_that_cannot_move_is_not_suspended_and_the_reason_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (_one, mut command) = mover(&daemon, "one", 0);
    let tenant = "one".to_owned();
    match command.call(&Control::Suspend { tenant }) {
        ControlReply::Error(error) => assert!(error.message.contains("cannot move"), "{error:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn host_memory_is_given_sealed_within_the_budget_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 1);
    let (mut one, _command) = mover(&daemon, "one", Hello::MOVABLE);
    let range = |bytes| Request::HostRange {
        device_index: 0,
        bytes,
    };
    one.client.grow(0, 2 * GIB);
    let given = |reply: Reply| match reply {
        Reply::HostRange { offset, bytes } => (offset, bytes),
        other => panic!("{other:?}"),
    };
    let (first, bytes) = given(one.client.wire.call(&range(MIB + 1)));
    assert_eq!(bytes, 2 * MIB);
    let file = one.client.wire.descriptors.pop().unwrap();
    assert!(u64::try_from(fstat(&file).unwrap().st_size).unwrap() >= first + bytes);
    let seals = SealFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GET_SEALS).unwrap());
    assert!(seals.contains(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW));
    let allocated = || u64::try_from(fstat(&file).unwrap().st_blocks).unwrap() * 512;
    assert_eq!(allocated(), bytes);
    // More is given in pieces, so that the daemon answers others meanwhile.
    let piece = 64 * MIB;
    let mut places = vec![first];
    for _ in 0..15 {
        let (offset, bytes) = given(one.client.wire.call(&range(GIB)));
        assert_eq!(bytes, piece);
        places.push(offset);
    }
    places.sort_unstable();
    assert!(
        places.windows(2).all(|two| two[0] + piece <= two[1]),
        "apart"
    );
    assert_eq!(allocated(), bytes + 15 * piece);
    let (rest, left) = given(one.client.wire.call(&range(piece)));
    assert_eq!(left, piece - bytes, "as much as the budget allows");
    let full: Reply = one.client.wire.call(&range(piece));
    assert_eq!(full, Reply::Refused(Refusal::NoMemory));
    for (offset, bytes) in [(first, bytes), (rest, left)] {
        one.says(&Request::HostDrop { offset, bytes });
    }
    let again: Reply = one.client.wire.call(&range(piece));
    assert!(matches!(again, Reply::HostRange { .. }), "{again:?}");
    assert_eq!(allocated(), 16 * piece, "what was dropped is free");
}

/// Asks for host memory until it is refused: how much that was.
fn all_host_memory(gated: &mut Gated) -> u64 {
    let mut all = 0;
    loop {
        let range = Request::HostRange {
            device_index: 0,
            bytes: GIB,
        };
        match gated.client.wire.call(&range) {
            Reply::HostRange { bytes, .. } => all += bytes,
            Reply::Refused(Refusal::NoMemory) => return all,
            other => panic!("{other:?}"),
        }
        assert!(all <= 8 * GIB, "{all}");
    }
}

#[test]
fn no_process_has_more_host_memory_than_it_could_need() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (mut one, _command) = mover(&daemon, "one", Hello::MOVABLE);
    one.client.grow(0, 512 * MIB);
    let given = all_host_memory(&mut one);
    assert!((640 * MIB..=GIB).contains(&given), "{given}");
}

#[test]
fn what_one_tenants_move_needs_is_not_given_to_another_in_advance() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 1);
    let (mut one, mut command) = mover(&daemon, "one", Hello::MOVABLE);
    one.client.grow(0, 768 * MIB);
    one.client.charge(768 * MIB);
    daemon.devices.until_looked_at();
    let (mut two, _other) = mover(&daemon, "two", Hello::MOVABLE);
    two.client.grow(0, 2 * GIB);
    assert_eq!(all_host_memory(&mut two), 256 * MIB);
    command.ask(&Control::Suspend {
        tenant: "one".to_owned(),
    });
    one.is_sealed();
    one.ordered(Order::Leave);
    assert_eq!(all_host_memory(&mut one), 768 * MIB);
    // With the process its memory is free again.
    drop(one);
    let two = RefCell::new(two);
    until("the memory of a process that ended is not given", || {
        all_host_memory(&mut two.borrow_mut()) > 0
    });
}

#[test]
fn an_extended_wait_is_told_in_the_page_and_the_tenants_time_stays() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon_with(folder.path(), 64, |swap| {
        swap.stays = (Nanos::secs(600), Nanos::secs(600))
    });
    let ((first, second), _ask, _commands) = two_waiting(&daemon, Hello::MOVABLE, "5s");
    let header = &second.page().header;
    let (wait, before) = (header.wait_ms.load(Ordering::Relaxed), clock());
    assert_eq!(header.extended.load(Ordering::Relaxed), 0);
    until("the wait is not extended", || {
        header.extended.load(Ordering::Relaxed) != 0
    });
    let extended = header.extended.load(Ordering::Relaxed);
    assert!(
        extended > before && extended <= clock() + 10_000_000_000,
        "{extended}"
    );
    assert_eq!(header.wait_ms.load(Ordering::Relaxed), wait);
    assert_eq!(first.page().header.extended.load(Ordering::Relaxed), 0);
}

#[test]
fn without_host_memory_swap_is_refused_by_the_variable_that_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::default();
    let daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), settings);
    for (variable, value) in [
        ("GPUSHARE_OVERSUBSCRIBE", "swap"),
        ("GPUSHARE_ON_COLLISION", "swap,wait"),
        ("GPUSHARE_PREEMPTIBLE", "swap"),
    ] {
        match daemon.command().call(&create("one", &[(variable, value)])) {
            ControlReply::Error(error) => {
                let said = format!("{variable}={value:?} is refused");
                assert!(error.message.starts_with(&said), "{error:?}");
                assert!(error.message.contains("[swap] host"), "{error:?}");
                assert_eq!(error.code, ErrorCode::BadLimits);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_tenant_chooses_for_itself_whether_its_memory_moves() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    for (name, value, expected) in [
        ("moves", "swap", Movability::Swap),
        ("stays", "off", Movability::Fixed),
    ] {
        let wants = [("GPUSHARE_OVERSUBSCRIBE", value)];
        let (_command, socket) = daemon.tenant(name, &wants);
        let client = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
        assert_eq!(Gated::map(client).page().movability(), expected);
    }
}

#[test]
fn an_unset_request_is_nothing_where_tenants_swap_and_a_set_one_holds() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 64);
    let (_one, _first) = mover(&daemon, "unset", Hello::MOVABLE);
    let set = [
        ("GPUSHARE_MEM_LIMIT", "10GiB"),
        ("GPUSHARE_MEM_REQUEST", "6GiB"),
    ];
    let (_kept, _socket) = daemon.tenant("set", &set);
    let rows = daemon.command().tenants();
    let requests = rows.iter().map(|row| (row.name.as_str(), row.request));
    let requests: Vec<_> = requests.collect();
    assert_eq!(requests, [("unset", 0), ("set", 6 * GIB)]);
}
