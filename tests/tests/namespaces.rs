//! Processes of one tenant in pid namespaces of their own, where the same number is another process
//! in each. The memory of a dead process returns; that of a live one does not.

use std::process::Command;
use std::time::Instant;

use gpushare_tests::guest::command;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::waiting::PATIENCE;
use gpushare_tests::{Gpu, Guest, MIB, clients};

/// `quota` under `gpushare run`, in a new pid namespace that ends with it.
fn nested(gpu: &Gpu) -> Guest {
    let mut run = command(gpu, &["--mem-limit", "256MiB", "--name", gpu.name()]);
    run.arg(clients::compile("quota", &[]));
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(run.get_program())
        .args(run.get_args());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    Guest::start(unshare).started()
}

fn possible() -> bool {
    let probe = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .output();
    probe.is_ok_and(|probe| probe.status.success())
}

#[test]
fn dead_processes_of_another_pid_namespace_release_their_memory() {
    if !possible() {
        not_runnable_here("namespaces", "a new pid namespace needs root");
        return;
    }
    let gpu = Gpu::new("mem=4GiB");
    let mut living = nested(&gpu);
    for _ in 0..5 {
        let mut other = nested(&gpu);
        assert_eq!(other.ask(&format!("alloc {}", 192 * MIB)), "alloc 0");
        assert_eq!(
            living.ask(&format!("alloc {}", 192 * MIB)),
            "alloc 2",
            "it lives"
        );
        // Ends the namespace a moment later: no process outside can wait for those in it.
        other.kill();
        let began = Instant::now();
        while living.ask(&format!("alloc {}", 192 * MIB)) != "alloc 0" {
            assert!(began.elapsed() < PATIENCE, "it is dead");
        }
        assert_eq!(living.ask("free 1"), "free 0");
    }
    living.finish().silently();
}
