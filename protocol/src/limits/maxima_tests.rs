//! A node's maxima, against tenants' values in every grammar.

use super::{LimitError, Limits, Maxima};
use crate::units::{GIB, Permille};
use std::ffi::OsString;
use std::time::Duration;

const CAPACITY: u64 = 16 * GIB;
const UUID: [u8; 16] = *b"one GPU, 16 GiB.";

fn pairs(set: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    let pair = |(name, value): &(&str, &str)| (name.into(), value.into());
    set.iter().map(pair).collect()
}

fn under(maxima: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<Limits, LimitError> {
    let maxima = Maxima::read(pairs(maxima))?;
    let limits = Limits::from_env_under(pairs(environment), [], maxima)?;
    limits.for_device(0, &UUID, CAPACITY)?;
    Ok(limits)
}

fn memory(maxima: &[(&str, &str)], environment: &[(&str, &str)]) -> (Option<u64>, u64, u64) {
    let limits = under(maxima, environment).expect("it asks for no more than it may");
    let held = limits.for_device(0, &UUID, CAPACITY).expect("as before");
    (held.limit, held.request, held.view_total)
}

const SMALL: (&str, &str) = ("GPUSHARE_MEM_LIMIT", "8GiB");

#[test]
fn who_asks_for_more_memory_is_refused_in_whatever_grammar() {
    for (name, value) in [
        ("GPUSHARE_MEM_LIMIT", "8.5GiB"),
        ("GPUSHARE_MEM_LIMIT", "60%"),
        ("GPUSHARE_MEM_LIMIT_0", "16GiB"),
        ("GPUSHARE_MEM_REQUEST", "9GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "9g"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "9g"),
        ("NVIDIA_GPU_MEMORY_LIMIT", "9000"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=9G"),
    ] {
        let error = under(&[SMALL], &[(name, value)]).expect_err(name);
        let text = error.to_string();
        let words = [name, value, "at most 8GiB"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn who_asks_for_no_more_gets_what_was_asked_for() {
    for (name, value) in [
        ("GPUSHARE_MEM_LIMIT", "8GiB"),
        ("GPUSHARE_MEM_LIMIT", "50%"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "8g"),
    ] {
        let held = memory(&[SMALL], &[(name, value)]);
        assert_eq!(held, (Some(8 * GIB), 8 * GIB, 8 * GIB), "{name}={value}");
    }
}

#[test]
fn who_says_nothing_may_use_the_maximum_and_is_guaranteed_nothing() {
    assert_eq!(memory(&[SMALL], &[]), (Some(8 * GIB), 0, 8 * GIB));
    assert_eq!(
        memory(&[SMALL], &[("CUDA_DEVICE_MEMORY_LIMIT", "0")]),
        (Some(8 * GIB), 0, 8 * GIB),
        "no limit in its own grammar"
    );
    let asked = [("GPUSHARE_MEM_REQUEST", "2GiB")];
    assert_eq!(memory(&[SMALL], &asked), (Some(8 * GIB), 2 * GIB, 8 * GIB));
}

#[test]
fn a_limit_alone_is_guaranteed_no_further_than_requests_may_be() {
    let most = [("GPUSHARE_MEM_REQUEST", "4GiB")];
    let limit = ("GPUSHARE_MEM_LIMIT", "12GiB");
    assert_eq!(memory(&most, &[limit]), (Some(12 * GIB), 4 * GIB, 12 * GIB));
    let error = under(&most, &[limit, ("GPUSHARE_MEM_REQUEST", "5GiB")]);
    assert_eq!(error.expect_err("more").variable, "GPUSHARE_MEM_REQUEST");
}

#[test]
fn a_devices_own_maximum_wins_over_that_of_all() {
    for mig in [false, true] {
        let own = crate::uuid::Uuid(UUID).text(mig).replace('-', "_");
        let own = format!("GPUSHARE_MEM_LIMIT_{own}");
        let maxima = [SMALL, (own.as_str(), "2GiB")];
        assert_eq!(memory(&maxima, &[]).0, Some(2 * GIB), "{own}");
        let asked = [("GPUSHARE_MEM_LIMIT", "4GiB")];
        assert!(under(&maxima, &asked).is_err());
        let larger = [SMALL, (own.as_str(), "12GiB")];
        assert_eq!(
            memory(&larger, &[("GPUSHARE_MEM_LIMIT", "10GiB")]).1,
            10 * GIB
        );
    }
}

#[test]
fn a_share_of_time_has_its_maxima_too() {
    let most = [("GPUSHARE_SM_LIMIT", "50"), ("GPUSHARE_SM_REQUEST", "30")];
    let held = |set: &[(&str, &str)]| {
        let limits = under(&most, set)?;
        Ok::<_, LimitError>(limits.for_device(0, &UUID, CAPACITY)?.compute)
    };
    let capped = Permille::new(500);
    assert_eq!(held(&[]).expect("nothing is asked").limit, capped);
    let off = held(&[("CUDA_DEVICE_SM_LIMIT", "0")]);
    assert_eq!(off.expect("off is nothing said").limit, capped);
    for (name, value) in [
        ("GPUSHARE_SM_LIMIT", "100"),
        ("GPUSHARE_SM_LIMIT_0", "51"),
        ("CUDA_DEVICE_SM_LIMIT", "80"),
        ("GPUSHARE_SM_REQUEST", "31"),
    ] {
        let error = held(&[(name, value)]).expect_err(name);
        assert_eq!(
            (error.variable.as_str(), error.value.as_str()),
            (name, value)
        );
    }
}

#[test]
fn defaults_give_way_to_a_maximum_and_asking_for_more_does_not() {
    let most = [
        ("GPUSHARE_PRIORITY", "300"),
        ("GPUSHARE_RUN_LIMIT", "8h"),
        ("GPUSHARE_IDLE_END", "90s"),
    ];
    let silent = under(&most, &[]).expect("nothing is asked");
    let policy = silent.policy();
    assert_eq!(policy.priority, 300);
    assert_eq!(policy.run_limit, Some(Duration::from_secs(8 * 3600)));
    assert_eq!(policy.idle_end, Some(Duration::from_secs(90)));
    let less = [("GPUSHARE_PRIORITY", "100"), ("GPUSHARE_RUN_LIMIT", "1h")];
    let less = under(&most, &less).expect("less is asked");
    assert_eq!(less.policy().priority, 100);
    assert_eq!(less.policy().run_limit, Some(Duration::from_secs(3600)));
    for (name, value, told) in [
        ("GPUSHARE_PRIORITY", "500", "at most 300"),
        ("GPUSHARE_RUN_LIMIT", "off", "at most 8h"),
        ("GPUSHARE_RUN_LIMIT", "9h", "at most 8h"),
        ("GPUSHARE_IDLE_END", "2m", "at most 90s"),
    ] {
        let text = under(&most, &[(name, value)]).expect_err(name).to_string();
        let words = [name, value, told];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

#[test]
fn what_can_have_no_maximum_is_refused_by_name() {
    for (name, value) in [
        ("GPUSHARE_MEM_LIMIT_0", "8GiB"),
        ("GPUSHARE_MEM_LIMITS", "8GiB"),
        ("GPUSHARE_WAIT_TIMEOUT", "8s"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "8g"),
        ("GPUSHARE_RUN_LIMIT", "off"),
        ("GPUSHARE_PRIORITY_GPU_1", "1"),
        ("GPUSHARE_MEM_LIMIT_MIG_1", "8GiB"),
        ("GPUSHARE_MEM_LIMIT", "much"),
    ] {
        let error = Maxima::read(pairs(&[(name, value)])).expect_err(name);
        assert_eq!(
            (error.variable.as_str(), error.value.as_str()),
            (name, value)
        );
    }
}

/// A node's `defaults`, of which a file that has them was accepted, under its maxima.
fn beside(maxima: &[(&str, &str)], defaults: &[(&str, &str)]) -> Result<Limits, LimitError> {
    let maxima = Maxima::read(pairs(maxima))?;
    Limits::from_env_under([], pairs(defaults), maxima)
}

#[test]
fn a_default_above_the_maximum_of_a_device_is_that_maximum() {
    let of = |most: &str, usual: (&str, &str)| {
        let limits = beside(&[("GPUSHARE_MEM_LIMIT", most)], &[usual]);
        let held = limits.and_then(|limits| limits.for_device(0, &UUID, CAPACITY));
        let held = held.expect("the tenant asks for nothing");
        (held.limit, held.request)
    };
    let half = ("GPUSHARE_MEM_LIMIT", "50%");
    assert_eq!(of("6GiB", half), (Some(6 * GIB), 6 * GIB));
    assert_eq!(of("10GiB", half), (Some(8 * GIB), 8 * GIB));
    let request = ("GPUSHARE_MEM_REQUEST", "50%");
    assert_eq!(of("6GiB", request), (Some(6 * GIB), 6 * GIB));
    assert_eq!(of("10GiB", request), (Some(10 * GIB), 8 * GIB));
}

/// A rule's maxima may be below the node's defaults.
#[test]
fn who_says_nothing_gets_the_maximum_below_a_default_of_any_kind() {
    let maxima = [
        ("GPUSHARE_MEM_LIMIT", "4GiB"),
        ("GPUSHARE_SM_LIMIT", "30"),
        ("GPUSHARE_PRIORITY", "300"),
        ("GPUSHARE_RUN_LIMIT", "1h"),
    ];
    let defaults = [
        ("GPUSHARE_MEM_LIMIT", "8GiB"),
        ("GPUSHARE_SM_LIMIT", "50"),
        ("GPUSHARE_PRIORITY", "400"),
        ("GPUSHARE_RUN_LIMIT", "2h"),
    ];
    let limits = beside(&maxima, &defaults).expect("the tenant asks for nothing");
    let held = limits.for_device(0, &UUID, CAPACITY).expect("as before");
    assert_eq!(held.limit, Some(4 * GIB));
    assert_eq!(held.compute.limit.map(Permille::get), Some(300));
    assert_eq!(limits.policy().priority, 300);
    let hour = Duration::from_secs(3600);
    assert_eq!(limits.policy().run_limit, Some(hour));
    for asked in defaults {
        under(&maxima, &[asked]).expect_err("the tenant asks for it");
    }
}
