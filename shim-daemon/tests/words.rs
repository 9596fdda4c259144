//! Messages name devices as users know them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Daemon, Wire, create, refusal};
use gpushare_protocol::wire::{Control, ControlReply};

#[test]
fn a_request_beyond_every_device_is_refused_with_what_one_can() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let mut command = daemon.command();
    let all = [("GPUSHARE_MEM_REQUEST", "16GiB")];
    let said = refusal(command.call(&create("one", &all)));
    assert_eq!(
        said,
        "device 0 (Fact 1) can guarantee at most 15.5 GiB beside a context; 16 GiB were requested; \
         ask for less, or 0 for none"
    );
}

#[test]
fn a_limit_that_implies_too_much_is_refused_by_its_flag_and_value() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let limit = |size: &str| vec![("GPUSHARE_MEM_LIMIT".to_owned(), size.to_owned())];
    let said = refusal(
        daemon
            .command()
            .call(&create("one", &[("GPUSHARE_MEM_LIMIT", "16GiB")])),
    );
    let words = "--mem-limit 16GiB without --mem-request requests 16 GiB; add --mem-request";
    assert!(
        said.contains("at most 15.5 GiB") && said.contains(words),
        "{said}"
    );
    let (mut command, _one) = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    let mut set = |changes| {
        let tenant = "one".to_owned();
        command.call::<_, ControlReply>(&Control::Set { tenant, changes })
    };
    let said = refusal(set(limit("20GiB")));
    let words = "--mem-limit 20GiB without --mem-request requests 16 GiB";
    assert!(said.contains(words), "{said}");
    // With a request of its own the limit is taken.
    let request = ("GPUSHARE_MEM_REQUEST".to_owned(), "0".to_owned());
    let both = [limit("20GiB"), vec![request]].concat();
    assert_eq!(set(both), ControlReply::Done);
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

#[test]
fn a_part_of_the_time_that_does_not_fit_is_refused_with_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let asks = |part| [("GPUSHARE_SM_REQUEST", part), ("GPUSHARE_MEM_REQUEST", "0")];
    let (mut command, _one) = daemon.tenant("one", &asks("60"));
    let said = refusal(daemon.command().call(&create("two", &asks("60"))));
    assert_eq!(
        said,
        "on device 0 (Fact 1) at most 40% of the time can be guaranteed beside other tenants' \
         requests; 60% were requested; ask for less, or wait until other tenants end"
    );
    let (_other, _two) = daemon.tenant("two", &asks("40"));
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: vec![("GPUSHARE_SM_REQUEST".to_owned(), "70".to_owned())],
    };
    let said = refusal(command.call(&set));
    assert!(said.contains("(Fact 1) at most 60% of the time"), "{said}");
    assert!(said.contains("70% were requested"), "{said}");
}

/// Why a new tenant queues.
fn queued(daemon: &Daemon, name: &str, request: &str) -> (Wire, String) {
    let mut command = daemon.command();
    let id = command.ask(&create(name, &[("GPUSHARE_MEM_REQUEST", request)]));
    match command.answer(id) {
        ControlReply::Queued { why } => (command, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_that_fits_and_queues_is_told_behind_which_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_holds, _socket) = daemon.tenant("holds", &[("GPUSHARE_MEM_REQUEST", "7GiB")]);
    let (_first, why) = queued(&daemon, "first", "12GiB");
    assert!(
        why.contains("until its request fits beside all others"),
        "{why}"
    );
    let (_second, why) = queued(&daemon, "second", "1GiB");
    assert!(why.contains("fits, and waits behind first"), "{why}");
    assert!(
        !why.contains("at most"),
        "it has not to ask for less: {why}"
    );
    let (_third, why) = queued(&daemon, "third", "13GiB");
    assert!(
        why.contains("until its request fits beside all others"),
        "{why}"
    );
}
