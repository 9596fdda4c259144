//! The view of a request, which may be in another environment than the variable that asks for it.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

const VIEW: (&str, &str) = ("GPUSHARE_MEM_VIEW", "request");

fn pairs(set: Pairs<'_>) -> Vec<(OsString, OsString)> {
    let pair = |(name, value): &(&str, &str)| (name.into(), value.into());
    set.iter().map(pair).collect()
}

/// The message of a refusal for want of a request.
#[track_caller]
fn refused(found: Result<Limits, LimitError>) {
    let text = found.expect_err("there is no request").to_string();
    assert!(text.starts_with("GPUSHARE_MEM_VIEW=\"request\" is refused: there is no request"));
    assert!(text.contains("accepted: request together with GPUSHARE_MEM_REQUEST"));
}

#[test]
fn a_program_may_ask_for_the_view_of_its_tenants_request() {
    let own = [VIEW, ("GPUSHARE_SOCKET", "/run/gpushare/a")];
    let limits = Limits::from_env(pairs(&own)).expect("the tenant has the request");
    let seen = limits.for_device(0, &[7; 16], 1 << 34).unwrap();
    assert_eq!((seen.view, seen.request), (View::Request, 0));
}

#[test]
fn without_a_daemon_the_environment_has_to_say_the_request() {
    let alone = |own: Pairs<'_>| Limits::from_env(pairs(own)).and_then(Limits::without_daemon);
    refused(alone(&[VIEW]));
    for amount in [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "1GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
    ] {
        assert!(alone(&[VIEW, amount]).is_ok(), "{amount:?}");
    }
}

#[test]
fn a_node_shows_the_request_of_the_tenant_or_of_its_defaults() {
    let under = |own: Pairs<'_>, defaults: Pairs<'_>| {
        Limits::from_env_under(pairs(own), pairs(defaults), Maxima::default())
    };
    refused(under(&[VIEW], &[]));
    refused(under(&[], &[VIEW]));
    let limit = ("GPUSHARE_MEM_LIMIT", "1GiB");
    for (own, defaults) in [(&[VIEW][..], &[limit][..]), (&[limit], &[VIEW])] {
        assert!(under(own, defaults).is_ok(), "{own:?} over {defaults:?}");
    }
}
