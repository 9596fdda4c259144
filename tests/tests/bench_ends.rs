//! `gpushare bench`: the ends of its processes, and the files that it is told to write.

use gpushare_tests::{Home, until};
use softgpu::inspect;
use std::fs::{self, File};
use std::process::Stdio;

/// Processes that have this home's GPU open, each with the time for which it was served (ns).
fn processes(home: &Home) -> Vec<(i32, u64)> {
    let snapshot = inspect::snapshot(home.gpu().name()).expect("readable");
    let devices = snapshot.into_iter().flat_map(|snapshot| snapshot.devices);
    let processes = devices.flat_map(|device| device.processes);
    processes
        .map(|process| (process.pid, process.served[0]))
        .collect()
}

#[test]
fn tenants_of_a_benchmark_that_is_killed_end_with_it() {
    for flags in [
        &["--bare", "--tenant", "name=a"][..],
        &["--tenant", "name=a"],
        &[
            "--bare",
            "--tenant",
            "name=a,mode=sync,every=1ms,churn=500ms",
        ],
    ] {
        let home = Home::new("");
        let gpu = format!("soft:{}", home.gpu().spec());
        let mut bench = home.command(&["bench", "share", "--gpu", &gpu, "--seconds", "300"]);
        bench.args(["--alone", "0"]).args(flags);
        let mut bench = bench.stdout(Stdio::null()).spawn().expect("it starts");
        // Longer than what a tenant does before it is told to work.
        until("a tenant works", || {
            processes(&home).iter().any(|(_, ns)| *ns > 50_000_000)
        });
        bench.kill().expect("it lives");
        bench.wait().expect("it is ours");
        until("no tenant is left", || processes(&home).is_empty());
        home.until_no_daemon();
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_measured() {
    let home = Home::new("");
    let gpu = format!("soft:{}", home.gpu().spec());
    let missing = home.folder().join("none/file").display().to_string();
    let folder = home.folder().display().to_string();
    for (what, flag, path) in [
        ("share", "--json", &missing),
        ("share", "--svg", &missing),
        ("share", "--markdown", &folder),
        ("interference", "--svg", &missing),
        ("swap", "--markdown", &missing),
    ] {
        let mut bench = home.command(&["bench", what, "--gpu", &gpu, "--seconds", "1"]);
        match what {
            "share" => bench.args(["--preset", "cap10", "--compare-bare"]),
            _ => &mut bench,
        };
        let output = bench.args([flag, path]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{what} {flag}: {said}");
        assert!(said.contains(&format!("cannot write {path}")), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    // It is not made for the sake of that.
    let later = home.folder().join("later.json").display().to_string();
    let refused = ["bench", "share", "--gpu", "7", "--tenant", "name=a"];
    let output = home.gpushare(&[&refused[..], &["--json", &later]].concat());
    assert!(!output.status.success());
    assert!(!fs::exists(later).expect("it is readable"));
}

#[test]
fn data_on_standard_output_stand_behind_the_text_and_once() {
    let home = Home::new("");
    let gpu = format!("soft:{}", home.gpu().spec());
    let log = home.folder().join("log");
    let mut bench = home.command(&["bench", "share", "--gpu", &gpu, "--seconds", "1"]);
    bench.args(["--bare", "--alone", "0", "--preset", "cap10"]);
    bench.args(["--preset", "cap30", "--json", "/dev/stdout"]);
    bench.stdout(File::create(&log).expect("it is ours"));
    assert!(bench.status().expect("it starts").success());
    let text = fs::read_to_string(log).expect("it is text");
    let (said, data) = text.split_once("\n{").expect("data");
    assert!(
        said.contains("cap10: ") && said.contains("cap30: "),
        "{text}"
    );
    let data: serde_json::Value = serde_json::from_str(&format!("{{{data}")).expect("one object");
    let experiments = data["experiments"].as_array().map(Vec::len);
    assert_eq!(experiments, Some(2), "{text}");
}
