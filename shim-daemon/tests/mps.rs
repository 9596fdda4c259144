//! Clients of an MPS control daemon: they take no turns, hold nobody up, and are listed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use gpushare_protocol::wire::{Control, ControlReply, Cursor, Hello, Listing, Reply, Rows};
use support::{Client, Daemon};

/// Names of containers with MPS clients.
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
fn only_containers_with_mps_clients_are_listed_as_such() {
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
        let (_container, socket) = daemon.container(name, &[("GPUSHARE_MEM_REQUEST", "1MiB")]);
        let mut client = Client::register_with(&socket, capabilities);
        assert!(matches!(client.open(), Reply::Granted { .. }));
        clients.push(client);
    }
    assert_eq!(listed(&daemon), ["mps"]);
}
