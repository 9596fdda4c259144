use super::middles::middle_number;
use super::*;

fn pair(bare: f64, shared: f64) -> Pair {
    Pair { bare, shared }
}

#[test]
fn the_bare_run_is_first_in_every_other_pair() {
    let order = std::cell::RefCell::new(Vec::new());
    let run = |side: &'static str| {
        order.borrow_mut().push(side);
        Ok::<_, ()>(side)
    };
    for pair in 0..3 {
        let both = in_order(pair, || run("bare"), || run("shared"));
        assert_eq!(both, Ok(("bare", "shared")));
    }
    let ran = ["bare", "shared", "shared", "bare", "bare", "shared"];
    assert_eq!(order.into_inner(), ran);
}

#[test]
fn a_ratio_is_what_is_left_and_nothing_has_none() {
    assert_eq!(pair(0.5, 0.25).ratio(), Some(0.5));
    assert_eq!(pair(0.0, 0.25).ratio(), None);
    assert_eq!(pair(0.5, 0.25).text(), "  50.00%   25.00%  0.500");
}

#[test]
fn from_nothing_to_something_is_the_largest_ratio() {
    let middle = |all: [(f64, f64); 3]| {
        let all = all.map(|(bare, shared)| pair(bare, shared));
        Pair::middle(all.to_vec()).map(|pair| (pair.bare, pair.shared))
    };
    let ties = [(0.0, 3.0), (0.0, 41.0), (0.0, 5.0)];
    assert_eq!(middle(ties), Some((0.0, 5.0)));
    let mixed = [(0.0, 900.0), (100.0, 250.0), (80.0, 160.0)];
    assert_eq!(middle(mixed), Some((100.0, 250.0)));
    // Nothing in both is no change.
    let none = [(0.0, 0.0), (2.0, 1.0), (1.0, 2.0)];
    assert_eq!(middle(none), Some((0.0, 0.0)));
}

