//! A daemon with hundreds of tenants. Listings are longer than one message, and commands show all
//! rows.

use std::os::unix::fs::symlink;

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
    let (_daemon, _tenants, home) = crowded();
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
}
