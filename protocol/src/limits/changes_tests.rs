//! Changes of a tenant's variables: what is not changed keeps its effect.

use super::*;
use crate::units::{GIB, Permille};

const FIRST: [u8; 16] = [7; 16];
const SECOND: [u8; 16] = [8; 16];
const DEVICES: [[u8; 16]; 2] = [FIRST, SECOND];
const FIRST_LIMIT: &str = "GPUSHARE_MEM_LIMIT_GPU_07070707_0707_0707_0707_070707070707";

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn owned(pairs: Pairs<'_>) -> Vec<(String, String)> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(pair).collect()
}

/// The limits of a tenant with these variables after a change, over the node's defaults.
fn after(own: Pairs<'_>, change: Pairs<'_>, defaults: Pairs<'_>) -> [DeviceLimits; 2] {
    let os = |set: &[(String, String)]| -> Vec<(OsString, OsString)> {
        let pair = |(name, value): &(String, String)| (name.into(), value.into());
        set.iter().map(pair).collect()
    };
    let defaults = owned(defaults);
    let limits = changed(&owned(own), &defaults, &DEVICES, &owned(change))
        .and_then(|changed| Limits::from_env_over(os(&changed), os(&defaults)))
        .unwrap_or_else(|error| panic!("{own:?} after {change:?}: {error}"));
    [(0, FIRST), (1, SECOND)].map(|(ordinal, uuid)| {
        limits
            .for_device(ordinal, &uuid, 16 * GIB)
            .unwrap_or_else(|error| panic!("{own:?} after {change:?}: {error}"))
    })
}

/// Limit and request of each device in GiB; no limit is 0.
fn memory(own: Pairs<'_>, change: Pairs<'_>, defaults: Pairs<'_>) -> [(u64, u64); 2] {
    after(own, change, defaults).map(|on| (on.limit.unwrap_or(0) / GIB, on.request / GIB))
}

/// Cap and request of each device's time in thousandths; none is 0.
fn time(own: Pairs<'_>, change: Pairs<'_>) -> [(u16, u16); 2] {
    let part = |part: Option<Permille>| part.map_or(0, Permille::get);
    after(own, change, &[]).map(|on| (part(on.compute.limit), part(on.compute.request)))
}

#[test]
fn a_changed_request_leaves_an_alias_limit() {
    for alias in [
        ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "4096"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G,1=4G"),
    ] {
        let change: Pairs<'_> = &[("GPUSHARE_MEM_REQUEST", "1GiB")];
        assert_eq!(memory(&[alias], change, &[]), [(4, 1); 2], "{alias:?}");
        let defaults: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT", "8GiB")];
        assert_eq!(memory(&[alias], change, defaults), [(4, 1); 2], "{alias:?}");
    }
    for alias in [
        ("CUDA_DEVICE_SM_LIMIT", "30"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30"),
    ] {
        let change: Pairs<'_> = &[("GPUSHARE_SM_REQUEST", "20")];
        assert_eq!(time(&[alias], change), [(300, 200); 2], "{alias:?}");
    }
}

#[test]
fn a_changed_limit_takes_the_place_of_an_alias_and_leaves_its_request() {
    let own: Pairs<'_> = &[
        ("NVIDIA_GPU_MEMORY_LIMIT", "4096"),
        ("NVIDIA_GPU_MEMORY_REQUEST", "1024"),
    ];
    assert_eq!(
        memory(own, &[("GPUSHARE_MEM_LIMIT", "6GiB")], &[]),
        [(6, 1); 2]
    );
}

#[test]
fn an_alias_of_each_device_is_kept_for_that_device() {
    let own: Pairs<'_> = &[
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "4g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "8g"),
    ];
    let request: Pairs<'_> = &[("GPUSHARE_MEM_REQUEST", "1GiB")];
    assert_eq!(memory(own, request, &[]), [(4, 1), (8, 1)]);
    assert_eq!(
        memory(own, &[("GPUSHARE_MEM_LIMIT_1", "2GiB")], &[]),
        [(4, 4), (2, 2)]
    );
    // Where our own variables speak of a device already, an alias has no say of it.
    let own: Pairs<'_> = &[
        ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
        ("GPUSHARE_MEM_REQUEST_0", "3GiB"),
    ];
    assert_eq!(memory(own, request, &[]), [(0, 1), (4, 1)]);
}

