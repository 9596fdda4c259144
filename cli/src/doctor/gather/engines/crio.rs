//! CRI-O, as its files say.

use super::files::{Files, listed, texts};
use super::{HOOKS, add, is_oci, note_other};
use crate::doctor::facts::Engine;
use std::collections::BTreeMap;

/// Its default since version 1.31, which opens files of the host by annotations.
const CRUN: &str = "crun";
/// Where its own packages have its runtimes.
const OWN: &str = "usr/libexec/crio";

pub(super) fn crio(files: &Files) -> Option<Engine> {
    files.any(&["run/crio/crio.sock", "usr/bin/crio"])?;
    let mut engine = Engine::named("cri-o");
    let mut all = vec![files.at("etc/crio/crio.conf")];
    all.extend(listed(&files.at("etc/crio/crio.conf.d"), |_| true));
    let mut folders = vec![HOOKS.to_owned()];
    let mut paths = BTreeMap::new();
    for file in all {
        let Some(config) = files.toml(&mut engine, &file) else {
            continue;
        };
        let config = &config["crio"]["runtime"];
        if config["hooks_dir"].is_array() {
            folders = texts(&config["hooks_dir"]).map(str::to_owned).collect();
        }
        for (name, runtime) in config["runtimes"].as_object().into_iter().flatten() {
            let path = runtime["runtime_path"].as_str().unwrap_or_default();
            add(files, &mut engine, name, path, None);
            note_other(&mut engine, name, is_oci(runtime, "oci"));
            paths.insert(name.clone(), path.to_owned());
        }
        let default = config["default_runtime"].as_str();
        engine.default = default.map(str::to_owned).or(engine.default);
    }
    files.add_hooks(&mut engine, folders);
    engine.pods_annotate = pods_annotate(files, &engine, &paths);
    Some(engine)
}

/// The handler that is crun, without the wrapper before it. CRI-O hands on all annotations of a
/// pod, and by some crun opens files of the host.
fn pods_annotate(
    files: &Files,
    engine: &Engine,
    paths: &BTreeMap<String, String>,
) -> Option<String> {
    let is_crun = |name: &&String| {
        let path = paths.get(*name).filter(|path| !path.is_empty());
        path.unwrap_or(name).rsplit('/').next() == Some(CRUN)
    };
    if let Some(name) = engine.others.iter().find(is_crun) {
        return Some(name.clone());
    }
    let programs = [files.program(CRUN), files.at(OWN).join(CRUN)];
    let is_there = || programs.iter().any(|path| files.is_program(path));
    let is_default = engine.default.as_deref().is_none_or(|name| name == CRUN);
    (is_default && !paths.contains_key(CRUN) && is_there()).then(|| CRUN.to_owned())
}
