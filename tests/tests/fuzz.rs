//! The differential fuzzer's kept cases, some seeds each time, and as many as there is time for.
//!
//! `as_many_seeds_as_there_is_time_for` goes on with new seeds for `GPUTEST_FUZZ_SECONDS`
//! (`scripts/fuzz.sh`), from `GPUTEST_FUZZ_SEED` on, and ends with a table. A case that fails is
//! shrunk, printed, and then also written to `tests/data/fuzz/`, whose cases always run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpushare_tests::referee::{Case, Mode, calls, kept};
use gpushare_tests::turns::now;

/// Calls a thread.
const CALLS: usize = 150;
/// Seeds of each mode in every run of the tests.
const SEEDS: u64 = 2;
/// Time that the long tier gives to new seeds.
const SECONDS: u64 = 60;

/// Modes with the numbers of threads they are run with.
const ROWS: [(Mode, usize); 13] = [
    (Mode::Quota, 1),
    (Mode::Quota, 4),
    (Mode::Cap, 1),
    (Mode::Cap, 4),
    (Mode::Turns, 1),
    (Mode::Turns, 4),
    (Mode::Beside, 1),
    (Mode::Restarts, 1),
    (Mode::Crowded, 1),
    (Mode::Moves, 1),
    (Mode::Moves, 4),
    (Mode::Managed, 1),
    (Mode::Managed, 4),
];

/// One row of the table.
#[derive(Debug, Default)]
struct Row {
    seeds: u64,
    refused: usize,
    differences: Vec<String>,
}

