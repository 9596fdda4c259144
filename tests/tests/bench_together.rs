//! `gpushare bench share`: tenants that copy, tenants that start and stop, decoders, and jobs of
//! several tenants, compared with the bare driver. Figures are printed and not asserted, because
//! the machine may be loaded.

use gpushare_tests::{Home, artefacts, assert_measured};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs the benchmark on this home's GPU.
fn bench(home: &Home, flags: &[&str]) -> Output {
    let gpu = format!("soft:{}", home.gpu().spec());
    let always = ["bench", "share", "--gpu", &gpu, "--alone", "0"];
    home.gpushare(&[&always[..], flags].concat())
}

/// Runs the benchmark, which must succeed; returns everything measured.
fn measured(home: &Home, flags: &[&str]) -> Value {
    let file = home.folder().join("bench.json");
    let path = file.display().to_string();
    let output = bench(home, &[flags, &["--json", &path]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    show(&said);
    serde_json::from_slice(&fs::read(file).expect("it was written")).expect("it is JSON")
}

/// The figures, for a reader of the test's output.
#[allow(clippy::print_stdout, reason = "they are what this test is for")]
fn show(said: &str) {
    println!("{said}");
}

fn number(row: &Value, key: &str) -> f64 {
    row[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} of {row}"))
}

#[test]
fn only_a_copying_tenant_is_reported_in_bytes() {
    let home = Home::new("");
    let all = measured(
        &home,
        &[
            "--seconds",
            "2",
            "--tenant",
            "name=mover,mode=copy,copy=1MiB",
            "--tenant",
            "name=both,kernel=500us,copy=1MiB",
            "--tenant",
            "name=plain,kernel=500us",
            "--tenant",
            "name=sets,mode=memset,copy=1MiB",
        ],
    );
    let [mover, both, plain, sets] = [0, 1, 2, 3].map(|at| &all["experiments"][0]["tenants"][at]);
    for one in [mover, sets] {
        assert!(number(one, "copied_per_s") > 0.0);
        assert_eq!(number(one, "device"), 0.0);
        assert!(one["launches_per_s"].is_null());
    }
    // One copy every 10 ms at most.
    let copied = number(both, "copied_per_s");
    assert!(copied > 0.0);
    assert_measured!(copied <= 110.0 * 1024.0 * 1024.0, "{copied}");
    assert!(number(both, "device") > 0.0);
    assert!(plain["copied_per_s"].is_null() && number(plain, "device") > 0.0);
}

#[test]
fn a_tenant_that_starts_and_stops_is_measured_at_its_starts() {
    let home = Home::new("");
    let all = measured(
        &home,
        &[
            "--seconds",
            "3",
            "--bare",
            "--tenant",
            "name=guest,kernel=100us,mode=sync,every=5ms,churn=500ms",
            "--tenant",
            "name=stays,kernel=100us,mode=sync,every=5ms",
        ],
    );
    let [guest, stays] = [0, 1].map(|at| &all["experiments"][0]["tenants"][at]);
    let newcomer = &guest["newcomer"];
    assert_measured!(number(newcomer, "visits") >= 2.0, "{guest}");
    let (median, worst) = (number(newcomer, "median"), number(newcomer, "worst"));
    assert!(worst <= median, "{guest}");
    assert_measured!(median > 0.0, "{guest}");
    assert_measured!(number(newcomer, "second_median") > 0.0, "{guest}");
    assert!(guest["asked"].is_null(), "it is not always there");
    let pids = |row: &Value| row["pids"].as_array().map_or(0, Vec::len);
    assert_measured!(pids(guest) >= 2, "{guest}");
    assert_eq!(pids(stays), 1);
    assert!(stays["newcomer"].is_null());
    assert!((number(stays, "asked") - 0.02).abs() < 1e-9);
}

#[test]
fn a_decoder_waits_for_each_graph() {
    let home = Home::new("");
    let all = measured(
        &home,
        &[
            "--seconds",
            "1",
            "--bare",
            "--tenant",
            "name=decode,kernel=100us,nodes=10,mode=decode,every=20ms",
            "--tenant",
            "name=graphs,kernel=100us,nodes=10,mode=graph",
        ],
    );
    let [decode, graphs] = [0, 1].map(|at| &all["experiments"][0]["tenants"][at]);
    assert!(number(&decode["latency"], "p50_ns") >= 1_000_000.0);
    assert!(graphs["latency"].is_null());
    assert!(number(decode, "device") > 0.0 && number(graphs, "device") > 0.0);
}

#[test]
fn tenants_of_one_job_synchronise_across_gpus_and_all_end() {
    let home = Home::new("count=2");
    let pods = [
        "--tenant",
        "name=pod1,kernel=250us,mode=gang,job=j",
        "--tenant",
        "name=pod2,kernel=250us,mode=gang,gpus=1,job=j",
    ];
    for how in [&["--bare"][..], &[]] {
        let all = measured(&home, &[&pods[..], how, &["--seconds", "2"]].concat());
        let rates = [0, 1].map(|gpu| {
            let row = &all["experiments"][gpu]["tenants"][0];
            number(row, "collectives_per_s")
        });
        // They run in lockstep: neither can be far ahead of the other.
        assert!(rates[0] > 0.0, "{rates:?}");
        assert_measured!((rates[0] / rates[1] - 1.0).abs() < 0.2, "{rates:?}");
    }
    let alone = bench(&home, &pods[..2]);
    let said = String::from_utf8_lossy(&alone.stderr);
    assert!(matches!(alone.status.code(), Some(1 | 2)), "{said}");
    assert!(said.contains("one tenant only"), "{said}");
}

#[test]
fn what_was_measured_is_kept_when_a_later_experiment_fails() {
    let home = Home::new("mem=256MiB");
    let file = home.folder().join("bench.json");
    let path = file.display().to_string();
    // Its copies do not fit the device, which is found out when it starts.
    let large = "name=large,mode=copy,copy=1GiB";
    let flags = ["--seconds", "1", "--bare", "--json", &path];
    let both = ["--preset", "equal", "--tenant", large];
    let output = bench(&home, &[&flags[..], &both].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tenant large is lost"), "{said}");
    let kept = fs::read(&file).expect("the first experiment was written");
    let kept: Value = serde_json::from_slice(&kept).expect("it is JSON");
    let names: Vec<&Value> = kept["experiments"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|outcome| &outcome["name"])
        .collect();
    assert_eq!(names, ["equal"]);
}

#[test]
fn pairs_of_runs_are_one_table_in_markdown() {
    let home = Home::new("");
    let file = home.folder().join("table.md");
    let path = file.display().to_string();
    let flags = ["--markdown", &path, "--seconds", "1", "--preset", "gaps-2"];
    let all = measured(
        &home,
        &[&flags[..], &["--compare-bare", "--pairs", "3"]].concat(),
    );
    let runs = |key: &str| all[key].as_array().map_or(0, Vec::len);
    assert_eq!(
        (runs("experiments"), runs("without"), runs("comparisons")),
        (3, 3, 1)
    );
    let both = &all["comparisons"][0];
    for figure in ["useful", "used"] {
        for side in ["bare", "shared"] {
            let part = number(&both[figure], side);
            assert!(part > 0.0, "{figure} {side}: {part}");
            assert_measured!(part <= 1.01, "{figure} {side}: {part}");
        }
    }
    let table = fs::read_to_string(&file).expect("it was written");
    assert!(table.contains("3 pairs of runs") && table.contains("| gaps-2 | all |"));
    assert!(
        table.contains("| | a |") && table.contains("| | b |"),
        "{table}"
    );
    let refused = bench(&home, &flags);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("--compare-bare"),
        "{said}"
    );
}

#[test]
fn pairs_of_runs_without_a_middle_one_are_refused() {
    let home = Home::new("");
    for pairs in ["2", "0", "101", "many"] {
        let refused = bench(&home, &["--compare-bare", "--pairs", pairs]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("an odd number from 1 to 99"), "{said}");
    }
    let flags = ["--compare-bare", "--pairs", "99", "--preset", "none"];
    let refused = bench(&home, &flags);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("accepted: equal"), "{said}");
}

/// `scripts/bench_together.sh` in a folder of its own, with commands that measure nothing: its page
/// and whether it succeeded. The benchmark writes its part of the page, and ends with this status.
fn page_of_a_script(status: u8) -> (String, bool) {
    let folder = TempDir::new().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    for path in ["scripts", "bin", "target/release", "docs/results"] {
        fs::create_dir_all(at(path)).expect("a folder");
    }
    for script in ["scripts/common.sh", "scripts/bench_together.sh"] {
        fs::copy(artefacts::repository().join(script), at(script)).expect("a copy");
    }
    let bench = format!(
        "while [ $# -gt 0 ]; do [ \"$1\" = --markdown ] && echo measured >\"$2\"; shift; done; exit {status}"
    );
    for (path, text) in [("bin/cargo", "exit 0"), ("target/release/gpushare", &bench)] {
        fs::write(at(path), format!("#!/bin/sh\n{text}\n")).expect("it is written");
        fs::set_permissions(at(path), Permissions::from_mode(0o755)).expect("it is ours");
    }
    let path = std::env::var("PATH").expect("a path");
    let mut command = Command::new("bash");
    command
        .arg(at("scripts/bench_together.sh"))
        .env("PATH", format!("{}:{path}", at("bin").display()))
        .env("CARGO_TARGET_DIR", at("target"))
        .env("GROUPS_OF", "together");
    let output = command.output().expect("bash runs");
    let mut pages = fs::read_dir(at("docs/results")).expect("a folder");
    let page = pages.next().map(|page| page.expect("a page").path());
    let page = page.map(|page| fs::read_to_string(page).expect("text"));
    (page.unwrap_or_default(), output.status.success())
}

#[test]
fn a_page_has_what_was_measured_before_an_experiment_failed() {
    for (status, succeeds) in [(0, true), (1, false)] {
        let (page, succeeded) = page_of_a_script(status);
        assert!(page.ends_with("\nmeasured\n"), "{status}: {page:?}");
        assert_eq!(succeeded, succeeds);
    }
}
