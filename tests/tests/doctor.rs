//! `gpushare doctor`: the live proof on a software GPU, and what it says where a limit does not
//! hold.

use gpushare_tests::gpu::links;
use gpushare_tests::guest::clean;
use gpushare_tests::{Home, MIB, artefacts, clients, schema, until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The report, which is as described.
fn report(mut command: Command) -> Value {
    let output = command.output().expect("gpushare starts");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    schema::check("doctor.json", &report);
    let failed = report["verdict"] == "fail";
    assert_eq!(output.status.code(), Some(i32::from(failed)), "{output:?}");
    report
}

/// The report of a command line that has these files beside it in a folder of its own.
fn report_beside(home: &Home, files: &[(PathBuf, &str)]) -> Value {
    report_with(home, files, Path::new(""))
}

/// As [`report_beside`], where a stand-in for the driver writes which of its processes hangs.
fn report_with(home: &Home, files: &[(PathBuf, &str)], hung: &Path) -> Value {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, name) in files {
        std::fs::copy(file, folder.path().join(name)).expect("copied");
    }
    let command = folder.path().join("gpushare");
    std::fs::copy(artefacts::gpushare(), &command).expect("copied");
    let gpu = format!("soft:{}", home.gpu().spec());
    let mut command = clean(&command);
    command
        .args(["doctor", "--json", "--gpu", &gpu])
        .env("XDG_RUNTIME_DIR", home.folder())
        .env("XDG_STATE_HOME", home.folder().join("state"))
        .env("GPUTEST_HUNG", hung);
    report(command)
}

/// The software GPU's libraries.
fn soft() -> [(PathBuf, &'static str); 2] {
    [
        (artefacts::soft_cuda(), "libsoftgpu_cuda.so"),
        (artefacts::soft_nvml(), "libsoftgpu_nvml.so"),
    ]
}

/// A check of it: verdict, what was found, advice.
fn check(report: &Value, name: &str) -> (String, String, String) {
    let checks = report["checks"].as_array().expect("a list");
    let check = checks.iter().find(|check| check["check"] == name);
    let check = check.unwrap_or_else(|| panic!("no {name} in {report}"));
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), text("found"), text("advice"))
}

