//! Illegal pointers: the driver's answer is the same with the library as without it.

use gpushare_tests::guest::{command, plain};
use gpushare_tests::{Gpu, Guest, clients};

/// The client's output alone, and under a limit.
fn said(which: &str) -> [String; 2] {
    let gpu = Gpu::new("");
    let program = clients::compile("pointers", &[]);
    let mut alone = plain(&gpu, &program);
    alone.arg(which);
    let mut limited = command(&gpu, &["--mem-limit", "1GiB"]);
    limited.arg(&program).arg(which);
    [alone, limited].map(|command| Guest::start(command).finish().silently())
}

#[test]
fn a_call_with_an_illegal_null_gets_the_drivers_own_error() {
    let [alone, limited] = said("null");
    assert_eq!(alone.lines().count(), 4, "{alone}");
    assert!(alone.lines().all(|line| !line.ends_with(" 0")), "{alone}");
    assert_eq!(limited, alone);
}

#[test]
fn places_for_answers_need_not_be_aligned() {
    let [alone, limited] = said("odd");
    assert_eq!(alone.lines().count(), 10, "{alone}");
    assert!(alone.lines().all(|line| line.ends_with(" 0")), "{alone}");
    assert_eq!(limited, alone);
}
