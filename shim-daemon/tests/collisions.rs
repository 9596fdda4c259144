//! Two tenants and a device that is too small for both: over real sockets and pages.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::metrics::device;
use crate::support::gate::Gated;
use crate::support::{Client, Daemon, FakeDevices, GPU, Wire, until};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use gpushare_protocol::wire::*;

fn granted(reply: &Reply) -> u64 {
    match reply {
        Reply::Granted { grant } => *grant,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tenant_is_granted_up_to_its_limit_and_no_further() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_owner, socket) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let mut client = Client::register(&socket);
    granted(&client.open());
    assert!(granted(&client.grow(0, 4 * GIB)) >= 4 * GIB);
    client.charge(4 * GIB);
    let refused = client.grow(4 * GIB, 512);
    assert_eq!(
        refused,
        Reply::Refused(Refusal::OverLimit { limit: 4 * GIB })
    );
}

const BURST: [(&str, &str); 2] = [
    ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ("GPUSHARE_MEM_LIMIT", "12GiB"),
];

/// Two tenants that may have 12 of the device's 16 GiB each. The first holds 10, and the second
/// waits for as many.
struct Waits {
    _daemon: Daemon,
    holder: Gated,
    asker: Client,
    ask: u32,
    _commands: [Wire; 2],
}

impl Waits {
    fn begin(folder: &Path, devices: FakeDevices) -> Self {
        devices.0.lock().unwrap().processes = vec![(1, Bytes(MIB))];
        let daemon = Daemon::with(folder, devices);
        // It reads the pages at each look, too. Without a context no other look is wanted.
        until("the first look is over", || {
            device(&daemon, GPU).unmanaged == 1
        });
        let (a, a_socket) = daemon.tenant("a", &BURST);
        let (b, b_socket) = daemon.tenant("b", &BURST);
        let mut holder = Gated::map(Client::register(&a_socket));
        let mut asker = Client::register(&b_socket);
        assert_eq!(waiters(&holder), 0);
        granted(&holder.client.grow(0, 10 * GIB));
        holder.client.charge(10 * GIB);
        let ask = asker.ask(0, 10 * GIB);
        let mut waits = Self {
            _daemon: daemon,
            holder,
            asker,
            ask,
            _commands: [a, b],
        };
        assert!(!waits.is_answered());
        waits
    }

    /// Whether the ask is answered. The answer to a later request shows that all earlier ones were
    /// taken in.
    fn is_answered(&mut self) -> bool {
        self.asker.free(0);
        self.asker.wire.has_answer(self.ask)
    }
}

/// How many wait for memory of the device, by the page of a tenant.
fn waiters(gated: &Gated) -> u32 {
    gated.page().devices[0].waiters.load(Ordering::Relaxed)
}

#[test]
fn a_burst_that_does_not_fit_waits_and_is_served_when_the_other_frees() {
    let folder = tempfile::tempdir().unwrap();
    let mut waits = Waits::begin(folder.path(), FakeDevices::default());
    waits.holder.client.free(10 * GIB);
    granted(&waits.asker.wire.answer(waits.ask));
}

#[test]
fn a_free_that_is_reported_serves_an_ask_before_the_next_tick() {
    let folder = tempfile::tempdir().unwrap();
    let mut waits = Waits::begin(folder.path(), FakeDevices::without_ticks());
    waits.holder.client.release(10 * GIB);
    assert!(!waits.is_answered(), "no report says it");
    waits.holder.client.free(0);
    assert!(waits.is_answered());
    granted(&waits.asker.wire.answer(waits.ask));
}

#[test]
fn an_ask_that_waits_is_shown_to_the_others_before_the_next_tick() {
    let folder = tempfile::tempdir().unwrap();
    let mut waits = Waits::begin(folder.path(), FakeDevices::without_ticks());
    assert_eq!(waiters(&waits.holder), 1);
    waits.asker.wire.ask(&Request::Cancel { ask: waits.ask });
    assert!(waits.is_answered());
    assert_eq!(waiters(&waits.holder), 0);
}

#[test]
fn a_wait_ends_in_out_of_memory_at_its_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limits = [&BURST[..], &[("GPUSHARE_WAIT_TIMEOUT", "100ms")]].concat();
    let (_a, a_socket) = daemon.tenant("a", &limits);
    let (_b, b_socket) = daemon.tenant("b", &limits);
    let (mut a, mut b) = (Client::register(&a_socket), Client::register(&b_socket));
    granted(&a.open());
    granted(&b.open());
    granted(&a.grow(0, 10 * GIB));
    a.charge(10 * GIB);
    assert!(matches!(
        b.grow(0, 10 * GIB),
        Reply::Refused(Refusal::TimedOut { .. })
    ));
    granted(&b.grow(0, GIB));
}

#[test]
fn within_its_request_a_tenant_is_never_refused() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_a, a_socket) = daemon.tenant(
        "a",
        &[
            ("GPUSHARE_MEM_REQUEST", "1GiB"),
            ("GPUSHARE_MEM_LIMIT", "16GiB"),
        ],
    );
    let (_b, b_socket) = daemon.tenant(
        "b",
        &[
            ("GPUSHARE_MEM_LIMIT", "8GiB"),
            ("GPUSHARE_WAIT_TIMEOUT", "100ms"),
        ],
    );
    let (mut a, mut b) = (Client::register(&a_socket), Client::register(&b_socket));
    granted(&a.open());
    granted(&b.open());
    let took = (0..14).take_while(|_| {
        let held = a.page().line(a.slot, 0).unwrap().word.load().charged;
        let fits = matches!(
            a.grow(u64::from(held) * 512, GIB / 2),
            Reply::Granted { .. }
        );
        fits.then(|| a.charge(GIB / 2)).is_some()
    });
    // All that the other has not reserved, but for both contexts.
    assert_eq!(took.count(), 14, "it may borrow unreserved memory");
    assert!(granted(&b.grow(0, 8 * GIB)) >= 8 * GIB);
}
