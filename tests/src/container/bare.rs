//! Containers by a runtime alone, and by the script of this repository that takes a runtime's
//! place.

use std::process::Command;

use serde_json::{Value, json};

use super::{Bundle, CONTROL, Door, LAB, LIBRARY, Lab};
use crate::artefacts;
use crate::machine::ROOT;

impl Lab {
    pub(super) fn by_runtime(&self, bundle: &Bundle, runtime: &str) -> Command {
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
                    "--gpushare-hook-args=--library,{LIBRARY},--daemon,{CONTROL}"
                ));
            }
            _ => {
                command.arg(runtime);
            }
        }
        command.args(["--root", &root, "run", "--bundle", &folder, &bundle.id]);
        command
    }

    pub(super) fn by_hand(&self, bundle: &Bundle, config: &Value) -> Command {
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
        self.write(&format!("{}/upper/.cwd", bundle.id), &bundle.cwd);
        let group = self.group(&bundle.id);
        self.sh(&format!("mkdir -p {}", group.display()));
        let mut groups = vec![group];
        if let Some(bytes) = bundle.memory {
            let (group, limit) = self.memory_group(&bundle.id).expect("a memory cgroup");
            let folder = group.display();
            self.sh(&format!(
                "mkdir -p {folder} && echo {bytes} >{folder}/{limit}"
            ));
            groups.push(group);
        }
        let groups = groups.iter().map(|group| group.join("cgroup.procs"));
        let groups: Vec<String> = groups.map(|file| file.display().to_string()).collect();
        let mut command = self.machine.as_user(ROOT, "bash");
        command
            .arg(artefacts::repository().join("tests/clients/runtime_by_hand.sh"))
            .args([&folder, &bundle.id])
            .arg(groups.join(" "))
            .arg(u8::from(bundle.read_only).to_string())
            .args(&bundle.program);
        command
    }

    /// A program that `runc exec` starts with these flags in a container of runc.
    #[must_use]
    pub fn exec(&self, bundle: &Bundle, flags: &[&str], program: &[&str]) -> Command {
        let mut command = self.machine.as_user(ROOT, "runc");
        command.args(["--root", &format!("{LAB}/state"), "exec"]);
        command.args(flags).arg(&bundle.id);
        command.args(program);
        command
    }

    /// Ends the containers of bare runtimes that a failed test left.
    pub(super) fn delete_bare(&self) {
        let root = format!("{LAB}/state");
        let each = format!(
            "for id in $(ls {root} 2>/dev/null); do \
             runc --root {root} delete --force $id 2>/dev/null || \
             crun --root {root} delete --force $id 2>/dev/null; done; true"
        );
        let _ = self
            .machine
            .as_user(ROOT, "sh")
            .args(["-c", &each])
            .status();
    }
}
