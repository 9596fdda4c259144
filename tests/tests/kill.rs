//! Processes killed inside the library: stopped after each of their stores to the shared page in
//! turn, then killed there; and killed at arbitrary moments. Afterwards the page's accounts equal
//! softgpu's counters, with and without surviving forked children.

use gpushare_protocol::page::Snapshot;
use gpushare_tests::{Gpu, Guest, MIB, artefacts, clients, guest, until};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use softgpu::inspect::{DeviceTruth, Observer};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const LIMIT: u64 = 192 * MIB;
const KEPT: u64 = 10 * MIB;
/// More than a victim requests at once.
const LARGEST: u64 = 6 * MIB;
/// Reads until softgpu must have returned a dead process's memory: it does so at the eighth
/// operation at the latest.
const LOOKS: u32 = 40;

/// A tenant on a separate machine, with one process that is never killed.
struct Tenant {
    gpu: Gpu,
    observer: Observer,
    runtime: tempfile::TempDir,
    keeper: Option<Guest>,
}

impl Tenant {
    fn start() -> Self {
        let gpu = Gpu::new("mem=1GiB,ctx=2MiB");
        let observer = Observer::open(&gpu.spec().parse().expect("a valid SPEC"))
            .expect("softgpu's state opens");
        let runtime = tempfile::tempdir().expect("a temporary folder");
        fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o700))
            .expect("our own folder");
        let mut tenant = Self {
            gpu,
            observer,
            runtime,
            keeper: None,
        };
        let mut keeper = Guest::start(tenant.command("quota")).started();
        assert_eq!(keeper.ask(&format!("alloc {KEPT}")), "alloc 0");
        tenant.keeper = Some(keeper);
        tenant
    }

    /// The file into which a victim's child writes its pid.
    fn child_file(&self) -> PathBuf {
        self.runtime.path().join("child")
    }

    /// A client in this tenant.
    fn command(&self, client: &str) -> Command {
        let mut command = guest::plain(&self.gpu, &clients::compile(client, &[]));
        command
            .env("LD_PRELOAD", artefacts::interposer())
            .env("XDG_RUNTIME_DIR", self.runtime.path());
        command
            .env("GPUSHARE_TENANT", "kill")
            .env("GPUSHARE_MEM_LIMIT", LIMIT.to_string());
        command
    }

    fn ask(&mut self, line: &str) -> String {
        self.keeper.as_mut().expect("it lives").ask(line)
    }

    /// Bytes charged in all, and granted as credit, from the page itself.
    fn books(&self) -> (u64, u64) {
        let page =
            fs::read(self.runtime.path().join("gpushare/c/kill/usage")).expect("the usage page");
        let snapshot = Snapshot::parse(&page).expect("a page");
        let credit = snapshot
            .processes
            .iter()
            .flat_map(|process| &process.uses)
            .map(|device| device.credit)
            .sum();
        (snapshot.charged(0), credit)
    }

    fn device(&self) -> DeviceTruth {
        self.observer
            .snapshot()
            .expect("softgpu's state is there")
            .devices
            .remove(0)
    }

    fn truth(&self) -> u64 {
        self.device().requested_now
    }

    /// The accounts never show less than the truth, and equal it once the dead processes' memory
    /// has returned. While a child of a dead process lives they may exceed it by `unsure`: the size
    /// of the call in which its parent died, whose outcome is unknown.
    fn agree(&mut self, when: &str, unsure: u64) {
        until(&format!("{when}: the books are true"), || {
            self.ask("info");
            let ((charged, credit), device) = (self.books(), self.device());
            let truth = device.requested_now;
            assert!(
                charged >= truth,
                "{when}: {charged} bytes charged, {truth} requested"
            );
            assert!(
                charged <= credit && credit <= LIMIT,
                "{when}: {charged} charged, {credit} credit"
            );
            charged <= truth + unsure && device.processes.iter().all(|process| process.alive)
        });
    }

    /// The memory of the dead has returned.
    fn is_alone(&mut self, when: &str) {
        for _ in 0..LOOKS {
            self.ask("info");
            if self.truth() == KEPT {
                return;
            }
        }
        panic!("{when}: {} requested", self.truth());
    }

    /// The remaining process can allocate every byte of the limit, and none more.
    fn all_can_be_had(&mut self, when: &str) {
        let others = self.books().0 - KEPT;
        let whole = LIMIT - KEPT - others;
        assert_eq!(self.ask(&format!("alloc {whole}")), "alloc 0", "{when}");
        assert_eq!(self.ask("alloc 512"), "alloc 2", "{when}");
        assert_eq!(self.ask("free 1"), "free 0", "{when}");
    }
}

