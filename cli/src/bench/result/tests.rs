use super::super::log::Piece;
use super::super::report;
use super::*;

/// Tenants that had the device for these parts of 1000 ns, one after the other.
fn measured(tenants: &[&str], parts: &[u64], alone: Option<Vec<f64>>) -> Outcome {
    ran(tenants, parts, alone).outcome()
}

fn ran(tenants: &[&str], parts: &[u64], alone: Option<Vec<f64>>) -> Measured {
    let mut end = 0;
    let logs = parts.iter().enumerate().map(|(at, &ns)| {
        end += ns;
        let piece = Piece {
            sent: end - ns,
            submitted: end - ns,
            end,
            known: end,
            ns,
        };
        (
            at,
            Log {
                pieces: vec![piece],
                ..Log::default()
            },
        )
    });
    Measured {
        logs: logs.collect(),
        experiment: Experiment {
            name: String::new(),
            about: String::new(),
            tenants: tenants.iter().map(|text| text.parse().unwrap()).collect(),
            optional: false,
        },
        gpu: None,
        device: [0; 16],
        turns: Vec::new(),
        span: Span { from: 0, to: 1000 },
        looks: None,
        alone,
        alone_stolen: None,
        had: Some(Had::InTurns),
        stolen: None,
    }
}

fn near(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-6)
}

#[test]
fn an_error_is_the_difference_to_the_weights_in_points() {
    let outcome = measured(&["name=a,share=70", "name=b,share=30"], &[640, 320], None);
    assert!(near(outcome.tenants[0].error_pp, 100.0 * (2.0 / 3.0 - 0.7)));
    assert!(near(outcome.idle, 0.04));
}

#[test]
fn who_cannot_fill_the_device_is_judged_by_what_it_had_alone() {
    let outcome = measured(
        &["name=a,mode=sync", "name=b"],
        &[200, 480],
        Some(vec![0.4, 1.0]),
    );
    assert_eq!(outcome.tenants[0].by, "alone");
    assert!(near(
        outcome.tenants[0].error_pp,
        100.0 * (0.5 / 0.98 - 0.5)
    ));
    assert!(near(outcome.overhead, 0.02) && near(outcome.rates, 0.98));
    assert!(near(Some(outcome.useful), 0.68));
    assert!(near(outcome.idle, 0.32) && near(outcome.idle_own, 0.3));
}

/// Two halves on a device that tenants share at the same time, or in turns.
fn halves(had: Had, device: [u64; 2], alone: [f64; 2]) -> Outcome {
    let tenants = ["name=a,share=50", "name=b,share=50"];
    let mut run = ran(&tenants, &device, Some(alone.to_vec()));
    run.had = Some(had);
    run.outcome()
}

#[test]
fn on_a_shared_device_a_share_is_of_device_time() {
    let together = halves(Had::Together(0), [472, 469], [0.93, 1.0]);
    let a = &together.tenants[0];
    assert_eq!(a.by, "device");
    assert!(near(a.error_pp, 100.0 * (472.0 / 941.0 - 0.5)), "{a:?}");
    // A turn is a tenant's own, gaps included.
    let turns = halves(Had::InTurns, [472, 469], [0.93, 1.0]);
    let a = &turns.tenants[0];
    assert_eq!(a.by, "alone");
    let amounts = [472.0 / 0.93, 469.0];
    let part = amounts[0] / (amounts[0] + amounts[1]);
    assert!(near(a.error_pp, 100.0 * (part - 0.5)), "{a:?}");
}

#[test]
fn on_a_shared_device_no_more_is_expected_of_a_tenant_than_it_has_alone() {
    let could = halves(Had::Together(0), [300, 700], [0.3, 1.0]);
    let entitled = |outcome: &Outcome| [0, 1].map(|at| outcome.tenants[at].entitled);
    assert_eq!(entitled(&could), [Some(0.3), Some(0.7)]);
    assert!(near(could.tenants[0].error_pp, 0.0));
    // A tenant that could have its half is expected to have it.
    let half = halves(Had::Together(0), [300, 700], [0.6, 1.0]);
    assert_eq!(entitled(&half), [Some(0.5), Some(0.5)]);
}

