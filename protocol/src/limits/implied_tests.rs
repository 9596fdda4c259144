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
    limits.expect("good limits").implied(0, &[7; 16])
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
