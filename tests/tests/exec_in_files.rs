//! Without a daemon, too, a program that execs another one is charged for nothing of its memory,
//! though the new one uses the GPU under the same pid.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushare_tests::guest::plain;
use gpushare_tests::{Gpu, Guest, MIB, artefacts, clients};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A tenant that may have 512 MiB.
struct Tenant {
    gpu: Gpu,
    folder: tempfile::TempDir,
}

fn alloc(mib: u64) -> String {
    format!("alloc {}", mib * MIB)
}

impl Tenant {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Another folder is passed over.
        let own = Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(), own).expect("it is ours");
        Self {
            gpu: Gpu::new("mem=4GiB"),
            folder,
        }
    }

    fn guest(&self) -> Guest {
        let mut command = plain(&self.gpu, &clients::compile("quota", &[]));
        command
            .env("LD_PRELOAD", artefacts::interposer())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("GPUSHARE_TENANT", "one")
            .env("GPUSHARE_MEM_LIMIT", "512MiB");
        Guest::start(command).started()
    }

    /// A program that holds 400 MiB, and one without memory.
    fn two(&self) -> (Guest, Guest) {
        let (mut holder, other) = (self.guest(), self.guest());
        assert_eq!(holder.ask(&alloc(400)), "alloc 0");
        (holder, other)
    }
}

/// Whether the other program can have what is free once the holder has begun anew.
#[track_caller]
fn is_free_after(anew: &str, preloaded: &str) {
    let tenant = Tenant::new();
    let (mut holder, mut other) = tenant.two();
    assert_eq!(holder.ask(anew), "anew 0");
    assert_eq!(holder.ask("preload"), preloaded);
    assert_eq!(holder.ask("init"), "init 0");
    assert_eq!(holder.ask(&alloc(10)), "alloc 0");
    assert_eq!(other.ask(&alloc(200)), "alloc 0");
    assert_eq!(holder.ask("check"), "check 1");
}

#[test]
fn memory_before_an_exec_within_a_tenant_is_free() {
    is_free_after("anew one", "preload 1");
}

#[test]
fn memory_before_an_exec_into_another_tenant_is_free() {
    is_free_after("anew two", "preload 1");
}

#[test]
fn memory_before_an_exec_without_the_library_is_free() {
    is_free_after("anew -", "preload 0");
}

#[test]
fn memory_before_an_exec_is_free_beside_programs_that_keep_dying() {
    let tenant = Tenant::new();
    let (mut holder, mut other) = tenant.two();
    assert_eq!(holder.ask("anew two"), "anew 0");
    assert_eq!(holder.ask("init"), "init 0");
    assert_eq!(holder.ask(&alloc(10)), "alloc 0");
    let (answered, died) = (AtomicBool::new(false), AtomicBool::new(false));
    let answer = std::thread::scope(|scope| {
        let dying = scope.spawn(|| {
            while !answered.load(Ordering::Relaxed) {
                let mut worker = tenant.guest();
                assert_eq!(worker.ask(&alloc(1)), "alloc 0");
                worker.kill();
                died.store(true, Ordering::Relaxed);
            }
        });
        while !died.load(Ordering::Relaxed) && !dying.is_finished() {
            std::thread::yield_now();
        }
        let answer = other.ask(&alloc(200));
        answered.store(true, Ordering::Relaxed);
        answer
    });
    assert_eq!(answer, "alloc 0");
}

#[test]
fn memory_that_a_forked_child_keeps_past_an_exec_stays_charged() {
    let tenant = Tenant::new();
    let (mut holder, mut other) = tenant.two();
    let forked = holder.ask("fork");
    let child = forked
        .strip_prefix("fork ")
        .and_then(|pid| pid.parse().ok());
    let child = Pid::from_raw(child.expect("a pid"));
    assert_eq!(holder.ask("anew -"), "anew 0");
    assert_eq!(holder.ask("init"), "init 0");
    assert_eq!(other.ask(&alloc(200)), "alloc 2");
    kill(child, Signal::SIGKILL).expect("it lives");
    assert_eq!(other.ask(&alloc(100)), "alloc 0", "that was free before");
}
