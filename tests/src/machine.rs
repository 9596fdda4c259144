//! A separate machine: root, other users, and an empty `/run`, `/var/lib` and `/dev/shm`, in a
//! mount namespace. With or without a daemon for all users at `/run/gpushare`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use crate::gpu::{Gpu, links};
use crate::guest::{Guest, clean};
use crate::runnable::not_runnable_here;
use crate::serving::Serving;
use crate::{artefacts, clients};

/// Root.
pub const ROOT: u32 = 0;
/// A user id without a name.
pub const ALICE: u32 = 65_534;
/// Another user id without a name.
pub const BOB: u32 = 65_533;

/// A line for root's shell: an `/etc` of this machine alone, without settings of ours.
pub const OWN_ETC: &str = "mkdir -p /run/etc/upper /run/etc/work && \
     mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work /etc && \
     rm -rf /etc/gpushare";

/// The GPU of a machine, where a test names no other.
const SPEC: &str = "mem=16GiB";
/// Mounts the machine's own folders, `/run` as Debian and Ubuntu do, reports it, and keeps them
/// until standard input ends. With arguments, it first moves into another root file system, the
/// first of them, and takes along the folders that the others name.
const KEEP: &str = r#"
set -e
if [ $# -gt 0 ]; then
    root=$1
    shift
    mount --bind "$root" "$root"
    for folder in /proc /sys /dev; do mount --rbind "$folder" "$root$folder"; done
    for folder in "$@"; do
        mkdir -p "$root$folder"
        mount --bind "$folder" "$root$folder"
    done
    cd "$root"
    pivot_root . .
    umount -l .
    cd /
fi
mount -t tmpfs -o mode=0755,nosuid,nodev,noexec none /run
mount -t tmpfs -o mode=0755 none /var/lib
mount -t tmpfs -o mode=1777 none /dev/shm
echo kept
exec cat
"#;

/// See the module's documentation. Dropping it kills all its processes that still run.
#[derive(Debug)]
pub struct Machine {
    gpu: Gpu,
    keeper: Child,
    daemon: Option<Serving>,
}

impl Machine {
    /// A machine with a running daemon; `None` if a machine cannot be made here, which is noted
    /// under `test`.
    pub fn start(test: &str) -> Option<Self> {
        let mut machine = Self::bare(test)?;
        machine.start_daemon(&[]);
        Some(machine)
    }

    /// A machine without a daemon.
    pub fn bare(test: &str) -> Option<Self> {
        Self::keep(test, SPEC, &[])
    }

    /// As [`Machine::bare`], with a GPU of this specification.
    pub fn bare_with(test: &str, spec: &str) -> Option<Self> {
        Self::keep(test, spec, &[])
    }

    /// A machine without a daemon whose root file system is `root`. The repository and the build
    /// are where they are on this one.
    pub fn bare_in(test: &str, root: &Path) -> Option<Self> {
        let target = artefacts::folder().parent().expect("a target folder");
        let repository = artefacts::repository();
        let repository = repository.canonicalize().expect("it is there");
        Self::keep(test, SPEC, &[root, &repository, target])
    }

    fn keep(test: &str, spec: &str, folders: &[&Path]) -> Option<Self> {
        if !geteuid().is_root() {
            not_runnable_here(test, "only root can be several users");
            return None;
        }
        let mut command = clean("unshare".as_ref());
        command
            .args(["--mount", "sh", "-c", KEEP, "sh"])
            .args(folders)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut keeper = command.spawn().expect("unshare is in util-linux");
        let mut said = String::new();
        let mut lines = BufReader::new(keeper.stdout.take().expect("piped"));
        lines.read_line(&mut said).expect("it writes text");
        if said.trim() != "kept" {
            let refused = keeper
                .wait_with_output()
                .expect("a child can be waited for");
            not_runnable_here(test, &String::from_utf8_lossy(&refused.stderr));
            return None;
        }
        let machine = Self {
            gpu: Gpu::new(spec),
            keeper,
            daemon: None,
        };
        let mut sees = machine.as_user(ALICE, "test");
        let sees = sees.arg("-x").arg(artefacts::gpushare()).status();
        if !sees.expect("setpriv is in util-linux").success() {
            not_runnable_here(test, "other users cannot read the build");
            return None;
        }
        Some(machine)
    }

    /// A number that no other machine has now.
    pub fn id(&self) -> u32 {
        self.keeper.id()
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Starts root's daemon with these further flags, and waits until it serves.
    #[track_caller]
    pub fn start_daemon(&mut self, flags: &[&str]) {
        self.start_this(self.daemon_command(flags));
    }

    /// Starts a daemon by this command, and waits until it serves.
    #[track_caller]
    pub fn start_this(&mut self, daemon: Command) {
        self.daemon = Some(Serving::start(daemon).expect("it serves"));
    }

    /// The command of [`Machine::start_daemon`].
    pub fn daemon_command(&self, flags: &[&str]) -> Command {
        let program = artefacts::gpushared();
        let mut command = self.as_user(ROOT, &program.to_string_lossy());
        command.args(flags);
        command
    }

    /// Kills root's daemon; it must not have ended by itself.
    #[track_caller]
    pub fn kill_daemon(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// The pid of root's daemon.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").pid()
    }

    /// Sends root's daemon a signal.
    pub fn signal_daemon(&self, signal: Signal) {
        let pid = i32::try_from(self.daemon_pid()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("it is ours");
    }

    /// A program on this machine, run by this user.
    pub fn as_user(&self, user: u32, program: &str) -> Command {
        let mut command = clean("nsenter".as_ref());
        command
            .args(["--mount", "--target", &self.keeper.id().to_string()])
            .args([
                "setpriv",
                &format!("--reuid={user}"),
                &format!("--regid={user}"),
            ])
            .args(["--clear-groups", program])
            .env_remove("XDG_RUNTIME_DIR")
            .env("LD_LIBRARY_PATH", links())
            .env("SOFTGPU", self.gpu.spec())
            // Other tests write into the one that they share.
            .env("XDG_STATE_HOME", format!("/dev/shm/state-{user}"));
        command
    }

    /// Runs a shell line as this user; it must succeed. Returns its output.
    #[track_caller]
    pub fn sh(&self, user: u32, line: &str) -> String {
        let done = self.as_user(user, "sh").args(["-c", line]).output();
        let done = done.expect("nsenter is in util-linux");
        assert!(done.status.success(), "{line}: {done:?}");
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// `gpushare` with these arguments.
    pub fn gpushare(&self, user: u32, arguments: &[&str]) -> Command {
        let program = artefacts::gpushare();
        let mut command = self.as_user(user, &program.to_string_lossy());
        command.args(arguments);
        command
    }

    /// Runs `gpushare` with these arguments to its end.
    pub fn run(&self, user: u32, arguments: &[&str]) -> Output {
        let done = self.gpushare(user, arguments).output();
        done.expect("nsenter is in util-linux")
    }

    /// The quota client under `gpushare run`.
    pub fn guest(&self, user: u32, flags: &[&str]) -> Guest {
        let mut command = self.gpushare(user, &["run", "--daemon", "on"]);
        command.args(flags).arg("--").arg(quota());
        Guest::start(command)
    }

    /// The quota client in this tenant. It joins the tenant through the library alone.
    pub fn into_it(&self, user: u32, tenant: &str) -> Guest {
        Guest::start(self.quota_in(user, tenant))
    }

    /// The command of [`Machine::into_it`].
    pub fn quota_in(&self, user: u32, tenant: &str) -> Command {
        let mut command = self.as_user(user, &quota().to_string_lossy());
        command
            .env("LD_PRELOAD", artefacts::interposer())
            .env("GPUSHARE_SOCKET", format!("/run/gpushare/sockets/{tenant}"));
        command
    }

    /// A tenant's row in `gpushare ps --json` of this user.
    #[track_caller]
    pub fn row(&self, user: u32, name: &str) -> Option<Value> {
        let output = self.run(user, &["ps", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
        rows.into_iter().find(|row| row["name"] == name)
    }
}

fn quota() -> PathBuf {
    clients::compile("quota", &[])
}

/// A cgroup as a container runtime creates it; removed when dropped.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// `None` if no cgroup can be made here, which is noted under `test`.
    pub fn new(test: &str) -> Option<Self> {
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let unified = mounts
            .iter()
            .find(|mount| Path::new(mount).join("cgroup.procs").exists());
        let Some(unified) = unified else {
            not_runnable_here(test, "there is no unified cgroup hierarchy");
            return None;
        };
        let own = std::process::id();
        let folder = Path::new(unified).join(format!("docker-{own:064x}.scope"));
        if let Err(error) = std::fs::create_dir(&folder) {
            not_runnable_here(test, &format!("{}: {error}", folder.display()));
            return None;
        }
        Some(Self(folder))
    }

    /// A command that runs `command` in the cgroup.
    pub fn around(&self, command: &Command) -> Command {
        let enter = "echo $$ > \"$0\" && exec \"$@\"";
        let mut inside = Command::new("sh");
        inside
            .args(["-c", enter])
            .arg(self.0.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process leaves the cgroup when it is reaped. An unreaped process keeps the cgroup until
        // the next boot.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while std::fs::remove_dir(&self.0).is_err() && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl Machine {
    /// Kills the processes that are still in its mount namespace, the keeper excepted.
    fn kill_all(&self) {
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt"));
        let keeper = self.keeper.id().to_string();
        let (Ok(own), Ok(here)) = (namespace(&keeper), namespace("self")) else {
            return;
        };
        if own == here {
            return;
        }
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().filter(|name| **name != keeper) else {
                continue;
            };
            let is_in_it = namespace(pid).is_ok_and(|namespace| namespace == own);
            if let (true, Ok(pid)) = (is_in_it, pid.parse::<i32>()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_daemon();
        self.kill_all();
        if let Some(mut input) = self.keeper.stdin.take() {
            let _ = input.flush();
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
