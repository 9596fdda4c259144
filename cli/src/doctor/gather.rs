//! Reads the facts.

mod engines;
mod login;
mod selinux;
mod settings;

use super::facts::{Daemon, Driver, Facts, Folder, Node};
use super::{child, proof};
use crate::child::Group;
use crate::daemon::{self, NODE, Unserved};
use crate::devices::{self, named};
use crate::failure::Failure;
use crate::gpu::Gpu;
use crate::settings::Environment;
use crate::{artefacts, history, log_file, mps, plan, registered, when};
use gpushare_protocol::injection::SELINUX_ENFORCES;
use gpushare_protocol::limits::Limits;
use gpushare_protocol::paths::TENANT;
use gpushare_protocol::wire::{MINOR, MetricsRow};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, geteuid};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest to wait for the driver's and NVML's answers.
const PATIENCE: Duration = Duration::from_secs(8);
/// The first pid namespace, as the kernel names it.
const FIRST: &str = "pid:[4026531836]";
/// The words of the machine's daemon for the OCI hooks.
const MANDATORY: &str = "/run/gpushare/mandatory";
const CLASSES: &str = "/run/gpushare/cdi";
/// Folders of CDI descriptions, and the kinds of those of NVIDIA's toolkit and device plugin.
const CDI: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
const GPUS: &str = "nvidia.com/gpu";
const GPUS_OF_PODS: &str = "k8s.device-plugin.nvidia.com/gpu";

/// All facts. The proof is made only where a GPU and the library are there.
pub(super) fn facts(gpu_text: &str) -> Result<Facts, Failure> {
    let own: Environment = std::env::vars_os().collect();
    let gpu: Gpu = gpu_text.parse()?;
    let mut environment = own.clone();
    // Kept while children look at it.
    let _links = gpu.apply(&mut environment, "doctor")?;
    let devices = devices::probe(&environment).map(|devices| devices.len());
    let driver = child::ask(
        &["doctor".into(), "--driver".into()],
        &environment,
        PATIENCE,
        Group::Own,
    );
    let driver = driver.unwrap_or_else(|why: String| Driver {
        cuda: Err(why.clone()),
        modes: Err(why),
    });
    let installed = artefacts::find(artefacts::INTERPOSER).ok();
    // A file of the daemon's gets the type of its folder.
    let for_containers: Vec<PathBuf> = installed.into_iter().chain([NODE.into()]).collect();
    let library = plan::library().map_err(|failure| failure.message);
    let proof = match (&devices, &library) {
        (Ok(1..), Ok(_)) => proof::make(gpu_text, &own),
        (Ok(_), Ok(_)) => Err("there is no GPU".to_owned()),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    };
    let found = daemon::all();
    let refused = Limits::from_env(own.clone()).err();
    let silent: Vec<Unserved> = found.silent.into_iter().chain(found.closed).collect();
    let daemons = daemons(found.serving);
    let elsewhere = daemons.is_empty().then(daemon::elsewhere).flatten();
    let is_machines = |daemon: &Daemon| daemon.folder == Path::new(NODE);
    let has_machines = !silent.is_empty() || daemons.iter().any(is_machines);
    let settings = has_machines.then(settings::file).flatten();
    // A user's engine has settings of that user.
    let home = own.get(OsStr::new("HOME")).map(PathBuf::from);
    let home = home.filter(|_| !geteuid().is_root());
    Ok(Facts {
        soft: !gpu.is_real(),
        devices,
        driver,
        nodes: nodes(Path::new("/dev")),
        library,
        proof,
        refused_settings: settings.as_deref().and_then(settings::refused),
        has_pod_rules: settings.as_deref().is_some_and(settings::has_pod_rules),
        own_build: gpushare_protocol::build!(),
        daemons,
        silent,
        died: found.died,
        elsewhere,
        container: daemon::is_container().then(daemon::hears_container),
        own_minor: MINOR,
        first_pid_namespace: fs::read_link("/proc/self/ns/pid")
            .is_ok_and(|name| name == Path::new(FIRST)),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        may_pass_nothing: may_pass_nothing(Path::new(NODE)),
        descriptors: getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard),
        controllers: controllers(Path::new("/sys/fs/cgroup")),
        mps: mps::daemon(&own),
        preloads: preloads(&own),
        misspelt: refused.iter().map(ToString::to_string).collect(),
        ended_outer: registered::ended_outer(&own, own.get(OsStr::new(TENANT)).cloned()),
        unopened: log_file::check(&own).err().map(|error| error.to_string()),
        disabled: own
            .get(OsStr::new("GPUSHARE_DISABLE"))
            .is_some_and(|value| value == "1"),
        cdi: CDI
            .map(PathBuf::from)
            .into_iter()
            .filter(|folder| describes(folder, GPUS))
            .collect(),
        pods_cdi: CDI
            .iter()
            .any(|folder| describes(Path::new(folder), GPUS_OF_PODS)),
        engines: engines::engines(Path::new("/"), home.as_deref()),
        unread_by_containers: selinux::unread(Path::new(SELINUX_ENFORCES), &for_containers),
        mandatory: fs::read(MANDATORY).is_ok_and(|rules| is_mandatory(&rules)),
        classes: Path::new(CLASSES).exists(),
        folders: folders(&own),
        no_journal: history::unwritable(&own),
        login: login::login(Path::new("/"), geteuid().as_raw(), &own),
        clock: when::now_ms() / 1000,
    })
}

