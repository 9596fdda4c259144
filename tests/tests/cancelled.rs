//! Threads that are cancelled (`pthread_cancel`) where a call of CUDA waits or looks at files: they
//! end behind it, as without a limit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use gpushare_tests::guest::plain;
use gpushare_tests::movable::Scene;
use gpushare_tests::threads::thread;
use gpushare_tests::{Alone, Dealer, Gpu, Guest, MIB, artefacts, clients, gpu, until};
use nix::libc::{SYS_clock_nanosleep, SYS_nanosleep};

/// Whether the thread that frees naps.
fn naps(guest: &Guest) -> bool {
    let id = guest.id();
    let Some(frees) = thread(id, "frees") else {
        return false;
    };
    let called = fs::read_to_string(format!("/proc/{id}/task/{frees}/syscall"));
    let called = called.unwrap_or_default();
    let naps = [SYS_clock_nanosleep, SYS_nanosleep];
    naps.iter()
        .any(|call| called.starts_with(&format!("{call} ")))
}

#[test]
fn a_thread_that_is_cancelled_while_its_free_waits_ends_behind_that() {
    let mut scene = Scene::new("mem=1GiB,ctx=8MiB");
    scene.does(&["alloc 0 4194304", "fill 0 1", "hold 2", "cancelling 0"]);
    until("the free waits", || {
        scene.guest.answers("freed", "-1");
        naps(&scene.guest)
    });
    scene.does(&["release"]);
    until("it is free", || scene.guest.ask("freed") != "freed -1");
    scene.guest.answers("freed", "0");
    scene.guest.answers("cancelled", "1");
    scene.guest.finish().silently();
}

/// The thread of a CUDA program asks how much memory is free, after `meanwhile`.
#[track_caller]
fn asks_for_memory(mut command: Command, meanwhile: impl FnOnce()) {
    command.arg("cuda");
    let mut guest = Guest::start(command).started();
    meanwhile();
    assert_eq!(guest.ask("info"), "info 0 1");
    guest.finish().silently();
}

/// The dead process's charges are looked up in NVML's lists and in files.
#[test]
fn a_thread_that_is_cancelled_in_cumemgetinfo_ends_behind_it() {
    let gpu = Gpu::new("mem=1GiB,ctx=2MiB");
    let client = |name| plain(&gpu, &clients::compile(name, &[]));
    asks_for_memory(client("cancelled"), || {});
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    let in_tenant = |name| {
        let mut command = client(name);
        command
            .env("LD_PRELOAD", artefacts::interposer())
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("GPUSHARE_TENANT", "cancelled")
            .env("GPUSHARE_MEM_LIMIT", "512MiB");
        command
    };
    asks_for_memory(in_tenant("cancelled"), || {});
    let mut other = Guest::start(in_tenant("quota")).started();
    assert_eq!(other.ask(&format!("alloc {MIB}")), "alloc 0");
    asks_for_memory(in_tenant("cancelled"), || other.kill());
}

/// The tenant's file is opened anew, to see which processes live.
#[test]
fn a_thread_that_is_cancelled_after_descriptors_were_closed_ends_too() {
    let gpu = Gpu::new("mem=1GiB");
    let alone = Alone::on(&gpu);
    let [mut closer, mut other] =
        [(); 2].map(|()| alone.client(&["--mem-limit", "512MiB"], "closer"));
    other.does("init");
    other.does(&format!("alloc {MIB}"));
    closer.does("init");
    closer.does("cancelled");
    closer.ask("each");
    closer.does("cancelled");
    closer.finish().silently();
    other.finish().silently();
}

/// The library notes that stream and that event in tables, which it makes for the first ones.
#[test]
fn a_thread_that_is_cancelled_in_the_first_such_call_ends_behind_it() {
    for call in ["stream", "event"] {
        let gpu = Gpu::new("mem=1GiB");
        let dealer = Dealer::start(&gpu);
        let client = clients::compile("cancelled", &[]);
        let commands = [plain(&gpu, &client), dealer.command(&client)];
        for mut command in commands {
            command.arg("cuda").env("LD_LIBRARY_PATH", gpu::links());
            let mut guest = Guest::start(command).started();
            assert_eq!(guest.ask(call), format!("{call} 0 1"));
            guest.finish().silently();
        }
    }
}
