//! Two tenants and a device that is too small for both: over real sockets and pages.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Client, Daemon};
use gpushare_protocol::units::GIB;
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

#[test]
fn a_burst_that_does_not_fit_waits_and_is_served_when_the_other_frees() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let (_a, a_socket) = daemon.tenant("a", &limits);
    let (_b, b_socket) = daemon.tenant("b", &limits);
    let (mut a, mut b) = (Client::register(&a_socket), Client::register(&b_socket));
    granted(&a.open());
    granted(&b.open());
    granted(&a.grow(0, 10 * GIB));
    a.charge(10 * GIB);
    let waiting = b.ask(0, 10 * GIB);
    // The answer to a later request shows that the earlier one was taken in and is not answered.
    granted(&b.grow(0, GIB));
    assert!(!b.wire.has_answer(waiting));
    a.free(10 * GIB);
    granted(&b.wire.answer(waiting));
}

#[test]
fn a_wait_ends_in_out_of_memory_at_its_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "100ms"),
    ];
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
    let took = (1..15).take_while(|_| {
        let held = a.page().line(a.slot, 0).unwrap().word.load().charged;
        let fits = matches!(
            a.grow(u64::from(held) * 512, GIB / 2),
            Reply::Granted { .. }
        );
        fits.then(|| a.charge(GIB / 2)).is_some()
    });
    assert!(took.count() > 1, "it may borrow unreserved memory");
    assert!(granted(&b.grow(0, 8 * GIB)) >= 8 * GIB);
}
