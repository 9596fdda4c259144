//! containerd, also that of k3s and rke2, as its file and those that it imports say.

use super::files::{Files, texts};
use super::{add, is_oci, note_other};
use crate::doctor::facts::Engine;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// containerd, whose default runtime has this name where its files say none.
fn with_runc(name: &'static str) -> Engine {
    Engine {
        default: Some("runc".to_owned()),
        ..Engine::named(name)
    }
}

/// k3s and rke2 write the configuration of their containerd, which is root's to read.
pub(super) fn rancher(files: &Files, name: &'static str) -> Option<Engine> {
    let folder = format!("var/lib/rancher/{name}");
    files.any(&[&folder])?;
    let mut engine = with_runc(name);
    let file = files.at(&folder).join("agent/etc/containerd/config.toml");
    let all = with_imports(files, &mut engine, file);
    add_files(files, &mut engine, &all);
    Some(engine)
}

pub(super) fn containerd(files: &Files) -> Option<Engine> {
    files.any(&["run/containerd/containerd.sock"])?;
    let mut engine = with_runc("containerd");
    let file = files.at("etc/containerd/config.toml");
    let all = with_imports(files, &mut engine, file);
    // Docker's own, which no kubelet asks.
    let is_cri = |name: &str| name == "cri" || name.contains(".cri");
    let own = all.first();
    if own.is_some_and(|(_, config)| texts(&config["disabled_plugins"]).any(is_cri)) {
        return None;
    }
    add_files(files, &mut engine, &all);
    Some(engine)
}

/// A file and those that it imports, with what each says.
fn with_imports(files: &Files, engine: &mut Engine, file: PathBuf) -> Vec<(PathBuf, Value)> {
    let Some(config) = files.toml(engine, &file) else {
        return Vec::new();
    };
    let imports = texts(&config["imports"]);
    let imports = imports.flat_map(|one| files.matching(one, &file));
    let imports: Vec<PathBuf> = imports.collect();
    let mut all = vec![(file, config)];
    for file in imports {
        let config = files.toml(engine, &file);
        all.extend(config.map(|config| (file, config)));
    }
    all
}

fn add_files(files: &Files, engine: &mut Engine, all: &[(PathBuf, Value)]) {
    for (_, config) in all {
        add_all(files, engine, config);
    }
    // containerd 1.x knows no version 3.
    let own = all.first();
    if own.is_some_and(|(_, config)| config["version"].as_u64() < Some(3)) {
        engine.replacing = replacing(files, engine, all);
    }
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
