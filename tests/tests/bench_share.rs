//! `gpushare bench share`: real tenants on the software GPU, with and without gpushare. The
//! assertions on shares are wide, because this may run on a loaded machine. The figures are
//! printed; those of a quiet machine are in docs/results.

use gpushare_tests::{Home, assert_measured};
use serde_json::Value;
use std::fs;

/// The experiment of these tenants, as JSON.
fn measured(home: &Home, flags: &[&str]) -> Value {
    all_measured(home, "2", flags)[0].clone()
}

/// All outcomes of so many seconds each, as JSON.
fn all_measured(home: &Home, seconds: &str, flags: &[&str]) -> Value {
    let file = home.folder().join("bench.json");
    let gpu = format!("soft:{}", home.gpu().spec());
    let path = file.display().to_string();
    let always = [
        "bench",
        "share",
        "--gpu",
        &gpu,
        "--seconds",
        seconds,
        "--alone",
        "0",
        "--json",
        &path,
    ];
    let output = home.gpushare(&[&always[..], flags].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    show(&said);
    let all: Value =
        serde_json::from_slice(&fs::read(file).expect("it was written")).expect("it is JSON");
    all["experiments"].clone()
}

/// Prints the figures for the reader of the test's output.
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
fn the_driver_alone_shares_by_processes_whatever_their_kernels() {
    let home = Home::new("");
    let tenants = [
        "--bare",
        "--tenant",
        "name=short,kernel=50us",
        "--tenant",
        "name=long,kernel=20ms,procs=2",
    ];
    let outcome = measured(&home, &tenants);
    let share = number(&outcome["tenants"][0], "share");
    assert_measured!((share - 1.0 / 3.0).abs() < 0.1, "{share}");
    assert!(
        outcome["idle"].is_null(),
        "kernels overlap: ends say nothing of beginnings"
    );
}

#[test]
fn shares_go_by_weight_and_a_cap_holds() {
    let home = Home::new("");
    let outcome = measured(
        &home,
        &["--tenant", "name=a,share=75", "--tenant", "name=b,share=25"],
    );
    let [a, b] = [0, 1].map(|at| number(&outcome["tenants"][at], "share"));
    assert_measured!(a > b && (a - 0.75).abs() < 0.2, "{a}:{b}");
    let outcome = measured(&home, &["--tenant", "name=a,cap=30"]);
    let device = number(&outcome["tenants"][0], "device");
    assert_measured!((0.02..0.4).contains(&device), "{device}");
}

#[test]
fn the_shells_own_limits_hold_for_no_tenant_of_a_benchmark() {
    let home = Home::new("");
    let file = home.folder().join("bench.json");
    let gpu = format!("soft:{}", home.gpu().spec());
    let mut bench = home.command(&["bench", "share", "--gpu", &gpu, "--json"]);
    bench.arg(&file).args(["--seconds", "2", "--alone", "0"]);
    bench.args(["--tenant", "name=a", "--tenant", "name=b,cap=20"]);
    let output = bench.env("GPUSHARE_SM_LIMIT", "20").output();
    let output = output.expect("gpushare starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("GPUSHARE_SM_LIMIT left out"), "{said}");
    let text = fs::read(file).expect("it was written");
    let all: Value = serde_json::from_slice(&text).expect("it is JSON");
    let tenants = &all["experiments"][0]["tenants"];
    let [free, capped] = [0, 1].map(|at| number(&tenants[at], "device"));
    assert_measured!(free > 0.4 && capped < 0.3, "{free} beside {capped}");
    // Without one nothing is said.
    let mut bench = home.command(&["bench", "share", "--gpu", &gpu, "--seconds", "1"]);
    let output = bench.args(["--alone", "0", "--tenant", "name=a"]).output();
    let said = output.expect("gpushare starts").stderr;
    assert!(!String::from_utf8_lossy(&said).contains("left out"));
}

#[test]
fn idle_time_between_turns_is_measured_where_a_daemon_gives_turns() {
    let two = ["--tenant", "name=a", "--tenant", "name=b"];
    let turns = Home::with_config("", "[compute]\nsharing = \"turns\"\n");
    let outcome = measured(&turns, &two);
    assert!(outcome["idle"].is_number(), "{outcome}");
    assert!(outcome["tenants"][0]["turns"].is_number(), "{outcome}");
    // Without one they overlap, and with one that lets them share.
    let shared = Home::new("");
    for flags in [&["--daemon", "off"][..], &["--daemon", "on"]] {
        let outcome = measured(&shared, &[&two[..], flags].concat());
        assert!(outcome["idle"].is_null(), "{outcome}");
        assert_eq!(outcome["handoffs"], serde_json::json!([]), "{outcome}");
        assert!(outcome["tenants"][0]["turns"].is_null(), "{outcome}");
    }
}

#[test]
fn requests_that_outgrow_a_run_are_said_to_be_in_line() {
    let home = Home::new("");
    // It asks for twice of what there is. The other one asks for a hundredth.
    let outcome = measured(
        &home,
        &[
            "--bare",
            "--tenant",
            "name=flooded,kernel=2ms,mode=sync,every=1ms,arrivals=poisson",
            "--tenant",
            "name=easy,kernel=100us,mode=sync,every=10ms,arrivals=poisson",
            "--tenant",
            "name=regular,kernel=100us,mode=sync,every=10ms",
        ],
    );
    let [flooded, easy, regular] = [0, 1, 2].map(|at| &outcome["tenants"][at]);
    let line = &flooded["in_line"];
    assert!(number(line, "count") > 500.0, "{flooded}");
    let (oldest, latency) = (number(line, "oldest_ns"), &flooded["latency"]);
    assert!(oldest > 500e6, "{flooded}");
    assert!(number(latency, "max_ns") >= oldest, "{flooded}");
    assert!(
        number(latency, "count") > 1_500.0,
        "those in line count: {flooded}"
    );
    assert_measured!(number(&easy["in_line"], "count") < 20.0, "{easy}");
    assert!(regular["in_line"].is_null(), "{regular}");
}

#[test]
fn an_impossible_experiment_is_refused_before_it_starts() {
    let home = Home::new("");
    for (flags, blamed) in [
        (&["--gpu", "soft"][..], "nothing to run"),
        (&["--gpu", "soft", "--preset", "none"], "accepted: equal"),
        (
            &["--gpu", "soft", "--tenant", "name=a,share=0"],
            "share=\"0\"",
        ),
        (&["--gpu", "soft", "--tenant", "foo=1"], "foo"),
        (
            &["--gpu", "soft", "--tenant", "name=a,mode=gang,job=j"],
            "--tenant: ",
        ),
        (
            &["--gpu", "soft", "--tenant", "name=a", "--tenant", "name=a"],
            "two tenants",
        ),
        (
            &["--gpu", "soft", "--bare", "--daemon", "on"],
            "'--bare' cannot be used with '--daemon",
        ),
    ] {
        let output = home.gpushare(&[&["bench", "share"], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(blamed), "{said}");
    }
    // It is understood, and cannot be had.
    let output = home.gpushare(&["bench", "share", "--gpu", "7", "--tenant", "name=a"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
    assert!(said.contains("there is no GPU"), "{said}");
}

#[test]
fn a_gang_is_measured_on_each_of_its_gpus_beside_a_tenant_on_each() {
    let home = Home::new("count=2");
    let outcomes = all_measured(&home, "5", &["--preset", "gang"]);
    let outcomes = outcomes.as_array().expect("a list");
    assert_eq!(outcomes.len(), 2, "one for each GPU");
    for (gpu, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome["gpu"], gpu);
        let [gang, other] = [0, 1].map(|at| &outcome["tenants"][at]);
        assert_eq!(
            [&gang["name"], &other["name"]],
            ["both", ["one", "two"][gpu]]
        );
        let rate = number(gang, "collectives_per_s");
        assert!(rate > 0.0 && rate <= 4_000.0, "{rate}");
        assert!(other["collectives_per_s"].is_null());
        for row in [gang, other] {
            let device = number(row, "device");
            assert!(device > 0.0 && device < 1.0, "{row}");
            assert!(
                number(row, "holds") >= 0.0 && row["turns"].is_null(),
                "{row}"
            );
        }
    }
}

#[test]
fn with_one_gpu_an_experiment_on_two_is_refused_before_it_starts() {
    let home = Home::new("");
    let gpu = format!("soft:{}", home.gpu().spec());
    for flags in [
        &["--preset", "gang"][..],
        &["--tenant", "name=a,mode=gang,gpus=0+1"],
        &["--tenant", "name=a,gpus=1"],
    ] {
        let output = home.gpushare(&[&["bench", "share", "--gpu", &gpu], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
        assert!(
            said.contains("needs 2 GPUs, and here tenants see 1"),
            "{said}"
        );
        assert!(
            !String::from_utf8_lossy(&output.stdout).contains("TENANT"),
            "nothing was started"
        );
    }
}

#[test]
fn the_same_tenants_are_compared_with_and_without_gpushare() {
    let home = Home::new("");
    let file = home.folder().join("both.json");
    let gpu = format!("soft:{}", home.gpu().spec());
    let path = file.display().to_string();
    let tenants = [
        "name=burst,kernel=100us,mode=burst,depth=4,every=10ms",
        "name=random,kernel=100us,mode=sync,every=5ms,arrivals=poisson",
    ];
    let output = home.gpushare(&[
        "bench",
        "share",
        "--compare-bare",
        "--alone",
        "0",
        "--seconds",
        "2",
        "--gpu",
        &gpu,
        "--json",
        &path,
        "--tenant",
        tenants[0],
        "--tenant",
        tenants[1],
    ]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{output:?}");
    show(&said);
    assert!(said.contains("tenants: without gpushare against with it"));
    let all: Value =
        serde_json::from_slice(&fs::read(file).expect("it was written")).expect("it is JSON");
    let both = &all["comparisons"][0];
    for (row, name) in [(0, "burst"), (1, "random")] {
        let tenant = &both["tenants"][row];
        assert_eq!(tenant["name"], name);
        for side in ["bare", "shared"] {
            let device = number(&tenant["device"], side);
            assert_measured!(device > 0.0 && device < 0.2, "{name} {side}: {device}");
        }
        let waits = &tenant["wait_p99"];
        assert!(number(waits, "bare") > 0.0 && number(waits, "shared") > 0.0);
        assert_eq!(
            tenant["missed"].is_object(),
            name == "burst",
            "random ones wait in line"
        );
    }
    let of = |key: &str| number(&all[key][0]["tenants"][0], "device");
    let device = &both["tenants"][0]["device"];
    assert_eq!(
        (of("without"), of("experiments")),
        (number(device, "bare"), number(device, "shared"))
    );
}

#[test]
#[ignore = "long tier: fourteen runs of three seconds"]
fn neighbours_are_measured_in_pairs_and_a_software_gpu_says_so() {
    let home = Home::new("mem=16GiB");
    let gpu = format!("soft:{}", home.gpu().spec());
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("m.json"), folder.path().join("m.svg"));
    let mut bench = home.command(&["bench", "interference", "--gpu", &gpu, "--json"]);
    let output = bench.arg(&json).arg("--svg").arg(&svg).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("The software GPU models no caches"), "{said}");
    let matrix: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let names = ["compute", "stream", "cache", "copy"];
    assert_eq!(matrix["tenants"], serde_json::json!(names));
    for (row, name) in names.iter().enumerate() {
        assert!(matrix["alone"][row].as_f64().unwrap() > 0.0, "{name} alone");
        assert_eq!(matrix["beside"][row].as_array().unwrap().len(), names.len());
        assert!(said.lines().any(|line| line.trim_start().starts_with(name)));
    }
    // Two tenants that compute share the time; neither can have more than all of it.
    let pair = matrix["beside"][0][0].as_f64().unwrap();
    assert!(pair > 0.1 && pair < 0.9, "{pair}");
    let svg = fs::read_to_string(svg).unwrap();
    assert_eq!(svg.matches("class=\"cell\"").count(), names.len().pow(2));
}
