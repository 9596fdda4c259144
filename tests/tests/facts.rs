//! A program under `gpushare run` gets every answer that the driver alone would give: results,
//! errors, order, with and without a limit.

use gpushare_tests::guest::command;
use gpushare_tests::{Gpu, artefacts, clients};
use std::fs;

/// The one fact that a limit must change: an allocation of managed memory above the device's size,
/// and so above any limit. The facts after it are of that memory.
const ABOVE: &str = "beyond.alloc\tSUCCESS";
/// The last of them.
const ABOVE_ENDS: &str = "beyond.free\t";

/// The facts of a program under a limit: that memory is refused.
fn limited(all: &[String]) -> Vec<String> {
    let first = all.iter().position(|fact| fact == ABOVE).expect("a fact");
    let is_last = |fact: &String| fact.starts_with(ABOVE_ENDS);
    let last = all.iter().position(is_last).expect("a fact");
    let mut facts = all.to_vec();
    let refused = ABOVE.replace("SUCCESS", "OUT_OF_MEMORY");
    facts.splice(first..=last, [refused]);
    facts
}

/// The ends of the names of facts that newer drivers, as the one here, have not.
const OLDER: [&str; 2] = ["_before_13_1", "_before_13_3"];

/// The expected output: the transcript without the column of its origin.
fn transcript() -> Vec<String> {
    let path = artefacts::repository().join("softgpu/conformance/transcript.tsv");
    let text = fs::read_to_string(path).expect("the transcript is there");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (fact, _) = line.rsplit_once('\t').expect("three columns");
            match fact.split_once('\t') {
                Some((name, _)) if OLDER.iter().any(|end| name.ends_with(end)) => {
                    format!("{name}\tabsent")
                }
                _ => fact.to_owned(),
            }
        })
        .collect()
}

/// Whether an answer is the wanted one. Where a call ends a process on a real driver, softgpu gives
/// an error of its own choice.
fn agrees(wanted: &str, answer: &str) -> bool {
    let ended = wanted.split_once("\tsignal ").map(|(fact, _)| fact);
    wanted == answer
        || ended.is_some_and(|fact| {
            let given = answer.split_once('\t');
            given.is_some_and(|(asked, given)| asked == fact && given != "SUCCESS")
        })
}

/// The family of facts beside plain memory that takes nearly all of the device, which no limit
/// allows. It is not asked here.
const FULL: &str = "full.";

/// Asks all facts by `gpushare run` with these flags: each answer is the wanted one.
fn answers_are(wanted: &[String], flags: &[&str]) {
    let output = command(&Gpu::new("driver=13050,count=2,reuse=lifo"), flags)
        .arg(clients::facts())
        .arg("--beyond")
        .output()
        .expect("it runs");
    let answers = String::from_utf8(output.stdout).expect("ASCII");
    let answers: Vec<&str> = answers.lines().collect();
    let differ: Vec<_> = wanted
        .iter()
        .zip(&answers)
        .filter(|(wanted, answer)| !agrees(wanted, answer))
        .collect();
    assert!(
        differ.is_empty() && wanted.len() == answers.len(),
        "{flags:?}: {differ:#?}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{flags:?}");
}

fn all() -> Vec<String> {
    let mut all = transcript();
    all.retain(|fact| !fact.starts_with(FULL));
    all
}

#[test]
fn every_fact_of_the_driver_is_the_same_under_the_library() {
    answers_are(&all(), &[]);
}

#[test]
fn under_a_limit_only_what_exceeds_it_is_another_fact() {
    answers_are(&limited(&all()), &["--mem-limit", "4GiB"]);
}

#[test]
fn under_a_request_below_the_limit_facts_are_those_of_the_limit() {
    let flags = ["--mem-limit", "4GiB", "--mem-request", "1GiB"];
    answers_are(&limited(&all()), &flags);
}
