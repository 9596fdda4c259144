//! What the next daemon makes of tenants under other settings, or without a device of theirs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use crate::container_node::{self, First, Machine, NOW, group};
use crate::support::file::{SettingsFile, daemon_of, settings};
use crate::support::{Client, Daemon, FakeDevices, StandIn, create, until};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use gpushared::init::Init;
use gpushared::node::{ConnId, Effect, Node, Seen, Settings};

fn limit(daemon: &Daemon, name: &str) -> Option<u64> {
    let rows = daemon.command().tenants();
    let found = rows.iter().find(|row| row.name == name);
    found.map(|row| row.limit)
}

/// The limit of a tenant with these variables under one daemon, and under the next.
fn limits(environment: &[(&str, &str)], files: [&str; 2]) -> [Option<u64>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let first = daemon_of(folder.path(), files[0]);
    let owner = first.tenant("one", environment);
    let before = limit(&first, "one");
    drop((first, owner));
    [before, limit(&daemon_of(folder.path(), files[1]), "one")]
}

const EIGHT: &str = "[defaults]\nGPUSHARE_MEM_LIMIT = \"8GiB\"\n";
const FOUR: &str = "[defaults]\nGPUSHARE_MEM_LIMIT = \"4GiB\"\n";
const REQUEST: &str = "[defaults]\nGPUSHARE_MEM_REQUEST = \"8GiB\"\n";

#[test]
fn the_next_daemon_keeps_the_defaults_tenants_began_with() {
    assert_eq!(limits(&[], [EIGHT, FOUR]), [Some(8 * GIB); 2]);
    assert_eq!(limits(&[], [FOUR, EIGHT]), [Some(4 * GIB); 2]);
    assert_eq!(limits(&[], [EIGHT, ""]), [Some(8 * GIB); 2]);
}

/// The events that a daemon tells of tenants that it did not restore, before that of a new tenant.
fn not_restored(folder: &Path) -> Vec<String> {
    let next = daemon_of(folder, "");
    drop(next.tenant("new", &[]));
    let mut command = next.command();
    let id = command.ask(&Control::Follow { past: 100 });
    let mut told = Vec::new();
    loop {
        match command.answer(id) {
            ControlReply::Event(record) if record.kind == "admitted" => break told,
            ControlReply::Event(record) if record.kind == "not-restored" => told.push(record.text),
            ControlReply::Event(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_registration_that_cannot_be_read_is_told_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(not_restored(folder.path()), [""; 0]);
    let file = folder.path().join("registered/torn.json");
    std::fs::write(&file, "{\"name\": \"to").unwrap();
    let told = not_restored(folder.path());
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("registered/torn.json"), "{told:?}");
    assert!(file.exists());
}

#[test]
fn defaults_that_a_tenants_limits_contradict_do_not_reach_it() {
    let own = [("GPUSHARE_MEM_LIMIT", "4GiB")];
    assert_eq!(limits(&own, ["", REQUEST]), [Some(4 * GIB); 2]);
}

#[test]
fn a_registration_without_defaults_is_read_under_the_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let first = daemon_of(folder.path(), EIGHT);
    let owner = first.tenant("one", &[]);
    drop((first, owner));
    let file = folder.path().join("registered/one.json");
    let mut kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    kept.as_object_mut().unwrap().remove("defaults").unwrap();
    std::fs::write(&file, kept.to_string()).unwrap();
    assert_eq!(limit(&daemon_of(folder.path(), FOUR), "one"), Some(4 * GIB));
    // From then on they are its own.
    assert_eq!(
        limit(&daemon_of(folder.path(), EIGHT), "one"),
        Some(4 * GIB)
    );
}

#[test]
fn reloaded_defaults_change_no_tenant_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = SettingsFile::new(EIGHT);
    let devices = FakeDevices::default();
    let daemon = Daemon::with_file(folder.path(), devices, settings(EIGHT), Some(file.reload()));
    let _owner = daemon.tenant("one", &[]);
    file.becomes(FOUR);
    daemon.devices.until_looked_at();
    let _other = daemon.tenant("two", &[]);
    assert_eq!(limit(&daemon, "two"), Some(4 * GIB), "it is reloaded");
    let set = Control::Set {
        tenant: "one".to_owned(),
        changes: vec![("GPUSHARE_PRIORITY".to_owned(), "5".to_owned())],
    };
    assert_eq!(daemon.asks(&set), ControlReply::Done);
    assert_eq!(limit(&daemon, "one"), Some(8 * GIB));
    let same = daemon.asks(&create("one", &[("GPUSHARE_PRIORITY", "5")]));
    assert!(matches!(same, ControlReply::Created { .. }), "{same:?}");
}

