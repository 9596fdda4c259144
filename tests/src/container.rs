//! OCI containers on a separate machine, made by an installed runtime or by a script. Their root is
//! the machine's own file system under an overlay, so that they have a glibc and the build; under
//! containerd and Docker it is a small image of the machine's own programs.

mod bare;
mod config;
mod containerd;
mod docker;
mod engine;
mod podman;

use std::cell::RefCell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::guest::{Ended, Guest};
use crate::machine::{Machine, ROOT};
use crate::{artefacts, clients};
use engine::Engine;

/// The folder of a machine's containers; it is removed with the machine. Below `/run` nothing could
/// be executed.
const LAB: &str = "/var/lib/lab";
/// The folder of its library.
const LIBRARY: &str = "/var/lib/lab/library";
/// The folder of the software GPU that all of a machine's processes share.
const GPU: &str = "/var/lib/lab/gpu";
/// The same folder inside a container.
const GPU_INSIDE: &str = "/mnt/softgpu";
/// Where the hierarchies of cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The daemon's socket for commands.
const CONTROL: &str = "/run/gpushare/control.sock";

/// The runtime that makes the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A script of this repository.
    ByHand,
    /// runc.
    Runc,
    /// crun.
    Crun,
    /// youki, where `scripts/containers.sh` has built it.
    Youki,
    /// Podman, over this runtime.
    Podman(&'static str),
    /// containerd's own client, `ctr`.
    Containerd,
    /// containerd's service for Kubernetes (CRI).
    Cri,
    /// Docker.
    Docker,
}

impl Runtime {
    /// The program that has to be installed for it; none for the script.
    #[must_use]
    pub fn program(self) -> Option<String> {
        let name = match self {
            Self::ByHand => return None,
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Youki => return Some(Self::youki()),
            Self::Podman(_) => "podman",
            Self::Containerd | Self::Cri => "containerd",
            Self::Docker => "dockerd",
        };
        Some(name.to_owned())
    }

    fn youki() -> String {
        let built = Lab::build().join("youki/bin/youki");
        built.to_string_lossy().into_owned()
    }
}

/// The way in which the container joins gpushare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// It does not join.
    None,
    /// By the hook in its configuration.
    Hook,
    /// By the wrapper around its runtime.
    Wrapper,
    /// By this device of the daemon's CDI specification, as an engine applies it.
    Cdi(&'static str),
}

/// A container to be made.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Its id.
    pub id: String,
    /// The runtime.
    pub runtime: Runtime,
    /// The way in which it joins gpushare.
    pub door: Door,
    /// Its annotations.
    pub annotations: Vec<(String, String)>,
    /// Further environment variables.
    pub environment: Vec<String>,
    /// The working folder of its program. By hand and by a runtime alone.
    pub cwd: String,
    /// Whether its root is read-only.
    pub read_only: bool,
    /// Whether it has a user namespace.
    pub user_namespace: bool,
    /// A shell line that fills the image before anything is mounted in it. Its working folder is
    /// the image's root.
    pub image: String,
    /// Further volumes, from the host's path to the container's.
    pub volumes: Vec<(String, String)>,
    /// The bytes of host memory that its own memory cgroup allows, if it has one. By hand and by a
    /// runtime alone.
    pub memory: Option<u64>,
    /// The minor numbers of the GPUs whose device files its configuration has. By hand, which makes
    /// no files of them.
    pub gpus: Vec<u32>,
    /// A further hook of the stage createRuntime, behind ours: a program with its arguments. It
    /// has one second.
    pub later_hook: Vec<String>,
    /// The program, and its arguments.
    pub program: Vec<String>,
}

impl Bundle {
    /// A bundle with the quota client and these annotations of gpushare.
    #[must_use]
    pub fn new(id: &str, runtime: Runtime, limits: &[(&str, &str)]) -> Self {
        let pair = |(name, value): &(&str, &str)| (format!("gpushare.io/{name}"), (*value).into());
        Self {
            id: id.to_owned(),
            runtime,
            door: Door::Hook,
            annotations: limits.iter().map(pair).collect(),
            environment: Vec::new(),
            cwd: "/".to_owned(),
            read_only: false,
            user_namespace: false,
            image: String::new(),
            volumes: Vec::new(),
            memory: None,
            gpus: Vec::new(),
            later_hook: Vec::new(),
            program: vec![
                clients::compile("quota", &[])
                    .to_string_lossy()
                    .into_owned(),
            ],
        }
    }

