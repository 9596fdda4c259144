//! The facts that the checks judge. All facts are read before the first check.

use crate::daemon::Unserved;
use gpushare_sys::proof::Modes;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The findings of a child process in the program's environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Driver {
    /// The CUDA version that the driver supports, as 12080.
    pub(crate) cuda: Result<u32, String>,
    /// NVML's description of each device.
    pub(crate) modes: Result<Vec<Modes>, String>,
}

/// Whether memory above the limit was refused, by one way to ask for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Way {
    /// How it was asked for.
    pub(crate) by: String,
    /// The outcome.
    pub(crate) outcome: Outcome,
}

/// See [`Way`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The limit held, and what is below it could be had.
    Held,
    /// Memory above the limit was given, or another total was told.
    Passed(String),
    /// It could not be tried.
    Untried(String),
}

/// A device node and whether this user may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) path: PathBuf,
    pub(crate) usable: bool,
}

/// A daemon that this user can talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Daemon {
    pub(crate) folder: PathBuf,
    pub(crate) minor: u16,
    /// UUIDs of its devices, and whether NVML tells it what each process holds.
    pub(crate) devices: Vec<(String, bool)>,
    /// UUIDs of those that do not answer any more.
    pub(crate) lost: Vec<String>,
    /// Its version and commit, if it tells them.
    pub(crate) build: Option<String>,
}

/// gpushare's ways into the containers of an engine, as the engine's files say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Engine {
    /// docker, k3s, rke2, containerd, cri-o or podman.
    pub(crate) name: &'static str,
    /// A file of it that this user may not read.
    pub(crate) unread: Option<PathBuf>,
    /// A file of it that is wrong: its path and why.
    pub(crate) wrong: Option<String>,
    /// Its runtimes that lead to `gpushare-runtime`.
    pub(crate) runtimes: Vec<Runtime>,
    /// Files of hooks that name `gpushare-oci-hook`, and where it looks for such; of Podman and
    /// CRI-O only.
    pub(crate) hooks: Vec<HookFile>,
    pub(crate) hook_folders: Vec<PathBuf>,
    /// The name of the runtime that a container gets which names none.
    pub(crate) default: Option<String>,
    /// NVIDIA's toolkit gives its containers GPUs, also without a description for CDI.
    pub(crate) has_nvidia: bool,
    /// Its runtimes of NVIDIA's that do not lead to `gpushare-runtime`.
    pub(crate) past: Vec<String>,
    /// Its runtimes for pods that lead neither to `gpushare-runtime` nor to NVIDIA's: handlers that
    /// a RuntimeClass may name; of engines that Kubernetes uses.
    pub(crate) others: Vec<String>,
    /// Its containers with a GPU that were made with another runtime than one of ours; of Docker
    /// only.
    pub(crate) made_past: Vec<Made>,
    /// Its image builds give GPUs that CDI describes, and do not come to the wrapper; of Docker
    /// only.
    pub(crate) builds_past: bool,
    /// A file that has a section of a plugin again; of containerd, where the versions of it that
    /// take only the last such section have another default or other runtimes of ours than the
    /// versions that add them up.
    pub(crate) replacing: Option<PathBuf>,
    /// Its version, where it takes an image's annotations over into containers, and its runtime may
    /// be crun, which opens files of the host by some of them; of Podman.
    pub(crate) images_annotate: Option<String>,
    /// Its handler that is crun without the wrapper, where it hands on all annotations of a pod; of
    /// CRI-O.
    pub(crate) pods_annotate: Option<String>,
}

impl Engine {
    pub(crate) fn named(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }
}

/// A runtime of an engine that leads to `gpushare-runtime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runtime {
    pub(crate) name: String,
    /// The wrapper, or the program before it that is not there; and whether all of them are.
    pub(crate) path: PathBuf,
    pub(crate) runs: bool,
    /// Whether it is given a pod's annotations of ours; nothing where the engine gives all.
    pub(crate) passes: Option<bool>,
    /// It is NVIDIA's, or a script that names NVIDIA's.
    pub(crate) has_nvidia: bool,
}

/// A container, and the runtime that it was made with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Made {
    pub(crate) name: String,
    pub(crate) runtime: String,
}

