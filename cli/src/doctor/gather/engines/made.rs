//! Docker's containers, each with the name of the runtime that it was made with. Docker stores that
//! name, the default's as well, and starts the container by it from then on.

use super::files::texts;
use crate::doctor::facts::{Engine, Made};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The containers in this folder that have a GPU and whose runtime does not lead to the wrapper.
/// None where the folder is root's to read.
pub(super) fn past(engine: &Engine, folder: &Path) -> Vec<Made> {
    let folders = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<Made> = folders
        .filter_map(|folder| one(engine, &folder.path()))
        .collect();
    all.sort();
    all
}

fn one(engine: &Engine, folder: &Path) -> Option<Made> {
    let config = read(folder, "hostconfig.json")?;
    let runtime = config["Runtime"].as_str().filter(|name| !name.is_empty())?;
    let is_ours = engine.runtimes.iter().any(|ours| ours.name == runtime);
    if is_ours || !has_gpu(&config) && !engine.past.iter().any(|past| past == runtime) {
        return None;
    }
    let named = read(folder, "config.v2.json");
    let name = named.as_ref().and_then(|named| named["Name"].as_str());
    let id = || folder.file_name().map(|id| id.to_string_lossy());
    let name = match name {
        Some(name) => name.trim_start_matches('/').to_owned(),
        None => id()?.chars().take(12).collect(),
    };
    Some(Made {
        name,
        runtime: runtime.to_owned(),
    })
}

/// Whether its settings give it a GPU: by `--gpus` or a CDI device, by a device file, or all of
/// them.
fn has_gpu(config: &Value) -> bool {
    let list = |name: &str| config[name].as_array().cloned().unwrap_or_default();
    let asks = |request: &Value| {
        let driver = request["Driver"].as_str().unwrap_or_default();
        let mut sets = request["Capabilities"].as_array().into_iter().flatten();
        let names_gpu = sets.any(|set| texts(set).any(|name| name == "gpu"));
        ["nvidia", "cdi"].contains(&driver) || names_gpu
    };
    let is_gpus = |device: &Value| {
        let path = device["PathOnHost"].as_str().unwrap_or_default();
        path.starts_with("/dev/nvidia")
    };
    config["Privileged"] == true
        || list("DeviceRequests").iter().any(asks)
        || list("Devices").iter().any(is_gpus)
}

fn read(folder: &Path, name: &str) -> Option<Value> {
    serde_json::from_slice(&fs::read(folder.join(name)).ok()?).ok()
}
