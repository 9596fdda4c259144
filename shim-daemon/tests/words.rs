//! Messages name devices as users know them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Daemon, create};
use gpushare_protocol::wire::{Control, ControlReply};

fn refusal(reply: ControlReply) -> String {
    match reply {
        ControlReply::Error(error) => error.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_beyond_every_device_is_refused_with_what_one_can() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let mut command = daemon.command();
    let all = [("GPUSHARE_MEM_REQUEST", "16GiB")];
    let said = refusal(command.call(&create("one", &all)));
    assert_eq!(
        said,
        "device 0 (Fact 1) can guarantee at most 15.5 GiB beside a context; 16 GiB were requested"
    );
}

#[test]
fn a_change_that_does_not_fit_is_refused_with_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let half = [("GPUSHARE_MEM_REQUEST", "7GiB")];
    let (mut command, _one) = daemon.tenant("one", &half);
    let (_other, _two) = daemon.tenant("two", &half);
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: vec![("GPUSHARE_MEM_REQUEST".to_owned(), "9GiB".to_owned())],
    };
    let said = refusal(command.call(&set));
    assert!(said.starts_with("on device 0 (Fact 1) "), "{said}");
    assert!(said.contains("1 GiB are missing"), "{said}");
}
