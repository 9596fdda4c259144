//! A node's `[defaults]` apply to variables that a tenant leaves unset, whichever variables it
//! sets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Daemon, FakeDevices};
use gpushare_protocol::units::GIB;
use gpushare_protocol::wire::*;
use gpushared::node::Settings;

/// The limit of a tenant with these variables where the node's default is 8 GiB.
fn limit(environment: &[(&str, &str)]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        defaults: vec![("GPUSHARE_MEM_LIMIT".to_owned(), "8GiB".to_owned())],
        ..Settings::default()
    };
    let daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), settings);
    let _owner = daemon.tenant("one", environment);
    let mut command = daemon.command();
    let id = command.ask(&Listing::Tenants.first());
    match command.answer::<ControlReply>(id) {
        ControlReply::Page {
            rows: Rows::Tenants(rows),
            ..
        } => rows[0].limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_default_holds_for_a_tenant_that_says_nothing() {
    assert_eq!(limit(&[]), 8 * GIB);
    assert_eq!(limit(&[("GPUSHARE_MEM_REQUEST", "1GiB")]), 8 * GIB);
}

#[test]
fn a_default_does_not_raise_what_a_tenant_says_in_another_grammar() {
    for own in [
        ("GPUSHARE_MEM_LIMIT", "2GiB"),
        ("GPUSHARE_MEM_LIMIT_0", "2GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "2g"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "2048"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"),
    ] {
        assert_eq!(limit(&[own]), 2 * GIB, "{own:?}");
    }
}