    fn folder(&self) -> String {
        format!("{LAB}/{}", self.id)
    }
}

/// A machine with a daemon for tests with containers.
#[derive(Debug)]
pub struct Lab {
    machine: Machine,
    /// The engines that were started.
    engines: RefCell<Vec<Engine>>,
}

impl Lab {
    /// `None` if such a machine cannot be made here, which is noted under `test`.
    #[must_use]
    pub fn start(test: &str, config: &str) -> Option<Self> {
        Self::on(Machine::bare(test)?, config)
    }

    /// As [`Lab::start`], with a GPU of this specification.
    #[must_use]
    pub fn start_with(test: &str, spec: &str, config: &str) -> Option<Self> {
        Self::on(Machine::bare_with(test, spec)?, config)
    }

    /// As [`Lab::start`], on a machine with this root file system: another release, with its
    /// runtimes.
    #[must_use]
    pub fn start_in(test: &str, root: &Path, config: &str) -> Option<Self> {
        Self::on(Machine::bare_in(test, root)?, config)
    }

    fn on(machine: Machine, config: &str) -> Option<Self> {
        let mut lab = Self {
            machine,
            engines: RefCell::default(),
        };
        lab.sh(&format!("mkdir -p {LIBRARY} {GPU} && chmod 777 {GPU}"));
        let library = artefacts::interposer();
        lab.sh(&format!("cp {} {LIBRARY}/", library.display()));
        lab.write("config.toml", config);
        lab.restart_daemon();
        Some(lab)
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Kills the daemon, if it runs, and starts the next one.
    pub fn restart_daemon(&mut self) {
        self.restart_daemon_by(&[]);
    }

    /// As [`Lab::restart_daemon`], with the daemon as the last arguments of this command.
    pub fn restart_daemon_by(&mut self, command: &[&str]) {
        self.machine.kill_daemon();
        let program = artefacts::gpushared().to_string_lossy().into_owned();
        let config = format!("{LAB}/config.toml");
        let words = [command, &[&program, "--config", &config]].concat();
        let mut daemon = self.machine.as_user(ROOT, words[0]);
        daemon.args(&words[1..]);
        daemon.env("SOFTGPU_FOLDER", GPU);
        self.machine.start_this(daemon);
    }

    /// Kills the daemon.
    pub fn kill_daemon(&mut self) {
        self.machine.kill_daemon();
    }

    /// Sends the daemon a signal.
    pub fn signal_daemon(&self, signal: Signal) {
        self.machine.signal_daemon(signal);
    }

    /// Runs a shell line as root on the machine.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        self.machine.sh(ROOT, line)
    }

    fn write(&self, path: &str, text: &str) {
        let line = format!("cat > {LAB}/{path}");
        let mut cat = self.machine.as_user(ROOT, "sh");
        cat.args(["-c", &line]).stdin(Stdio::piped());
        let mut cat = cat.spawn().expect("sh starts");
        let mut input = cat.stdin.take().expect("piped");
        input.write_all(text.as_bytes()).expect("it reads");
        drop(input);
        assert!(cat.wait().expect("it ends").success());
    }

    /// Makes a bundle, mounts its root, and starts its program. The guest's output is the
    /// program's.
    #[track_caller]
    #[must_use]
    pub fn run(&self, bundle: &Bundle) -> Guest {
        Guest::start(self.command(bundle))
    }

    /// As [`Lab::run`], and waits for the end.
    #[track_caller]
    #[must_use]
    pub fn ends(&self, bundle: &Bundle) -> Ended {
        self.run(bundle).finish()
    }

