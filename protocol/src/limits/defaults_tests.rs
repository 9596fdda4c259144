//! A node's defaults: they hold where a tenant says nothing on the subject, device by device, in
//! whatever variables.

use super::*;
use crate::units::{GIB, Permille};

const UUID: [u8; 16] = [7; 16];
const UUID_LIMIT: &str = "GPUSHARE_MEM_LIMIT_GPU_07070707_0707_0707_0707_070707070707";
/// As a device of 16 GiB shows it: no limit.
const NONE: u64 = 0;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn read(own: Pairs<'_>, defaults: Pairs<'_>) -> Result<Limits, LimitError> {
    let pairs = |set: Pairs<'_>| -> Vec<(OsString, OsString)> {
        set.iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    Limits::from_env_over(pairs(own), pairs(defaults))
}

fn on(own: Pairs<'_>, defaults: Pairs<'_>, ordinal: u32) -> DeviceLimits {
    read(own, defaults)
        .and_then(|limits| limits.for_device(ordinal, &UUID, 16 * GIB))
        .unwrap_or_else(|error| panic!("{own:?} over {defaults:?}: {error}"))
}

/// Limit and request of device 0.
fn memory(own: Pairs<'_>, defaults: Pairs<'_>) -> (u64, u64) {
    let device = on(own, defaults, 0);
    (device.limit.unwrap_or(NONE), device.request)
}

/// Cap of device 0 in thousandths, 0 for none.
fn cap(own: Pairs<'_>, defaults: Pairs<'_>) -> u16 {
    on(own, defaults, 0).compute.limit.map_or(0, Permille::get)
}

const DEFAULT: Pairs<'_> = &[("GPUSHARE_MEM_LIMIT", "8GiB")];

#[test]
fn a_default_holds_where_a_tenant_says_nothing() {
    assert_eq!(memory(&[], DEFAULT), (8 * GIB, 8 * GIB));
    assert_eq!(memory(&[], &[]), (NONE, 0));
    assert_eq!(memory(&[("PATH", "/bin")], DEFAULT), (8 * GIB, 8 * GIB));
    // A value that switches an alias off sets no limit.
    for off in [
        ("CUDA_DEVICE_MEMORY_LIMIT", "0"),
        ("NVIDIA_GPU_MEMORY_LIMIT", ""),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""),
    ] {
        assert_eq!(memory(&[off], DEFAULT), (8 * GIB, 8 * GIB), "{off:?}");
    }
}

#[test]
fn a_tenants_own_limit_wins_over_a_default_in_every_grammar() {
    let defaults: [Pairs<'_>; 4] = [
        DEFAULT,
        &[("GPUSHARE_MEM_LIMIT_0", "8GiB")],
        &[(UUID_LIMIT, "8GiB")],
        &[("CUDA_DEVICE_MEMORY_LIMIT", "8g")],
    ];
    for own in [
        ("GPUSHARE_MEM_LIMIT", "2GiB"),
        ("GPUSHARE_MEM_LIMIT_0", "2GiB"),
        (UUID_LIMIT, "2GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "2g"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "2048"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"),
    ] {
        for default in defaults {
            let found = memory(&[own], default);
            assert_eq!(found, (2 * GIB, 2 * GIB), "{own:?} over {default:?}");
        }
    }
}

#[test]
fn each_device_takes_the_default_that_a_tenant_leaves_it() {
    for own in [
        ("GPUSHARE_MEM_LIMIT_0", "2GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "2g"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2G"),
    ] {
        assert_eq!(on(&[own], DEFAULT, 0).limit, Some(2 * GIB), "{own:?}");
        assert_eq!(on(&[own], DEFAULT, 1).limit, Some(8 * GIB), "{own:?}");
    }
}

#[test]
fn a_limit_and_a_request_are_two_subjects() {
    let request = ("GPUSHARE_MEM_REQUEST", "1GiB");
    assert_eq!(memory(&[request], DEFAULT), (8 * GIB, GIB));
    let alias = ("NVIDIA_GPU_MEMORY_REQUEST", "1024");
    assert_eq!(memory(&[alias], DEFAULT), (8 * GIB, GIB));
    let nothing = ("GPUSHARE_MEM_REQUEST", "0");
    assert_eq!(
        memory(&[nothing], DEFAULT),
        (8 * GIB, 0),
        "nothing is guaranteed"
    );
    assert_eq!(memory(&[nothing], &[request]), (NONE, 0));
    let own = ("CUDA_DEVICE_MEMORY_LIMIT", "2g");
    assert_eq!(memory(&[own], &[request]), (2 * GIB, GIB));
}

