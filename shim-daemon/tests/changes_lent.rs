//! `set` of a request, where others were granted memory above theirs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Client, Daemon, Wire};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;

/// What `set` of a request of 8 GiB is answered, beside a tenant from which nothing is taken back.
/// That had 12 of the 16 GiB, and freed so much of it.
fn raised(freed: u64) -> ControlReply {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let lends = [
        ("GPUSHARE_MEM_REQUEST", "0"),
        ("GPUSHARE_PREEMPTIBLE", "never"),
    ];
    let (_owner, socket) = daemon.tenant("lender", &lends);
    let mut lender = Client::register(&socket);
    assert!(matches!(lender.open(), Reply::Granted { .. }));
    assert!(matches!(lender.grow(0, 12 * GIB), Reply::Granted { .. }));
    lender.charge(12 * GIB - freed);
    let (_keeps, _) = daemon.tenant("one", &[("GPUSHARE_MEM_REQUEST", "1GiB")]);
    let mut command: Wire = daemon.command();
    command.call(&Control::Set {
        tenant: "one".to_owned(),
        changes: vec![("GPUSHARE_MEM_REQUEST".to_owned(), "8GiB".to_owned())],
    })
}

#[test]
fn a_request_is_raised_by_memory_that_was_granted_and_is_not_used() {
    assert_eq!(raised(12 * GIB), ControlReply::Done);
}

#[test]
fn a_request_is_not_raised_by_memory_that_others_use() {
    let reply = raised(GIB);
    let ControlReply::Error(error) = reply else {
        panic!("{reply:?}");
    };
    assert!(error.message.contains("4 GiB are missing"), "{error:?}");
}
