//! Driver calls that a program makes in a callback from inside another driver call. They are
//! charged like any other call, and the limit holds afterwards, whichever way the callback leaves
//! the outer call.

use gpushare_tests::guest::{Ended, clean};
use gpushare_tests::{Guest, artefacts, clients};
use std::os::unix::process::ExitStatusExt as _;

/// The output of a program that is called back from inside `call` under a limit of 256 MiB, and
/// then `does` something.
fn called_back(call: &str, does: &str, depth: u64) -> String {
    end_of(call, does, depth).silently()
}

fn end_of(call: &str, does: &str, depth: u64) -> Ended {
    let mut command = clean(&clients::compile("callbacks", &[]));
    let runtime = tempfile::tempdir().expect("a temporary folder");
    command
        .args([call, does, &depth.to_string()])
        .env("LD_LIBRARY_PATH", clients::driver("callback_driver"))
        .env("LD_PRELOAD", artefacts::interposer())
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env("GPUSHARE_MEM_LIMIT", "256MiB");
    Guest::start(command).finish()
}

#[test]
fn a_call_that_calls_back_returns_as_without_a_callback() {
    for call in ["alloc", "launch"] {
        assert_eq!(called_back(call, "return", 0), "256 MiB 100 launches\n");
    }
}

#[test]
fn an_allocation_in_a_callback_is_counted() {
    for call in ["alloc", "launch"] {
        assert_eq!(called_back(call, "nest", 0), "256 MiB 100 launches\n");
    }
}

#[test]
fn a_call_left_by_its_callback_lifts_no_limit() {
    for depth in [0, 4096, 100_000] {
        let left = called_back("launch", "jump", depth);
        assert_eq!(left, "256 MiB 100 launches\n", "{depth}");
        // It is unknown whether the driver made the interrupted allocation: it stays charged.
        let left = called_back("alloc", "jump", depth);
        assert_eq!(left, "240 MiB 100 launches\n", "{depth}");
    }
}

/// The stack is unwound through a hook, as by an exception. Whether a program survives that is not
/// said (ADR 35), but it never has more than its limit.
#[test]
fn a_thread_that_ends_in_a_callback_lifts_no_limit() {
    const SIGABRT: i32 = 6;
    for call in ["alloc", "launch"] {
        let end = end_of(call, "end", 0);
        let within = ["240 MiB 100 launches\n", "256 MiB 100 launches\n"];
        let lives = end.status.success() && within.contains(&&*end.stdout);
        let dies = end.status.signal() == Some(SIGABRT) && end.stdout.is_empty();
        assert!(lives || dies, "{call}: {end:?}");
        eprintln!("{call}: {}", if lives { "it lives" } else { "it dies" });
    }
}
