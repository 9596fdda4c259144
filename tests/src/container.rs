//! OCI containers on a separate machine, made by an installed runtime or by a script. Their root is
//! the machine's own file system under an overlay, so that they have a glibc and the build.

mod podman;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::gpu::links;
use crate::guest::{Ended, Guest};
use crate::machine::{Machine, ROOT};
use crate::{artefacts, clients};

/// The folder of a machine's containers; it is removed with the machine.
const LAB: &str = "/run/lab";
/// The folder of the software GPU that all of a machine's processes share.
const GPU: &str = "/run/lab/gpu";
/// The same folder inside a container.
const GPU_INSIDE: &str = "/mnt/softgpu";
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
    /// Podman, over this runtime.
    Podman(&'static str),
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
    /// Whether its root is read-only.
    pub read_only: bool,
    /// Whether it has a user namespace.
    pub user_namespace: bool,
    /// A shell line that fills the image before anything is mounted in it. Its working folder is
    /// the image's root.
    pub image: String,
    /// Further volumes, from the host's path to the container's.
    pub volumes: Vec<(String, String)>,
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
            read_only: false,
            user_namespace: false,
            image: String::new(),
            volumes: Vec::new(),
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
}

impl Lab {
    /// `None` if such a machine cannot be made here, which is noted under `test`.
    #[must_use]
    pub fn start(test: &str, config: &str) -> Option<Self> {
        let machine = Machine::bare(test)?;
        let mut lab = Self { machine };
        lab.sh(&format!("mkdir -p {LAB}/library {GPU} && chmod 777 {GPU}"));
        let library = artefacts::interposer();
        lab.sh(&format!("cp {} {LAB}/library/", library.display()));
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
        self.machine.kill_daemon();
        let config = format!("{LAB}/config.toml");
        let mut daemon = self.machine.daemon_command(&["--config", &config]);
        daemon.env("SOFTGPU_FOLDER", GPU);
        self.machine.start_this(daemon);
    }