impl Drop for Tenant {
    /// A failed test leaves no victim's child behind.
    fn drop(&mut self) {
        if let Some(child) = fs::read_to_string(self.child_file())
            .ok()
            .and_then(|pid| pid.trim().parse().ok())
        {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
    }
}

/// How a victim ended.
enum End {
    Stopped,
    Finished,
}

/// Waits until the victim stops itself or ends.
fn wait(victim: &Child) -> End {
    let pid = Pid::from_raw(i32::try_from(victim.id()).expect("a pid"));
    match waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("our child") {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => End::Stopped,
        WaitStatus::Exited(_, 0) => End::Finished,
        other => panic!("the victim ended as {other:?}"),
    }
}

fn end(victim: &mut Child) {
    victim.kill().expect("our child");
    victim.wait().expect("our child");
}

/// Kills a victim after each of its stores. With `forks` it forks a child that survives for a
/// while. Returns the number of kills.
#[expect(
    clippy::zombie_processes,
    reason = "a victim that has finished was waited for by its pid"
)]
fn kill_after_each_store(forks: bool) -> (u64, u64) {
    // Orphans become children of this process, so that it can wait for their end.
    nix::sys::prctl::set_child_subreaper(true).expect("every process may");
    let mut tenant = Tenant::start();
    let child_file = tenant.child_file();
    let mut children = 0;
    for store in 1.. {
        let when = format!(
            "killed after store {store}{}",
            if forks { ", with a child" } else { "" }
        );
        let mut command = tenant.command("victim");
        command
            .env("GPUTEST_KILLPOINT", store.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if forks {
            command.arg(&child_file);
        }
        let mut victim = command.spawn().expect("the victim starts");
        let finished = matches!(wait(&victim), End::Finished);
        if !finished {
            end(&mut victim);
        }
        if let Ok(child) = fs::read_to_string(&child_file) {
            children += u64::from(!finished);
            tenant.agree(&format!("{when}, which lives"), LARGEST);
            assert!(
                finished || tenant.truth() > KEPT,
                "{when}: the child holds its parent's memory"
            );
            tenant.all_can_be_had(&format!("{when}, which lives"));
            let child = Pid::from_raw(child.trim().parse().expect("a pid"));
            kill(child, Signal::SIGKILL).expect("it lives");
            waitpid(child, None).expect("orphans are ours");
            fs::remove_file(&child_file).expect("it was there");
        }
        tenant.is_alone(&when);
        tenant.agree(&when, 0);
        tenant.all_can_be_had(&when);
        assert_eq!(tenant.truth(), KEPT, "{when}");
        if finished {
            return (store - 1, children);
        }
    }
    unreachable!("a victim makes fewer than 2^64 stores")
}

#[test]
fn a_process_killed_after_any_of_its_stores_leaves_true_books() {
    let (kills, _) = kill_after_each_store(false);
    eprintln!("{kills} kills, all of them inside the library");
    assert!(kills >= 50, "only {kills} stores were tried");
}

#[test]
fn a_killed_parent_counts_as_long_as_its_forked_child_lives() {
    let (kills, children) = kill_after_each_store(true);
    eprintln!("{kills} kills, all of them inside the library; {children} with a living child");
    assert!(kills >= 50, "only {kills} stores were tried");
    assert!(children >= 15, "only {children} had a living child");
}

#[test]
fn a_killed_processs_memory_is_allocated_at_the_first_request() {
    let mut tenant = Tenant::start();
    for round in 0..5 {
        let mut holder = Guest::start(tenant.command("quota")).started();
        assert_eq!(holder.ask(&format!("alloc {}", LIMIT - KEPT)), "alloc 0");
        holder.kill();
        // The driver has not returned the memory yet, so the request waits for it.
        assert_eq!(
            tenant.ask(&format!("alloc {}", LIMIT - KEPT)),
            "alloc 0",
            "round {round}"
        );
        assert!(tenant.device().requested_peak <= LIMIT);
        assert_eq!(tenant.ask("free 1"), "free 0");
    }
}

#[test]
fn processes_killed_at_any_moment_leave_true_books() {
    let mut tenant = Tenant::start();
    for round in 0..20_u64 {
        let mut racer = Guest::start(tenant.command("race")).started();
        racer.send(&format!("greedy {} 100000000 {round}", 8 * MIB));
        // The survivor's own calls take the time: the racer is in the middle of a call.
        for _ in 0..=round {
            tenant.ask("info");
        }
        racer.kill();
        let when = format!("killed in round {round}");
        tenant.agree(&when, 0);
        tenant.all_can_be_had(&when);
    }
}
