//! gpushare's ways into the containers of each engine, as its files say. No engine is asked.

mod crio;
mod docker;
mod files;
mod made;
mod podman;

use crate::doctor::facts::{Engine, Runtime};
use crio::crio;
use docker::docker;
use files::{Files, texts};
use podman::podman;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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

/// containerd, whose default runtime has this name where its files say none.
fn with_runc(name: &'static str) -> Engine {
    Engine {
        default: Some("runc".to_owned()),
        ..Engine::named(name)
    }
}

/// k3s and rke2 write the configuration of their containerd, which is root's to read.
fn rancher(files: &Files, name: &'static str) -> Option<Engine> {
    let folder = format!("var/lib/rancher/{name}");
    files.any(&[&folder])?;
    let mut engine = with_runc(name);
    let file = files.at(&folder).join("agent/etc/containerd/config.toml");
    if let Some(config) = files.toml(&mut engine, &file) {
        add_all(files, &mut engine, &config);
    }
    Some(engine)
}

fn containerd(files: &Files) -> Option<Engine> {
    files.any(&["run/containerd/containerd.sock"])?;
    let mut engine = with_runc("containerd");
    let file = files.at("etc/containerd/config.toml");
    let Some(config) = files.toml(&mut engine, &file) else {
        return Some(engine);
    };
    // Docker's own, which no kubelet asks.
    let is_cri = |name: &str| name == "cri" || name.contains(".cri");
    if texts(&config["disabled_plugins"]).any(is_cri) {
        return None;
    }
    let merges = config["version"].as_u64() >= Some(3);
    let imports: Vec<String> = texts(&config["imports"]).map(str::to_owned).collect();
    let mut all = vec![(file.clone(), config)];
    for file in imports.iter().flat_map(|one| files.matching(one, &file)) {
        let config = files.toml(&mut engine, &file);
        all.extend(config.map(|config| (file, config)));
    }
    for (_, config) in &all {
        add_all(files, &mut engine, config);
    }
    // containerd 1.x knows no version 3.
    if !merges {
        engine.replacing = replacing(files, &engine, &all);
    }
    Some(engine)
}

/// The last file with a section of a plugin that an earlier one has too, where that changes what is
/// known of ours: containerd 2 merges such sections, containerd 1.x takes the last alone.
fn replacing(files: &Files, merged: &Engine, all: &[(PathBuf, Value)]) -> Option<PathBuf> {
    let mut plugins = Map::new();
    let mut last = None;
    for (file, config) in all {
        for (name, plugin) in config["plugins"].as_object().into_iter().flatten() {
            if plugins.insert(name.clone(), plugin.clone()).is_some() {
                last = Some(file.clone());
            }
        }
    }
    let mut replaced = with_runc(merged.name);
    add_all(files, &mut replaced, &json!({ "plugins": plugins }));
    let names = |engine: &Engine| -> BTreeSet<String> {
        let runtimes = engine.runtimes.iter();
        runtimes.map(|runtime| runtime.name.clone()).collect()
    };
    let is_ours = |engine: &Engine| {
        let default = engine.default.as_ref();
        default.is_some_and(|name| names(engine).contains(name))
    };
    let differs = names(merged) != names(&replaced) || is_ours(merged) != is_ours(&replaced);
    last.filter(|_| differs)
}

/// The runtimes of containerd's plugin for Kubernetes, under either of its names.
fn add_all(files: &Files, engine: &mut Engine, config: &Value) {
    let plugins = config["plugins"].as_object().into_iter().flatten();
    for (_, plugin) in plugins {
        let plugin = &plugin["containerd"];
        let default = plugin["default_runtime_name"].as_str();
        engine.default = default.map(str::to_owned).or_else(|| engine.default.take());
        for (name, runtime) in plugin["runtimes"].as_object().into_iter().flatten() {
            let path = runtime["options"]["BinaryName"].as_str();
            // All of ours, not one of them; `*` stops at a slash.
            let passes = |pattern: &str| ["gpushare.io/*", "*/*"].contains(&pattern);
            let passes = texts(&runtime["pod_annotations"]).any(passes);
            add(files, engine, name, path.unwrap_or_default(), Some(passes));
            note_other(engine, name, is_oci(runtime, "io.containerd.runc."));
        }
    }
}

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
