//! Shares of time: how they are written, which wins, what tells two tenants apart.

use super::super::Limits;
use super::super::{Kind, flag};
use super::*;
use crate::units::GIB;

const UUID: [u8; 16] = [7; 16];

fn read(environment: &[(&str, &str)]) -> Result<Limits, LimitError> {
    Limits::from_env(
        environment
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    )
}

/// Cap and guarantee of a device in thousandths, 0 for none.
fn on(environment: &[(&str, &str)], ordinal: u32) -> (u16, u16) {
    let limits = read(environment).unwrap_or_else(|error| panic!("{error}"));
    let device = limits
        .for_device(ordinal, &UUID, 16 * GIB)
        .unwrap_or_else(|error| panic!("{error}"));
    let thousandths = |part: Option<Permille>| part.map_or(0, Permille::get);
    (
        thousandths(device.compute.limit),
        thousandths(device.compute.request),
    )
}

#[test]
fn a_percentage_is_whole_or_has_one_decimal_with_or_without_its_sign() {
    for (text, thousandths) in [
        ("1", 10),
        ("30", 300),
        ("30%", 300),
        ("12.5", 125),
        ("99.9%", 999),
        ("100", 1000),
        ("100.0%", 1000),
    ] {
        assert_eq!(parse(text).map(Permille::get), Some(thousandths), "{text}");
    }
    for text in [
        "", "%", "0", "0.5", "100.1", "1e1", "-3", " 3", "3.", ".5", "12.25", "65536",
    ] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}

#[test]
fn nothing_said_and_a_whole_device_are_no_cap() {
    assert_eq!(on(&[], 0), (0, 0));
    assert_eq!(on(&[("GPUSHARE_SM_LIMIT", "100")], 0), (0, 0));
    assert_eq!(
        on(
            &[("GPUSHARE_SM_LIMIT", "100"), ("GPUSHARE_SM_REQUEST", "30")],
            0
        ),
        (0, 300)
    );
}

#[test]
fn the_devices_uuid_wins_over_its_ordinal_and_that_over_the_plain_name() {
    let plain = ("GPUSHARE_SM_LIMIT", "30");
    let ordinal = ("GPUSHARE_SM_LIMIT_1", "100");
    let uuid = (
        "GPUSHARE_SM_LIMIT_GPU_07070707_0707_0707_0707_070707070707",
        "40",
    );
    assert_eq!(on(&[plain, ordinal], 0), (300, 0));
    assert_eq!(on(&[plain, ordinal], 1), (0, 0));
    assert_eq!(on(&[plain, ordinal, uuid], 1), (400, 0));
}

#[test]
fn hamis_cap_counts_where_ours_say_nothing() {
    assert_eq!(on(&[("CUDA_DEVICE_SM_LIMIT", "30")], 3), (300, 0));
    assert_eq!(on(&[("CUDA_DEVICE_SM_LIMIT_3", "30")], 3), (300, 0));
    assert_eq!(on(&[("CUDA_DEVICE_SM_LIMIT_3", "30")], 2), (0, 0));
    for off in ["", "0", "100"] {
        assert_eq!(on(&[("CUDA_DEVICE_SM_LIMIT", off)], 0), (0, 0), "{off:?}");
    }
    for ours in ["GPUSHARE_SM_LIMIT", "GPUSHARE_SM_REQUEST"] {
        let both = [("CUDA_DEVICE_SM_LIMIT", "30"), (ours, "100")];
        assert_eq!(on(&both, 0).0, 0, "{ours} wins as a block");
    }
}

#[test]
fn the_percentage_of_mps_counts_where_no_other_says_anything() {
    let mps = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
    for (value, cap) in [
        ("30", 300),
        ("12.57", 125),
        ("0.3", 10),
        ("100", 0),
        ("", 0),
    ] {
        assert_eq!(on(&[(mps, value)], 3), (cap, 0), "{value}");
    }
    for other in ["GPUSHARE_SM_LIMIT", "CUDA_DEVICE_SM_LIMIT"] {
        assert_eq!(on(&[(mps, "30"), (other, "50")], 0), (500, 0), "{other}");
    }
    for value in ["0", "-3", "101", "half", "NaN", "inf"] {
        let error = read(&[(mps, value)]).unwrap_err();
        assert_eq!(error.variable, mps, "{value}");
    }
}

#[test]
fn a_request_above_its_limit_is_refused_by_name() {
    let error = read(&[("GPUSHARE_SM_LIMIT", "30"), ("GPUSHARE_SM_REQUEST", "30.1")]).unwrap_err();
    assert_eq!(error.variable, "GPUSHARE_SM_REQUEST");
    assert!(
        error.to_string().contains("GPUSHARE_SM_LIMIT=30"),
        "{error}"
    );
    assert!(read(&[("GPUSHARE_SM_LIMIT", "30"), ("GPUSHARE_SM_REQUEST", "30")]).is_ok());
    // Only the device tells that both names mean it.
    let limits = read(&[
        (
            "GPUSHARE_SM_LIMIT_GPU_07070707_0707_0707_0707_070707070707",
            "30",
        ),
        ("GPUSHARE_SM_REQUEST_0", "50"),
    ])
    .unwrap();
    assert!(limits.for_device(0, &UUID, GIB).is_err());
    assert!(limits.for_device(1, &UUID, GIB).is_ok());
}

#[test]
fn shares_tell_two_tenants_apart_and_spellings_do_not() {
    let text = |environment: &[(&str, &str)]| read(environment).unwrap().to_string();
    let plain = text(&[]);
    assert_eq!(text(&[("GPUSHARE_SM_LIMIT", "100")]), plain);
    assert_eq!(text(&[("CUDA_DEVICE_SM_LIMIT", "100")]), plain);
    let thirty = text(&[("GPUSHARE_SM_LIMIT", "30")]);
    assert_ne!(thirty, plain);
    assert!(thirty.contains(" sm[limit.all=30%]"), "{thirty}");
    for same in ["30%", "30.0"] {
        assert_eq!(text(&[("GPUSHARE_SM_LIMIT", same)]), thirty);
    }
    assert_eq!(text(&[("CUDA_DEVICE_SM_LIMIT", "30")]), thirty);
    assert_ne!(text(&[("GPUSHARE_SM_REQUEST", "30")]), thirty);
    let both = [("GPUSHARE_SM_LIMIT", "30"), ("CUDA_DEVICE_SM_LIMIT", "50")];
    assert_eq!(text(&both), thirty);
}

#[test]
fn a_flag_names_a_device_as_memorys_do() {
    assert_eq!(
        flag(Kind::Time, "--sm-limit", "0=12.5%"),
        Ok((super::super::Selector::Ordinal(0), "12.5%"))
    );
    for value in ["0", "16=30", "4GiB", "0=", "=30"] {
        let error = flag(Kind::Time, "--sm-limit", value).unwrap_err();
        assert_eq!(
            (error.variable.as_str(), error.value.as_str()),
            ("--sm-limit", value)
        );
        assert!(error.accepted.contains("1 to 100"), "{error}");
    }
}
