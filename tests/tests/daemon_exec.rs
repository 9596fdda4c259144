//! A program that execs another one without CUDA holds no device memory any more and is charged for
//! none.

use std::path::Path;

use gpushare_tests::{Daemon, Gpu, Guest, MIB, Tenant};

const LIMITS: [(&str, &str); 1] = [("GPUSHARE_MEM_LIMIT", "512MiB")];

fn alloc(mib: u64) -> String {
    format!("alloc {}", mib * MIB)
}

/// A tenant with a program that holds 400 MiB, and a program without memory.
fn two(daemon: &Daemon) -> (Tenant, Guest, Guest) {
    let tenant = daemon.tenant("one", &LIMITS);
    let mut holder = tenant.client("quota", &[]).started();
    let other = tenant.client("quota", &[]).started();
    assert_eq!(holder.ask(&alloc(400)), "alloc 0");
    (tenant, holder, other)
}

/// Waits until the kernel reports that the process runs `program`.
fn until_it_runs(pid: u32, program: &str) {
    let runs = || {
        let link = std::fs::read_link(format!("/proc/{pid}/exe")).expect("it lives");
        link.file_name() == Path::new(program).file_name()
            || link.to_string_lossy().contains("coreutils")
            || link.to_string_lossy().contains("busybox")
    };
    while !runs() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn memory_held_before_an_exec_is_free() {
    let gpu = Gpu::new("mem=4GiB");
    let daemon = Daemon::start(&gpu);
    let (_tenant, mut holder, mut other) = two(&daemon);
    assert_eq!(holder.ask("exec"), "exec 0");
    until_it_runs(holder.id(), "sleep");
    let row = daemon.until("one", |row| row.charged == 0 && row.limbo == 0);
    assert_eq!(row.processes.len(), 2, "it lives");
    assert_eq!(other.ask(&alloc(512)), "alloc 0");
    let row = daemon.row("one");
    assert_eq!(row.charged, 512 * MIB);
    assert!(
        row.overhead < 512 * MIB,
        "only the other's context: {row:?}"
    );
}

#[test]
fn an_exec_of_a_tenants_only_program_frees_its_memory() {
    let gpu = Gpu::new("mem=4GiB");
    let daemon = Daemon::start(&gpu);
    let tenant = daemon.tenant("one", &LIMITS);
    let mut holder = tenant.client("quota", &[]).started();
    assert_eq!(holder.ask(&alloc(400)), "alloc 0");
    assert_eq!(holder.ask("exec"), "exec 0");
    daemon.until("one", |row| {
        (row.charged, row.limbo, row.overhead) == (0, 0, 0)
    });
    let mut next = tenant.client("quota", &[]).started();
    assert_eq!(next.ask(&alloc(512)), "alloc 0");
}

#[test]
fn a_forked_child_that_keeps_the_memory_keeps_the_charge() {
    let gpu = Gpu::new("mem=4GiB");
    let daemon = Daemon::start(&gpu);
    let (tenant, mut holder, mut other) = two(&daemon);
    let mut busy = tenant.client("quota", &[]).started();
    let forked = holder.ask("fork");
    let child = forked
        .strip_prefix("fork ")
        .and_then(|pid| pid.parse().ok());
    let child = nix::unistd::Pid::from_raw(child.expect("a pid"));
    assert_eq!(holder.ask("exec"), "exec 0");
    let kept = daemon.until("one", |row| row.charged == 0 && row.limbo > 0);
    assert!(kept.limbo >= 400 * MIB, "{kept:?}");
    other.send(&alloc(200));
    daemon.until_one_waits("one");
    nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).expect("it lives");
    // The software GPU returns memory as operations pass.
    for _ in 0..40 {
        assert!(busy.ask("info").starts_with("info"));
    }
    assert_eq!(other.line(), "alloc 0");
}

#[test]
fn a_program_that_lives_on_without_a_connection_keeps_its_charge() {
    let gpu = Gpu::new("mem=4GiB");
    let mut daemon = Daemon::start(&gpu);
    let (_tenant, mut holder, mut other) = two(&daemon);
    // A stopped process cannot connect again; the new daemon has its page from the other process.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(holder.id()).expect("a pid"));
    gpu.stop(pid);
    daemon.restart();
    daemon.until("one", |row| {
        row.processes.iter().any(|one| one.pid == other.id())
    });
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).expect("it lives");
    daemon.until("one", |row| row.processes.len() == 2);
    assert_eq!(other.ask(&alloc(200)), "alloc 2");
    assert_eq!(daemon.row("one").charged, 400 * MIB);
    assert_eq!(holder.ask("check"), "check 1");
}
