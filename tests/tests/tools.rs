//! Programs under tools: a library that the driver itself loads (profilers, checkers), a library
//! that wraps the same functions, a debugger, and cuda-checkpoint, which locks a process out of its
//! driver. Limits hold, nothing hangs, nothing is printed.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpushare_protocol::page::lease::Turn;
use gpushare_protocol::wire::Request;
use gpushare_tests::gpu::links;
use gpushare_tests::runnable::not_runnable_here;
use gpushare_tests::{Alone, Dealer, Gpu, Guest, MIB, artefacts, clients, guest, until};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn library(name: &str) -> PathBuf {
    clients::compile(name, &["-shared", "-fPIC"])
}

/// The output of `tooled` with a limit of 32 MiB in steps of one, and the number of calls that
/// `checker` counted.
fn within_32_mib(launches: u32, most: u64, checker: i32) -> String {
    format!("launched {launches} 0\nallocated {most} 2\nfreed 0\nchecker {checker}\n")
}

#[test]
fn a_tool_that_the_driver_loads_is_let_in_and_its_memory_is_charged() {
    let gpu = Gpu::new("");
    let alone = Alone::on(&gpu);
    let client = clients::compile("quota", &[]);
    let mut command = alone.command(&["--mem-limit", "64MiB", "--sm-limit", "60"], &client);
    command.env("CUDA_INJECTION64_PATH", library("injection"));
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "tool 0 0");
    assert_eq!(guest.line(), "init 0");
    assert_eq!(alone.page().charged(0), 8 * MIB, "the tool's");
    assert_eq!(guest.ask(&format!("fill {}", 8 * MIB)), "fill 7 2");
    assert_eq!(guest.ask("check"), "check 7");
    guest.finish().silently();
}

#[test]
fn turns_hold_for_a_program_that_a_tool_looks_at() {
    let gpu = Gpu::new("");
    let dealer = Dealer::start(&gpu);
    let mut command = dealer.command(&clients::compile("turns", &[]));
    command
        .env("LD_LIBRARY_PATH", links())
        .env("CUDA_INJECTION64_PATH", library("injection"));
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "tool 0 0");
    assert_eq!(guest.line(), "init 0");
    for epoch in 1..20 {
        dealer.open(epoch);
        assert_eq!(guest.ask(&format!("launch 5 {}", 100 * US)), "launch 0");
        dealer.close(epoch);
        dealer.hears(&Request::Drained {
            device_index: 0,
            epoch,
        });
        assert_eq!(guest.ask("query 1"), "query 0");
    }
    dealer.deal(&Turn::default());
    guest.finish().silently();
}

/// `tooled` under a limit of 32 MiB with these libraries preloaded, in this order.
fn preloaded(gpu: &Gpu, order: &[&Path]) -> String {
    let mut command = guest::plain(gpu, &clients::compile("tooled", &[]));
    let order: Vec<&str> = order
        .iter()
        .map(|one| one.to_str().expect("text"))
        .collect();
    let runtime = tempfile::tempdir().expect("a temporary folder");
    command
        .args(["20", &MIB.to_string()])
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env("LD_PRELOAD", order.join(":"))
        .env("GPUSHARE_MEM_LIMIT", "32MiB")
        .env("GPUSHARE_SM_LIMIT", "60");
    Guest::start(command).finish().silently()
}

#[test]
fn a_wrapper_preloaded_before_us_sees_all_calls_and_the_limit_holds() {
    let gpu = Gpu::new("");
    let (checker, ours) = (library("checker"), artefacts::interposer());
    // The start, 33 allocations of which one was refused, and 32 frees.
    let said = preloaded(&gpu, &[&checker, &ours]);
    assert_eq!(said, within_32_mib(20, 32, 66));
}

#[test]
fn a_wrapper_preloaded_after_us_sees_all_calls_and_the_limit_holds() {
    let gpu = Gpu::new("");
    let (checker, ours) = (library("checker"), artefacts::interposer());
    let said = preloaded(&gpu, &[&ours, &checker]);
    assert_eq!(said, within_32_mib(20, 32, 66));
}

/// Runs `tooled` in a debugger that stops at these places and continues each time. `None` without a
/// debugger.
fn debugged(test: &str, places: &[&str]) -> Option<String> {
    let there = Command::new("gdb").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        not_runnable_here(test, "no gdb");
        return None;
    }
    let gpu = Gpu::new("");
    let flags = ["--mem-limit", "32MiB", "--sm-limit", "60"];
    let mut command = guest::command(&gpu, &flags);
    command.args(["gdb", "-q", "-nx", "-batch"]);
    let mut say = |line: String| {
        command.args(["-ex", &line]);
    };
    for setting in [
        "pagination off",
        "confirm off",
        "breakpoint pending on",
        "debuginfod enabled off",
    ] {
        say(format!("set {setting}"));
    }
    say("handle SIGALRM nostop noprint pass".to_owned());
    for place in places {
        say(format!("break {place}"));
    }
    say("run".to_owned());
    for _ in 0..40 {
        say("continue".to_owned());
    }
    command.arg("--args").arg(clients::compile("tooled", &[]));
    command.args(["5", &MIB.to_string()]);
    let ended = Guest::start(command).finish();
    if ended.stderr.contains("ptrace: Operation not permitted") {
        not_runnable_here(test, "no ptrace");
        return None;
    }
    Some(ended.stdout)
}

