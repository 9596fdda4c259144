//! The class of a container, by the mounts that an engine makes for its specification.

use std::path::Path;

use gpushare_protocol::injection::{FOLDER, LIBRARY_FOLDER, PRELOAD, PRELOADED, PRELOADED_BY_NIX};
use serde_json::Value;

/// The paths of the host that an engine mounts where it applies a class's specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// The socket folder, with the preload file in it.
    pub folder: String,
    /// The library's folder.
    pub library: String,
}

impl Class {
    /// Its name, which is that of its folder.
    #[must_use]
    pub fn name(&self) -> String {
        let name = Path::new(&self.folder).file_name();
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The class whose mounts a container has, if nothing that is mounted later hides a part of
    /// them. A mount over all of `/run` is no matter: programs have no CUDA then ([ADR
    /// 220](../../../../docs/adr/0220-a-covered-socket-folder-counts.md)).
    pub(super) fn of(config: &Value) -> Option<Self> {
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
