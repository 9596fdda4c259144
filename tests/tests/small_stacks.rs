//! A thread with very little stack may make the first driver call. The library needs little more
//! stack than the driver, and its own threads have their own stacks.

use std::io::Write;
use std::process::{Command, Stdio};

use gpushare_tests::guest::{command, plain};
use gpushare_tests::{Daemon, Gpu, Guest, clients, until};

/// The stack that the library may need beyond the driver's. An optimised build needs far less.
const MORE: usize = 24 << 10;
/// The minimum stack of a thread, and the step of the search for the driver's need.
const LEAST: usize = 16 << 10;

/// Whether a thread with so much stack can start the driver and launch. The program ends at once if
/// it cannot.
fn suffices(mut command: Command, bytes: usize) -> bool {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    writeln!(stdin, "tiny {bytes}").expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("a child").stdout == b"tiny 0\n"
}

/// The stack that the driver alone needs on this machine.
fn least(gpu: &Gpu) -> usize {
    let client = clients::compile("turns", &[]);
    (1..16)
        .map(|steps| steps * LEAST / 2 + LEAST / 2)
        .find(|bytes| suffices(plain(gpu, &client), *bytes))
        .expect("a driver that needs less than a usual stack")
}

#[track_caller]
fn starts_on(mut guest: Guest, least: usize) {
    eprintln!("the driver alone: {} KiB", least >> 10);
    assert_eq!(guest.ask(&format!("tiny {}", least + MORE)), "tiny 0");
    assert_eq!(guest.ask("launch 1 100000000"), "launch 0");
    assert_eq!(guest.ask("post 1000000"), "post 0");
    until("the gate opens", || guest.ask("posted") == "posted 1");
    guest.finish().silently();
}

#[test]
fn a_thread_with_little_stack_starts_the_library_and_its_gate() {
    let gpu = Gpu::new("");
    let mut capped = command(&gpu, &["--sm-limit", "20"]);
    capped.arg(clients::compile("turns", &[]));
    let least = least(&gpu);
    starts_on(Guest::start(capped), least);
}

/// Sizes that leave next to nothing of the control thread's stack, and of the gate thread's.
#[test]
fn the_librarys_threads_have_room_beside_large_thread_locals() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let capped = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT", "20")]);
    for bytes in [245 << 10, 1012 << 10] {
        let size = format!("-DTHREAD_LOCAL={bytes}");
        let client = clients::compile("turns", &[&size]);
        let mut guest = Guest::start(capped.command(&client)).started();
        guest.does("launch 1 100000000");
        guest.does("post 1000000");
        until("the gate opens", || guest.ask("posted") == "posted 1");
        guest.finish().silently();
    }
}

#[test]
fn a_thread_with_little_stack_joins_a_daemon() {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let capped = daemon.tenant("capped", &[("GPUSHARE_SM_LIMIT", "20")]);
    let least = least(&gpu);
    starts_on(capped.client("turns", &[]), least);
}
