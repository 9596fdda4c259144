//! Roots of machines with engines: what their files say is found.

mod containerd;
mod docker;
mod handlers;
mod podman;

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;

const WRAPPER: &str = "usr/bin/gpushare-runtime";
const HOOK: &str = "usr/bin/gpushare-oci-hook";

/// A machine with our programs.
struct Machine(TempDir);

impl Machine {
    fn new(files: &[&str]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for file in [WRAPPER, HOOK].iter().chain(files) {
            machine.put(file, "");
        }
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn engines(&self) -> Vec<Engine> {
        engines(self.0.path(), Some(&self.at("home")))
    }

    /// The only one.
    #[track_caller]
    fn engine(&self) -> Engine {
        let mut all = self.engines();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn runtime(&self, name: &str, passes: Option<bool>) -> Runtime {
        Runtime {
            name: name.to_owned(),
            path: self.at(WRAPPER),
            runs: true,
            passes,
            has_nvidia: false,
        }
    }
}

/// Docker without a setting.
fn docker_alone() -> Engine {
    Engine {
        builds_past: true,
        ..Engine::named("docker")
    }
}

fn names(engine: &Engine) -> Vec<&str> {
    engine
        .runtimes
        .iter()
        .map(|runtime| &*runtime.name)
        .collect()
}

#[test]
fn a_machine_without_engines_has_none() {
    assert_eq!(Machine::new(&[]).engines(), []);
}

#[test]
fn docker_has_the_runtimes_and_the_default_of_its_file() {
    let machine = Machine::new(&["run/docker.sock"]);
    assert_eq!(machine.engine(), docker_alone());
    machine.put(
        "etc/docker/daemon.json",
        r#"{"default-runtime": "gpushare", "runtimes": {
            "gpushare": {"path": "/usr/bin/gpushare-runtime"},
            "gone": {"path": "/opt/bin/gpushare-runtime"},
            "nvidia": {"path": "nvidia-container-runtime"}}}"#,
    );
    let engine = machine.engine();
    let gone = Runtime {
        path: machine.at("opt/bin/gpushare-runtime"),
        runs: false,
        ..machine.runtime("gone", None)
    };
    assert_eq!(engine.runtimes, [gone, machine.runtime("gpushare", None)]);
    assert_eq!(engine.default.as_deref(), Some("gpushare"));
    assert!(engine.has_nvidia);
    assert_eq!(engine.past, ["nvidia"]);
    machine.put("etc/docker/daemon.json", "{\"runtimes\": ");
    let engine = machine.engine();
    let wrong = engine.wrong.unwrap();
    assert!(wrong.contains("etc/docker/daemon.json: EOF"), "{wrong}");
    assert!(!engine.has_nvidia);
}

#[test]
fn an_empty_file_of_docker_says_nothing() {
    let machine = Machine::new(&["run/docker.sock"]);
    for text in ["", " \n\t\n", "\u{feff}", "\u{feff}{}\n"] {
        machine.put("etc/docker/daemon.json", text);
        assert_eq!(machine.engine(), docker_alone(), "{text:?}");
    }
    machine.put("etc/docker/daemon.json", " {");
    assert!(machine.engine().wrong.is_some());
}