#[test]
fn a_request_above_the_limit_that_holds_is_refused_by_name() {
    for own in [
        ("GPUSHARE_MEM_REQUEST", "9GiB"),
        ("NVIDIA_GPU_MEMORY_REQUEST", "9216"),
    ] {
        let error = read(&[own], DEFAULT)
            .and_then(|limits| limits.for_device(0, &UUID, 16 * GIB))
            .unwrap_err()
            .to_string();
        assert!(error.contains(own.0), "{error}");
        assert!(error.contains("GPUSHARE_MEM_LIMIT=8GiB"), "{error}");
    }
}

#[test]
fn time_follows_the_same_rule() {
    let default: Pairs<'_> = &[("GPUSHARE_SM_LIMIT", "50")];
    assert_eq!(cap(&[], default), 500);
    assert_eq!(cap(&[("CUDA_DEVICE_SM_LIMIT", "0")], default), 500);
    assert_eq!(cap(&[("CUDA_DEVICE_SM_LIMIT", "20")], default), 200);
    assert_eq!(cap(&[("GPUSHARE_SM_LIMIT_0", "80")], default), 800);
    assert_eq!(cap(&[("GPUSHARE_SM_LIMIT", "100")], default), 0);
    assert_eq!(cap(&[("GPUSHARE_SM_LIMIT_1", "20")], default), 500);
}

#[test]
fn other_terms_are_taken_one_by_one() {
    let defaults: Pairs<'_> = &[
        ("GPUSHARE_PRIORITY", "100"),
        ("GPUSHARE_MEM_VIEW", "request"),
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
    ];
    let limits = read(&[("GPUSHARE_PRIORITY", "900")], defaults).unwrap();
    assert_eq!(limits.policy().priority, 900);
    assert_eq!(read(&[], defaults).unwrap().policy().priority, 100);
    let low = read(&[("CUDA_TASK_PRIORITY", "1")], defaults).unwrap();
    assert_eq!(low.policy().priority, 250, "HAMi's is a tenant's own word");
    assert_eq!(on(&[], defaults, 0).view_total, GIB);
    let own: Pairs<'_> = &[("GPUSHARE_MEM_VIEW", "limit")];
    assert_eq!(on(own, defaults, 0).view_total, 16 * GIB);
    // A view of a request that only the default makes.
    let own: Pairs<'_> = &[("GPUSHARE_MEM_VIEW", "request")];
    let request: Pairs<'_> = &[("GPUSHARE_MEM_REQUEST", "1GiB")];
    assert_eq!(on(own, request, 0).view_total, GIB);
    // HAMi's switch is a tenant's own word; a default does not take it back.
    let off: Pairs<'_> = &[("GPUSHARE_OVERSUBSCRIBE", "off")];
    let moves = |own, defaults| read(own, defaults).unwrap().policy().oversubscribe;
    assert_eq!(
        moves(&[("CUDA_OVERSUBSCRIBE", "true")], off),
        Oversubscribe::Swap
    );
    assert_eq!(
        moves(&[("CUDA_OVERSUBSCRIBE", "false")], off),
        Oversubscribe::Off
    );
    let swap: Pairs<'_> = &[("GPUSHARE_OVERSUBSCRIBE", "swap")];
    assert_eq!(
        (moves(&[], swap), moves(off, swap)),
        (Oversubscribe::Swap, Oversubscribe::Off)
    );
}

#[test]
fn the_text_tells_apart_what_holds_and_only_that() {
    let text = |own, defaults| read(own, defaults).unwrap().to_string();
    let own: Pairs<'_> = &[("CUDA_DEVICE_MEMORY_LIMIT", "2g")];
    assert_eq!(text(own, DEFAULT), text(own, &[]));
    assert_ne!(text(&[], DEFAULT), text(&[], &[]));
    assert_eq!(text(&[], DEFAULT), text(DEFAULT, &[]));
    let first: Pairs<'_> = &[("CUDA_DEVICE_MEMORY_LIMIT_0", "2g")];
    assert_ne!(text(first, DEFAULT), text(first, &[]));
    let cap: Pairs<'_> = &[("GPUSHARE_SM_LIMIT", "50")];
    let whole: Pairs<'_> = &[("GPUSHARE_SM_LIMIT_0", "100")];
    assert_ne!(text(whole, cap), text(&[], cap));
    assert_eq!(text(whole, &[]), text(&[], &[]));
}

