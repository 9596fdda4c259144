//! A software GPU shared by the guests of one test.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use softgpu::inspect::{self, DeviceTruth};

use crate::{artefacts, until};

/// One named machine. Dropping the value changes nothing: the machine lives while a process has it
/// open.
#[derive(Debug)]
pub struct Gpu {
    name: String,
    spec: String,
}

impl Gpu {
    /// A machine with a unique name and further `key=value` pairs (`mem=16GiB,count=2`), and those
    /// of the environment variable `GPUTEST_SPEC` that it does not have: all tests can be run on a
    /// machine of another kind.
    pub fn new(spec: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "test-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let more = std::env::var("GPUTEST_SPEC").unwrap_or_default();
        let named = format!("name={name}");
        let key = |pair: &str| pair.split('=').next().map(str::to_owned);
        let is_new = |pair: &&str| spec.split(',').all(|own| key(own) != key(pair));
        let more = more.split(',').filter(is_new);
        let pairs = [named.as_str(), spec].into_iter().chain(more);
        let given: Vec<&str> = pairs.filter(|pairs| !pairs.is_empty()).collect();
        let spec = given.join(",");
        Self { name, spec }
    }

    /// Its name, for [`softgpu::inspect`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The software GPU's own counters of its first device. A guest must have the machine open.
    #[track_caller]
    pub fn truth(&self) -> DeviceTruth {
        self.truths().swap_remove(0)
    }

    /// The counters of each of its devices. A guest must have the machine open.
    #[track_caller]
    pub fn truths(&self) -> Vec<DeviceTruth> {
        let snapshot = inspect::snapshot(&self.name).expect("readable");
        snapshot.expect("a guest holds it").devices
    }

    /// Engine time of the multiprocessors that all processes have had (ns).
    #[track_caller]
    pub fn served(&self) -> u64 {
        self.served_by_each().iter().sum()
    }

    /// The same of each device.
    #[track_caller]
    pub fn served_by_each(&self) -> Vec<u64> {
        let by = |device: &DeviceTruth| {
            let processes = device.processes.iter();
            processes.map(|process| process.served[0]).sum()
        };
        self.truths().iter().map(by).collect()
    }

    /// Stops a process while it holds no lock of the software GPU, as if its driver were a real
    /// one.
    #[track_caller]
    pub fn stop(&self, pid: Pid) {
        until("the process stops outside the driver", || {
            kill(pid, Signal::SIGSTOP).expect("it lives");
            until("it has stopped", || has_stopped(pid));
            let in_driver = inspect::is_locked(&self.name).expect("readable");
            if in_driver {
                kill(pid, Signal::SIGCONT).expect("it lives");
            }
            !in_driver
        });
    }

    /// The whole SPEC, the value of `SOFTGPU`.
    pub fn spec(&self) -> &str {
        &self.spec
    }
}

fn has_stopped(pid: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let states = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("stat")));
    // The state follows the command's name, which is in parentheses.
    states.flatten().all(|stat| {
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('T'))
    })
}

/// A folder with the four link names of the driver and NVML, for `LD_LIBRARY_PATH` without
/// `gpushare run`.
pub fn links() -> PathBuf {
    let folder = artefacts::cache().join("links");
    fs::create_dir_all(&folder).expect("the target folder is writable");
    let (cuda, nvml) = (artefacts::soft_cuda(), artefacts::soft_nvml());
    for (name, library) in [
        ("libcuda.so.1", &cuda),
        ("libcuda.so", &cuda),
        ("libnvidia-ml.so.1", &nvml),
        ("libnvidia-ml.so", &nvml),
    ] {
        match symlink(library, folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => panic!("{name}: {error}"),
            _ => {}
        }
    }
    folder
}
