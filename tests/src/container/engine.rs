//! Engines that are daemons. Each has all its folders and sockets in the machine's own `/var/lib`,
//! and a network namespace of its own, so that nothing of the real machine changes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Bundle, CONTROL, Door, LAB, LIBRARY, Lab};
use crate::artefacts;
use crate::machine::{Machine, ROOT};
use crate::waiting::until;

/// The name of the image that engines are given.
pub(super) const IMAGE: &str = "docker.io/lab/small:1";
/// The time after which an engine that does not end is killed.
const PATIENCE: Duration = Duration::from_secs(20);

/// An engine's daemon that this test started.
#[derive(Debug)]
pub(super) struct Engine {
    /// Its name, which its folder has too.
    pub(super) name: String,
    child: Child,
    /// A shell line that ends all its containers.
    ends: String,
}

impl Engine {
    /// Ends its containers, then itself.
    pub(super) fn end(mut self, machine: &Machine) {
        let mut sh = machine.as_user(ROOT, "sh");
        sh.args(["-c", &self.ends]);
        let _ = sh.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let end = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lab {
    /// Starts the engine `name`, unless it runs, and waits until `serves` succeeds. Its output goes
    /// to a file in its folder.
    #[track_caller]
    pub(super) fn engine(&self, name: &str, command: &str, serves: &str, ends: &str) {
        let mut engines = self.engines.borrow_mut();
        if engines.iter().any(|engine| engine.name == name) {
            return;
        }
        let log = format!("{LAB}/{name}/log");
        self.sh(&format!("mkdir -p {LAB}/{name}"));
        let line = format!("exec unshare --net {command} >{log} 2>&1");
        let mut daemon = self.machine.as_user(ROOT, "sh");
        // Programs that use CUDA are the containers' alone.
        daemon.env_remove("LD_LIBRARY_PATH").args(["-c", &line]);
        let mut child = daemon.spawn().expect("sh starts");
        until(&format!("{name} serves"), || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!(
                    "{name} ended: {status}: {}",
                    self.sh(&format!("tail -5 {log}"))
                );
            }
            let mut sh = self.machine.as_user(ROOT, "sh");
            sh.args(["-c", serves]);
            let answer = sh.stdout(Stdio::null()).stderr(Stdio::null()).status();
            answer.is_ok_and(|status| status.success())
        });
        engines.push(Engine {
            name: name.to_owned(),
            child,
            ends: ends.to_owned(),
        });
    }

    /// An archive with one image, [`IMAGE`], made of the machine's own programs.
    pub(super) fn image(&self) -> String {
        let path = format!("{LAB}/image.tar");
        if self.sh(&format!("test -e {path} && echo made || true")) != "made" {
            let script = artefacts::repository().join("tests/clients/small_image.sh");
            let of = [artefacts::soft_cuda(), artefacts::interposer()];
            let of = of.map(|file| file.to_string_lossy().into_owned());
            let line = format!("{} {path} {IMAGE} {}", script.display(), of.join(" "));
            self.sh(&line);
        }
        path
    }

    /// A program that takes an engine's runtime's place: the wrapper around `runtime`.
    pub(super) fn wrapper(&self, runtime: &str) -> String {
        let path = format!("{LAB}/wrapper-{runtime}");
        let found = self.sh(&format!("command -v {runtime}"));
        let real = artefacts::folder().join("gpushare-runtime");
        let text = format!(
            "#!/bin/sh\nexec {} --gpushare-runtime={found} \
             --gpushare-hook-args=--library,{LIBRARY},--daemon,{CONTROL} \"$@\"\n",
            real.display()
        );
        self.write(&format!("wrapper-{runtime}"), &text);
        self.sh(&format!("chmod 755 {path}"));
        path
    }
}

/// The parts of `config` for an engine that makes the configuration itself: the variables, and the
/// volumes as `(from, to, read_only)`. Parts that a CDI specification adds are left out.
pub(super) fn told(bundle: &Bundle, config: &Value) -> (Vec<String>, Vec<(String, String, bool)>) {
    let ours = [
        "/run/gpushare",
        "/usr/lib/gpushare",
        "/etc/ld-nix.so.preload",
        "/etc/ld.so.preload",
    ];
    let is_cdi = matches!(bundle.door, Door::Cdi(_));
    let all = |at: &str| {
        config
            .pointer(at)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let variables = all("/process/env").filter_map(Value::as_str);
    let variables = variables.filter(|one| !(is_cdi && one.starts_with("GPUSHARE_SOCKET=")));
    let volume = |mount: &Value| {
        let text = |key: &str| mount[key].as_str().unwrap_or("").to_owned();
        let options = mount["options"].as_array().into_iter().flatten();
        let read_only = options.into_iter().any(|option| option == "ro");
        (text("source"), text("destination"), read_only)
    };
    let volumes = all("/mounts")
        .filter(|mount| mount["type"] == "bind")
        .map(volume);
    let volumes = volumes.filter(|(_, to, _)| !(is_cdi && ours.contains(&to.as_str())));
    (variables.map(str::to_owned).collect(), volumes.collect())
}

/// A command of an engine's client on the machine, without this test's GPU.
pub(super) fn client(machine: &Machine, program: &Path) -> Command {
    let mut command = machine.as_user(ROOT, &program.to_string_lossy());
    command.env_remove("LD_LIBRARY_PATH").env_remove("SOFTGPU");
    command
}
