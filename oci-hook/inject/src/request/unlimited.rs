//! A container that has a GPU and asks for nothing: what the node has to know of it.

use gpushare_protocol::injection::{FOLDER, LIBRARY_FOLDER, PRELOAD, PRELOADED, PRELOADED_BY_NIX};
use serde_json::{Map, Value};

use super::devices::{all_given, evident, says_an_image};
use super::environment::Environment;
use super::{Request, labels, program};

/// Annotations by which Run:ai's and KAI's schedulers place a part of a GPU. They limit nothing.
const OF_SCHEDULERS: [&str; 2] = ["gpu-fraction", "gpu-memory"];
/// KAI's for one container: `nvidia.com/container.NAME.gpu-memory.limit`.
const OF_CONTAINERS: (&str, &str) = ("nvidia.com/container.", ".gpu-memory.");
/// The kind of the label that has one of them.
const SCHEDULER: &str = "scheduler";
/// Bytes of a label.
const MOST: usize = 1024;

/// What only such a container has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unlimited {
    /// That of its class, if it has one.
    pub class: Option<Class>,
}

/// What of the host an engine mounts, where it applies a class's specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The socket folder, with the preload file in it.
    pub folder: String,
    /// The library's folder.
    pub library: String,
}

/// The request of a container that asks for nothing. `None` if it has no GPU.
pub(super) fn request(
    config: &Value,
    annotations: &Map<String, Value>,
    variables: &Environment,
) -> Option<Request> {
    let mut devices = all_given(config, annotations, variables);
    let evident = evident(config, annotations);
    if says_an_image(annotations, variables) && !evident.is_empty() {
        devices = evident;
    }
    if devices.is_empty() {
        return None;
    }
    let mut labels = labels(config, annotations);
    labels.extend(of_scheduler(annotations).map(|text| (SCHEDULER.to_owned(), text)));
    let class = Class::of(config);
    Some(Request {
        environment: Vec::new(),
        devices,
        labels,
        program: program(config, variables),
        unlimited: Some(Unlimited { class }),
    })
}

/// An annotation by which its author may take the container for limited.
fn of_scheduler(annotations: &Map<String, Value>) -> Option<String> {
    let is_one = |name: &str| {
        let of_container = name.strip_prefix(OF_CONTAINERS.0);
        let of_container = of_container.is_some_and(|rest| rest.contains(OF_CONTAINERS.1));
        OF_SCHEDULERS.contains(&name) || of_container
    };
    let (name, value) = annotations.iter().find(|(name, _)| is_one(name))?;
    let text = format!("{name}={}", value.as_str().unwrap_or_default());
    (text.len() <= MOST).then_some(text)
}

impl Class {
    /// The class whose mounts a container has, if nothing that is mounted later hides a part of
    /// them. A mount over all of `/run` is no matter: programs have no CUDA then ([ADR
    /// 220](../../../../docs/adr/0220-a-covered-socket-folder-counts.md)).
    fn of(config: &Value) -> Option<Self> {
        let mounts = config.get("mounts")?.as_array()?;
        let places: Vec<Vec<&str>> = mounts.iter().map(place).collect();
        // The last one there, and nothing later below it, or above it.
        let whole = |path: &str, may_be_covered: bool| {
            let path = parts(path);
            let at = places.iter().rposition(|place| *place == path)?;
            let hides = |place: &Vec<&str>| {
                place.starts_with(&path) || !may_be_covered && path.starts_with(place)
            };
            let is_hidden = places[at + 1..].iter().any(hides);
            mounts[at].get("source")?.as_str().filter(|_| !is_hidden)
        };
        let folder = whole(FOLDER, true)?;
        // Without the library programs pass over the preload file.
        let library = whole(LIBRARY_FOLDER, false)?;
        let preload = format!("{folder}/{PRELOAD}");
        let of_nix = parts(PRELOADED_BY_NIX);
        // An older specification has none for programs of Nix.
        let has_other = places.contains(&of_nix) && whole(PRELOADED_BY_NIX, false)? != preload;
        let is_whole = whole(PRELOADED, false)? == preload && !has_other;
        is_whole.then(|| Self {
            folder: folder.to_owned(),
            library: library.to_owned(),
        })
    }
}

/// Where something is mounted.
fn place(mount: &Value) -> Vec<&str> {
    let path = mount.get("destination").and_then(Value::as_str);
    parts(path.unwrap_or_default())
}

/// A path's names from the root, without those that lead nowhere.
fn parts(path: &str) -> Vec<&str> {
    let mut all = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(all.pop()),
            name => all.push(name),
        }
    }
    all
}

#[cfg(test)]
mod tests;
