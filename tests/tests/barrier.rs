//! A process that ends soon after its start does not wait for the library's request to the kernel.
//! The kernel keeps a thread that registers the process for membarrier for ten milliseconds and
//! more, and a process ends with its last thread.

use gpushare_tests::runnable::has_membarrier;
use gpushare_tests::{Daemon, Gpu, Guest, clients};

/// Whether the process was registered after `cuInit`, with a context, and after a launch.
fn registered(how: &str) -> [bool; 3] {
    let gpu = Gpu::new("");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &[("GPUSHARE_MEM_LIMIT", "1GiB")]);
    let mut command = tenant.command(&clients::compile("barred", &[]));
    command.arg(how);
    let mut guest = Guest::start(command);
    let steps = ["init", "context", "launched"].map(|step| match guest.line().split_once(' ') {
        Some((said, answer)) if said == step => answer == "1",
        other => panic!("{step}: {other:?}"),
    });
    assert_eq!(guest.finish().stdout, "");
    steps
}

#[test]
fn a_process_of_one_thread_is_registered_at_its_first_call() {
    if has_membarrier("a_process_of_one_thread_is_registered_at_its_first_call") {
        assert_eq!(registered("alone"), [true; 3]);
    }
}

#[test]
fn a_process_of_several_threads_is_not_registered_while_it_is_alone() {
    if has_membarrier("a_process_of_several_threads_is_not_registered_while_it_is_alone") {
        assert_eq!(registered("threads"), [false; 3]);
    }
}
