//! A tenant that is admitted while a command asks the daemon for one list after the other.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use gpushare_client::Talk;
use gpushare_protocol::wire::{
    AskedRow, Control, ControlReply, Decoder, DeviceRow, Hello, Identity, Listing, MetricsRow,
    QueuedTenant, Rows, TenantRow, TenantStatusRow, decode, encode,
};
use gpushare_tests::{GIB, Home, schema};
use serde_json::Value;

const GPU: [u8; 16] = [7; 16];

/// The tenant in the lists, before or after its admission.
fn page(of: Listing, admitted: bool) -> Rows {
    let name = "late".to_owned();
    let queued = (!admitted).then(|| "waits".to_owned());
    match of {
        Listing::Tenants if admitted => Rows::Tenants(vec![TenantRow {
            name,
            device: GPU,
            request: GIB,
            limit: GIB,
            grant: 0,
            charged: 0,
            overhead: 0,
            limbo: 0,
            processes: Vec::new(),
        }]),
        Listing::TenantStatus => Rows::TenantStatus(vec![TenantStatusRow {
            name,
            owner: None,
            for_ms: 1,
            queued,
            asks: vec![AskedRow {
                device: GPU,
                request: GIB,
                limit: GIB,
            }],
        }]),
        Listing::Metrics if admitted => Rows::Metrics(vec![MetricsRow::Identity(Identity {
            name,
            owner: None,
            cgroup: None,
            age_ms: 1,
        })]),
        Listing::Metrics => Rows::Metrics(vec![MetricsRow::Queued(QueuedTenant {
            name,
            owner: None,
            for_ms: 1,
            limit: GIB,
            request: GIB,
            short: GIB,
        })]),
        Listing::Devices => Rows::Devices(vec![DeviceRow {
            uuid: GPU,
            name: "a GPU".to_owned(),
            capacity: 16 * GIB,
            reserve: 0,
            granted: 0,
            overhead: 0,
            limbo: 0,
            unmanaged: 0,
            capabilities: Vec::new(),
        }]),
        _ => Rows::Tenants(Vec::new()),
    }
}

/// Answers one connection. The tenant is admitted once so many lists were told that have it in
/// one of the two states.
fn answers(socket: &UnixStream, lists: usize) {
    let (mut decoder, mut buffer) = (Decoder::default(), [0; 4096]);
    let (mut told, mut frames) = (0, Vec::new());
    encode(0, &Hello::of_this_build(7), &mut frames).expect("a hello");
    let mut socket = socket;
    loop {
        let _ = socket.write_all(&frames);
        frames.clear();
        let bytes = socket.read(&mut buffer).unwrap_or(0);
        if bytes == 0 {
            return;
        }
        decoder.push(&buffer[..bytes]);
        while let Some((id, frame)) = decoder.next_frame().expect("frames") {
            let reply = match decode(id, &frame) {
                Ok(Control::Page { of, .. }) => {
                    let rows = page(of, told >= lists);
                    let has_it = [Listing::Tenants, Listing::TenantStatus, Listing::Metrics];
                    told += usize::from(has_it.contains(&of));
                    ControlReply::Page { rows, next: None }
                }
                // It ends the past of a follower.
                _ => continue,
            };
            encode(id, &reply, &mut frames).expect("an answer");
        }
    }
}

/// What a command prints while such a daemon admits its tenant after so many lists.
fn printed(arguments: &[&str], lists: usize) -> String {
    let home = Home::new("");
    let folder = home.folder().join("gpushare/d/gpu");
    fs::create_dir_all(&folder).expect("the folder is writable");
    let closed = fs::Permissions::from_mode(0o700);
    fs::set_permissions(home.folder().join("gpushare"), closed).expect("it is ours");
    let listener = UnixListener::bind(folder.join(gpushare_client::CONTROL)).expect("it is new");
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(move || answers(&socket, lists));
        }
    });
    drop(Talk::connect(&folder).expect("it greets"));
    let output = home.gpushare(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_tenant_that_is_admitted_between_two_lists_is_in_ps_once() {
    for (lists, queued) in [(0, false), (1, true), (9, true)] {
        let rows: Vec<Value> =
            serde_json::from_str(&printed(&["ps", "--json"], lists)).expect("rows");
        rows.iter().for_each(|row| schema::check("ps.json", row));
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row["name"].as_str(), !row["queued"].is_null()))
            .collect();
        assert_eq!(shown, [(Some("late"), queued)], "after {lists}");
    }
}

#[test]
fn a_tenant_that_is_admitted_between_two_lists_is_in_top_once() {
    for lists in [0, 1, 9] {
        let screen = printed(&["top", "--once"], lists);
        let lines = screen.lines().filter(|line| line.starts_with("late "));
        assert_eq!(lines.count(), 1, "after {lists}: {screen}");
    }
}
