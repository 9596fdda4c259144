//! `scripts/gpu/verify.py` is meant for machines with a GPU, which this project seldom has. On the
//! software GPU its report is complete: it names the rows that passed, hung, could not run, or had
//! no time left. Its figures are not checked here.

use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{artefacts, clients, until};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

mod kinds;
mod moves;
mod plan;

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

/// `verify.py` on the software GPU, with its report in this folder.
fn verifies(gpushare: &Path, out: &TempDir, flags: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .arg(artefacts::repository().join("scripts/gpu/verify.py"))
        .args(["--soft", "--gpushare"])
        .arg(gpushare)
        .arg("--out")
        .arg(out.path())
        .args(flags)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The report's file that ends so, if there is one yet.
fn written(out: &TempDir, end: &str) -> Option<String> {
    let files = fs::read_dir(out.path()).expect("it is there");
    let mut paths = files.map(|entry| entry.expect("a file").path());
    let path = paths.find(|path| path.to_string_lossy().ends_with(end))?;
    Some(fs::read_to_string(path).expect("it is text"))
}

fn run(gpushare: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Run {
    let out = TempDir::new().expect("a folder");
    let mut command = verifies(gpushare, &out, flags);
    let output = command
        .envs(environment.iter().copied())
        .output()
        .expect("python3 runs");
    let report = written(&out, "-verify-softgpu.md")
        .unwrap_or_else(|| panic!("no report: {}", String::from_utf8_lossy(&output.stderr)));
    Run { output, report }
}

fn verify(gpushare: &Path, flags: &[&str]) -> Run {
    run(gpushare, flags, &[])
}

/// Rows about PyTorch whose tenants are of these rates, with 1 alone and without gpushare.
fn with_rates(rates: &str, only: &str) -> Run {
    with_steps(rates, "", only)
}

/// The same, with steps of these lengths.
fn with_steps(rates: &str, steps: &str, only: &str) -> Run {
    let environment = [("GPUTEST_RATES", rates), ("GPUTEST_STEPS", steps)];
    tenants(&artefacts::gpushare(), only, &environment)
}

/// Rows about PyTorch with tenants that are told this.
fn tenants(gpushare: &Path, only: &str, environment: &[(&str, &str)]) -> Run {
    let tenant = artefacts::repository().join("tests/clients/tenant.py");
    let flags = ["--tenant", tenant.to_str().expect("UTF-8"), "--only", only];
    run(gpushare, &flags, environment)
}

/// A `gpushare` that hangs, with a child and for as long as its folder is there, if the command
/// line contains `word`; otherwise it is the real one.
fn hangs_at(word: &str) -> TempDir {
    differs_at(word, "while [ -d {folder} ]; do sleep 1 & wait; done")
}

/// The same, but it says nothing and succeeds.
fn says_nothing_at(word: &str) -> TempDir {
    differs_at(word, "exit 0")
}

fn differs_at(word: &str, how: &str) -> TempDir {
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
    let how = how.replace("{folder}", &folder.path().display().to_string());
    let how = how.replace("{real}", &real.display().to_string());
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *\"{word}\"*) {how} ;; esac\nexec {} \"$@\"\n",
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
    let rows = "^PyTorch time: (alone, without gpushare|an inference loop beside training|what gpushare costs alone)$";
    let run = with_rates("", rows);
    assert_eq!(run.output.status.code(), Some(0), "{}", run.report);
    assert!(run.last_line().starts_with("3 PASS; "), "{}", run.report);
}

#[test]
fn rows_measure_themselves_what_they_compare_with() {
    let rows = "^PyTorch time: (two: matmul 70, attention 30|a gang of two beside a third|matmul beside decode, without and with)$";
    let run = with_rates("matmul=0.69 attention=0.3", rows);
    assert_eq!(run.output.status.code(), Some(0), "{}", run.report);
    assert!(run.last_line().starts_with("3 PASS; "), "{}", run.report);
    let (_, seen) = run.row("PyTorch time: two: matmul 70, attention 30");
    assert!(seen.contains("(-0.30 pp, goal 1)"), "{seen}");
}

#[test]
fn a_share_that_is_far_off_fails_its_row() {
    let row = "PyTorch time: two: matmul 70, attention 30";
    let run = with_rates("matmul=0.5 attention=0.5", &format!("^{row}$"));
    assert_eq!(run.row(row).0, "FAIL", "{}", run.report);
}

/// Steps take less time while the device is not at work all the time: its power is limited.
#[test]
fn caps_and_shares_are_parts_of_time_and_not_of_work_alone() {
    let rows = "^PyTorch time: (caps alone|two: matmul 70, attention 30)$";
    let rates = "matmul=0.84 attention=0.3 graph=0.3";
    let run = with_steps(rates, "matmul=1:0.833", rows);
    let (verdict, seen) = run.row("PyTorch time: two: matmul 70, attention 30");
    assert_eq!(verdict, "PASS", "{seen}");
    let said = "matmul 70 %: 70.0 % of their time (-0.01 pp, goal 1), 84.0 % of alone";
    assert!(seen.contains(said), "{seen}");
    let run = with_steps("matmul=0.36 graph=0.3", "matmul=1:0.833", "caps alone");
    let (verdict, seen) = run.row("PyTorch time: caps alone");
    assert_eq!(verdict, "FAIL", "{seen}");
    let said = "matmul, cap 30 %: 30.0 % of the time (goal 2 pp), 36.0 % of alone";
    assert!(seen.contains(said), "{seen}");
}

#[test]
fn a_row_about_a_pair_says_how_the_daemon_had_them_share() {
    let row = "PyTorch time: matmul beside decode, without and with";
    let run = tenants(&artefacts::gpushare(), row, &[("GPUTEST_STAYS", "5")]);
    let (verdict, seen) = run.row(row);
    assert_eq!(verdict, "PASS", "{seen}");
    let (_, modes) = seen.split_once("; modes seen: ").expect("modes");
    assert!(
        modes.starts_with("together ") || modes.starts_with("turns "),
        "{seen}"
    );
    // They were not seen: what it asks answers something else.
    let folder = says_nothing_at("ps --json");
    let run = tenants(
        &folder.path().join("gpushare"),
        row,
        &[("GPUTEST_STAYS", "1")],
    );
    assert_eq!(run.row(row).0, "FAIL", "{}", run.report);
}

#[test]
fn shares_beside_a_tenant_that_the_processor_paces_are_not_judged() {
    let row = "PyTorch time: three: matmul 50, attention 30, small kernels 20";
    let run = with_rates("matmul=1.06 attention=0.43 small=0.26", &format!("^{row}$"));
    let (verdict, seen) = run.row(row);
    assert_eq!(verdict, "PASS", "{seen}");
    assert!(
        seen.contains("matmul 50 %: 106.0 % of alone") && !seen.contains("goal"),
        "{seen}"
    );
}

#[test]
fn rows_that_passed_in_the_report_to_resume_are_left_out() {
    let folder = TempDir::new().expect("a folder");
    let earlier = folder.path().join("earlier.md");
    let lines = "| quota: linear | **PASS** | x | 1 s |\n| quota: pitch | **FAIL** | x | 1 s |\n";
    fs::write(&earlier, lines).expect("it is written");
    let earlier = earlier.to_str().expect("UTF-8");
    let flags = ["--resume", earlier, "--only", "^quota: (linear|pitch)$"];
    let run = verify(&artefacts::gpushare(), &flags);
    assert!(run.last_line().starts_with("1 PASS; "), "{}", run.report);
    assert_eq!(run.row("quota: pitch").0, "PASS");
    let said = "Rows left out because they passed in earlier.md: 1.";
    assert!(run.report.contains(said), "{}", run.report);
}

#[test]
fn a_killed_run_has_the_figures_of_its_finished_rows() {
    let folder = hangs_at("uvm");
    let out = TempDir::new().expect("a folder");
    let first = "memory that the driver takes by itself";
    let only = format!("^({first}|swap: a tenant above the device, managed)$");
    let mut command = verifies(&folder.path().join("gpushare"), &out, &["--only", &only]);
    command.env("TMPDIR", folder.path()).stdout(Stdio::null());
    let mut run = command.spawn().expect("python3 runs");
    until("the first row has finished", || {
        let report = written(&out, ".md").unwrap_or_default();
        report.contains(&format!("| {first} | **"))
    });
    run.kill().expect("it runs");
    run.wait().expect("it ends");
    let figures = written(&out, ".json").expect("figures of the first row");
    let figures: serde_json::Value = serde_json::from_str(&figures).expect("whole");
    assert!(figures[first].is_object(), "{figures}");
}

#[test]
fn a_report_is_whole_though_nothing_reads_the_output() {
    let out = TempDir::new().expect("a folder");
    let flags = ["--only", "^quota: pitch$"];
    let mut command = verifies(&artefacts::gpushare(), &out, &flags);
    let mut run = command.stdout(Stdio::piped()).spawn().expect("it runs");
    drop(run.stdout.take());
    assert!(run.wait().expect("it ends").success());
    let report = written(&out, ".md").expect("a report");
    let last = report.lines().last().expect("lines");
    assert!(last.starts_with("1 PASS; "), "{report}");
}

#[test]
fn a_report_names_the_commit_that_was_packaged() {
    let folder = hangs_at("no such words");
    fs::write(folder.path().join("COMMIT"), "v0-packaged\n").expect("it is written");
    let run = verify(&folder.path().join("gpushare"), &["--only", "^no row$"]);
    let first = run.report.lines().next().expect("lines");
    assert!(first.ends_with(" UTC, at v0-packaged"), "{first}");
}

/// What `scripts/gpu/machine.py` answers to this Python expression.
fn machine_says(expression: &str, environment: &[(&str, &str)]) -> String {
    let mut command = Command::new("python3");
    command
        .current_dir(artefacts::repository().join("scripts/gpu"))
        .args([
            "-c",
            "import sys; from machine import *; print(eval(sys.argv[1]))",
        ])
        .arg(expression)
        .env_remove("LD_PRELOAD")
        .envs(environment.iter().copied())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("python3 runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .expect("UTF-8")
        .trim()
        .to_owned()
}

#[test]
fn bare_rows_are_without_a_library_and_limits_of_their_caller() {
    let environment = [("GPUSHARE_MEM_LIMIT", "1GiB"), ("KEPT", "1")];
    let expression = "(lambda base: (base.get('LD_PRELOAD'), 'GPUSHARE_MEM_LIMIT' in base, base['KEPT']))(without_ours(dict(os.environ) | {'LD_PRELOAD': GIVEN}))";
    let says = |preload: &str| {
        machine_says(
            &expression.replace("GIVEN", &format!("{preload:?}")),
            &environment,
        )
    };
    assert_eq!(
        says("/opt/other.so:/usr/lib/gpushare/libgpushare.so"),
        "('/opt/other.so', False, '1')"
    );
    assert_eq!(
        says("/usr/lib/gpushare-preload/x86_64/libgpushare.so"),
        "(None, False, '1')"
    );
    assert_eq!(
        says("/opt/a.so /opt/b.so"),
        "('/opt/a.so:/opt/b.so', False, '1')"
    );
}

#[test]
fn a_machine_with_a_daemon_of_its_own_is_refused_before_the_first_row() {
    let folder = TempDir::new().expect("a folder");
    let there = folder.path().display();
    let says = |soft, served: &str, preloaded: &str| {
        let unfit = format!(
            "unfit({soft}, pathlib.Path('{there}/{served}'), pathlib.Path('{there}/{preloaded}'), lambda: False)"
        );
        machine_says(&unfit, &[])
    };
    assert_eq!(says("False", "none", "none"), "None");
    fs::create_dir(folder.path().join("gpushare")).expect("a folder");
    let refused = says("False", "gpushare", "none");
    assert!(refused.contains("exists: the machine's own daemon"));
    // A stopped one leaves the folder.
    assert!(refused.contains(&format!("rm -rf {there}/gpushare;")));
    assert_eq!(says("True", "gpushare", "none"), "None");
    let write =
        |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("it is written");
    let enabled = "unfit(False, pathlib.Path('/none'), pathlib.Path('/none'), lambda: True)";
    assert!(machine_says(enabled, &[]).contains("gpushared is enabled: "));
    // What a removal leaves is none.
    write("gpushare/removed", "");
    assert_eq!(says("False", "gpushare", "none"), "None");
    write("other", "/opt/other.so\n");
    assert_eq!(says("False", "none", "other"), "None");
    write("ours", "/opt/other.so\n/usr/lib/gpushare/libgpushare.so\n");
    assert!(says("True", "none", "ours").contains("no program here is without it"));
}

#[test]
fn what_a_real_gpu_must_not_be_asked_is_no_fact_of_the_report() {
    let program = clients::facts();
    let said = |flags: &[&str]| {
        let mut command = Command::new(&program);
        command
            .args(flags)
            .args(["--only", "beyond"])
            .arg(artefacts::soft_cuda())
            .env("SOFTGPU", "driver=13050");
        String::from_utf8(command.output().expect("it runs").stdout).expect("ASCII")
    };
    assert_eq!(said(&[]), "");
    assert!(said(&["--beyond"]).contains("beyond.alloc"));
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