/// Whether these words for hooks let not every container run without limits.
fn is_mandatory(rules: &[u8]) -> bool {
    let rules: Option<serde_json::Value> = serde_json::from_slice(rules).ok();
    let all = rules.as_ref().and_then(|rules| rules["rules"].as_array());
    !all.is_some_and(|all| all.iter().all(|rule| rule["unlimited"] == "allow"))
}

/// Whether the daemon of this folder runs as root, without the capabilities that exempt it from the
/// count of root's descriptors in flight.
fn may_pass_nothing(folder: &Path) -> bool {
    let socket = UnixStream::connect(folder.join("control.sock")).ok();
    let daemon = socket.and_then(|socket| getsockopt(&socket, PeerCredentials).ok());
    let Some(daemon) = daemon.filter(|daemon| daemon.pid() > 0 && daemon.uid() == 0) else {
        return false;
    };
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
    lacks_capability(&status.unwrap_or_default())
}

/// Whether the process of this `status` has neither `CAP_SYS_ADMIN` (21) nor `CAP_SYS_RESOURCE`
/// (24). A status without that line counts as having both.
fn lacks_capability(status: &str) -> bool {
    let row = status.lines().find_map(|row| row.strip_prefix("CapEff:"));
    let set = row.and_then(|row| u64::from_str_radix(row.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << 21 | 1 << 24) == 0)
}

/// Asks the driver and NVML, in the child.
pub(super) fn driver() -> Driver {
    Driver {
        cuda: gpushare_sys::proof::cuda_version(),
        modes: gpushare_sys::proof::modes(),
    }
}

fn daemons(talks: Vec<daemon::Talk>) -> Vec<Daemon> {
    let one = |mut talk: daemon::Talk| {
        let rows = talk.devices().unwrap_or_default();
        let devices = rows.iter().map(|row| {
            let tells = row.capabilities.iter().any(|name| name == "process-memory");
            (named(row), tells)
        });
        Daemon {
            folder: talk.folder().to_owned(),
            minor: talk.minor(),
            devices: devices.collect(),
            lost: rows.iter().filter(|row| row.is_lost()).map(named).collect(),
            build: build(&mut talk),
        }
    };
    talks.into_iter().map(one).collect()
}

/// The version that a daemon tells.
fn build(talk: &mut daemon::Talk) -> Option<String> {
    let rows = talk.metrics().ok()?;
    rows.into_iter().find_map(|row| match row {
        MetricsRow::Node(node) => Some(node.version),
        _ => None,
    })
}

/// The driver's device nodes in a folder.
fn nodes(folder: &Path) -> Vec<Node> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |name: &str| {
        let rest = name.strip_prefix("nvidia");
        rest.is_some_and(|rest| {
            ["ctl", "-uvm"].contains(&rest)
                || !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_one))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| Node {
            usable: access(&path, AccessFlags::R_OK | AccessFlags::W_OK).is_ok(),
            path,
        })
        .collect()
}

fn controllers(root: &Path) -> Option<Vec<String>> {
    let text = fs::read_to_string(root.join("cgroup.controllers")).ok()?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

fn preloads(environment: &Environment) -> Vec<String> {
    let variable = environment.get(OsStr::new("LD_PRELOAD"));
    let variable = variable.map(|value| value.to_string_lossy().into_owned());
    let file = fs::read_to_string("/etc/ld.so.preload").ok();
    let all = [variable, file].into_iter().flatten();
    all.flat_map(|text| {
        let entries = text.split([':', ' ', '\n', '\t']).map(str::to_owned);
        entries
            .filter(|entry| !entry.is_empty())
            .collect::<Vec<_>>()
    })
    .collect()
}

/// Whether a folder has a CDI description of this kind of devices. The folder alone says nothing:
/// the daemon's unit makes one, for the description of its classes.
fn describes(folder: &Path, kind: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let kind = path.extension().and_then(OsStr::to_str);
        kind.is_some_and(|kind| ["json", "yaml", "yml"].contains(&kind))
    };
    let mut texts = entries
        .map(|entry| entry.path())
        .filter(is_one)
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.any(|text| text.lines().any(|line| is_kind(line, kind)))
}

