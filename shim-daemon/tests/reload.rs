//! What a file that is read again may change, and what it may not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::file::SettingsFile;
use crate::support::{Daemon, FakeDevices};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use gpushared::config;
use gpushared::node::Settings;

/// By which memory of tenants that say nothing moves.
const MOVES: &str =
    "[defaults]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\nGPUSHARE_OVERSUBSCRIBE = \"swap\"\n";
/// A default that needs nothing.
const LIMIT: &str = "[defaults]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";
/// Host memory for what moves.
const HOST: &str = "[swap]\nhost = \"8GiB\"\n";
/// A class whose memory moves.
const CLASS: &str = "[classes.small]\nlimits = { GPUSHARE_PREEMPTIBLE = \"swap\" }\n";

/// The limit in GiB of a tenant without variables that comes after a daemon, started with the
/// first file, has read the second.
fn limit_after(first: &str, second: &str) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let file = SettingsFile::new(first);
    let settings = config::read(first, Settings::default()).unwrap();
    let devices = FakeDevices::default();
    let daemon = Daemon::with_file(folder.path(), devices, settings, Some(file.reload()));
    file.becomes(second);
    daemon.devices.until_looked_at();
    let _owner = daemon.tenant("one", &[]);
    match daemon.command().call(&Control::List) {
        ControlReply::Tenants(rows) => rows[0].limit / GIB,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reload_whose_defaults_need_a_restart_changes_nothing() {
    assert_eq!(limit_after("", &[HOST, MOVES].concat()), 16);
    assert_eq!(limit_after("", &[HOST, LIMIT, CLASS].concat()), 16);
}

#[test]
fn a_reload_whose_defaults_need_none_changes_them() {
    assert_eq!(limit_after("", &[HOST, LIMIT].concat()), 2);
    assert_eq!(limit_after(HOST, &[HOST, MOVES].concat()), 2);
}
