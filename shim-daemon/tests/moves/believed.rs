//! What processes say of their host memory takes the node's budget only as far as a previous daemon
//! could have given it.

use super::*;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd};

const OFF: (&str, &str) = ("GPUSHARE_OVERSUBSCRIBE", "off");

/// The host memory that is given, in MiB.
fn given(daemon: &Daemon) -> u64 {
    let page = daemon.command().call(&Control::Page {
        of: Listing::Swaps,
        from: Cursor::default(),
    });
    let ControlReply::Page {
        rows: Rows::Swaps(rows),
        ..
    } = page
    else {
        panic!("{page:?}")
    };
    match &rows[0] {
        SwapRow::Room(room) => room.host_used / MIB,
        other => panic!("{other:?}"),
    }
}

/// A process says that it has so much host memory, and has been heard.
fn claims(client: &mut Client, host: u64) {
    let state = Request::Residency(Residency {
        device_index: 0,
        epoch: 0,
        place: Place::In,
        movable: 0,
        away: 0,
        host,
        residue: Residue::default(),
    });
    client.wire.ask(&state);
    client.free(0);
}

/// Asks for 2 MiB of host memory.
fn asks(client: &mut Client) -> Reply {
    client.wire.call(&Request::HostRange {
        device_index: 0,
        bytes: 2 * MIB,
    })
}

#[test]
fn a_process_of_this_daemon_has_no_host_memory_but_what_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 1);
    let (_off, socket) = daemon.tenant("stays", &[LIMITS[0], OFF]);
    let mut stays = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(stays.open(), Reply::Granted { .. }));
    let (mut liar, _liars) = mover(&daemon, "liar", Hello::MOVABLE);
    let (mut one, _ones) = mover(&daemon, "one", Hello::MOVABLE);
    for client in [&mut stays, &mut liar.client] {
        claims(client, u64::MAX);
        assert_eq!(given(&daemon), 0);
    }
    let reply = asks(&mut one.client);
    assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    assert_eq!(given(&daemon), 2);
}

#[test]
fn a_tenant_whose_memory_stays_is_given_no_host_memory() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = daemon(folder.path(), 1);
    let (_off, socket) = daemon.tenant("stays", &[LIMITS[0], OFF]);
    let mut stays = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(stays.open(), Reply::Granted { .. }));
    stays.grow(0, 2 * GIB);
    assert_eq!(asks(&mut stays), Reply::Refused(Refusal::NoMemory));
}

/// A tenant with a limit of 256 MiB, and with 64 MiB of host memory, outlives its daemon.
fn outlives(folder: &Path) -> (Daemon, Client) {
    let first = daemon(folder, 4);
    let limits = [("GPUSHARE_MEM_LIMIT", "256MiB"), LIMITS[1]];
    let (_command, socket) = first.tenant("one", &limits);
    let mut one = Client::register_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(one.open(), Reply::Granted { .. }));
    one.grow(0, 256 * MIB);
    one.charge(256 * MIB);
    let range = Request::HostRange {
        device_index: 0,
        bytes: 64 * MIB,
    };
    let reply: Reply = one.wire.call(&range);
    assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    let file = one.wire.descriptors.pop().unwrap();
    drop(first);
    let next = daemon(folder, 4);
    let reply = one.reconnect_with(&socket, Hello::GATED | Hello::MOVABLE);
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    one.wire.descriptors.push(file);
    (next, one)
}

#[test]
fn after_a_restart_a_process_is_believed_what_its_limit_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut client) = outlives(folder.path());
    for (said, counted) in [(64 * MIB, 64), (u64::MAX, 256 + 64 + 64), (0, 0)] {
        claims(&mut client, said);
        assert_eq!(given(&daemon), counted, "{said} said");
    }
}

#[test]
fn after_a_restart_a_presented_memory_file_shows_what_is_true() {
    let folder = tempfile::tempdir().unwrap();
    let (daemon, mut client) = outlives(folder.path());
    claims(&mut client, u64::MAX);
    let file = client.wire.descriptors.pop().unwrap();
    let mut frame = Vec::new();
    encode(1000, &Request::HostMemory, &mut frame).unwrap();
    sendmsg::<()>(
        client.wire.socket.as_raw_fd(),
        &[IoSlice::new(&frame)],
        &[ControlMessage::ScmRights(&[file.as_fd().as_raw_fd()])],
        MsgFlags::empty(),
        None,
    )
    .unwrap();
    claims(&mut client, u64::MAX);
    assert_eq!(given(&daemon), 64);
    let reply = asks(&mut client);
    assert!(matches!(reply, Reply::HostRange { .. }), "{reply:?}");
    claims(&mut client, u64::MAX);
    assert_eq!(given(&daemon), 64 + 2);
}
