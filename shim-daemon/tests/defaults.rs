//! A node's `[defaults]` apply to variables that a tenant leaves unset, whichever variables it
//! sets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Daemon, FakeDevices, create};
use gpushare_protocol::units::{GIB, MIB};
use gpushare_protocol::wire::*;
use gpushared::node::Settings;

/// The row of a tenant with these variables, or its refusal, where the node has this default and a
/// GPU of 16 GiB.
fn row(default: (&str, &str), environment: &[(&str, &str)]) -> Result<TenantRow, String> {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        defaults: vec![(default.0.to_owned(), default.1.to_owned())],
        ..Settings::default()
    };
    let daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), settings);
    let mut owner = daemon.command();
    if let ControlReply::Error(error) = owner.call(&create("one", environment)) {
        return Err(error.message);
    }
    match daemon.command().call(&Listing::Tenants.first()) {
        ControlReply::Page {
            rows: Rows::Tenants(mut rows),
            ..
        } => Ok(rows.remove(0)),
        other => panic!("{other:?}"),
    }
}

/// The limit of a tenant with these variables where the node's default is 8 GiB.
fn limit(environment: &[(&str, &str)]) -> u64 {
    row(("GPUSHARE_MEM_LIMIT", "8GiB"), environment)
        .unwrap()
        .limit
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

/// The rest of a GPU of 16 GiB beside a context that is not measured yet.
const BESIDE_A_CONTEXT: u64 = 16 * GIB - 512 * MIB;

#[test]
fn a_default_above_a_gpu_is_guaranteed_beside_its_context() {
    for default in [
        ("GPUSHARE_MEM_LIMIT", "16GiB"),
        ("GPUSHARE_MEM_LIMIT", "24GiB"),
        ("GPUSHARE_MEM_LIMIT", "15.9GiB"),
        ("GPUSHARE_MEM_REQUEST", "16GiB"),
        ("GPUSHARE_MEM_REQUEST", "24GiB"),
    ] {
        let row = row(default, &[]).unwrap_or_else(|why| panic!("{default:?}: {why}"));
        assert_eq!(row.request, BESIDE_A_CONTEXT, "{default:?}");
    }
    let below = row(("GPUSHARE_MEM_LIMIT", "15GiB"), &[]).unwrap();
    assert_eq!(below.request, 15 * GIB);
}

#[test]
fn a_tenants_own_amount_above_what_a_gpu_can_guarantee_is_refused() {
    for own in [
        ("GPUSHARE_MEM_LIMIT", "16GiB"),
        ("GPUSHARE_MEM_REQUEST", "16GiB"),
    ] {
        let why = row(("GPUSHARE_PRIORITY", "400"), &[own]).unwrap_err();
        assert!(why.contains("can guarantee at most"), "{why}");
    }
    // Under a default of as much, too: it is the tenant that asks.
    let own = [("CUDA_DEVICE_MEMORY_LIMIT", "16g")];
    row(("GPUSHARE_MEM_LIMIT", "16GiB"), &own).unwrap_err();
}
