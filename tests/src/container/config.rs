//! A container's `config.json`.

use std::path::Path;

use serde_json::{Value, json};

use super::{Bundle, CONTROL, Door, GPU, GPU_INSIDE, LIBRARY, Lab};
use crate::artefacts;
use crate::gpu::links;

impl Lab {
    pub(super) fn config(&self, bundle: &Bundle) -> Value {
        let hook = artefacts::folder().join("gpushare-oci-hook");
        let mut environment = vec![
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            format!("LD_LIBRARY_PATH={}", links().display()),
            format!("SOFTGPU={}", self.machine.gpu().spec()),
            format!("SOFTGPU_FOLDER={GPU_INSIDE}"),
        ];
        environment.extend(bundle.environment.iter().cloned());
        let target = Self::build();
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
        let mut linux = json!({"cgroupsPath": format!("/{}/{}", self.group_name(), bundle.id)});
        let file = |minor: &u32| json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor});
        linux["devices"] = bundle.gpus.iter().map(file).collect();
        if let Some(bytes) = bundle.memory {
            linux["resources"] = json!({"memory": {"limit": bytes}});
        }
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
                "terminal": false, "user": {"uid": 0, "gid": 0}, "cwd": bundle.cwd,
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
                LIBRARY.to_owned(),
                "--daemon".to_owned(),
                CONTROL.to_owned(),
                "createRuntime".to_owned(),
            ];
            let hook = json!({"path": args[0], "args": args, "env": [], "timeout": 10});
            config["hooks"] = json!({"createRuntime": [hook]});
        }
        if let Some(path) = bundle.later_hook.first() {
            let hook = json!({"path": path, "args": bundle.later_hook, "env": [], "timeout": 1});
            let hooks = config["hooks"]["createRuntime"].as_array_mut();
            hooks.expect("ours is there").push(hook);
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
}