#[test]
fn a_default_request_above_a_tenants_own_limit_is_that_limit() {
    let default: Pairs<'_> = &[("GPUSHARE_MEM_REQUEST", "8GiB")];
    for own in [
        ("GPUSHARE_MEM_LIMIT", "4GiB"),
        ("GPUSHARE_MEM_LIMIT", "25%"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "4g"),
    ] {
        assert_eq!(memory(&[own], default), (4 * GIB, 4 * GIB), "{own:?}");
    }
    let more = [("GPUSHARE_MEM_LIMIT", "12GiB")];
    assert_eq!(memory(&more, default), (12 * GIB, 8 * GIB));
    let part: Pairs<'_> = &[("GPUSHARE_SM_REQUEST", "50")];
    let time = |own: Pairs<'_>| {
        let compute = on(own, part, 0).compute;
        [compute.limit, compute.request].map(|part| part.map_or(0, Permille::get))
    };
    assert_eq!(time(&[("GPUSHARE_SM_LIMIT", "30")]), [300, 300]);
    assert_eq!(time(&[("GPUSHARE_SM_LIMIT", "60")]), [600, 500]);
}

#[test]
fn a_tenants_own_request_above_its_limit_or_the_defaults_is_refused() {
    let request = ("GPUSHARE_MEM_REQUEST", "9GiB");
    for (own, defaults) in [
        (&[request, ("GPUSHARE_MEM_LIMIT", "50%")][..], &[][..]),
        (&[request], DEFAULT),
        (&[], &[request, ("GPUSHARE_MEM_LIMIT", "50%")]),
    ] {
        let found = read(own, defaults).and_then(|limits| limits.for_device(0, &UUID, 16 * GIB));
        let error = found.expect_err("a request above its limit");
        assert_eq!(error.variable, "GPUSHARE_MEM_REQUEST", "{own:?}");
    }
}

#[test]
fn a_tenant_says_off_over_a_default_by_which_its_memory_moves() {
    use super::{Oversubscribe, Preemptible};
    let off = ("GPUSHARE_OVERSUBSCRIBE", "off");
    let swap = ("GPUSHARE_PREEMPTIBLE", "swap");
    let read = |own: Pairs<'_>, defaults: Pairs<'_>| {
        let limits = read(own, defaults)?;
        let policy = limits.policy();
        Ok::<_, LimitError>((policy.oversubscribe, policy.preemptible))
    };
    let found = read(&[off], &[swap]).expect("it asks for less");
    assert_eq!(found, (Oversubscribe::Off, Preemptible::Never));
    let found = read(&[], &[swap]).expect("the default holds");
    assert_eq!(found, (Oversubscribe::Swap, Preemptible::Swap));
    let kill = ("GPUSHARE_PREEMPTIBLE", "kill");
    let found = read(&[off], &[kill]).expect("it may be ended");
    assert_eq!(found, (Oversubscribe::Off, Preemptible::Kill));
    // One owner that says both contradicts itself.
    assert!(read(&[off, swap], &[]).is_err());
    assert!(read(&[], &[off, swap]).is_err());
}

#[test]
fn a_tenant_says_that_its_memory_moves_over_a_default_by_which_it_stays() {
    let off: Pairs<'_> = &[("GPUSHARE_OVERSUBSCRIBE", "off")];
    let moves = |own: Pairs<'_>| read(own, off).map(|limits| limits.policy().oversubscribe);
    let swap = ("GPUSHARE_PREEMPTIBLE", "swap");
    assert_eq!(moves(&[swap]), Ok(Oversubscribe::Swap));
    assert_eq!(moves(&[]), Ok(Oversubscribe::Off));
    assert_eq!(
        moves(&[("GPUSHARE_PREEMPTIBLE", "kill")]),
        Ok(Oversubscribe::Off)
    );
    // It moves others there, which its own memory does not have to.
    assert_eq!(
        moves(&[("GPUSHARE_ON_COLLISION", "swap")]),
        Ok(Oversubscribe::Off)
    );
    let both = [swap, ("GPUSHARE_OVERSUBSCRIBE", "off")];
    assert_eq!(moves(&both).unwrap_err().variable, swap.0);
}
