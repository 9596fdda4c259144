//! Rows about memory that moves see a lost byte, and an order that moves nothing.

use super::{Run, differs_at, machine_says, run, says_nothing_at};
use gpushare_tests::artefacts;

const SUSPENDED: &str = "swap: suspend, resume, woken by a call";

fn suspended(environment: &[(&str, &str)]) -> Run {
    let only = format!("^{SUSPENDED}$");
    run(&artefacts::gpushare(), &["--only", &only], environment)
}

#[test]
fn a_move_that_leaves_out_one_copy_fails_its_row() {
    let run = suspended(&[]);
    assert_eq!(run.row(SUSPENDED).0, "PASS", "{}", run.report);
    // It does nothing and says that all is well.
    let lossy = [("SOFTGPU_FAIL", "cuMemcpyHtoDAsync:2:CUDA_SUCCESS")];
    let run = suspended(&lossy);
    let (verdict, seen) = run.row(SUSPENDED);
    assert!(
        verdict == "FAIL" && seen.starts_with("kept 3, not kept 4"),
        "{seen}"
    );
}

#[test]
fn an_order_that_moves_nothing_fails_its_row() {
    let folder = says_nothing_at("suspend");
    let only = format!("^{SUSPENDED}$");
    let gpushare = folder.path().join("gpushare");
    let run = run(&gpushare, &["--only", &only], &[]);
    let (verdict, seen) = run.row(SUSPENDED);
    let said = "suspended, and it is in: 0 of 400 MiB are away";
    assert!(verdict == "FAIL" && seen.starts_with(said), "{seen}");
}

#[test]
fn a_row_about_memory_that_may_move_looks_whether_it_may() {
    let row = "swap: PyTorch's kernels";
    let holder = artefacts::repository().join("tests/clients/holder.py");
    let holder = holder.to_str().expect("UTF-8");
    let flags = ["--holder", holder, "--only", row];
    let right = run(&artefacts::gpushare(), &flags, &[]);
    assert_eq!(right.row(row).0, "PASS", "{}", right.report);
    let folder = differs_at(
        "--oversubscribe swap",
        "exec {real} $(printf '%s ' \"$@\" | sed 's/--oversubscribe swap//')",
    );
    let plain = run(&folder.path().join("gpushare"), &flags, &[]);
    let (verdict, seen) = plain.row(row);
    let said = "movable: 0 of 200 MiB may move";
    assert!(verdict == "FAIL" && seen.starts_with(said), "{seen}");
}

/// The sum of the work of both is all of the time in each of these.
#[test]
fn a_pair_of_which_one_has_nothing_takes_no_turns() {
    let says = |left: u32, worked: [u32; 2]| {
        let pair = format!("{{'left': {left}, 'worked_ns': {worked:?}, 'counted_ns': 100}}");
        machine_says(&format!("__import__('swap').starved({pair})"), &[])
    };
    assert_eq!(says(4, [52, 48]), "None");
    assert!(says(4, [92, 8]).starts_with("one of the pair had less than a quarter of its half"));
    assert_eq!(says(0, [52, 48]), "none of the pair left");
}
