//! What a file that is read again may change, and what it may not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::file::SettingsFile;
use crate::support::gate::Gated;
use crate::support::{Daemon, FakeDevices, create};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use gpushared::config;
use gpushared::node::Settings;
use tempfile::TempDir;

/// By which memory of tenants that say nothing moves.
const MOVES: &str =
    "[defaults]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\nGPUSHARE_OVERSUBSCRIBE = \"swap\"\n";
/// A default that needs nothing.
const LIMIT: &str = "[defaults]\nGPUSHARE_MEM_LIMIT = \"2GiB\"\n";
/// Host memory for what moves.
const HOST: &str = "[swap]\nhost = \"8GiB\"\n";
/// A class whose memory moves.
const CLASS: &str = "[classes.small]\nlimits = { GPUSHARE_PREEMPTIBLE = \"swap\" }\n";

/// A daemon that was started with the first file and has read the second, and its folder.
fn reloaded(first: &str, second: &str) -> (TempDir, Daemon) {
    let folder = tempfile::tempdir().unwrap();
    let file = SettingsFile::new(first);
    let settings = config::read(first, Settings::default()).unwrap();
    let devices = FakeDevices::default();
    let daemon = Daemon::with_file(folder.path(), devices, settings, Some(file.reload()));
    file.becomes(second);
    daemon.devices.until_looked_at();
    (folder, daemon)
}

/// The limit in GiB of a tenant without variables that comes after a daemon, started with the
/// first file, has read the second.
fn limit_after(first: &str, second: &str) -> u64 {
    let (_folder, daemon) = reloaded(first, second);
    let _owner = daemon.tenant("one", &[]);
    match daemon.command().call(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => rows[0].limit / GIB,
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

/// How long the gates of two tenants are without work before they say so, in nanoseconds: before
/// and after a daemon with these settings has read them again.
fn idle_after(settings: &str) -> [[u64; 2]; 2] {
    let folder = tempfile::tempdir().unwrap();
    let file = SettingsFile::new(settings);
    let read = config::read(settings, Settings::default()).unwrap();
    let devices = FakeDevices::default();
    let daemon = Daemon::with_file(folder.path(), devices, read, Some(file.reload()));
    let tenants = ["one", "two"].map(|name| daemon.tenant(name, &[("GPUSHARE_MEM_LIMIT", "2GiB")]));
    let gates = [0, 1].map(|at: usize| Gated::join(&tenants[at].1));
    let shown = || {
        daemon.devices.until_looked_at();
        gates.each_ref().map(|gate| gate.turn().idle_after)
    };
    let before = shown();
    file.becomes(settings);
    [before, shown()]
}

#[test]
fn tenants_that_share_are_idle_as_late_after_a_reload_as_before() {
    let shown = idle_after("[compute]\nsharing = \"together\"");
    assert_eq!(shown, [[20_000_000; 2]; 2]);
}

#[test]
fn tenants_that_take_turns_are_idle_as_early_as_their_libraries_say() {
    let shown = idle_after("[compute]\nsharing = \"turns\"");
    assert_eq!(shown, [[0; 2]; 2]);
}

/// Why a tenant may not swap under a daemon that was started with the first file and has read the
/// second.
fn no_swap_after(first: &str, second: &str) -> String {
    let (_folder, daemon) = reloaded(first, second);
    let swaps = create("one", &[("GPUSHARE_OVERSUBSCRIBE", "swap")]);
    match daemon.command().call(&swaps) {
        ControlReply::Error(error) => error.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn host_memory_that_a_reload_brings_is_told_to_need_a_restart() {
    let told = no_swap_after("", HOST);
    assert!(told.contains("[swap] needs a restart"), "{told}");
    let told = no_swap_after("", LIMIT);
    assert!(told.contains("have no [swap] host"), "{told}");
}
