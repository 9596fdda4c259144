//! `scripts/gpu/verify.py` is meant for machines with a GPU, which this project seldom has. On the
//! software GPU its report is complete: it names the rows that passed, hung, could not run, or had
//! no time left. Its figures are not checked here.

use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{artefacts, clients};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

struct Run {
    output: Output,
    report: String,
}

impl Run {
    /// The verdict of a row and its observation.
    fn row(&self, name: &str) -> (&str, &str) {
        let start = format!("| {name} | **");
        let line = self.report.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no row {name:?} in\n{}", self.report));
        line[start.len()..].split_once("** | ").expect("a verdict")
    }

    fn last_line(&self) -> &str {
        self.report.lines().last().expect("it says something")
    }
}

fn verify(gpushare: &Path, flags: &[&str]) -> Run {
    let out = TempDir::new().expect("a folder");
    let output = Command::new("python3")
        .arg(artefacts::repository().join("scripts/gpu/verify.py"))
        .args(["--soft", "--gpushare"])
        .arg(gpushare)
        .arg("--out")
        .arg(out.path())
        .args(flags)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 runs");
    let files = fs::read_dir(out.path()).expect("it is there");
    let report = files
        .map(|entry| entry.expect("a file").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "md"))
        .unwrap_or_else(|| panic!("no report: {}", String::from_utf8_lossy(&output.stderr)));
    let name = report.file_name().expect("it has one").to_string_lossy();
    assert!(name.ends_with("-verify-softgpu.md"), "{name}");
    let report = fs::read_to_string(&report).expect("it is text");
    Run { output, report }
}

/// A `gpushare` that hangs, with a child, if the command line contains `word`; otherwise it is the
/// real one.
fn hangs_at(word: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for library in [
        artefacts::soft_cuda(),
        artefacts::soft_nvml(),
        artefacts::interposer(),
    ] {
        let name = library.file_name().expect("it has one");
        symlink(&library, folder.path().join(name)).expect("a link");
    }
    let shim = folder.path().join("gpushare");
    let real = artefacts::gpushare();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *{word}*) sleep 1000 & wait ;; esac\nexec {} \"$@\"\n",
        real.display()
    );
    fs::write(&shim, script).expect("it is written");
    fs::set_permissions(&shim, Permissions::from_mode(0o755)).expect("it is ours");
    folder
}

#[test]
fn a_row_that_hangs_fails_in_its_own_time_and_the_next_one_passes() {
    let folder = hangs_at("linear");
    let flags = ["--row", "8", "--only", "^quota: (linear|pitch)$"];
    let run = verify(&folder.path().join("gpushare"), &flags);
    assert_eq!(run.output.status.code(), Some(1));
    let (verdict, seen) = run.row("quota: linear");
    assert!(
        verdict == "FAIL" && seen.starts_with("no end within 8 s"),
        "{seen}"
    );
    assert_eq!(run.row("quota: pitch").0, "PASS");
    assert!(
        run.last_line().starts_with("1 FAIL, 1 PASS; "),
        "{}",
        run.report
    );
}

#[test]
fn passed_rows_give_status_0_and_unavailable_rows_are_named() {
    let flags = [
        "--only",
        "^(quota: two C programs|time: cap30|the driver's limits for cgroups)$",
    ];
    let run = verify(&artefacts::gpushare(), &flags);
    assert_eq!(run.output.status.code(), Some(0), "{}", run.report);
    assert_eq!(run.row("quota: two C programs").0, "PASS");
    assert_eq!(run.row("time: cap30").0, "PASS");
    assert_eq!(
        run.row("the driver's limits for cgroups").0,
        "not available"
    );
    let named = "NOT SHOWN, softgpu has no limits for cgroups: the driver's limits for cgroups.";
    assert!(run.report.contains(named), "{}", run.report);
}

#[test]
fn what_moving_memory_rests_on_is_measured_and_what_lacks_is_said() {
    let rows = "^swap: (the driver's mapping calls|host memory, by kind)$";
    let run = verify(&artefacts::gpushare(), &["--only", rows]);
    assert_eq!(run.output.status.code(), Some(0), "{}", run.report);
    let (_, calls) = run.row("swap: the driver's mapping calls");
    for word in ["create ", "of mapped memory", "by NVML", "no checkpoint"] {
        assert!(calls.contains(word), "{word}: {calls}");
    }
    let (_, kinds) = run.row("swap: host memory, by kind");
    for kind in ["a file in memory: filled", "pages of 4 KiB: filled"] {
        assert!(kinds.contains(kind), "{kind}: {kinds}");
    }
    assert!(kinds.contains("a handle on a node: none here"), "{kinds}");
}

#[test]
fn groups_of_one_row_have_the_gpu_one_after_the_other() {
    // Each has a daemon of its own, and a GPU has one daemon at a time.
    let tenant = artefacts::repository().join("tests/clients/tenant.py");
    let rows = "^PyTorch time: (alone, without gpushare|an inference loop beside training|what gpushare costs alone)$";
    let flags = ["--tenant", tenant.to_str().expect("UTF-8"), "--only", rows];
    let run = verify(&artefacts::gpushare(), &flags);
    assert_eq!(run.output.status.code(), Some(0), "{}", run.report);
    assert!(run.last_line().starts_with("3 PASS; "), "{}", run.report);
}

#[test]
fn what_a_real_gpu_must_not_be_asked_is_no_fact_of_the_report() {
    let program = clients::facts();
    let said = |flags: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(flags)
            .arg(artefacts::soft_cuda())
            .env("SOFTGPU", "driver=13050");
        String::from_utf8(command.output().expect("it runs").stdout).expect("ASCII")
    };
    assert!(!said(&[]).contains("beyond.") && said(&["--beyond"]).contains("beyond.alloc"));
}

#[test]
fn rows_without_time_are_not_available_and_are_no_success() {
    let folder = hangs_at("linear");
    let flags = ["--seconds", "12", "--only", "^quota: (linear|pitch)$"];
    let run = verify(&folder.path().join("gpushare"), &flags);
    assert_eq!(run.output.status.code(), Some(1));
    for row in ["quota: linear", "quota: pitch"] {
        assert_eq!(run.row(row).0, "not available", "{}", run.report);
    }
    assert!(
        run.last_line().starts_with("2 not available; "),
        "{}",
        run.report
    );
}

#[test]
#[ignore = "long tier: needs runc and root"]
fn a_container_by_each_door_passes_with_an_installed_runc() {
    let test = "a_container_by_each_door_passes_with_an_installed_runc";
    if Command::new("runc").arg("--version").output().is_err() {
        return not_runnable_here(test, "runc is not installed");
    }
    let run = verify(&artefacts::gpushare(), &["--only", "^a container by "]);
    assert_eq!(run.output.status.code(), Some(0), "{}", run.report);
    for door in ["hook", "wrapper", "CDI"] {
        let (verdict, seen) = run.row(&format!("a container by {door}"));
        assert_eq!(verdict, "PASS", "{seen}");
        for word in [
            "sees 512 MiB",
            "then error 2",
            "in its cgroup",
            "NVML lists it",
        ] {
            assert!(seen.contains(word), "{word}: {seen}");
        }
    }
}
