//! NVML does not answer for a while, or for ever, to a real daemon: grants, shares and commands go
//! on, and the daemon ends.

use std::fs;
use std::path::PathBuf;

use gpushare_tests::{Daemon, GIB, Gpu, MIB, alloc, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const GRANTED: &str = "alloc 0";

/// A daemon whose looks hang while a file exists.
struct Held {
    daemon: Daemon,
    file: PathBuf,
    _folder: TempDir,
}

impl Held {
    fn new(gpu: &Gpu) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("hold");
        let hold = format!("nvmlDeviceGetComputeRunningProcesses_v3:{}", file.display());
        let daemon = Daemon::configured_in(gpu, "", &[("SOFTGPU_HOLD", &hold)]);
        Self {
            daemon,
            file,
            _folder: folder,
        }
    }

    /// From now on NVML does not answer; returns once a look waits.
    fn hangs(&self) {
        fs::write(&self.file, "").expect("writable");
        until("a look hangs", || {
            !fs::read(&self.file).expect("readable").is_empty()
        });
    }

    fn answers(&self) {
        fs::remove_file(&self.file).expect("it is there");
    }
}

#[test]
fn grants_and_commands_go_on_while_nvml_does_not_answer() {
    let gpu = Gpu::new("mem=16GiB");
    let held = Held::new(&gpu);
    let limits = [
        ("GPUSHARE_MEM_REQUEST", "1GiB"),
        ("GPUSHARE_MEM_LIMIT", "12GiB"),
    ];
    let [one, two] = ["one", "two"].map(|name| held.daemon.tenant(name, &limits));
    let mut first = one.client("quota", &[]).started();
    assert_eq!(first.ask(&alloc(GIB)), GRANTED);
    held.hangs();
    assert_eq!(first.ask(&alloc(GIB)), GRANTED);
    let mut second = two.client("quota", &[]).started();
    assert_eq!(second.ask(&alloc(GIB)), GRANTED);
    assert_eq!(second.ask("free 1"), "free 0");
    assert_eq!(held.daemon.row("one").charged, 2 * GIB);
    held.daemon.until("two", |row| row.charged == 0);
    held.answers();
    assert_eq!(second.ask(&alloc(512 * MIB)), GRANTED);
    assert_eq!(first.ask("check"), "check 2");
}

#[test]
fn a_daemon_ends_while_nvml_does_not_answer() {
    let gpu = Gpu::new("mem=16GiB");
    let held = Held::new(&gpu);
    held.hangs();
    let daemon = Pid::from_raw(held.daemon.pid().cast_signed());
    kill(daemon, Signal::SIGTERM).expect("it lives");
    let state = format!("/proc/{daemon}/stat");
    until("the daemon has ended", || {
        fs::read_to_string(&state).map_or(true, |text| text.contains(") Z "))
    });
}
