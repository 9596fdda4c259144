//! The driver's teardown when a process exits: what is called before it is answered, what is called
//! after it ends the process.
#![allow(clippy::unwrap_used, reason = "a test: what cannot be had fails it")]

use crate::common;
use std::env;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The C client, compiled once for all tests.
static CLIENT: LazyLock<PathBuf> = LazyLock::new(|| common::client("teardown.c"));

const ABORT: i32 = 6;

fn run(who: &str, spec: &str) -> Output {
    let library = env::current_exe().unwrap();
    let library = library.with_file_name("libsoftgpu_cuda.so");
    let mut command = Command::new(&*CLIENT);
    command.arg(library).arg(who).env("SOFTGPU", spec);
    command.output().unwrap()
}

/// Its output, if it ended well and said no more.
#[track_caller]
fn said(who: &str, spec: &str) -> String {
    let output = run(who, spec);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_call_after_the_teardown_aborts_and_names_function_and_thread() {
    for who in ["later", "thread"] {
        let output = run(who, "");
        assert_eq!(output.status.signal(), Some(ABORT), "{output:?}");
        let line = String::from_utf8(output.stderr).unwrap();
        let named = line.starts_with("softgpu: thread `teardown-client")
            && line.contains("called cuCtxSynchronize after the driver's teardown");
        assert!(named, "{line}");
    }
}

#[test]
fn a_call_after_the_teardown_is_refused_where_spec_wants_that() {
    for who in ["later", "thread"] {
        assert_eq!(said(who, "exit=refuse"), "4\n");
    }
}

#[test]
fn a_call_before_the_teardown_is_answered() {
    assert_eq!(said("earlier", ""), "0\n");
    assert_eq!(said("main", ""), "0\n0\n");
}

#[test]
fn an_end_without_exit_handlers_tears_nothing_down() {
    assert_eq!(said("quick", ""), "0\n");
}

#[test]
fn a_forked_childs_exit_is_not_the_parents() {
    // The child's handler has no driver, the parent's has.
    assert_eq!(said("child", ""), "3\n0\n");
}
