//! `set` changes what is given and leaves the rest, in whatever variables a tenant said it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Daemon, FakeDevices, GPU, create};
use gpushare_core::{Bytes, Policy, SwapPolicy};
use gpushare_protocol::limits::Selector;
use gpushare_protocol::units::GIB;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::*;
use gpushared::node::Settings;

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Limit and request in GiB and the cap in thousandths of a tenant with these variables after a
/// change.
fn after(own: Pairs<'_>, changes: Pairs<'_>) -> (u64, u64, Option<u32>) {
    after_on(FakeDevices::default(), own, changes)
}

fn after_on(devices: FakeDevices, own: Pairs<'_>, changes: Pairs<'_>) -> (u64, u64, Option<u32>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        defaults: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "8GiB".to_owned())],
        ..Settings::default()
    };
    let daemon = Daemon::with_settings(folder.path(), devices, settings);
    let _owner = daemon.tenant("one", own);
    let mut command = daemon.command();
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: changes.iter().map(pair).collect(),
    };
    let done: ControlReply = command.call(&set);
    assert!(matches!(done, ControlReply::Done), "{done:?}");
    let (limit, request) = match command.call(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => (rows[0].limit / GIB, rows[0].request / GIB),
        other => panic!("{other:?}"),
    };
    match command.call(&Listing::Shares.first()) {
        ControlReply::Page {
            rows: Rows::Shares(rows),
            ..
        } => (limit, request, rows[0].cap),
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
    let devices = FakeDevices::two();
    assert_eq!(after_on(devices, own, change), (6, 6, None));
}

#[test]
fn a_value_for_a_device_that_a_tenant_does_not_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let mut command = daemon.command();
    let refused = |reply: ControlReply, variable: &str| match reply {
        ControlReply::Error(error) if error.code == ErrorCode::BadLimits => {
            let begin = format!("{variable} is refused: the programs see no device");
            assert!(error.message.starts_with(&begin), "{}", error.message);
        }
        other => panic!("{other:?}"),
    };
    let second = ("GPUSHARE_MEM_LIMIT_1", "1GiB");
    let blamed = "GPUSHARE_MEM_LIMIT_1=\"1GiB\"";
    refused(command.call(&create("one", &[second])), blamed);
    let _owner = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT_0", "1GiB")]);
    let mut set = |name: &str, value: &str| {
        command.call::<_, ControlReply>(&Control::Set {
            tenant: "one".to_owned(),
            changes: vec![(name.to_owned(), value.to_owned())],
        })
    };
    refused(set(second.0, second.1), blamed);
    assert_eq!(set("GPUSHARE_MEM_LIMIT_0", "2GiB"), ControlReply::Done);
}

/// One more than any user may send to a daemon of the whole machine.
const MANY: usize = 513;

#[track_caller]
fn refused_for_their_number(reply: &ControlReply) {
    match reply {
        ControlReply::Error(error) if error.code == ErrorCode::BadLimits => {
            assert!(error.message.contains("at most 512"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn more_variables_than_any_limits_need_are_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let mut command = daemon.command();
    refused_for_their_number(&command.call(&create("many", &[("", ""); MANY])));
    let _owner = daemon.tenant("one", &[]);
    for (name, value) in [("", ""), ("GPUSHARE_IDLE_AFTER", "5s")] {
        let set = Control::Set {
            tenant: "one".to_owned(),
            changes: vec![(name.to_owned(), value.to_owned()); MANY],
        };
        refused_for_their_number(&command.call(&set));
    }
}

/// All that a tenant can say of 16 devices, in our variables by place and by UUID, and in aliases.
fn all_of_sixteen(limit: &str) -> Vec<(String, String)> {
    let mut all = vec![("GPUSHARE_PRIORITY".to_owned(), "300".to_owned())];
    for at in 0..16_u8 {
        let ordinal = Selector::Ordinal(at.into());
        let uuid = at.checked_sub(1).map_or(GPU, |at| [0xa0 + at; 16]);
        for device in [ordinal, Selector::Uuid(Uuid(uuid))] {
            for (base, value) in [
                ("GPUSHARE_MEM_LIMIT", limit),
                ("GPUSHARE_MEM_REQUEST", "1GiB"),
                ("GPUSHARE_SM_LIMIT", "50"),
                ("GPUSHARE_SM_REQUEST", "5"),
            ] {
                all.push((device.variable(base), value.to_owned()));
            }
        }
        for (base, value) in [
            ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
            ("CUDA_DEVICE_SM_LIMIT", "30"),
        ] {
            all.push((ordinal.variable(base), value.to_owned()));
        }
    }
    // Programs may repeat what is equal.
    let again = all.clone();
    all.extend(again);
    all
}

#[test]
fn all_that_can_be_said_of_sixteen_devices_is_taken_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let devices = FakeDevices::default();
    devices.0.lock().unwrap().more = (0xa0..0xaf).map(|byte| [byte; 16]).collect();
    let daemon = Daemon::with(folder.path(), devices);
    let mut command = daemon.command();
    let environment = all_of_sixteen("6GiB");
    assert!((320..512).contains(&environment.len()));
    let create = Control::Create {
        name: Some("one".to_owned()),
        environment,
        devices: vec![],
    };
    let made: ControlReply = command.call(&create);
    assert!(matches!(made, ControlReply::Created { .. }), "{made:?}");
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: all_of_sixteen("2GiB"),
    };
    assert_eq!(command.call::<_, ControlReply>(&set), ControlReply::Done);
    match command.call(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => assert_eq!(rows[0].limit, 2 * GIB),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_change_that_says_no_limit_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (mut command, _socket) = daemon.tenant("one", &[("HOME", "/root")]);
    for (name, shown) in [
        ("", r#""" is"#),
        ("HOME", r#""HOME" is"#),
        ("\u{1b}]0;x\u{7}", r#""\u{1b}]0;x\u{7}" is"#),
    ] {
        let set = Control::Set {
            tenant: "one".to_owned(),
            changes: vec![(name.to_owned(), String::new())],
        };
        match command.call(&set) {
            ControlReply::Error(error) => {
                assert!(error.message.contains(shown), "{}", error.message);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_flags_of_a_tenant_that_stays_say_so_where_tenants_move_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let base = Settings::default();
    let swap = SwapPolicy {
        host: Bytes::gib(32),
        ..SwapPolicy::default()
    };
    let settings = Settings {
        policy: Policy {
            swap,
            ..base.policy
        },
        defaults: vec![("GPUSHARE_OVERSUBSCRIBE".to_owned(), "swap".to_owned())],
        ..base
    };
    let daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), settings);
    let own = [
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ("GPUSHARE_OVERSUBSCRIBE", "off"),
    ];
    let _owner = daemon.tenant("one", &own);
    let joined = |own: Pairs<'_>| daemon.command().call(&create("one", own));
    let ControlReply::Error(error) = joined(&own[..1]) else {
        panic!("it would move");
    };
    let flags = "give its own, --mem-limit 1GiB --oversubscribe off, or";
    assert!(error.message.contains(flags), "{error}");
    let done: ControlReply = joined(&own);
    assert!(matches!(done, ControlReply::Created { .. }), "{done:?}");
}