#[test]
fn a_request_is_restored_where_a_larger_reserve_leaves_less() {
    let folder = tempfile::tempdir().unwrap();
    let limit_and_request = |daemon: &Daemon| match daemon.asks(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => rows
            .iter()
            .find(|row| row.name == "one")
            .map(|row| (row.limit, row.request)),
        other => panic!("{other:?}"),
    };
    let own = [("GPUSHARE_MEM_LIMIT", "15GiB")];
    let first = daemon_of(folder.path(), "");
    let owner = first.tenant("one", &own);
    let before = limit_and_request(&first);
    assert_eq!(before, Some((15 * GIB, 15 * GIB)));
    drop((first, owner));
    let next = daemon_of(folder.path(), "reserve = \"2GiB\"");
    assert_eq!(limit_and_request(&next), before);
    let set = |changes: &[(&str, &str)]| {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let changes = changes.iter().map(pair).collect();
        let tenant = "one".to_owned();
        next.asks(&Control::Set { tenant, changes })
    };
    assert_eq!(set(&[("GPUSHARE_PRIORITY", "5")]), ControlReply::Done);
    let raised = set(&[("GPUSHARE_MEM_LIMIT", "16GiB")]);
    assert!(matches!(raised, ControlReply::Error(_)), "{raised:?}");
    let new = next.asks(&create("two", &own));
    assert!(matches!(new, ControlReply::Error(_)), "{new:?}");
}

/// A daemon that knows a tenant of two devices, of which a client lives if it is to, and the next
/// one that has one device only.
fn without_a_device(folder: &Path, lives: bool) -> (Daemon, Option<Client>) {
    let first = Daemon::with(folder, FakeDevices::two());
    let (owner, socket) = first.tenant("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let client = lives.then(|| Client::register(&socket));
    if lives {
        let file = folder.join("registered/one.json");
        until("its process is written down", || {
            let kept = std::fs::read_to_string(&file).unwrap();
            !kept.contains("\"members\":[]")
        });
    }
    drop((first, owner));
    let next = Daemon::start(folder);
    assert_eq!(limit(&next, "one"), None);
    (next, client)
}

fn is_stored(folder: &Path) -> bool {
    folder.join("registered/one.json").exists()
}

#[test]
fn a_tenant_of_a_missing_device_is_kept_for_a_daemon_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (next, client) = without_a_device(folder.path(), true);
    let mut wire = next.command();
    let id = wire.ask(&Control::Follow { past: 1024 });
    let told: ControlReply = wire.answer(id);
    let is_told = matches!(&told, ControlReply::Event(row) if row.kind == "not-restored");
    assert!(is_told, "{told:?}");
    drop(next);
    let last = Daemon::with(folder.path(), FakeDevices::two());
    assert_eq!(limit(&last, "one"), Some(4 * GIB));
    let socket = folder.path().join("sockets/one/gpushare.sock");
    assert!(matches!(
        client.unwrap().reconnect(&socket),
        Reply::Registered(_)
    ));
}

#[test]
fn its_name_is_taken_while_its_programs_run() {
    let folder = tempfile::tempdir().unwrap();
    let (next, client) = without_a_device(folder.path(), true);
    let again = create("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
    let refused = next.asks(&again);
    let pid = client.as_ref().unwrap().process.pid().to_string();
    let says = matches!(&refused, ControlReply::Error(error) if error.message.contains(&pid));
    assert!(says && is_stored(folder.path()), "{refused:?}");
    drop(client);
    // It queues until the recovery is over.
    let mut command = next.command();
    let id = command.ask(&again);
    let mut begun = command.answer(id);
    while matches!(begun, ControlReply::Queued { .. }) {
        begun = command.answer(id);
    }
    assert!(matches!(begun, ControlReply::Created { .. }), "{begun:?}");
}

#[test]
fn an_operator_forgets_it_by_an_end_or_by_deleting_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (next, _) = without_a_device(folder.path(), false);
    let end = Control::End {
        tenant: "one".to_owned(),
        kill: false,
    };
    assert_eq!(next.asks(&end), ControlReply::Done);
    assert!(!is_stored(folder.path()));
    assert!(matches!(next.asks(&end), ControlReply::Error(_)));
    drop(next);
    let (next, _client) = without_a_device(folder.path(), true);
    std::fs::remove_file(folder.path().join("registered/one.json")).unwrap();
    until("its name is free", || {
        let again = create("one", &[("GPUSHARE_MEM_LIMIT", "4GiB")]);
        matches!(next.asks(&again), ControlReply::Created { .. })
    });
}