/// Fails with the least calls that show the difference.
fn judge(case: &Case, name: &str) {
    let Err(difference) = case.check() else {
        return;
    };
    eprintln!("{name}\n{difference}\nlooking for fewer calls");
    let shrunk = case.shrunk(&difference);
    let still = shrunk.check().err();
    panic!(
        "{name}\n{difference}\nwith fewer calls:\n{shrunk}{}",
        still.unwrap_or_else(|| "which does not show it each time".to_owned())
    );
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// Seeds that are the same each time.
fn judges(mode: Mode, threads: usize) {
    for seed in 1..=SEEDS {
        let case = Case::of_seed(mode, seed, CALLS, threads);
        judge(&case, &format!("{mode}, seed {seed}, {threads} threads"));
    }
}

#[test]
fn calls_under_a_quota_answer_as_bare_but_for_out_of_memory() {
    judges(Mode::Quota, 1);
}

#[test]
fn calls_of_several_threads_under_a_quota_answer_as_bare() {
    judges(Mode::Quota, 4);
}

#[test]
fn calls_under_a_cap_answer_as_bare() {
    judges(Mode::Cap, 1);
}

#[test]
fn calls_in_turns_answer_as_bare() {
    judges(Mode::Turns, 1);
}

#[test]
fn calls_of_several_threads_under_a_cap_answer_as_bare() {
    judges(Mode::Cap, 4);
}

#[test]
fn calls_of_several_threads_in_turns_answer_as_bare() {
    judges(Mode::Turns, 4);
}

#[test]
fn calls_beside_a_busy_neighbour_answer_as_bare() {
    judges(Mode::Beside, 1);
}

#[test]
fn calls_answer_as_bare_while_daemons_come_and_go() {
    judges(Mode::Restarts, 1);
}

#[test]
fn calls_on_a_full_device_answer_as_bare_but_for_out_of_memory() {
    judges(Mode::Crowded, 1);
}

#[test]
fn calls_answer_as_bare_while_memory_moves() {
    judges(Mode::Moves, 1);
}

#[test]
fn calls_of_several_threads_answer_as_bare_while_memory_moves() {
    judges(Mode::Moves, 4);
}

#[test]
fn calls_answer_as_bare_on_managed_memory_that_moves() {
    judges(Mode::Managed, 1);
}

#[test]
fn cases_that_failed_once_pass() {
    let cases = kept();
    assert!(!cases.is_empty(), "no case is kept");
    for (name, case) in cases {
        judge(&case, &name);
    }
}

/// Both runs would say the same of captures that end wrongly.
#[test]
fn threads_that_end_early_leave_the_captures_of_others_alone() {
    let mut cases = kept().into_iter();
    let found = cases.find(|(name, _)| name == "threads-that-end-before-a-capture");
    let (_, case) = found.expect("it is kept");
    let shown = case.check().expect("no difference");
    // Two streams capture; the other two ends find no capture.
    assert_eq!(shown.calls["end_capture"], (4, 2));
}

/// A referee that finds no difference might compare nothing.
#[test]
fn what_a_quota_changes_is_a_difference_to_a_referee_without_the_model() {
    let case = Case::of_seed(Mode::Quota, 1, CALLS, 1);
    let shown = case.check().expect("the quota explains it");
    assert!(shown.refused > 0, "the quota binds");
    let difference = case.check_without_model().expect_err("it refuses some");
    assert!(difference.starts_with("hooked: 0."), "{difference}");
    assert!(difference.contains(" 2\n"), "{difference}");
}

/// The long tier, and `scripts/fuzz.sh`.
#[test]
#[ignore = "takes a minute, or as long as it is told"]
fn as_many_seeds_as_there_is_time_for() {
    let seconds = setting("GPUTEST_FUZZ_SECONDS").unwrap_or(SECONDS);
    let mut seed = setting("GPUTEST_FUZZ_SEED").unwrap_or_else(now);
    let mut rows: BTreeMap<(Mode, usize), Row> = BTreeMap::new();
    let mut tally: BTreeMap<String, (u64, u64)> =
        calls().into_iter().map(|name| (name, (0, 0))).collect();
    // From here on: what the first use builds is built.
    let end = Instant::now() + Duration::from_secs(seconds);
    // Each row has its turn before the time is looked at.
    while Instant::now() < end {
        for (mode, threads) in ROWS {
            let row = rows.entry((mode, threads)).or_default();
            let case = Case::of_seed(mode, seed, CALLS, threads);
            row.seeds += 1;
            match case.check() {
                Ok(shown) => {
                    row.refused += shown.refused;
                    for (name, (made, good)) in shown.calls {
                        let all = tally.entry(name).or_default();
                        (all.0, all.1) = (all.0 + made, all.1 + good);
                    }
                }
                Err(difference) => row.differences.push(keep(&case, seed, &difference)),
            }
        }
        seed += 1;
    }
    table(&rows, &tally);
    assert!(!rows.is_empty(), "no seed was run");
    let differences: Vec<&String> = rows.values().flat_map(|row| &row.differences).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Shrinks it, keeps it, prints it.
fn keep(case: &Case, seed: u64, difference: &str) -> String {
    let shrunk = case.shrunk(difference);
    let (mode, threads) = (case.mode, case.plan.threads);
    let name = format!("{mode}-{threads}-{seed}");
    let file = shrunk.keep(&name, difference);
    let file = file.expect("kept cases can be written");
    eprintln!("{name}: {difference}\n{shrunk}");
    format!("{}: {difference}", file.display())
}

fn table(rows: &BTreeMap<(Mode, usize), Row>, tally: &BTreeMap<String, (u64, u64)>) {
    eprintln!("| mode | threads | seeds | refused by the quota | differences |");
    eprintln!("|---|---|---|---|---|");
    for ((mode, threads), row) in rows {
        let Row {
            seeds,
            refused,
            differences,
        } = row;
        eprintln!(
            "| {mode} | {threads} | {seeds} | {refused} | {} |",
            differences.len()
        );
    }
    let (made, good) = tally
        .values()
        .fold((0, 0), |sum, (made, good)| (sum.0 + made, sum.1 + good));
    eprintln!(
        "\n{} kinds of calls, {made} made, {good} succeeded",
        tally.len()
    );
    let without = |which: fn(&(u64, u64)) -> bool| {
        let names: Vec<&str> = tally
            .iter()
            .filter(|(_, counts)| which(counts))
            .map(|(name, _)| name.as_str())
            .collect();
        names.join(" ")
    };
    eprintln!("never made: {}", without(|(made, _)| *made == 0));
    eprintln!(
        "never succeeded: {}",
        without(|(made, good)| *made > 0 && *good == 0)
    );
}

#[test]
fn a_case_is_written_as_it_is_read() {
    let text = "mode turns\nthreads 4\n0.3 alloc 00000000000000ff\n3.1 free 0000000000000001\n";
    let case: Case = text.parse().expect("a case");
    assert_eq!(case.to_string(), text);
    let commented: Case = format!("# why\n\n{text}").parse().expect("a case");
    assert_eq!(commented, case);
    for wrong in [
        "",
        "mode share\nthreads 1\n",
        "mode cap\n",
        "mode cap\nthreads 1\n1.0 alloc 0\n",
        "mode cap\nthreads 1\n0.0 alloc x\n",
        "mode cap\nthreads 1\n0.0 alloc\n",
    ] {
        assert!(wrong.parse::<Case>().is_err(), "{wrong}");
    }
}
