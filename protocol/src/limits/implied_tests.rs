//! The request that a limit in percent implies without an explicit request.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn implied(own: Pairs<'_>, defaults: Pairs<'_>, maxima: Pairs<'_>) -> Option<ImpliedRequest> {
    let pairs = |pairs: Pairs<'_>| -> Vec<(OsString, OsString)> {
        let owned = |(name, value): &(&str, &str)| (name.into(), value.into());
        pairs.iter().map(owned).collect()
    };
    let maxima = Maxima::read(pairs(maxima)).expect("good maxima");
    let limits = Limits::from_env_under(pairs(own), pairs(defaults), maxima);
    limits.expect("good limits").implied(0, &[7; 16], 16 << 30)
}

const LIMIT: &str = "GPUSHARE_MEM_LIMIT";
const REQUEST: &str = "GPUSHARE_MEM_REQUEST";

fn percent(part: u64, most: Option<u64>) -> Option<ImpliedRequest> {
    let part = part * 1_000_000;
    Some(ImpliedRequest { part, most })
}

#[test]
fn a_limit_in_percent_alone_implies_that_part() {
    assert_eq!(implied(&[(LIMIT, "50%")], &[], &[]), percent(50, None));
    assert_eq!(
        implied(
            &[(LIMIT, "4GiB"), ("GPUSHARE_MEM_LIMIT_0", "25%")],
            &[],
            &[]
        ),
        percent(25, None)
    );
    assert_eq!(implied(&[], &[(LIMIT, "10%")], &[]), percent(10, None));
}

#[test]
fn a_request_that_is_named_and_a_limit_in_bytes_imply_no_part() {
    let named: [Pairs<'_>; 4] = [
        &[(LIMIT, "50%"), (REQUEST, "50%")],
        &[(LIMIT, "50%"), (REQUEST, "1GiB")],
        &[(LIMIT, "8GiB")],
        &[],
    ];
    for own in named {
        assert_eq!(implied(own, &[], &[]), None, "{own:?}");
    }
    assert_eq!(implied(&[(LIMIT, "50%")], &[(REQUEST, "1GiB")], &[]), None);
}

#[test]
fn a_nodes_maximum_for_requests_bounds_what_is_implied() {
    let own: Pairs<'_> = &[(LIMIT, "50%")];
    assert_eq!(implied(own, &[], &[(REQUEST, "25%")]), percent(25, None));
    assert_eq!(implied(own, &[], &[(REQUEST, "75%")]), percent(50, None));
    let most = Some(1 << 30);
    assert_eq!(implied(own, &[], &[(REQUEST, "1GiB")]), percent(50, most));
    let bytes: Pairs<'_> = &[(LIMIT, "12GiB")];
    let most = Some(12 << 30);
    assert_eq!(implied(bytes, &[], &[(REQUEST, "50%")]), percent(50, most));
    assert_eq!(implied(bytes, &[], &[(REQUEST, "1GiB")]), None);
}

/// A default above a maximum in percent is that percentage, and guaranteed as such.
#[test]
fn a_default_above_a_maximum_in_percent_implies_that_part() {
    let most: Pairs<'_> = &[(LIMIT, "25%")];
    assert_eq!(implied(&[], &[(LIMIT, "50%")], most), percent(25, None));
    let bytes = Some(8 << 30);
    assert_eq!(implied(&[], &[(LIMIT, "8GiB")], most), percent(25, bytes));
    let of_one: Pairs<'_> = &[(
        "GPUSHARE_MEM_LIMIT_GPU_07070707_0707_0707_0707_070707070707",
        "25%",
    )];
    assert_eq!(implied(&[], &[(LIMIT, "50%")], of_one), percent(25, None));
    let most: Pairs<'_> = &[(LIMIT, "6GiB")];
    let bytes = Some(6 << 30);
    assert_eq!(implied(&[], &[(LIMIT, "50%")], most), percent(50, bytes));
}

#[test]
fn a_maximum_above_a_limit_changes_nothing_of_what_it_implies() {
    let most: Pairs<'_> = &[(LIMIT, "50%")];
    assert_eq!(implied(&[], &[(LIMIT, "4GiB")], most), None);
    assert_eq!(implied(&[(LIMIT, "4GiB")], &[], most), None);
    assert_eq!(implied(&[], &[(LIMIT, "10%")], most), percent(10, None));
    assert_eq!(implied(&[(LIMIT, "10%")], &[], most), percent(10, None));
    // The maximum is none that the tenant asked for.
    assert_eq!(implied(&[], &[], most), None);
}
