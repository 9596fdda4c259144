//! Containers by containerd: with its own client, `ctr`, and by the service that Kubernetes uses.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::engine::{IMAGE, client, told};
use super::{Bundle, Door, LAB, Lab};
use crate::artefacts;
use crate::machine::ROOT;

impl Lab {
    /// By `ctr`: the hook from a configuration of ours, the wrapper as its runtime.
    pub(super) fn by_containerd(&self, bundle: &Bundle, config: &Value) -> Command {
        // With maps of users `ctr` drops the name of the runtime, so the daemon itself finds it.
        let is_wrapped = bundle.door == Door::Wrapper && bundle.user_namespace;
        let address = self.containerd(is_wrapped);
        let mut command = client(&self.machine, Path::new("ctr"));
        command.args(["--address", &address, "run", "--rm"]);
        if bundle.door != Door::Wrapper {
            // `ctr run --config` takes the container's whole configuration.
            let mut config = config.clone();
            config["root"]["path"] = json!(format!("{}/rootfs", bundle.folder()));
            self.write(&format!("{}/config.json", bundle.id), &config.to_string());
            command.args(["--config", &format!("{}/config.json", bundle.folder())]);
            command.arg(&bundle.id);
            return command;
        }
        command.args(["--snapshotter", "native"]);
        if is_wrapped {
            command.args(["--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"]);
        } else {
            command.args(["--runc-binary", &self.wrapper("runc")]);
        }
        let (variables, volumes) = told(bundle, config);
        for variable in variables {
            command.args(["--env", &variable]);
        }
        for (name, value) in &bundle.annotations {
            command.args(["--annotation", &format!("{name}={value}")]);
        }
        for (from, to, read_only) in volumes {
            let access = if read_only { "ro" } else { "rw" };
            command.arg("--mount");
            command.arg(format!(
                "type=bind,src={from},dst={to},options=rbind:{access}"
            ));
        }
        if bundle.read_only {
            command.arg("--read-only");
        }
        command.arg(IMAGE).arg(&bundle.id).args(&bundle.program);
        command
    }

    /// By CRI, with a class as a CDI device.
    pub(super) fn by_cri(&self, bundle: &Bundle, config: &Value) -> Command {
        let address = self.containerd(false);
        let (variables, volumes) = told(bundle, config);
        let device = match bundle.door {
            Door::Cdi(class) => json!([format!("gpushare.io/gpu={class}")]),
            _ => json!([]),
        };
        let annotations: serde_json::Map<String, Value> = bundle
            .annotations
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        let asked = json!({
            "address": address, "folder": bundle.folder(), "name": bundle.id, "image": IMAGE,
            "program": bundle.program, "environment": variables, "volumes": volumes,
            "read_only": bundle.read_only, "devices": device, "annotations": annotations,
            "runtime": if bundle.door == Door::Wrapper { "gpushare" } else { "" },
        });
        self.write(&format!("{}/cri.json", bundle.id), &asked.to_string());
        let mut command = client(&self.machine, Path::new("/usr/bin/python3"));
        command
            .arg(artefacts::repository().join("tests/clients/cri.py"))
            .arg(format!("{}/cri.json", bundle.folder()));
        command
    }

    /// Starts a daemon whose runtime is the wrapper, or runc. Returns its address.
    fn containerd(&self, is_wrapped: bool) -> String {
        let name = if is_wrapped {
            "containerd-wrapped"
        } else {
            "containerd"
        };
        let folder = format!("{LAB}/{name}");
        let address = format!("{folder}/socket");
        self.sh(&format!("mkdir -p {folder}/bin"));
        let has_cdi = !self.sh("containerd --version").contains(" 1.6.");
        let cdi = if has_cdi {
            "enable_cdi = true\ncdi_spec_dirs = [\"/run/cdi\"]\n"
        } else {
            ""
        };
        let wrapper = self.wrapper("runc");
        self.write(
            &format!("{name}/config.toml"),
            &format!(
                "version = 2\nroot = \"{folder}/root\"\nstate = \"{folder}/state\"\n\
                 [grpc]\naddress = \"{address}\"\n[ttrpc]\naddress = \"{address}.ttrpc\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\"]\n{cdi}restrict_oom_score_adj = true\n\
                 sandbox_image = \"{IMAGE}\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
                 runtime_type = \"io.containerd.runc.v2\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.gpushare]\n\
                 runtime_type = \"io.containerd.runc.v2\"\n\
                 pod_annotations = [\"gpushare.io/*\"]\n\
                 container_annotations = [\"gpushare.io/*\", \"cdi.k8s.io/*\"]\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.gpushare.options]\n\
                 BinaryName = \"{wrapper}\"\n"
            ),
        );
        let ctr = format!("ctr --address {address}");
        let each = |namespace: &str| {
            format!(
                "for id in $({ctr} -n {namespace} containers ls -q); do \
                 {ctr} -n {namespace} tasks kill -s KILL $id; {ctr} -n {namespace} tasks rm -f $id; \
                 {ctr} -n {namespace} containers rm $id; done; "
            )
        };
        if is_wrapped {
            self.sh(&format!("ln -sf {wrapper} {folder}/bin/runc"));
        }
        self.engine(
            name,
            &format!("env PATH={folder}/bin:$PATH containerd --config {folder}/config.toml"),
            &format!("{ctr} version"),
            &(each("default") + &each("k8s.io")),
        );
        if self.sh(&format!("{ctr} images ls -q")).is_empty() {
            let image = self.image();
            // Both of ctr's own and of Kubernetes' names.
            for namespace in ["default", "k8s.io"] {
                self.sh(&format!(
                    "{ctr} -n {namespace} images import --snapshotter native {image}"
                ));
            }
        }
        address
    }

    /// Whether this machine's containerd knows CDI.
    #[must_use]
    pub fn containerd_has_cdi(&self) -> bool {
        let version = self
            .machine
            .as_user(ROOT, "containerd")
            .arg("--version")
            .output();
        version.is_ok_and(|told| {
            told.status.success() && !String::from_utf8_lossy(&told.stdout).contains(" 1.6.")
        })
    }
}