    /// Kills the daemon.
    pub fn kill_daemon(&mut self) {
        self.machine.kill_daemon();
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
             mkdir -p {folder}/upper/{GPU_INSIDE} {folder}/work {folder}/rootfs; chmod 755 {folder}"
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
            Runtime::Podman(runtime) => self.by_podman(bundle, runtime, &config),
        }
    }

    fn by_runtime(&self, bundle: &Bundle, runtime: &str) -> Command {
        let (root, folder) = (format!("{LAB}/state"), bundle.folder());
        // crun does not run if both versions of cgroups are mounted.
        let view = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\"";
        let mut command = self.machine.as_user(ROOT, "unshare");
        command.args(["--mount", "--propagation", "slave", "sh", "-c"]);
        command.arg(if runtime == "crun" {
            view
        } else {
            "exec \"$@\""
        });
        command.arg("sh");
        match bundle.door {
            Door::Wrapper => {
                let found = self.sh(&format!("command -v {runtime}"));
                command.arg(artefacts::folder().join("gpushare-runtime"));
                command.arg(format!("--gpushare-runtime={found}"));
                command.arg(format!(
                    "--gpushare-hook-args=--library,{LAB}/library,--daemon,{CONTROL}"
                ));
            }
            _ => {
                command.arg(runtime);
            }
        }
        command.args(["--root", &root, "run", "--bundle", &folder, &bundle.id]);
        command
    }

    fn by_hand(&self, bundle: &Bundle, config: &Value) -> Command {
        let folder = bundle.folder();
        let lines = |list: &Value, line: &dyn Fn(&Value) -> String| -> String {
            let all = list.as_array().expect("a list").iter();
            all.map(|one| line(one) + "\n").collect()
        };
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let hook = &config["hooks"]["createRuntime"];
        let hook = match hook.is_null() {
            true => String::new(),
            false => lines(&hook[0]["args"], &text),
        };
        self.write(&format!("{}/hook", bundle.id), &hook);
        let mount =
            |mount: &Value| format!("{} {}", text(&mount["source"]), text(&mount["destination"]));
        let mounts = config["mounts"].as_array().expect("a list").iter();
        let binds: Vec<Value> = mounts
            .filter(|mount| mount["type"] == "bind")
            .cloned()
            .collect();
        self.write(
            &format!("{}/volumes", bundle.id),
            &lines(&json!(binds), &mount),
        );
        let environment = lines(&config["process"]["env"], &text);
        self.write(&format!("{}/upper/.environment", bundle.id), &environment);
        let group = Path::new(&self.unified()).join(&bundle.id);
        self.sh(&format!("mkdir -p {}", group.display()));
        let mut command = self.machine.as_user(ROOT, "bash");
        command
            .arg(artefacts::repository().join("tests/clients/runtime_by_hand.sh"))
            .args([&folder, &bundle.id])
            .arg(group.join("cgroup.procs"))
            .arg(u8::from(bundle.read_only).to_string())
            .args(&bundle.program);
        command
    }

    /// The mount point of the unified hierarchy.
    fn unified(&self) -> String {
        self.sh("grep -m1 ' cgroup2 ' /proc/mounts | cut -d' ' -f2")
    }

    fn config(&self, bundle: &Bundle) -> Value {
        let hook = artefacts::folder().join("gpushare-oci-hook");
        let mut environment = vec![
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            format!("LD_LIBRARY_PATH={}", links().display()),
            format!("SOFTGPU={}", self.machine.gpu().spec()),
            format!("SOFTGPU_FOLDER={GPU_INSIDE}"),
        ];
        environment.extend(bundle.environment.iter().cloned());
        let target = artefacts::folder().parent().expect("a target folder");
        let bind = |source: &Path, destination: &Path, options: &[&str]| json!({"destination": destination, "source": source, "type": "bind", "options": options});
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}),
            bind(target, target, &["rbind", "ro"]),
            bind(Path::new(GPU), Path::new(GPU_INSIDE), &["bind", "rw"]),
        ];
        for (source, destination) in &bundle.volumes {
            mounts.push(bind(
                Path::new(source),
                Path::new(destination),
                &["bind", "rw"],
            ));
        }
        if let Door::Cdi(class) = bundle.door {
            let edits = self.cdi(class);
            for variable in edits["env"].as_array().expect("a list") {
                environment.push(variable.as_str().expect("a text").to_owned());
            }
            for mount in edits["mounts"].as_array().expect("a list") {
                mounts.push(json!({
                    "type": "bind",
                    "source": mount["hostPath"],
                    "destination": mount["containerPath"],
                    "options": mount["options"],
                }));
            }
        }
        let mut namespaces = vec![
            json!({"type": "pid"}),
            json!({"type": "mount"}),
            json!({"type": "ipc"}),
        ];
        let mut linux = json!({"cgroupsPath": format!("/gpushare-test/{}", bundle.id)});
        if bundle.user_namespace {
            namespaces.push(json!({"type": "user"}));
            let ids = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
            linux["uidMappings"] = ids.clone();
            linux["gidMappings"] = ids;
        }
        linux["namespaces"] = json!(namespaces);
        let annotations: serde_json::Map<String, Value> = bundle
            .annotations
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": {"uid": 0, "gid": 0}, "cwd": "/",
                "args": bundle.program, "env": environment,
            },
            "root": {"path": "rootfs", "readonly": bundle.read_only},
            "mounts": mounts,
            "annotations": annotations,
            "linux": linux,
        });
        if bundle.door == Door::Hook {
            let args = [
                hook.to_string_lossy().into_owned(),
                "--library".to_owned(),
                format!("{LAB}/library"),
                "--daemon".to_owned(),
                CONTROL.to_owned(),
                "createRuntime".to_owned(),
            ];
            let hook = json!({"path": args[0], "args": args, "env": [], "timeout": 10});
            config["hooks"] = json!({"createRuntime": [hook]});
        }
        config
    }

    /// The edits of a class in the specification that the daemon keeps at `/run/cdi/gpushare.json`.
    fn cdi(&self, class: &str) -> Value {
        let text = self.sh("cat /run/cdi/gpushare.json");
        let specification: Value = serde_json::from_str(&text).expect("JSON");
        let devices = specification["devices"].as_array().expect("a list");
        let device = devices.iter().find(|device| device["name"] == class);
        device.expect("the class is a device")["containerEdits"].clone()
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