#[test]
fn a_container_that_runs_and_is_forgotten_keeps_its_folder_until_its_end() {
    let mut before = Machine::new();
    let first = First::start(&group("a"));
    before
        .inject(&container_node::asks("a", "1GiB"), &first)
        .unwrap();
    let mut kept = before.made.pop().unwrap().1;
    kept.devices = vec![[7; 16]];
    let mut next = Machine::with(&Settings::default(), true);
    next.node.restore(NOW, &kept).unwrap_err();
    let orders = |machine: &mut Machine| {
        let effects = std::iter::from_fn(|| machine.node.poll_effect());
        let names = effects.filter_map(|effect| match effect {
            Effect::Forget { name } => Some(("forget", name)),
            Effect::SetAside { name } => Some(("set aside", name)),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    assert!(next.node.forget_unrestored("a"));
    next.node.tick(NOW);
    assert_eq!(orders(&mut next), [("set aside", "a".to_owned())]);
    assert_eq!(next.node.unrestored().count(), 0, "its name is free");
    assert!(!next.node.forget_unrestored("a") && !next.node.forget_unrestored(".a"));
    drop(first);
    next.node.tick(NOW);
    assert_eq!(orders(&mut next), [("forget", ".a".to_owned())]);
}

#[test]
fn a_container_that_cannot_be_restored_is_forgotten_once_it_has_ended() {
    let mut before = Machine::new();
    let first = First::start(&group("a"));
    before
        .inject(&container_node::asks("a", "1GiB"), &first)
        .unwrap();
    let mut kept = before.made.pop().unwrap().1;
    kept.devices = vec![[7; 16]];
    let forgets = |machine: &mut Machine| {
        let effects = std::iter::from_fn(|| machine.node.poll_effect());
        effects
            .filter(|effect| matches!(effect, Effect::Forget { .. }))
            .count()
    };
    let mut next = Machine::with(&Settings::default(), true);
    next.node.restore(NOW, &kept).unwrap_err();
    next.node.tick(NOW);
    assert_eq!(forgets(&mut next), 0);
    drop(first);
    next.node.tick(NOW);
    assert_eq!(forgets(&mut next), 1);
    let mut last = Machine::with(&Settings::default(), true);
    last.node.restore(NOW, &kept).unwrap_err();
    assert_eq!(forgets(&mut last), 1);
}

#[test]
fn a_container_of_a_class_that_is_forgotten_begins_anew() {
    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let first = First::start(&group(ID));
    let mut before = Machine::new();
    before
        .inject(&container_node::asks("half-0123", "1GiB"), &first)
        .unwrap();
    let mut kept = before.made.pop().unwrap().1;
    kept.devices = vec![[7; 16]];
    kept.container.as_mut().unwrap().class = Some("half".to_owned());
    let mut next = Machine::configured("[classes.half]\ndevices = [\"0\"]\n");
    next.node.restore(NOW, &kept).unwrap_err();
    let enters = |node: &mut Node| {
        let program = container_node::peer(container_node::ROOT, &group(ID));
        node.enter_class(NOW, ("half", false), &program)
    };
    let refused = enters(&mut next.node).unwrap_err();
    assert!(refused.message.contains("half-0123"), "{refused}");
    assert!(next.node.forget_unrestored("half-0123"));
    // Its folder is that of its class: there is nothing to set aside.
    let orders = std::iter::from_fn(|| next.node.poll_effect());
    let is_forget = |effect| matches!(effect, Effect::Forget { name } if name == "half-0123");
    assert!(orders.collect::<Vec<_>>().into_iter().any(is_forget));
    enters(&mut next.node).unwrap();
}

/// Whether the name is free of a tenant that was not restored, and of which this process was
/// written down, begun so many ticks later than it did: before and after the daemon has looked.
fn is_free(later: u64) -> [bool; 2] {
    let process = StandIn::start();
    let identity = Init::of(container_node::pidfd(process.pid()))
        .unwrap()
        .identity;
    let start = identity.start + later;
    let kept = serde_json::json!({
        "name": "one",
        "environment": [["GPUSHARE_MEM_LIMIT", "1GiB"]],
        "devices": [vec![7; 16]],
        "members": [{ "pid": identity.pid, "start": start }],
    });
    let kept = serde_json::from_value(kept).unwrap();
    let mut next = Machine::with(&Settings::default(), true);
    next.node.restore(NOW, &kept).unwrap_err();
    let wants = |node: &mut Node| {
        let asker = ConnId(9);
        node.command(NOW, asker, 1, &create("one", &[]));
        let mut told = None;
        while let Some(effect) = node.poll_effect() {
            match effect {
                Effect::Command { reply, .. } => told = Some(reply),
                Effect::Identify { process, pid, .. } => {
                    node.identified(NOW, process, Seen::of(pid));
                }
                _ => {}
            }
        }
        match told {
            Some(ControlReply::Error(error)) => {
                assert!(error.message.contains(&identity.pid.to_string()), "{error}");
                false
            }
            _ => true,
        }
    };
    [(); 2].map(|()| wants(&mut next.node))
}

#[test]
fn a_name_is_not_kept_for_another_process_that_has_the_pid() {
    assert_eq!(is_free(1), [false, true]);
    assert_eq!(is_free(0), [false, false]);
}