#[test]
fn only_where_tenants_have_turns_is_there_idle_time_between_them() {
    let had = |turns| Some(Turns { turns, overruns: 0 });
    let run = |how| {
        let mut run = ran(&["name=a", "name=b"], &[480, 480], None);
        run.span.to = 6_000;
        (run.turns, run.had) = (vec![had(3), had(0)], how);
        run.outcome()
    };
    let shared = run(Some(Had::Together(2)));
    let holds: Vec<Option<u64>> = shared.tenants.iter().map(|row| row.holds).collect();
    assert_eq!(holds, [Some(3), Some(0)]);
    assert!(shared.tenants.iter().all(|row| row.turns.is_none()));
    assert_eq!((shared.idle, shared.handoffs.len()), (None, 0));
    assert!(near(shared.mode_changes_a_minute, 2e7));
    let turns = run(Some(Had::InTurns));
    assert_eq!(turns.tenants[0].turns, had(3));
    assert_eq!(turns.tenants[0].holds, None);
    assert!(turns.idle.is_some() && turns.mode_changes_a_minute.is_none());
    assert_eq!(turns.handoffs.len(), 1);
    let unknown = run(None);
    assert_eq!((unknown.idle, unknown.handoffs.len()), (None, 0));
    assert_eq!(unknown.tenants[0].turns, None);
    assert_eq!(unknown.tenants[0].holds, None);
}

#[test]
fn what_a_tenant_got_and_what_it_was_promised_are_two_keys() {
    let outcome = measured(&["name=a,share=70", "name=b"], &[640, 320], None);
    let [a, b] = [0, 1].map(|at| serde_json::to_value(&outcome.tenants[at]).unwrap());
    assert_eq!(a["promised"], 70);
    assert!(near(a["share"].as_f64(), 2.0 / 3.0));
    assert!(b.get("promised").is_none());
    // A key that is written twice is read once.
    let text = serde_json::to_string(&outcome.tenants[0]).unwrap();
    for key in a.as_object().unwrap().keys() {
        assert_eq!(text.matches(&format!("\"{key}\":")).count(), 1, "{key}");
    }
}

#[test]
fn a_gang_is_told_in_collectives_and_nobody_else_is() {
    let tenants = ["name=g,mode=gang,gpus=0+1,kernel=1us", "name=b"];
    // One collective of 1000 ns was half within the span of 1000 ns.
    let outcome = measured(&tenants, &[500, 500], None);
    assert!(near(outcome.tenants[0].collectives_per_s, 500_000.0));
    assert_eq!(outcome.tenants[1].collectives_per_s, None);
}

/// A gang and a tenant beside it, with what the device's own books say that each had of it.
fn beside_a_gang(promised: [&str; 2], served: Option<[u64; 2]>) -> Outcome {
    let [gang, other] = promised;
    let tenants = [
        format!("name=g,mode=gang,gpus=0+1{gang}"),
        format!("name=b{other}"),
    ];
    let mut run = ran(&[&tenants[0], &tenants[1]], &[200, 480], None);
    run.had = Some(Had::Together(0));
    for (at, (_, log)) in run.logs.iter_mut().enumerate() {
        log.pid = [11, 22][at];
    }
    run.looks = served.map(|[gang, other]| {
        let books = |at, had| Look::of(at, run.device, had);
        let had = [(11, gang), (22, other)];
        (books(0, &[]), books(1000, &had))
    });
    run.outcome()
}

#[test]
fn a_gang_is_judged_by_the_time_it_occupies_its_device() {
    let halves = [",share=50", ",share=50"];
    let known = beside_a_gang(halves, Some([450, 480]));
    let [gang, other] = [0, 1].map(|at| &known.tenants[at]);
    assert_eq!(gang.by, "served");
    let part = 100.0 * (450.0 / 930.0 - 0.5);
    assert!(near(gang.error_pp, part) && near(other.error_pp, -part));
    let said = "GOT is by the software GPU's books";
    assert!(report::text(&known).contains(said), "{known:?}");
    // Its completed work says less: its kernels wait for each other.
    let unknown = beside_a_gang(halves, None);
    assert!(unknown.tenants.iter().all(|row| row.error_pp.is_none()));
    assert!(!report::text(&unknown).contains(said));
}

#[test]
fn beside_a_gang_without_a_request_there_is_no_error() {
    for promised in [["", ""], [",share=50", ""], ["", ",share=50"]] {
        let outcome = beside_a_gang(promised, Some([450, 480]));
        let none = outcome.tenants.iter().all(|row| row.error_pp.is_none());
        assert!(none, "{promised:?}");
    }
}