/// A file of hooks that names `gpushare-oci-hook`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookFile {
    pub(crate) file: PathBuf,
    /// The hook, and whether it is there.
    pub(crate) path: PathBuf,
    pub(crate) runs: bool,
    /// It is for all containers.
    pub(crate) always: bool,
}

/// A folder that gpushare writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Bytes left for this user.
    pub(crate) free: u64,
}

/// The acts of systemd-logind when the last login of this user ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    /// The place of this user's books and private daemon, where it removes that.
    pub(crate) removes: Option<PathBuf>,
    /// This process is part of a login: it ends with it, or keeps it from ending.
    pub(crate) is_within: bool,
}

/// See the module's page.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Whether the GPU is a software one.
    pub(crate) soft: bool,
    /// How many devices programs see, or why none.
    pub(crate) devices: Result<usize, String>,
    pub(crate) driver: Driver,
    pub(crate) nodes: Vec<Node>,
    /// The dynamic linker's answer about the library: its path, or why it does not load.
    pub(crate) library: Result<PathBuf, String>,
    /// Each way to take memory, or why the proof could not be made.
    pub(crate) proof: Result<Vec<Way>, String>,
    pub(crate) daemons: Vec<Daemon>,
    /// Why the machine's daemon does not serve, where there is one.
    pub(crate) silent: Vec<Unserved>,
    /// Which of this user's own daemons left tenants behind.
    pub(crate) died: Vec<Unserved>,
    /// A daemon of this user's in another runtime folder than the one that this shell names.
    pub(crate) elsewhere: Option<String>,
    /// In a container: whether the daemon on the host listens to its tenant, or why not.
    pub(crate) container: Option<Result<(), String>>,
    /// The machine's daemon runs as root and has no capability by which it passes descriptors
    /// however many other processes of root have in flight.
    pub(crate) may_pass_nothing: bool,
    /// Why the next start of the machine's daemon would refuse its settings, where there is one.
    pub(crate) refused_settings: Option<String>,
    /// A rule of those settings is for a namespace or an image.
    pub(crate) has_pod_rules: bool,
    /// The version of this command, of a package with its commit.
    pub(crate) own_build: &'static str,
    /// The protocol's minor of this command.
    pub(crate) own_minor: u16,
    /// Whether we are in the machine's first pid namespace.
    pub(crate) first_pid_namespace: bool,
    /// The kernel's version, as it tells it: `6.1.0-13-amd64`. Empty where it does not.
    pub(crate) kernel: String,
    /// How many descriptors a process may have here.
    pub(crate) descriptors: u64,
    /// cgroup v2's controllers, or none where it is not the machine's hierarchy.
    pub(crate) controllers: Option<Vec<String>>,
    /// The folder of a running MPS control daemon.
    pub(crate) mps: Option<String>,
    /// Libraries that are preloaded: from the variable, and from `/etc/ld.so.preload`.
    pub(crate) preloads: Vec<String>,
    /// Our variables in the environment that nothing reads, and how they are refused.
    pub(crate) misspelt: Vec<String>,
    /// That the tenant in which this shell was started has ended.
    pub(crate) ended_outer: Option<String>,
    /// How a `GPUSHARE_LOG` is refused that cannot be opened.
    pub(crate) unopened: Option<String>,
    /// `GPUSHARE_DISABLE=1` is set.
    pub(crate) disabled: bool,
    /// Folders with a CDI description of NVIDIA's GPUs, and whether one has the description that
    /// NVIDIA's device plugin makes for pods.
    pub(crate) cdi: Vec<PathBuf>,
    pub(crate) pods_cdi: bool,
    /// The container engines of this machine.
    pub(crate) engines: Vec<Engine>,
    /// Where SELinux enforces: what containers have to read of gpushare's and may not, with the
    /// type of each.
    pub(crate) unread_by_containers: Vec<(PathBuf, String)>,
    /// The machine's daemon says that limits are mandatory, and that it describes classes.
    pub(crate) mandatory: bool,
    pub(crate) classes: bool,
    pub(crate) folders: Vec<Folder>,
    /// Why a daemon of this user's could keep no journal.
    pub(crate) no_journal: Option<String>,
    pub(crate) login: Login,
    /// Seconds since 1970, by the machine's clock.
    pub(crate) clock: u64,
}
