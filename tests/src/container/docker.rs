//! Containers by Docker, with a daemon, a store and a configuration of the machine's own. A user
//! namespace is a property of the daemon, so there may be two.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::engine::{IMAGE, client, told};
use super::{Bundle, Door, LAB, LIBRARY, Lab};
use crate::artefacts;
use crate::machine::ROOT;

/// Debian's client: another one may come first in the path.
const CLIENT: &str = "/usr/bin/docker";

impl Lab {
    /// By `docker run`: the wrapper as a runtime, a class as a CDI device.
    pub(super) fn by_docker(&self, bundle: &Bundle, config: &Value) -> Command {
        let name = self.dockerd(bundle.user_namespace);
        let mut command = client(&self.machine, Path::new(CLIENT));
        command.args(["--host", &format!("unix://{LAB}/{name}/socket")]);
        command.args(["run", "--interactive", "--rm", "--network", "none"]);
        command.args(["--name", &bundle.id]);
        if bundle.door == Door::Wrapper {
            command.args(["--runtime", "gpushare"]);
        }
        let (variables, volumes) = told(bundle, config);
        for variable in variables {
            command.args(["--env", &variable]);
        }
        let has_annotations = self.docker_has_cdi();
        for (name, value) in &bundle.annotations {
            match name.strip_prefix("gpushare.io/") {
                // Before version 24 there are no annotations: the request comes as variables.
                Some(limit) if !has_annotations => {
                    if limit != "devices" {
                        let variable = limit.to_uppercase().replace('-', "_");
                        command.args(["--env", &format!("GPUSHARE_{variable}={value}")]);
                    }
                }
                _ => {
                    command.args(["--annotation", &format!("{name}={value}")]);
                }
            }
        }
        for (from, to, read_only) in volumes {
            let access = if read_only { "ro" } else { "rw" };
            command.args(["--volume", &format!("{from}:{to}:{access}")]);
        }
        if let Door::Cdi(class) = bundle.door {
            command.args(["--device", &format!("gpushare.io/gpu={class}")]);
        }
        if bundle.read_only {
            command.arg("--read-only");
        }
        command.arg(IMAGE).args(&bundle.program);
        command
    }

    /// Starts a daemon whose containers have a user namespace or none. Returns its name.
    fn dockerd(&self, user_namespace: bool) -> String {
        let name = if user_namespace {
            "docker-users"
        } else {
            "docker"
        };
        let folder = format!("{LAB}/{name}");
        let real = artefacts::folder().join("gpushare-runtime");
        let runc = self.sh("command -v runc");
        let mut config = json!({
            "data-root": format!("{folder}/data"), "exec-root": format!("{folder}/exec"),
            "pidfile": format!("{folder}/pid"), "hosts": [format!("unix://{folder}/socket")],
            "storage-driver": "vfs", "bridge": "none", "iptables": false, "ip-forward": false,
            "ip-masq": false, "userland-proxy": false,
            "runtimes": {"gpushare": {"path": real, "runtimeArgs": [
                format!("--gpushare-runtime={runc}"),
                format!("--gpushare-hook-args=--library,{LIBRARY},--daemon,/run/gpushare/control.sock"),
            ]}},
        });
        if self.docker_has_cdi() {
            config["features"] = json!({"cdi": true});
            config["cdi-spec-dirs"] = json!(["/run/cdi"]);
        }
        if user_namespace {
            config["userns-remap"] = json!("nobody:nogroup");
            self.sh(&format!(
                "mkdir -p {folder} && cd {folder} && \
                 if ! [ -e subuid ]; then \
                 for file in subuid subgid; do \
                 for name in nobody nogroup; do echo $name:100000:65536; done >$file; \
                 mount --bind $file /etc/$file; done; fi"
            ));
        }
        self.sh(&format!("mkdir -p {folder}"));
        self.write(&format!("{name}/daemon.json"), &config.to_string());
        let docker = format!("{CLIENT} --host unix://{folder}/socket");
        self.engine(
            name,
            &format!("dockerd --config-file {folder}/daemon.json"),
            &format!("{docker} version"),
            &format!("{docker} rm --force $({docker} ps --all --quiet)"),
        );
        if self.sh(&format!("{docker} images --quiet")).is_empty() {
            let image = self.image();
            self.sh(&format!("{docker} load --input {image}"));
        }
        name.to_owned()
    }

    /// Whether this machine's Docker knows CDI (25 and later), and so annotations.
    #[must_use]
    pub fn docker_has_cdi(&self) -> bool {
        let version = self
            .machine
            .as_user(ROOT, "dockerd")
            .arg("--version")
            .output();
        let told = version.map_or_else(
            |_| String::new(),
            |told| String::from_utf8_lossy(&told.stdout).into_owned(),
        );
        let major = told
            .split("version ")
            .nth(1)
            .and_then(|rest| rest.split('.').next());
        major
            .and_then(|major| major.parse::<u32>().ok())
            .is_some_and(|major| major >= 25)
    }
}
