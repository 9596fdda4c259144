//! Clients of an MPS control daemon: they take no turns, delay no other tenant, and are listed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Client, Daemon};
use gpushare_protocol::wire::{
    Control, ControlReply, Cursor, ErrorCode, Hello, Listing, Reply, Rows,
};

/// Names of tenants with MPS clients.
fn listed(daemon: &Daemon) -> Vec<String> {
    let ask = Control::Page {
        of: Listing::MpsClients,
        from: Cursor::default(),
    };
    match daemon.command().call(&ask) {
        ControlReply::Page {
            rows: Rows::MpsClients(names),
            next: None,
        } => names,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_tenants_with_mps_clients_are_listed_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let mut clients = Vec::new();
    // A process with a gate is none, whatever else it says.
    for (name, capabilities) in [
        ("mps", Hello::MPS),
        ("gated", Hello::GATED),
        ("both", Hello::GATED | Hello::MPS),
        ("old", 0),
    ] {
        let (_tenant, socket) = daemon.tenant(name, &[("GPUSHARE_MEM_REQUEST", "1MiB")]);
        let mut client = Client::register_with(&socket, capabilities);
        assert!(matches!(client.open(), Reply::Granted { .. }));
        clients.push(client);
    }
    assert_eq!(listed(&daemon), ["mps"]);
}

#[test]
fn what_mps_keeps_from_the_start_is_not_changed_by_set() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let set = |tenant: &str, variable: &str, value: &str| {
        let changes = vec![(variable.to_owned(), value.to_owned())];
        let tenant = tenant.to_owned();
        daemon.command().call(&Control::Set { tenant, changes })
    };
    let memory = [
        ("GPUSHARE_MEM_REQUEST", "1MiB"),
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
    ];
    let mut clients = Vec::new();
    for (name, capabilities) in [("mps", Hello::MPS), ("gated", Hello::GATED)] {
        let (_tenant, socket) = daemon.tenant(name, &memory);
        clients.push(Client::register_with(&socket, capabilities));
        let done = set(name, "GPUSHARE_MEM_LIMIT", "2GiB");
        assert!(matches!(done, ControlReply::Done), "{done:?}");
    }
    for variable in [
        "GPUSHARE_SM_LIMIT",
        "GPUSHARE_SM_REQUEST",
        "GPUSHARE_SM_LIMIT_0",
    ] {
        let ControlReply::Error(refused) = set("mps", variable, "30") else {
            panic!("{variable} is refused")
        };
        assert_eq!(refused.code, ErrorCode::BadLimits);
        let said = refused.message;
        assert!(said.starts_with(variable) && said.contains("MPS"), "{said}");
        let done = set("gated", variable, "30");
        assert!(matches!(done, ControlReply::Done), "{done:?}");
    }
}