    /// The command of [`Lab::run`].
    #[track_caller]
    #[must_use]
    pub fn command(&self, bundle: &Bundle) -> Command {
        let (folder, id) = (bundle.folder(), &bundle.id);
        self.sh(&format!(
            "umount -l {folder}/rootfs 2>/dev/null; rm -rf {folder}; \
             mkdir -p {folder}/upper/{GPU_INSIDE} {folder}/upper/{} {folder}/work {folder}/rootfs; \
             chmod 755 {folder}",
            Self::build().display()
        ));
        if bundle.user_namespace {
            // An engine gives an image to the namespace's root.
            self.sh(&format!(
                "cd {folder}/upper && mkdir -p run usr/lib etc mnt dev proc sys tmp var && \
                 chown 100000:100000 . run usr usr/lib etc mnt dev proc sys tmp var"
            ));
        }
        if !bundle.image.is_empty() {
            self.sh(&format!("cd {folder}/upper && {}", bundle.image));
        }
        self.sh(&format!(
            "mount -t overlay overlay -o lowerdir=/,upperdir={folder}/upper,workdir={folder}/work {folder}/rootfs"
        ));
        let config = self.config(bundle);
        self.write(&format!("{id}/config.json"), &config.to_string());
        match bundle.runtime {
            Runtime::ByHand => self.by_hand(bundle, &config),
            Runtime::Runc => self.by_runtime(bundle, "runc"),
            Runtime::Crun => self.by_runtime(bundle, "crun"),
            Runtime::Youki => self.by_runtime(bundle, &Runtime::youki()),
            Runtime::Podman(runtime) => self.by_podman(bundle, runtime, &config),
            Runtime::Containerd => self.by_containerd(bundle, &config),
            Runtime::Cri => self.by_cri(bundle, &config),
            Runtime::Docker => self.by_docker(bundle, &config),
        }
    }

    /// The folder of the build, which containers have too.
    fn build() -> &'static Path {
        artefacts::folder().parent().expect("a target folder")
    }

    /// The cgroup of a container that is made by hand.
    #[must_use]
    pub fn group(&self, id: &str) -> PathBuf {
        self.groups().join(id)
    }

    /// The memory cgroup of a container, and the file in it that limits it; `None` where no memory
    /// cgroup can be made.
    #[must_use]
    pub fn memory_group(&self, id: &str) -> Option<(PathBuf, &'static str)> {
        let first = Path::new(CGROUPS).join("memory");
        if first.join("memory.limit_in_bytes").exists() || first.join("cgroup.procs").exists() {
            let group = first.join(self.group_name()).join(id);
            return Some((group, "memory.limit_in_bytes"));
        }
        let groups = self.groups();
        let above = groups.parent()?.display();
        // A hierarchy hands a controller down where its folder says so.
        let line = format!(
            "mkdir -p {0} && echo +memory >{above}/cgroup.subtree_control && echo +memory >{0}/cgroup.subtree_control",
            groups.display()
        );
        let mut sh = self.machine.as_user(ROOT, "sh");
        let done = sh.args(["-c", &line]).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
            .then(|| (groups.join(id), "memory.max"))
    }

    /// The folder of this machine's cgroups in the unified hierarchy.
    fn groups(&self) -> PathBuf {
        let mount = self.sh("grep -m1 ' cgroup2 ' /proc/mounts | cut -d' ' -f2");
        Path::new(&mount).join(self.group_name())
    }

    /// The folder of this machine's cgroups in each hierarchy.
    fn group_name(&self) -> String {
        format!("gpushare-test-{}", self.machine.id())
    }

    /// A tenant's row in `gpushare ps --json`.
    #[must_use]
    pub fn row(&self, name: &str) -> Option<Value> {
        self.machine.row(ROOT, name)
    }

    /// A bundle's folder on the machine.
    #[must_use]
    pub fn folder_of(&self, bundle: &Bundle) -> PathBuf {
        bundle.folder().into()
    }
}

impl Drop for Lab {
    /// Ends its engines and containers, and removes its cgroups. A cgroup whose processes are not
    /// reaped yet stays until the next boot.
    fn drop(&mut self) {
        let engines = std::mem::take(&mut *self.engines.borrow_mut());
        for engine in engines {
            engine.end(&self.machine);
        }
        self.delete_bare();
        // A daemon may be in one of the cgroups.
        self.machine.kill_daemon();
        let name = self.group_name();
        for mount in Path::new(CGROUPS)
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
        {
            remove(&mount.path().join(&name));
        }
        remove(&Path::new(CGROUPS).join(name));
    }
}

/// Removes a folder of cgroups, with those in it. Their processes may not be reaped yet.
fn remove(groups: &Path) {
    for folder in groups.read_dir().into_iter().flatten().flatten() {
        if folder.path().is_dir() {
            remove(&folder.path());
        }
    }
    let end = Instant::now() + Duration::from_secs(5);
    while std::fs::remove_dir(groups).is_err_and(|error| error.raw_os_error() == Some(16))
        && Instant::now() < end
    {
        std::thread::sleep(Duration::from_millis(10));
    }
}