#[test]
fn of_several_pairs_the_middle_one_of_each_figure_is_kept_whole() {
    let run = |useful: Pair, wait, changes| Comparison {
        name: "x".to_owned(),
        useful,
        used: Some(useful),
        rates: None,
        mode_changes_a_minute: changes,
        stolen: (useful.bare < 0.5).then_some(pair(0.0, 0.123)),
        alone_stolen: None,
        tenants: vec![Tenant {
            device: useful,
            error_pp: Some(useful.bare - useful.shared),
            wait_p99: Some(wait),
            cores: useful,
            visits: Some(wait),
            ..plain()
        }],
    };
    // The second run has the median of the first figure, the third run that of the other.
    let runs = vec![
        vec![run(pair(0.5, 0.45), pair(10.0, 5.0), Some(9.0))],
        vec![run(pair(0.4, 0.38), pair(30.0, 90.0), Some(2.0))],
        vec![run(pair(0.6, 0.6), pair(20.0, 30.0), Some(4.0))],
    ];
    let kept = middles(runs);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].useful, pair(0.4, 0.38));
    assert_eq!(kept[0].tenants[0].wait_p99, Some(pair(20.0, 30.0)));
    let error = kept[0].tenants[0].error_pp;
    assert!(error.is_some_and(|error| (error - 0.02).abs() < 1e-9));
    assert_eq!(middle_number(vec![-3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(middle_number(Vec::new()), None);
    assert_eq!(kept[0].tenants[0].cores, pair(0.4, 0.38));
    let fewest = Some(pair(10.0, 5.0));
    assert_eq!(kept[0].tenants[0].visits, fewest, "of any pair");
    assert!(
        kept[0].text().contains(" 0.400  0.380\n"),
        "{}",
        kept[0].text()
    );
    assert_eq!(kept[0].rates, None);
    assert_eq!(kept[0].mode_changes_a_minute, Some(4.0));
    assert!(kept[0].text().contains("  4 mode changes a minute"));
    assert_eq!(kept[0].stolen, Some(pair(0.0, 0.123)), "of the worst pair");
    let said = "  other machines took 0.0 % of the processors, with 12.3 %";
    assert!(kept[0].text().contains(said), "{}", kept[0].text());
    let turns = Comparison {
        mode_changes_a_minute: None,
        stolen: None,
        ..kept[0].clone()
    };
    assert!(!turns.text().contains("mode changes") && !turns.text().contains("machines"));
    assert!(middles(Vec::new()).is_empty());
}

#[test]
fn all_that_is_kept_of_a_tenants_waits_is_of_one_pair() {
    // In microseconds: p50, p99 and p99.9, then how many there were and how many stood in line.
    let run = |bare: [f64; 5], shared: [f64; 5]| {
        let both = |at: usize| Some(pair(bare[at], shared[at]));
        let (wait_p50, wait_p99, wait_p999) = (both(0), both(1), both(2));
        let tenant = Tenant {
            wait_p50,
            wait_p99,
            wait_p999,
            waits: both(3),
            in_line: both(4),
            launching_p50: both(0),
            ..plain()
        };
        vec![Comparison {
            name: "serving-1".to_owned(),
            useful: pair(0.9, 0.8),
            used: None,
            rates: None,
            mode_changes_a_minute: None,
            stolen: None,
            alone_stolen: None,
            tenants: vec![tenant],
        }]
    };
    // Each of the first three has its middle ratio in another pair.
    let kept = middles(vec![
        run(
            [1652.0, 4260.0, 11188.0, 1466.0, 60.0],
            [1573.0, 5612.0, 13427.0, 1526.0, 0.0],
        ),
        run(
            [1706.0, 6714.0, 20268.0, 1414.0, 7.0],
            [1389.0, 8665.0, 12406.0, 1505.0, 4.0],
        ),
        run(
            [1674.0, 2207.0, 3260.0, 1537.0, 0.0],
            [729.0, 1924.0, 2174.0, 2427.0, 90.0],
        ),
    ]);
    let kept = &kept[0].tenants[0];
    assert_eq!(kept.wait_p99, Some(pair(6714.0, 8665.0)));
    assert_eq!(kept.wait_p50, Some(pair(1706.0, 1389.0)));
    assert_eq!(kept.wait_p999, Some(pair(20268.0, 12406.0)));
    assert_eq!(kept.waits, Some(pair(1414.0, 1505.0)));
    assert_eq!(kept.in_line, Some(pair(7.0, 4.0)));
    assert_eq!(kept.launching_p50, kept.wait_p50);
}

#[test]
fn requests_in_line_are_told_where_there_are_any() {
    let of = |bare, shared| {
        let in_line = Some(pair(bare, shared));
        Tenant { in_line, ..plain() }.text()
    };
    let line = "  30 requests still in line, with 90: waits are at least so long";
    assert!(of(30.0, 90.0).ends_with(line), "{}", of(30.0, 90.0));
    assert!(!of(0.0, 0.0).contains("in line"), "{}", of(0.0, 0.0));
}

/// A tenant with nothing but useful time.
fn plain() -> Tenant {
    Tenant {
        name: "a".to_owned(),
        device: pair(0.5, 0.5),
        asked: None,
        error_pp: None,
        wait_p50: None,
        wait_p99: None,
        wait_p999: None,
        waits: None,
        launching_p50: None,
        cores: pair(0.1, 0.1),
        missed: None,
        in_line: None,
        copied: None,
        newcomer: None,
        newcomer_second: None,
        visits: None,
    }
}

#[test]
fn a_percentile_of_few_waits_is_said_to_be_the_longest_one() {
    let of = |bare, shared| {
        let waits = Some(pair(bare, shared));
        Tenant { waits, ..plain() }.text()
    };
    let said = "  250 waits, with 200: p99.9 of fewer than 1000 is the longest";
    assert!(of(250.0, 200.0).ends_with(said), "{}", of(250.0, 200.0));
    let said = "  1200 waits, with 99: p99 of fewer than 100, and p99.9, is the longest";
    assert!(of(1200.0, 99.0).ends_with(said), "{}", of(1200.0, 99.0));
    assert!(!of(1000.0, 1000.0).contains("longest"));
    assert!(!plain().text().contains("longest"));
}

#[test]
fn a_median_of_visits_is_told_with_their_number() {
    let comes = Tenant {
        newcomer: Some(pair(0.2, 0.3)),
        visits: Some(pair(2.0, 3.0)),
        ..plain()
    };
    let text = comes.text();
    let said = "in the first 100 ms\n               median visit of 2, with 3";
    assert!(text.ends_with(said), "{text}");
    assert!(!plain().text().contains("visit"));
}
