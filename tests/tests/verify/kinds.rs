//! Rows about single families of calls, about what gpushare tells of a node, and beside MPS.

use super::run;
use gpushare_tests::artefacts;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

#[test]
fn rooms_batches_files_and_what_is_told_pass_on_the_software_gpu() {
    let rows = [
        (
            "quota: room in a pool at the limit",
            "served, and no more than that, 224 of 256 MiB",
        ),
        ("copies in batches", "cuMemcpyBatchAsync_v2: without 0 in"),
        ("doctor, metrics and why", "in all 8 ways to pass it"),
        ("swap: stored in a file", "200 MiB into a file on "),
    ];
    let names: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
    let only = format!("^({})$", names.join("|"));
    let run = run(&artefacts::gpushare(), &["--only", &only], &[]);
    for (name, said) in rows {
        let (verdict, seen) = run.row(name);
        assert!(verdict == "PASS" && seen.contains(said), "{name}: {seen}");
    }
}

/// A control daemon of MPS that only comes, and goes when it is told to.
fn control() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let program = folder.path().join("nvidia-cuda-mps-control");
    let script = "#!/bin/sh\ncd \"$CUDA_MPS_PIPE_DIRECTORY\"\n\
                  [ \"$1\" = -f ] || { cat; kill \"$(cat pid)\"; exit; }\n\
                  echo $$ >pid; : >control; exec sleep infinity\n";
    fs::write(&program, script).expect("it is written");
    fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
    folder
}

/// A call of one family stops its process.
#[test]
fn facts_before_a_call_that_does_not_return_are_compared() {
    let row = "conformance transcript";
    let only = format!("^{row}$");
    let flags = ["--row", "35", "--only", &only];
    let stops = [("SOFTGPU_FAIL", "cuCoredumpGetAttributeGlobal:1:SIGSTOP")];
    let run = run(&artefacts::gpushare(), &flags, &stops);
    let (verdict, seen) = run.row(row);
    assert_eq!(verdict, "FAIL");
    assert!(seen.contains("no end within 20 s"), "{seen}");
    assert!(
        seen.contains("facts agree with a recorded driver"),
        "{seen}"
    );
    assert!(seen.contains("not answered: "), "{seen}");
}

#[test]
fn the_row_beside_mps_has_a_control_daemon_of_its_own() {
    let row = "limits of memory beside MPS";
    let only = format!("^{row}$");
    let verified =
        |environment: &[(&str, &str)]| run(&artefacts::gpushare(), &["--only", &only], environment);
    let (control, others) = (control(), env::var("PATH").expect("a path"));
    let path = format!("{}:{others}", control.path().display());
    let beside = verified(&[("PATH", path.as_str())]);
    let (verdict, seen) = beside.row(row);
    let said = "512 MiB: 16 x 32 MiB, then CUDA_ERROR_OUT_OF_MEMORY";
    assert!(verdict == "PASS" && seen.starts_with(said), "{seen}");
    let none = verified(&[]);
    assert_eq!(none.row(row).0, "not available", "{}", none.report);
}