#[test]
fn a_limit_holds_in_every_way_on_this_node() {
    let home = Home::new("mem=16GiB");
    let gpu = format!("soft:{}", home.gpu().spec());
    let report = report(home.command(&["doctor", "--json", "--gpu", &gpu]));
    let (verdict, found, _) = check(&report, "limit-holds");
    assert_eq!(verdict, "ok", "{report}");
    assert!(found.contains("all 8 ways"), "{found}");
    for name in ["driver", "nvml", "device-nodes", "library", "variables"] {
        assert_eq!(check(&report, name).0, "ok", "{report}");
    }
    // For people: a line a check, and nothing but advice below.
    let output = home.gpushare(&["doctor", "--gpu", &gpu]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert!(text.contains("ok    limit-holds"), "{text}");
    assert!(!text.contains('\x1b'), "no colour into a pipe: {text}");
}

#[test]
fn a_limit_is_tried_while_a_tenant_queues_and_a_full_gpu_is_named() {
    let home = Home::new("mem=16GiB");
    let first = home.guest("first", &["--mem-limit", "14GiB"]);
    let mut events = home.events();
    let mut second = home.run("second", &["--mem-limit", "4GiB"]);
    second.arg("true");
    let mut second = second.spawn().expect("gpushare starts");
    events.until("queued", "second");
    let gpu = format!("soft:{}", home.gpu().spec());
    let beside = report(home.command(&["doctor", "--json", "--gpu", &gpu]));
    assert_eq!(check(&beside, "limit-holds").0, "ok", "{beside}");
    // It is of the same build.
    assert_eq!(check(&beside, "daemon").0, "ok", "{beside}");
    assert!(second.try_wait().expect("its state").is_none(), "it queues");
    first.finish().silently();
    assert!(second.wait().expect("it ends").success());
    // Nothing is left for the trial's own allocations.
    let mut full = home.guest("full", &["--mem-limit", "16100MiB"]);
    assert_eq!(full.ask(&format!("alloc {}", 16_100 * MIB)), "alloc 0");
    let beside = report(home.command(&["doctor", "--json", "--gpu", &gpu]));
    let (verdict, found, advice) = check(&beside, "limit-holds");
    assert_ne!(verdict, "ok", "{beside}");
    assert!(found.contains("too little free memory"), "{found}");
    assert!(advice.contains("gpushare ps"), "{advice}");
    full.finish().silently();
}

#[test]
fn a_limit_is_proven_without_a_daemons_program() {
    let home = Home::new("mem=16GiB");
    let [cuda, nvml] = soft();
    let library = (artefacts::interposer(), "libgpushare.so");
    let report = report_beside(&home, &[cuda, nvml, library]);
    let (verdict, found, _) = check(&report, "limit-holds");
    assert!(verdict == "ok" && found.contains("all 8 ways"), "{report}");
}

#[test]
fn a_library_that_does_nothing_is_found_out() {
    let home = Home::new("mem=16GiB");
    let [cuda, nvml] = soft();
    // It loads and hooks nothing.
    let nothing = clients::compile("nothing", &["-shared", "-fPIC"]);
    let nothing = (nothing, "libgpushare.so");
    let daemon = (artefacts::gpushared(), "gpushared");
    let report = report_beside(&home, &[cuda, nvml, nothing, daemon]);
    assert_eq!(check(&report, "library").0, "ok", "{report}");
    let (verdict, found, advice) = check(&report, "limit-holds");
    assert_eq!(verdict, "fail", "{report}");
    for way in [
        "dlsym",
        "cuGetProcAddress",
        "cuMemAllocAsync",
        "a graph",
        "a second process",
        "cuMemGetInfo",
        "NVML",
    ] {
        assert!(found.contains(way), "{way}: {found}");
    }
    assert!(advice.contains("do not rely on limits"), "{advice}");
}

#[test]
fn a_driver_that_hangs_in_the_trial_does_not_keep_the_doctor() {
    let home = Home::new("mem=16GiB");
    let [_, nvml] = soft();
    let hangs = clients::compile("hung_driver", &["-shared", "-fPIC"]);
    let hangs = (hangs, "libsoftgpu_cuda.so");
    let library = (artefacts::interposer(), "libgpushare.so");
    // The process that hangs writes its number here. It survives all but a kill.
    let file = home.folder().join("hung");
    let report = report_with(&home, &[hangs, nvml, library], &file);
    let (verdict, found, _) = check(&report, "limit-holds");
    assert_eq!(verdict, "fail", "{report}");
    assert!(found.contains("no answer within 12 s"), "{found}");
    let hung = std::fs::read_to_string(file).expect("it hung");
    let hung = PathBuf::from(format!("/proc/{}", hung.trim()));
    until("it was killed too", || !hung.exists());
}

#[test]
fn a_missing_driver_and_a_misspelt_variable_are_found() {
    let home = Home::new("mem=16GiB");
    let mut command = home.command(&["doctor", "--json"]);
    command
        .env("GPUSHARE_MEM_LIMT", "1GiB")
        .env("LD_LIBRARY_PATH", "/nowhere");
    let report = report(command);
    let (verdict, _, advice) = check(&report, "driver");
    assert!(
        verdict == "fail" && advice.contains("--gpu soft"),
        "{report}"
    );
    let (verdict, found, _) = check(&report, "variables");
    assert!(
        verdict == "fail" && found.contains("GPUSHARE_MEM_LIMT"),
        "{report}"
    );
    let (verdict, found, _) = check(&report, "limit-holds");
    assert!(
        verdict == "fail" && found.contains("could not be tried"),
        "{report}"
    );
}

#[test]
fn the_trial_itself_passes_the_limit_where_nothing_enforces_it() {
    let mut trial = clean(&artefacts::gpushare());
    trial
        .args(["doctor", "--proof"])
        .env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU", "mem=16GiB");
    let output = trial.output().unwrap();
    let ways: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ways.len(), 8, "{output:?}");
    for way in &ways {
        assert!(way["outcome"]["Passed"].is_string(), "{way}");
    }
}