#[test]
fn an_alias_is_rewritten_only_where_its_kind_changes() {
    let own = owned(&[("CUDA_DEVICE_MEMORY_LIMIT", "4g")]);
    let change = owned(&[("GPUSHARE_PRIORITY", "700")]);
    let mut expected = own.clone();
    expected.extend(change.clone());
    assert_eq!(changed(&own, &[], &DEVICES, &change).ok(), Some(expected));
}

#[test]
fn a_value_for_all_replaces_those_for_a_device() {
    let own: Pairs<'_> = &[
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ("GPUSHARE_MEM_LIMIT_1", "2GiB"),
        (FIRST_LIMIT, "3GiB"),
    ];
    assert_eq!(
        memory(own, &[("GPUSHARE_MEM_LIMIT", "5GiB")], &[]),
        [(5, 5); 2]
    );
    // In whatever order both are given.
    let both: Pairs<'_> = &[
        ("GPUSHARE_MEM_LIMIT_1", "6GiB"),
        ("GPUSHARE_MEM_LIMIT", "5GiB"),
    ];
    assert_eq!(memory(own, both, &[]), [(5, 5), (6, 6)]);
}

#[test]
fn a_value_for_a_device_replaces_its_other_name_and_no_other_device() {
    let own: Pairs<'_> = &[(FIRST_LIMIT, "3GiB"), ("GPUSHARE_MEM_LIMIT_1", "2GiB")];
    let change: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT_0", "1GiB")];
    assert_eq!(memory(own, change, &[]), [(1, 1), (2, 2)]);
    assert!(replaces("GPUSHARE_MEM_LIMIT_0", FIRST_LIMIT, &DEVICES));
    assert!(replaces(FIRST_LIMIT, "GPUSHARE_MEM_LIMIT_0", &DEVICES));
    assert!(!replaces("GPUSHARE_MEM_LIMIT_1", FIRST_LIMIT, &DEVICES));
    assert!(!replaces("GPUSHARE_MEM_LIMIT_0", FIRST_LIMIT, &[]));
    assert!(!replaces(
        "GPUSHARE_MEM_LIMIT_0",
        "GPUSHARE_MEM_LIMIT",
        &DEVICES
    ));
    assert!(!replaces(
        "GPUSHARE_MEM_REQUEST",
        "GPUSHARE_MEM_LIMIT",
        &DEVICES
    ));
}

#[test]
fn what_means_nothing_is_not_kept_and_what_means_something_is() {
    for name in ["", "HOME", "GPUSHARE_X_SERVICE_HOST", "GPUSHARE_TENANT"] {
        assert!(means_nothing(name), "{name}");
    }
    // A misspelt one is refused where limits are read, and not left out.
    for name in [
        "GPUSHARE_MEM_LIMIT_3",
        "CUDA_TASK_PRIORITY",
        "GPUSHARE_GAGN",
    ] {
        assert!(!means_nothing(name), "{name}");
    }
    let own = owned(&[("HOME", "/root"), ("GPUSHARE_GANG", "a"), ("", "")]);
    let change = owned(&[("GPUSHARE_PRIORITY", "700")]);
    let expected = owned(&[("GPUSHARE_GANG", "a"), ("GPUSHARE_PRIORITY", "700")]);
    assert_eq!(changed(&own, &[], &DEVICES, &change).ok(), Some(expected));
}

#[test]
fn of_changes_of_one_variable_the_last_counts() {
    let own: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT", "1GiB")];
    let change: Pairs<'_> = &[
        ("GPUSHARE_MEM_LIMIT", "5GiB"),
        ("GPUSHARE_PRIORITY", "300"),
        ("GPUSHARE_MEM_LIMIT", "6GiB"),
    ];
    assert_eq!(memory(own, change, &[]), [(6, 6); 2]);
    let both = changed(&owned(own), &[], &DEVICES, &owned(change)).ok();
    assert_eq!(both, Some(owned(&change[1..])));
}
