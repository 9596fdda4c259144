//! gpushare's ways into the containers of each engine, as its files say. No engine is asked.

mod containerd;
mod crio;
mod docker;
mod files;
mod made;
mod podman;

use crate::doctor::facts::{Engine, Runtime};
use containerd::{containerd, rancher};
use crio::crio;
use docker::docker;
use files::Files;
use podman::podman;
use serde_json::Value;
use std::path::Path;

/// Every engine that this machine has, its files being below `root`. A user's Podman also reads a
/// file below `home`.
pub(super) fn engines(root: &Path, home: Option<&Path>) -> Vec<Engine> {
    let files = Files {
        root: root.to_owned(),
    };
    let all = [
        docker(&files),
        rancher(&files, "k3s"),
        rancher(&files, "rke2"),
        containerd(&files),
        crio(&files),
        podman(&files, home),
    ];
    all.into_iter().flatten().collect()
}

/// Where Podman and CRI-O look for hooks by themselves.
const HOOKS: &str = "/usr/share/containers/oci/hooks.d";

/// Notes a runtime, if it leads to the wrapper or is NVIDIA's. A later file may say another thing
/// of one name.
fn add(files: &Files, engine: &mut Engine, name: &str, path: &str, passes: Option<bool>) {
    engine.runtimes.retain(|known| known.name != name);
    engine.past.retain(|known| known != name);
    engine.has_nvidia |= files::is_nvidias(path);
    let program = files.program(path);
    let Some(wrapper) = files.wrapper(path) else {
        if files::is_nvidias(path) {
            engine.past.push(name.to_owned());
        }
        return;
    };
    let mut lacking = [program, wrapper.clone()].into_iter();
    let lacking = lacking.find(|program| !files.is_program(program));
    engine.runtimes.push(Runtime {
        name: name.to_owned(),
        runs: lacking.is_none(),
        path: lacking.unwrap_or(wrapper),
        passes,
        has_nvidia: files.has_nvidias(path),
    });
}

/// Whether this runtime runs a program such as runc: its type is not said, or begins so.
fn is_oci(runtime: &Value, kind: &str) -> bool {
    let said = runtime["runtime_type"].as_str().unwrap_or_default();
    said.is_empty() || said.starts_with(kind)
}

/// Notes the runtime of this name among those that are neither ours nor NVIDIA's, if it is.
fn note_other(engine: &mut Engine, name: &str, is_oci: bool) {
    engine.others.retain(|known| known != name);
    let is_ours = engine.runtimes.iter().any(|ours| ours.name == name);
    let is_nvidias = engine.past.iter().any(|past| past == name);
    if is_oci && !is_ours && !is_nvidias {
        engine.others.push(name.to_owned());
    }
}

#[cfg(test)]
mod tests;