#[test]
fn one_that_only_copies_has_no_part_in_the_rates() {
    let outcome = measured(
        &["name=a,mode=copy,copy=1000", "name=b"],
        &[0, 900],
        Some(vec![0.0, 1.0]),
    );
    assert!(near(outcome.rates, 0.9));
    assert_eq!(outcome.tenants[0].launches_per_s, None);
    assert!(outcome.tenants[0].copied_per_s.is_some());
    assert_eq!(outcome.tenants[1].copied_per_s, None);
}

#[test]
fn what_one_with_pauses_asks_for_is_said() {
    let tenants = ["name=a,kernel=300us,mode=sync,every=1ms", "name=b"];
    let outcome = measured(&tenants, &[290, 600], None);
    assert!(near(outcome.tenants[0].asked, 0.3));
    assert_eq!(outcome.tenants[1].asked, None);
    assert_eq!(outcome.rates, None, "no tenant was measured alone");
}

#[test]
fn a_lone_capped_tenant_is_judged_by_the_device() {
    let outcome = measured(&["name=a,cap=30"], &[310], None);
    assert!(near(outcome.tenants[0].error_pp, 1.0));
}

/// The first tenant had so many milliseconds of each second.
fn second_by_second(tenants: &[&str], parts: &[u64]) -> Outcome {
    const SECOND: u64 = 1_000_000_000;
    let mut run = ran(tenants, &vec![0; tenants.len()], None);
    run.span.to = parts.len() as u64 * SECOND;
    let piece = |(at, ms): (u64, &u64)| Piece {
        sent: at * SECOND,
        submitted: at * SECOND,
        end: (at + 1) * SECOND,
        known: (at + 1) * SECOND,
        ns: ms * 1_000_000,
    };
    run.logs[0].1.pieces = (0..).zip(parts).map(piece).collect();
    run.outcome()
}

#[test]
fn the_worst_second_of_a_cap_is_one_above_it() {
    let both = ["name=a,cap=80", "name=b"];
    let within = second_by_second(&both, &[500, 400]);
    assert!(near(within.tenants[0].cap_error_pp, 0.0), "{within:?}");
    let said = "a: worst second 0.00 pp above its cap";
    assert!(report::text(&within).contains(said));
    let over = second_by_second(&both, &[500, 830]);
    assert!(near(over.tenants[0].cap_error_pp, 3.0), "{over:?}");
}

#[test]
fn one_that_is_alone_and_always_has_work_is_told_below_its_cap() {
    let lone = second_by_second(&["name=a,cap=30"], &[280, 310]);
    assert!(near(lone.tenants[0].cap_error_pp, -2.0), "{lone:?}");
    let said = "a: worst second 2.00 pp below its cap";
    assert!(report::text(&lone).contains(said));
    // A tenant that pauses has no use for all of it.
    let paced = ["name=a,cap=30,mode=sync,every=10ms"];
    let paced = second_by_second(&paced, &[50, 50]);
    assert!(near(paced.tenants[0].cap_error_pp, 0.0), "{paced:?}");
}

#[test]
fn where_priorities_or_pauses_decide_there_is_no_error() {
    for tenants in [
        ["name=a,priority=900", "name=b"],
        ["name=a,mode=sync,every=10ms", "name=b"],
        ["name=a,share=5", "name=b"],
        ["name=a,mode=copy", "name=b"],
    ] {
        assert_eq!(
            measured(&tenants, &[500, 500], None).tenants[0].error_pp,
            None
        );
    }
}

#[test]
fn what_other_machines_took_while_tenants_were_alone_is_told() {
    let told = |stolen| {
        let mut run = ran(&["name=a", "name=b"], &[480, 480], Some(vec![1.0, 1.0]));
        run.alone_stolen = stolen;
        report::text(&run.outcome())
    };
    let said = "sum of rates 0.960 (alone: other machines took 10.0 % of the processors)";
    assert!(told(Some(0.1)).contains(said), "{}", told(Some(0.1)));
    for little in [Some(0.004), None] {
        assert!(!told(little).contains("machines"), "{little:?}");
    }
}

#[test]
fn a_p99_of_few_requests_is_said_to_be_the_longest_wait() {
    let outcome = measured(&["name=a,mode=sync,every=1ms", "name=b"], &[290, 600], None);
    let text = report::text(&outcome);
    let said = "a: 1 waits, p99 of fewer than 100 is the longest";
    assert!(text.contains(said), "{text}");
    assert!(
        !text.contains("b: 1 waits"),
        "it does not wait for each: {text}"
    );
    let mut many = outcome;
    let waited = many.tenants[0].waited.as_mut();
    waited.expect("it waits").count = 100;
    assert!(!report::text(&many).contains("longest"));
}
