//! Reads the files of engines below a root.

use crate::doctor::facts::{Engine, HookFile};
use nix::unistd::{AccessFlags, access};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Our programs, and the beginning of the names of NVIDIA's runtimes.
const WRAPPER: &str = "gpushare-runtime";
const HOOK: &str = "gpushare-oci-hook";
const NVIDIA: &str = "nvidia-container-runtime";
/// The settings of NVIDIA's runtimes, in `/etc`. The GPU Operator's toolkit has them in the folder
/// `.config` beside its runtime, which reads those first.
const NVIDIA_CONFIG: &str = "nvidia-container-runtime/config.toml";
/// Where engines look for a program that has no path.
const FOLDERS: [&str; 4] = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin"];
/// The most of a script that is read.
const SCRIPT: u64 = 4096;

pub(super) fn is_nvidias(path: &str) -> bool {
    name_of(path).starts_with(NVIDIA)
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The texts of a list.
pub(super) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Whether a list of Podman's says that it adds to the one before, or that it does not.
pub(super) fn appends(list: &Value) -> Option<bool> {
    let mut entries = list.as_array()?.iter();
    entries.find_map(|entry| entry["append"].as_bool())
}

pub(super) struct Files {
    pub(super) root: PathBuf,
}

impl Files {
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Nothing, where none of these is there.
    pub(super) fn any(&self, paths: &[&str]) -> Option<()> {
        let mut found = paths.iter().map(|path| self.at(path));
        found.any(|path| path.exists()).then_some(())
    }

    /// The files that an entry of `imports` in this file names: one, or all with its beginning.
    pub(super) fn matching(&self, pattern: &str, file: &Path) -> Vec<PathBuf> {
        let path = match pattern.strip_prefix('/') {
            Some(path) => self.root.join(path),
            None => file.with_file_name(pattern),
        };
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let folder = path.parent().unwrap_or(&path);
        match name.split_once('*') {
            None => vec![path],
            Some((start, end)) => listed(folder, |name| {
                name.starts_with(start) && name[start.len()..].ends_with(end)
            }),
        }
    }

    pub(super) fn json(&self, engine: &mut Engine, path: &Path) -> Option<Value> {
        parsed(engine, path, |text| {
            serde_json::from_str(text).map_err(|error| error.to_string())
        })
    }

    /// Docker's own file, which may be empty and begin with a mark of its encoding.
    pub(super) fn dockers(&self, engine: &mut Engine, path: &Path) -> Option<Value> {
        parsed(engine, path, |text| {
            match text.trim_start_matches('\u{feff}').trim() {
                "" => Ok(Value::Null),
                text => serde_json::from_str(text).map_err(|error| error.to_string()),
            }
        })
    }

    pub(super) fn toml(&self, engine: &mut Engine, path: &Path) -> Option<Value> {
        parsed(engine, path, from_toml)
    }

    /// The program that this path or name leads to.
    pub(super) fn program(&self, path: &str) -> PathBuf {
        if path.contains('/') {
            return self.at(path);
        }
        let folders = FOLDERS.map(|folder| self.at(folder).join(path));
        let found = folders.iter().find(|path| self.is_program(path));
        found.unwrap_or(&folders[3]).clone()
    }

    pub(super) fn is_program(&self, path: &Path) -> bool {
        path.is_file() && access(path, AccessFlags::X_OK).is_ok()
    }

    /// The wrapper, if a runtime of this path or name is it, or calls it: NVIDIA's runtime by its
    /// settings, or a script.
    pub(super) fn wrapper(&self, path: &str) -> Option<PathBuf> {
        if name_of(path) == WRAPPER {
            return Some(self.program(path));
        }
        if is_nvidias(path) {
            let beside = self.program(path).with_file_name(".config");
            let files = [beside, self.at("etc")].map(|folder| folder.join(NVIDIA_CONFIG));
            let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
            let config: Value = from_toml(&text?).ok()?;
            // It calls the first that is there.
            let mut runtimes = texts(&config[NVIDIA]["runtimes"]).filter(|runtime| {
                name_of(runtime) == WRAPPER || self.is_program(&self.program(runtime))
            });
            let first = runtimes.next().filter(|first| name_of(first) == WRAPPER);
            return Some(self.program(first?));
        }
        let words = self.words(path)?;
        let ours = words.iter().find(|word| name_of(word) == WRAPPER)?;
        Some(self.program(ours))
    }

    /// Whether a runtime of this path or name is NVIDIA's, or a script that names NVIDIA's.
    pub(super) fn has_nvidias(&self, path: &str) -> bool {
        let words = || self.words(path).unwrap_or_default();
        is_nvidias(path) || words().iter().any(|word| is_nvidias(word))
    }

    /// The words of a script, without its comments.
    fn words(&self, path: &str) -> Option<Vec<String>> {
        let file = File::open(self.program(path)).ok()?;
        let mut start = Vec::new();
        file.take(SCRIPT).read_to_end(&mut start).ok()?;
        let text = String::from_utf8_lossy(&start);
        let lines = text.strip_prefix("#!")?.lines();
        let lines = lines.filter(|line| !line.trim_start().starts_with('#'));
        let is_end = |letter: char| letter.is_whitespace() || "\"'=".contains(letter);
        let words = lines.flat_map(|line| line.split(is_end)).map(str::to_owned);
        Some(words.collect())
    }

    /// Notes our hooks in these folders. Of files of one name the last folder's counts.
    pub(super) fn add_hooks(&self, engine: &mut Engine, folders: Vec<String>) {
        let mut files = BTreeMap::new();
        for folder in &folders {
            for file in listed(&self.at(folder), |name| name.ends_with(".json")) {
                if let Some(name) = file.file_name() {
                    files.insert(name.to_owned(), file.clone());
                }
            }
        }
        for file in files.into_values() {
            let Some(config) = self.json(engine, &file) else {
                continue;
            };
            let path = config["hook"]["path"].as_str().unwrap_or_default();
            if name_of(path) == HOOK {
                let path = self.program(path);
                engine.hooks.push(HookFile {
                    file,
                    runs: self.is_program(&path),
                    path,
                    always: config["when"]["always"] == true,
                });
            }
        }
        engine.hook_folders = folders.into_iter().map(PathBuf::from).collect();
    }
}

fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| error.message().to_owned())
}

/// A file's text; none if there is no such file. A file that cannot be read or is wrong is noted.
fn parsed(
    engine: &mut Engine,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<Value, String>,
) -> Option<Value> {
    match fs::read_to_string(path) {
        Ok(text) => match parse(&text) {
            Ok(value) => return Some(value),
            Err(why) => engine.wrong = Some(format!("{}: {why}", path.display())),
        },
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            engine.unread = Some(path.to_owned());
        }
        Err(_) => {}
    }
    None
}

/// The files of a folder whose names are wanted, by name.
pub(super) fn listed(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| {
            let name = path.file_name().and_then(OsStr::to_str);
            path.is_file() && name.is_some_and(&is_wanted)
        })
        .collect();
    paths.sort();
    paths
}
