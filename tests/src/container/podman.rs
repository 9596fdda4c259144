//! Containers by Podman, with a store and a configuration of the machine's own. It runs here
//! without the right to raise limits, and over crun without the unified hierarchy.

use std::process::Command;

use serde_json::Value;

use super::{Bundle, CONTROL, Door, LAB, LIBRARY, Lab};
use crate::artefacts;
use crate::machine::ROOT;

impl Lab {
    /// A container like the one that `config` says, by Podman over `runtime`.
    pub(super) fn by_podman(&self, bundle: &Bundle, runtime: &str, config: &Value) -> Command {
        let store = format!("{LAB}/podman");
        let hooks = format!("{LAB}/hooks.d");
        let hook = artefacts::folder().join("gpushare-oci-hook");
        let hook_json = format!(
            r#"{{"version": "1.0.0", "hook": {{"path": "{0}", "args": ["{0}", "--library", "{LIBRARY}", "--daemon", "{CONTROL}", "createRuntime"], "env": [], "timeout": 10}}, "when": {{"annotations": {{"^gpushare\\.io/.*$": ".*"}}}}, "stages": ["createRuntime"]}}"#,
            hook.display()
        );
        self.sh(&format!("mkdir -p {store} {hooks}"));
        let mut command = self.machine.as_user(ROOT, "unshare");
        // Both versions of cgroups are mounted here, of which version 5 warns.
        command.env("PODMAN_IGNORE_CGROUPSV1_WARNING", "1");
        command.args(["--mount", "--propagation", "slave", "sh", "-c"]);
        let crun = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$@\"";
        command.arg(if runtime == "crun" {
            crun
        } else {
            "exec \"$@\""
        });
        command.args(["sh", "podman", "--storage-driver", "vfs"]);
        for (flag, folder) in [
            ("--root", "root"),
            ("--runroot", "run"),
            ("--tmpdir", "tmp"),
        ] {
            command.args([flag, &format!("{store}/{folder}")]);
        }
        command.args(["--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
        match bundle.door {
            Door::Wrapper => {
                let found = self.sh(&format!("command -v {runtime}"));
                command
                    .arg("--runtime")
                    .arg(artefacts::folder().join("gpushare-runtime"));
                for flag in [
                    format!("gpushare-runtime={found}"),
                    format!("gpushare-hook-args=--library,{LIBRARY},--daemon,{CONTROL}"),
                ] {
                    command.args(["--runtime-flag", &flag]);
                }
            }
            _ => {
                command.args(["--runtime", runtime]);
            }
        }
        if bundle.door == Door::Hook {
            self.write("hooks.d/gpushare.json", &hook_json);
            command.args(["--hooks-dir", &hooks]);
        }
        command.args(["run", "--interactive", "--rm", "--network", "host"]);
        command.args([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=4096:4096",
        ]);
        command.args(["--name", &bundle.id]);
        for (name, value) in &bundle.annotations {
            command.args(["--annotation", &format!("{name}={value}")]);
        }
        let texts = |list: &Value| -> Vec<String> {
            let all = list.as_array().into_iter().flatten();
            all.filter_map(|one| one.as_str().map(str::to_owned))
                .collect()
        };
        for variable in texts(&config["process"]["env"]) {
            command.args(["--env", &variable]);
        }
        let is_cdi = matches!(bundle.door, Door::Cdi(_));
        let mounts = config["mounts"].as_array().into_iter().flatten();
        for mount in mounts.filter(|mount| mount["type"] == "bind") {
            let (source, to) = (mount["source"].as_str(), mount["destination"].as_str());
            let (source, to) = (source.unwrap_or(""), to.unwrap_or(""));
            let is_ours = [
                "/run/gpushare",
                "/usr/lib/gpushare",
                "/etc/ld-nix.so.preload",
                "/etc/ld.so.preload",
            ]
            .contains(&to);
            if !(is_cdi && is_ours) {
                command.args(["--volume", &format!("{source}:{to}")]);
            }
        }
        if let Door::Cdi(class) = bundle.door {
            command.args(["--device", &format!("gpushare.io/gpu={class}")]);
        }
        if bundle.read_only {
            // Podman's own would copy all of the machine's /tmp into a file system in memory.
            command.args([
                "--read-only",
                "--read-only-tmpfs=false",
                "--tmpfs",
                "/run:notmpcopyup",
            ]);
        }
        if bundle.user_namespace {
            command.args(["--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"]);
        }
        command
            .arg("--rootfs")
            .arg(format!("{}/rootfs", bundle.folder()));
        command.args(&bundle.program);
        command
    }
}
