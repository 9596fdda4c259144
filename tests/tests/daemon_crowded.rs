//! A daemon with hundreds of tenants. Listings are longer than one message, and commands show all
//! rows. Older commands without paging get an error that says so, and current commands work with an
//! older daemon.

use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use gpushare_protocol::wire::{
    Control, ControlReply, Decoder, DeviceRow, Hello, TenantRow, decode, encode,
};
use gpushare_tests::{Daemon, Gpu, Home, Tenant};
use serde_json::Value;

const TENANTS: usize = 210;
const DEVICES: usize = 16;
/// How the tenants' names begin.
const LONG: &str = "a-tenant-with-a-long-name";

fn name(at: usize) -> String {
    format!("{LONG:-<60}{at:04}")
}

/// A daemon with that many tenants, and a user whose commands find it.
fn crowded() -> (Daemon, Vec<Tenant>, Home) {
    let daemon = Daemon::start(&Gpu::new(&format!("count={DEVICES}")));
    let tenants = (0..TENANTS).map(|at| daemon.tenant(&name(at), &[]));
    let tenants = tenants.collect();
    let home = Home::new("");
    let own = home.folder().join("gpushare/d");
    std::fs::create_dir_all(&own).expect("the folder is writable");
    let mut closed = std::fs::metadata(home.folder())
        .expect("it is there")
        .permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut closed, 0o700);
    std::fs::set_permissions(home.folder().join("gpushare"), closed).expect("it is ours");
    let control = daemon.control();
    let folder = control.parent().expect("it lies in a folder");
    symlink(folder, own.join("gpu")).expect("the folder is writable");
    (daemon, tenants, home)
}

#[test]
fn ps_and_devices_show_all_of_hundreds_of_tenants() {
    let (daemon, _tenants, home) = crowded();
    let rows = home.ps();
    assert_eq!(rows.len(), TENANTS * DEVICES);
    let bytes: usize = rows.iter().map(|row| row["name"].to_string().len()).sum();
    assert!(bytes > 200 << 10, "longer than a message: {bytes}");
    for at in 0..TENANTS {
        let own = rows.iter().filter(|row| row["name"] == name(at).as_str());
        let mut devices: Vec<_> = own.map(|row| row["device"].to_string()).collect();
        devices.sort();
        devices.dedup();
        assert_eq!(devices.len(), DEVICES, "tenant {at}");
    }
    assert!(rows.iter().all(|row| row["time"].is_object()));
    // Processes are below their tenants, and indented. GPUs that one never used are a number.
    for (arguments, rows) in [(&["ps", "--all"][..], DEVICES), (&["ps"], 1)] {
        let table = home.gpushare(arguments);
        let table = String::from_utf8_lossy(&table.stdout);
        let lines = table.lines().filter(|line| !line.starts_with(' ')).count();
        assert_eq!(lines, 1 + TENANTS * rows, "{arguments:?}");
        let more = format!("{} more GPUs without use", DEVICES - 1);
        assert_eq!(
            table.matches(&more).count(),
            TENANTS * (DEVICES - rows) / (DEVICES - 1)
        );
    }
    let devices = home.gpushare(&["devices", "--json"]);
    let devices: Vec<Value> = serde_json::from_slice(&devices.stdout).expect("a list");
    assert_eq!(devices.len(), DEVICES);
    let events = home.gpushare(&["events", "--json"]);
    let admitted = String::from_utf8_lossy(&events.stdout)
        .lines()
        .filter(|line| line.contains("\"admitted\"") && line.contains(LONG))
        .count();
    assert_eq!(admitted, TENANTS);

    // A query of a command that does not know pages.
    let mut old = daemon.commands();
    match old.ask(&Control::List) {
        ControlReply::Error(error) => assert!(error.message.contains("too long"), "{error:?}"),
        other => panic!("{other:?}"),
    }
    let reply = old.ask(&Control::Devices);
    assert!(matches!(reply, ControlReply::Devices(_)), "it is served on");
}

fn say<T: serde::Serialize>(mut socket: &UnixStream, id: u32, message: &T) -> Option<()> {
    let mut bytes = Vec::new();
    encode(id, message, &mut bytes).ok()?;
    std::io::Write::write_all(&mut socket, &bytes).ok()
}

/// A daemon that does not know pages, as far as read-only commands can tell.
fn answer(socket: &UnixStream, asked: &Mutex<Vec<Control>>) -> Option<()> {
    let mut decoder = Decoder::default();
    loop {
        let Some((id, body)) = decoder.next_frame().ok()? else {
            let mut bytes = [0; 4096];
            let read = std::io::Read::read(&mut &*socket, &mut bytes).ok()?;
            (read > 0).then_some(())?;
            decoder.push(&bytes[..read]);
            continue;
        };
        if id == 0 {
            let hello = Hello {
                minor: 2,
                ..Hello::of_this_build(7)
            };
            say(socket, id, &hello)?;
            continue;
        }
        let request: Control = decode(id, &body).ok()?;
        asked
            .lock()
            .expect("no thread panicked")
            .push(request.clone());
        let reply = match request {
            Control::List => ControlReply::Tenants(vec![TenantRow {
                name: "old".to_owned(),
                device: [7; 16],
                request: 1,
                limit: 2,
                grant: 0,
                charged: 0,
                overhead: 0,
                limbo: 0,
                processes: vec![],
            }]),
            Control::Devices => ControlReply::Devices(vec![DeviceRow {
                uuid: [7; 16],
                name: "Old".to_owned(),
                capacity: 1 << 30,
                reserve: 0,
                granted: 0,
                overhead: 0,
                limbo: 0,
                unmanaged: 0,
                capabilities: vec![],
            }]),
            Control::Shares => ControlReply::Shares(vec![]),
            Control::Ends => ControlReply::Ends(vec![]),
            _ => ControlReply::Done,
        };
        say(socket, id, &reply)?;
    }
}

#[test]
fn commands_work_with_a_daemon_without_paging() {
    let home = Home::new("");
    let folder = home.folder().join("gpushare/d/gpu");
    std::fs::create_dir_all(&folder).unwrap();
    let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(home.folder().join("gpushare"), closed).unwrap();
    let listener = UnixListener::bind(folder.join("control.sock")).unwrap();
    let asked = Arc::<Mutex<Vec<Control>>>::default();
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            answer(&socket, &notes);
        }
    });
    let rows = home.ps();
    assert_eq!((rows.len(), &rows[0]["name"]), (1, &"old".into()));
    let devices = home.gpushare(&["devices", "--json"]);
    assert!(String::from_utf8_lossy(&devices.stdout).contains("Old"));
    let asked = asked.lock().unwrap();
    let pages = asked
        .iter()
        .filter(|one| matches!(one, Control::Page { .. }));
    assert_eq!(pages.count(), 0, "{asked:?}");
    assert!(asked.contains(&Control::List) && asked.contains(&Control::Ends));
}
