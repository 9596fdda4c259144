//! The driver's teardown at process exit: a call before it succeeds, a call after it aborts the
//! process or is refused.
#![allow(clippy::unwrap_used, reason = "a test fails on any error")]

use crate::common;
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The C client, compiled once for all tests.
static CLIENT: LazyLock<PathBuf> = LazyLock::new(|| common::client("teardown.c"));

const ABORT: i32 = 6;

fn run(case: &str, spec: &str) -> Output {
    let library = env::current_exe().unwrap();
    let library = library.with_file_name("libsoftgpu_cuda.so");
    let mut command = Command::new(&*CLIENT);
    command.arg(library).arg(case).env("SOFTGPU", spec);
    command.output().unwrap()
}

/// Its output; it must exit successfully and print nothing to stderr.
#[track_caller]
fn said(case: &str, spec: &str) -> String {
    let output = run(case, spec);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_call_after_the_teardown_aborts_and_names_function_and_thread() {
    for case in ["later", "thread"] {
        let output = run(case, "");
        assert_eq!(output.status.signal(), Some(ABORT), "{output:?}");
        let line = String::from_utf8(output.stderr).unwrap();
        let named = line.starts_with("softgpu: thread `teardown-client")
            && line.contains("called cuCtxSynchronize after the driver's teardown");
        assert!(named, "{line}");
    }
}

#[test]
fn a_call_after_the_teardown_is_refused_with_exit_refuse() {
    for case in ["later", "thread"] {
        assert_eq!(said(case, "exit=refuse"), "4\n");
    }
}

#[test]
fn a_call_before_the_teardown_succeeds() {
    assert_eq!(said("earlier", ""), "0\n");
    assert_eq!(said("main", ""), "0\n0\n");
}

#[test]
fn no_bytes_of_the_device_move_after_the_teardown() {
    assert_eq!(said("work", ""), "0\n");
}

#[test]
fn bytes_of_the_device_move_until_the_teardown() {
    assert_eq!(said("earlier-work", ""), "7\n");
}

#[test]
fn an_exit_without_handlers_does_not_tear_the_driver_down() {
    assert_eq!(said("quick", ""), "0\n");
}

#[test]
fn a_forked_childs_exit_does_not_tear_the_parents_driver_down() {
    // The child's handler gets an error, the parent's a result.
    assert_eq!(said("child", ""), "3\n0\n");
}