/// A new default reaches no container that was made before it.
#[test]
fn docker_has_containers_with_a_gpu_and_another_runtime() {
    let machine = Machine::new(&["run/docker.sock"]);
    let gpus = r#""DeviceRequests": [{"Driver": "", "Capabilities": [["gpu"]]}]"#;
    let cdi = r#""DeviceRequests": [{"Driver": "cdi", "Capabilities": null}]"#;
    let file = r#""Devices": [{"PathOnHost": "/dev/nvidia0"}]"#;
    for (data, setting) in [
        ("var/lib/docker", ""),
        ("srv/d", r#", "data-root": "/srv/d""#),
    ] {
        let config = r#"{"default-runtime": "gpushare", "runtimes": {
            "gpushare": {"path": "/usr/bin/gpushare-runtime"},
            "nvidia": {"path": "nvidia-container-runtime"}}"#;
        machine.put("etc/docker/daemon.json", &format!("{config}{setting}}}"));
        for (id, runtime, gives) in [
            ("a", "runc", gpus),
            ("b", "runc", cdi),
            ("c", "runc", file),
            ("d", "runc", r#""Privileged": true"#),
            ("e", "nvidia", r#""Devices": []"#),
            ("ours", "gpushare", gpus),
            (
                "none",
                "runc",
                r#""DeviceRequests": null, "Privileged": false"#,
            ),
        ] {
            let folder = format!("{data}/containers/{id}");
            let host = format!(r#"{{"Runtime": "{runtime}", {gives}}}"#);
            machine.put(&format!("{folder}/hostconfig.json"), &host);
            let name = format!(r#"{{"Name": "/is-{id}"}}"#);
            machine.put(&format!("{folder}/config.v2.json"), &name);
        }
        let digits = "0123456789abcdef";
        let unnamed = format!("{data}/containers/{digits}/hostconfig.json");
        machine.put(&unnamed, &format!(r#"{{"Runtime": "crun", {gpus}}}"#));
        let past = machine.engine().made_past;
        let past: Vec<_> = past.iter().map(|one| (&*one.name, &*one.runtime)).collect();
        let expected = [
            ("0123456789ab", "crun"),
            ("is-a", "runc"),
            ("is-b", "runc"),
            ("is-c", "runc"),
            ("is-d", "runc"),
            ("is-e", "nvidia"),
        ];
        assert_eq!(past, expected);
    }
}

#[test]
fn docker_gives_gpus_by_nvidias_hook() {
    let machine = Machine::new(&["usr/bin/dockerd", "usr/bin/nvidia-container-runtime-hook"]);
    assert!(machine.engine().has_nvidia);
}

#[test]
fn a_file_that_this_user_may_not_read_is_named() {
    if nix::unistd::geteuid().is_root() {
        return;
    }
    let machine = Machine::new(&["run/docker.sock"]);
    let file = machine.at("etc/docker/daemon.json");
    machine.put("etc/docker/daemon.json", "{}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(machine.engine().unread, Some(file));
}

#[test]
fn a_runtime_leads_to_the_wrapper_by_a_script_and_by_nvidias() {
    let machine = Machine::new(&["run/docker.sock", "usr/bin/nvidia-container-runtime"]);
    machine.put(
        "usr/local/bin/both",
        "#!/bin/sh\n# not gpushare-runtime\nexec /usr/bin/gpushare-runtime \"$@\"\n",
    );
    machine.put("usr/local/bin/other", "#!/bin/sh\nexec runc \"$@\"\n");
    machine.put(
        "etc/docker/daemon.json",
        r#"{"runtimes": {"a": {"path": "/usr/local/bin/both"}, "b": {"path": "other"},
            "c": {"path": "/usr/bin/nvidia-container-runtime"}}}"#,
    );
    assert_eq!(names(&machine.engine()), ["a"]);
    machine.put(
        "etc/nvidia-container-runtime/config.toml",
        "[nvidia-container-runtime]\nruntimes = [\"gpushare-runtime\", \"runc\"]\n",
    );
    let nvidias = Runtime {
        has_nvidia: true,
        ..machine.runtime("c", None)
    };
    let ours = [machine.runtime("a", None), nvidias];
    assert_eq!(machine.engine().runtimes, ours);
    assert_eq!(machine.engine().past, [""; 0]);
    machine.put(
        "usr/local/bin/both",
        "#!/bin/sh\nexec gpushare-runtime --gpushare-runtime=nvidia-container-runtime.cdi \"$@\"\n",
    );
    assert!(machine.engine().runtimes[0].has_nvidia);
    fs::remove_file(machine.at(WRAPPER)).unwrap();
    // It calls the first that is there.
    let file = "etc/nvidia-container-runtime/config.toml";
    let list = "[nvidia-container-runtime]\nruntimes = [\"runc\", \"gpushare-runtime\"]\n";
    let first = fs::read_to_string(machine.at(file)).unwrap();
    machine.put(file, list);
    assert_eq!(names(&machine.engine()), ["a", "c"]);
    machine.put("usr/sbin/runc", "");
    assert_eq!(names(&machine.engine()), ["a"]);
    assert_eq!(machine.engine().past, ["c"]);
    machine.put(file, &first);
    let runs = machine.engine().runtimes.into_iter().map(|one| one.runs);
    assert_eq!(runs.collect::<Vec<_>>(), [false, false]);
}

/// The GPU Operator's toolkit has its runtimes and their settings in a folder of its own.
#[test]
fn nvidias_runtime_has_the_settings_beside_it_before_the_systems() {
    let toolkit = "usr/local/nvidia/toolkit";
    let runtime = format!("{toolkit}/nvidia-container-runtime");
    let machine = Machine::new(&[
        "run/docker.sock",
        "usr/bin/nvidia-container-runtime",
        &runtime,
    ]);
    let list = |name: &str| format!("[nvidia-container-runtime]\nruntimes = [\"{name}\"]\n");
    let etc = "etc/nvidia-container-runtime/config.toml";
    machine.put(
        "etc/docker/daemon.json",
        &format!(
            r#"{{"runtimes": {{"own": {{"path": "/usr/bin/nvidia-container-runtime"}},
                "toolkit": {{"path": "/{runtime}"}}}}}}"#
        ),
    );
    machine.put(etc, &list("gpushare-runtime"));
    assert_eq!(names(&machine.engine()), ["own", "toolkit"]);
    let beside = format!("{toolkit}/.config/{}", etc.trim_start_matches("etc/"));
    machine.put(&beside, &list("runc"));
    assert_eq!(names(&machine.engine()), ["own"]);
    machine.put(etc, &list("runc"));
    machine.put(&beside, &list("/usr/bin/gpushare-runtime"));
    assert_eq!(names(&machine.engine()), ["toolkit"]);
}

/// A file of hooks for containers with annotations, or for all.
fn hook(always: bool) -> String {
    format!(
        r#"{{"version": "1.0.0", "hook": {{"path": "/usr/bin/gpushare-oci-hook"}}, "when": {{"always": {always}}}}}"#
    )
}

const PACKAGED: &str = "usr/share/containers/oci/hooks.d/gpushare.json";
const OWN: &str = "etc/containers/oci/hooks.d/gpushare.json";
const BOTH: &str =
    r#"hooks_dir = ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"]"#;

#[test]
fn hooks_are_those_of_the_folders_that_podman_and_crio_look_in() {
    for (program, name, table, file) in [
        (
            "podman",
            "podman",
            "engine",
            "etc/containers/containers.conf.d/50.conf",
        ),
        (
            "crio",
            "cri-o",
            "crio.runtime",
            "etc/crio/crio.conf.d/50.conf",
        ),
    ] {
        let machine = Machine::new(&[&format!("usr/bin/{program}")]);
        assert_eq!(machine.engine().hooks, []);
        machine.put(PACKAGED, &hook(false));
        machine.put(
            "usr/share/containers/oci/hooks.d/other.json",
            "{\"hook\": {}}",
        );
        machine.put("usr/share/containers/oci/hooks.d/README", "none");
        // By itself neither looks there.
        machine.put(OWN, &hook(true));
        let engine = machine.engine();
        assert_eq!(engine.name, name);
        let found = |engine: &Engine| {
            let hooks = engine.hooks.iter();
            let one = hooks.map(|hook| (hook.file.clone(), hook.runs, hook.always));
            one.collect::<Vec<_>>()
        };
        assert_eq!(found(&engine), [(machine.at(PACKAGED), true, false)]);
        // The later folder's file takes the place of one of its name.
        machine.put(file, &format!("[{table}]\n{BOTH}\n"));
        assert_eq!(found(&machine.engine()), [(machine.at(OWN), true, true)]);
        fs::remove_file(machine.at(HOOK)).unwrap();
        assert_eq!(found(&machine.engine()), [(machine.at(OWN), false, true)]);
        machine.put(file, &format!("[{table}]\nhooks_dir = []\n"));
        let engine = machine.engine();
        assert_eq!((found(&engine), engine.hook_folders), (vec![], vec![]));
    }
}

#[test]
fn a_list_of_podman_adds_to_those_before_where_it_says_append() {
    let machine = Machine::new(&["usr/bin/podman"]);
    let file = "etc/containers/containers.conf";
    let own = "\"/etc/containers/oci/hooks.d\"";
    for (list, folders) in [
        (
            format!("[{own}, {{append = true}}]"),
            vec![HOOKS, "/etc/containers/oci/hooks.d"],
        ),
        (
            format!("[{own}, {{append = false}}]"),
            vec!["/etc/containers/oci/hooks.d"],
        ),
    ] {
        machine.put(file, &format!("[engine]\nhooks_dir = {list}\n"));
        let folders: Vec<PathBuf> = folders.into_iter().map(PathBuf::from).collect();
        assert_eq!(machine.engine().hook_folders, folders);
    }
}

#[test]
fn a_users_podman_also_has_the_settings_of_that_user() {
    let machine = Machine::new(&["usr/bin/podman"]);
    machine.put(OWN, &hook(false));
    let folders = "[engine]\nhooks_dir = [\"/etc/containers/oci/hooks.d\"]\n";
    machine.put("home/.config/containers/containers.conf", folders);
    assert_eq!(machine.engine().hooks.len(), 1);
    let roots = engines(machine.0.path(), None);
    assert_eq!(roots[0].hooks, []);
}

#[test]
fn podman_and_crio_have_runtimes_as_well() {
    for (program, text, file) in [
        (
            "podman",
            "[engine]\nruntime = \"ours\"\n[engine.runtimes]\nours = [\"/usr/bin/gpushare-runtime\"]\n",
            "etc/containers/containers.conf",
        ),
        (
            "crio",
            "[crio.runtime]\ndefault_runtime = \"ours\"\n[crio.runtime.runtimes.ours]\n\
             runtime_path = \"/usr/bin/gpushare-runtime\"\n",
            "etc/crio/crio.conf",
        ),
    ] {
        let machine = Machine::new(&[&format!("usr/bin/{program}")]);
        machine.put(file, text);
        let engine = machine.engine();
        assert_eq!(names(&engine), ["ours"], "{program}");
        assert_eq!(engine.default.as_deref(), Some("ours"));
    }
}
