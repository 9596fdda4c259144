//! `set` changes what is given and leaves the rest, in whatever variables a tenant said it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Daemon, FakeDevices, GPU};
use gpushare_protocol::limits::Selector;
use gpushare_protocol::units::GIB;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::*;
use gpushared::node::Settings;

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Limit and request in GiB and the cap in thousandths of a tenant with these variables after a
/// change.
fn after(own: Pairs<'_>, changes: Pairs<'_>) -> (u64, u64, Option<u32>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        defaults: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "8GiB".to_owned())],
        ..Settings::default()
    };
    let daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), settings);
    let _owner = daemon.tenant("one", own);
    let mut command = daemon.command();
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: changes.iter().map(pair).collect(),
    };
    let done: ControlReply = command.call(&set);
    assert!(matches!(done, ControlReply::Done), "{done:?}");
    let (limit, request) = match command.call(&Control::List) {
        ControlReply::Tenants(rows) => (rows[0].limit / GIB, rows[0].request / GIB),
        other => panic!("{other:?}"),
    };
    match command.call(&Control::Shares) {
        ControlReply::Shares(rows) => (limit, request, rows[0].cap),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_set_request_leaves_an_alias_limit() {
    let own: Pairs<'_> = &[
        ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
        ("CUDA_DEVICE_SM_LIMIT", "30"),
    ];
    let cap = Some(300);
    let request: Pairs<'_> = &[("GPUSHARE_MEM_REQUEST", "1GiB")];
    assert_eq!(after(own, request), (4, 1, cap));
    let request: Pairs<'_> = &[("GPUSHARE_SM_REQUEST", "20")];
    assert_eq!(after(own, request), (4, 4, cap));
}

#[test]
fn a_set_limit_takes_the_place_of_an_alias() {
    let own: Pairs<'_> = &[("CUDA_DEVICE_MEMORY_LIMIT_0", "4g")];
    assert_eq!(after(own, &[("GPUSHARE_MEM_LIMIT", "2GiB")]), (2, 2, None));
}

#[test]
fn a_limit_for_all_replaces_one_for_a_device() {
    let uuid = Selector::Uuid(Uuid(GPU)).variable("GPUSHARE_MEM_LIMIT");
    for own in ["GPUSHARE_MEM_LIMIT_0", &uuid] {
        let change: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT", "2GiB")];
        assert_eq!(after(&[(own, "6GiB")], change), (2, 2, None), "{own}");
    }
    let by_ordinal: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT_0", "2GiB")];
    assert_eq!(after(&[(&uuid, "6GiB")], by_ordinal), (2, 2, None));
}

#[test]
fn a_limit_for_another_device_leaves_that_of_the_first() {
    let own: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT_0", "6GiB")];
    let change: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT_1", "2GiB")];
    assert_eq!(after(own, change), (6, 6, None));
}
