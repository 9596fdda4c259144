//! The differential fuzzer's kept cases, some seeds in each run, and as many more as time allows.
//!
//! `GPUTEST_FUZZ_SECONDS` makes it continue with new seeds for that long (`scripts/fuzz.sh`);
//! `GPUTEST_FUZZ_SEED` sets the first seed. A case that fails is shrunk, printed, and then also
//! written to `tests/data/fuzz.txt`, whose cases always run.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant};

use gpushare_tests::artefacts;
use gpushare_tests::referee::{Case, Mode};
use gpushare_tests::turns::now;

/// The file that keeps failed cases.
const KEPT: &str = "tests/data/fuzz.txt";
/// Calls per thread.
const CALLS: usize = 150;
/// Default number of seeds of each mode.
const SEEDS: u64 = 2;

fn case(mode: Mode, seed: u64, threads: usize) -> Case {
    Case {
        mode,
        seed,
        calls: CALLS,
        threads,
        only: Vec::new(),
    }
}

/// Fails with the smallest set of calls that shows the difference.
fn judge(case: &Case) {
    let Err(difference) = case.check() else {
        return;
    };
    let shrunk = case.shrunk();
    let still = shrunk.check().err();
    if std::env::var_os("GPUTEST_FUZZ_SECONDS").is_some() {
        let kept = artefacts::repository().join(KEPT);
        let mut kept = OpenOptions::new()
            .append(true)
            .open(kept)
            .expect("the kept cases are writable");
        writeln!(kept, "{shrunk}").expect("the kept cases are writable");
    }
    panic!(
        "{case}\n{difference}\nwith fewer calls, a line for {KEPT}:\n{shrunk}\n{}",
        still.unwrap_or_else(|| "which does not show it each time".to_owned())
    );
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// Fixed seeds; then further seeds, starting at the clock's reading, while time is left.
fn judges(mode: Mode, threads: usize) {
    let Some(seconds) = setting("GPUTEST_FUZZ_SECONDS") else {
        (1..=SEEDS).for_each(|seed| judge(&case(mode, seed, threads)));
        return;
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = setting("GPUTEST_FUZZ_SEED").unwrap_or_else(now);
    let mut runs = 0_u64;
    while Instant::now() < end {
        judge(&case(mode, seed, threads));
        (seed, runs) = (seed + 1, runs + 1);
    }
    eprintln!("{mode}, {threads} threads: {runs} seeds");
}

#[test]
fn calls_under_a_quota_answer_as_bare_but_for_out_of_memory() {
    judges(Mode::Quota, 1);
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
fn cases_that_failed_once_pass() {
    let kept = artefacts::repository().join(KEPT);
    let kept = std::fs::read_to_string(kept).expect("the kept cases are there");
    let lines = kept
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let cases: Vec<Case> = lines
        .map(|line| line.parse().expect("a case a line"))
        .collect();
    assert!(!cases.is_empty(), "no case is kept");
    cases.iter().for_each(judge);
}

/// A referee that finds no difference might compare nothing.
#[test]
fn a_referee_without_the_model_sees_a_quotas_effects() {
    let case = case(Mode::Quota, 1000, 1);
    case.check().expect("the quota explains it");
    let difference = case.check_without_model().expect_err("it refuses some");
    assert!(difference.starts_with("hooked: 0."), "{difference}");
    assert!(difference.contains(" 2\n"), "{difference}");
}

#[test]
fn a_case_is_written_as_it_is_read() {
    for line in ["quota 7 150 1", "turns 8 20 4 1,3,17"] {
        let case: Case = line.parse().expect("a case");
        assert_eq!(case.to_string(), line);
    }
    for line in ["", "quota x 1 1", "share 1 1 1", "cap 1 1 1 2,x"] {
        assert!(line.parse::<Case>().is_err(), "{line}");
    }
}