#[test]
fn a_debugger_stops_a_capped_program_in_the_driver_and_it_goes_on() {
    let test = "a_debugger_stops_a_capped_program_in_the_driver_and_it_goes_on";
    let Some(said) = debugged(test, &["cuLaunchKernel", "cuEventRecord"]) else {
        return;
    };
    assert!(said.matches("hit Breakpoint").count() >= 5, "{said}");
    for line in within_32_mib(5, 32, -1).lines() {
        assert!(said.contains(line), "no `{line}` in {said}");
    }
    assert!(said.contains("exited normally"), "{said}");
}

/// A file that locks processes out of the driver while it exists.
struct Lock {
    folder: tempfile::TempDir,
}

impl Lock {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locked")
    }

    fn lock(&self) {
        std::fs::write(self.path(), "").expect("writable");
    }

    fn unlock(&self) {
        std::fs::remove_file(self.path()).expect("it is there");
    }
}

/// Waits until its threads have launched more.
#[track_caller]
fn goes_on(guest: &mut Guest) {
    let before = guest.number("count");
    until("its threads go on", || guest.number("count") > before + 5);
}

/// Waits until they have launched nothing for a while.
#[track_caller]
fn stands_still(guest: &mut Guest) {
    until("its threads stand still", || {
        let before = guest.number("count");
        std::thread::sleep(std::time::Duration::from_millis(20));
        guest.number("count") == before
    });
}

#[test]
fn a_process_locked_out_of_its_driver_still_answers_and_drains_later() {
    let gpu = Gpu::new("");
    let (dealer, lock) = (Dealer::start(&gpu), Lock::new());
    let mut command = dealer.command(&clients::compile("locked", &[]));
    command
        .env("LD_LIBRARY_PATH", links())
        .env("SOFTGPU_LOCK", lock.path());
    let mut guest = Guest::start(command);
    assert_eq!(guest.ask("init"), "init 0");
    assert_eq!(guest.ask(&format!("work {}", 200 * US)), "work 0");
    for epoch in 1..6 {
        dealer.open(epoch);
        goes_on(&mut guest);
        lock.lock();
        stands_still(&mut guest);
        dealer.close(epoch);
        for _ in 0..3 {
            let info = guest.ask("info");
            assert!(info.starts_with("info 0 "), "{info}");
        }
        let drained = Request::Drained {
            device_index: 0,
            epoch,
        };
        // If no work happened to be in flight, the drained report comes without a query.
        let had_nothing = dealer.said().contains(&drained);
        lock.unlock();
        if !had_nothing {
            dealer.hears(&drained);
        }
    }
    dealer.deal(&Turn::default());
    goes_on(&mut guest);
    assert_eq!(guest.ask("stop"), "stop 0");
    guest.finish().silently();
}

#[test]
fn a_locked_process_does_not_block_its_tenants_allocations() {
    let gpu = Gpu::new("");
    let (alone, lock) = (Alone::on(&gpu), Lock::new());
    let client = clients::compile("locked", &[]);
    let start = |locked: bool| {
        let mut command = alone.command(&["--mem-limit", "64MiB"], &client);
        if locked {
            command.env("SOFTGPU_LOCK", lock.path());
        }
        let mut guest = Guest::start(command);
        assert_eq!(guest.ask("init"), "init 0");
        guest
    };
    let (mut guest, mut other) = (start(true), start(false));
    assert_eq!(guest.ask(&format!("work {}", 200 * US)), "work 0");
    for _ in 0..5 {
        goes_on(&mut guest);
        lock.lock();
        stands_still(&mut guest);
        assert_eq!(other.ask(&format!("alloc {}", 10 * MIB)), "alloc 0");
        lock.unlock();
    }
    assert_eq!(other.ask(&format!("alloc {}", 20 * MIB)), "alloc 2");
    assert_eq!(guest.ask("stop"), "stop 0");
    guest.finish().silently();
    other.finish().silently();
}

#[test]
fn a_program_ends_while_it_is_locked_out_of_its_driver() {
    for _ in 0..3 {
        let gpu = Gpu::new("exit=refuse");
        let (alone, lock) = (Alone::on(&gpu), Lock::new());
        let client = clients::compile("locked", &[]);
        let mut command = alone.command(&["--sm-limit", "30"], &client);
        command.env("SOFTGPU_LOCK", lock.path());
        let mut guest = Guest::start(command);
        assert_eq!(guest.ask("init"), "init 0");
        assert_eq!(guest.ask(&format!("work {MS}")), "work 0");
        goes_on(&mut guest);
        lock.lock();
        stands_still(&mut guest);
        guest.finish().silently();
    }
}