/// Whether a line of JSON or YAML says that kind, and not one that only contains it.
fn is_kind(line: &str, kind: &str) -> bool {
    let mut words = line
        .split(|letter: char| letter.is_whitespace() || "\"',:{}".contains(letter))
        .filter(|word| !word.is_empty())
        .skip_while(|word| *word != "kind");
    words.nth(1) == Some(kind)
}

/// Folders that are written to, with the space that is left.
fn folders(environment: &Environment) -> Vec<Folder> {
    let runtime = environment
        .get(OsStr::new("XDG_RUNTIME_DIR"))
        .map(PathBuf::from);
    let all = [
        Some(PathBuf::from("/run")),
        Some(PathBuf::from("/dev/shm")),
        runtime,
        // The journals of the machine's daemon and of this user's.
        Some(PathBuf::from(history::MACHINE)),
        history::own_state(environment),
    ];
    all.into_iter().flatten().filter_map(folder).collect()
}

/// The folder, or the nearest one above it that is there.
fn folder(path: PathBuf) -> Option<Folder> {
    let there = path.ancestors().find(|path| path.is_dir())?;
    let room = statvfs(there).ok()?;
    let free = room.blocks_available() * room.fragment_size();
    Some(Folder {
        path: there.to_owned(),
        free,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_mandatory_where_not_each_container_is_allowed() {
        let rules = |words: &[&str]| {
            let rule = |word: &&str| serde_json::json!({"namespace": "a", "unlimited": word});
            serde_json::json!({"rules": words.iter().map(rule).collect::<Vec<_>>()}).to_string()
        };
        assert!(!is_mandatory(rules(&["allow", "allow"]).as_bytes()));
        for text in [rules(&["allow", "deny"]), rules(&["maxima"]), String::new()] {
            assert!(is_mandatory(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn one_of_two_capabilities_is_enough_to_pass_descriptors() {
        for (set, lacks) in [
            ("0000000000000020", true),
            ("0000000001000020", false),
            ("0000000000200000", false),
            ("none", false),
        ] {
            let status = format!("Name:\ta\nCapPrm:\t0\nCapEff:\t{set}\n");
            assert_eq!(lacks_capability(&status), lacks, "{set}");
        }
        assert!(!lacks_capability(""), "it does not tell");
    }

    #[test]
    fn a_folder_describes_gpus_by_a_file_of_that_kind_only() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert!(!describes(folder.path(), GPUS), "it is empty");
        assert!(!describes(&folder.path().join("none"), GPUS));
        put("gpushare.json", "{\"kind\": \"gpushare.dev/class\"}");
        put("README", "kind: nvidia.com/gpu");
        put(
            "plugin.json",
            "{\"kind\": \"k8s.device-plugin.nvidia.com/gpu\"}",
        );
        assert!(!describes(folder.path(), GPUS));
        assert!(describes(folder.path(), GPUS_OF_PODS));
        put("nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n");
        assert!(describes(folder.path(), GPUS));
        fs::remove_file(folder.path().join("nvidia.yaml")).unwrap();
        put(
            "nvidia.json",
            "{\"kind\":\"nvidia.com/gpu\",\"devices\":[]}",
        );
        assert!(describes(folder.path(), GPUS));
    }

    #[test]
    fn device_nodes_are_those_of_the_driver() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "nvidia0",
            "nvidia12",
            "nvidiactl",
            "nvidia-uvm",
            "nvidia-modeset",
            "nvidia",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = nodes(folder.path());
        let names: Vec<_> = found
            .iter()
            .filter_map(|node| node.path.file_name()?.to_str())
            .collect();
        assert_eq!(names, ["nvidia-uvm", "nvidia0", "nvidia12", "nvidiactl"]);
        assert!(found.iter().all(|node| node.usable));
        assert!(nodes(&folder.path().join("none")).is_empty());
    }

    #[test]
    fn controllers_are_read_where_cgroup_v2_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(controllers(folder.path()), None);
        fs::write(folder.path().join("cgroup.controllers"), "cpu dmem\n").unwrap();
        assert_eq!(
            controllers(folder.path()),
            Some(vec!["cpu".to_owned(), "dmem".to_owned()])
        );
    }

    #[test]
    fn a_folder_that_is_not_there_yet_has_the_room_of_the_one_above() {
        let dir = tempfile::tempdir().unwrap();
        let found = folder(dir.path().join("a/b")).unwrap();
        assert_eq!(found.path, dir.path());
        assert!(found.free > 0);
    }
}
