//! Docker, as its file and the units of its daemon say.

use super::files::{Files, listed};
use super::{add, made};
use crate::doctor::facts::Engine;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Programs by which Docker gives GPUs without a description for CDI.
const NVIDIA_HOOK: &str = "nvidia-container-runtime-hook";
/// The folders of systemd's units; a file hides those of its name in the later ones.
const UNITS: [&str; 4] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// The runtime of image builds, a variable of Docker's daemon since version 25. No other setting
/// has one.
const BUILDS: &str = "DOCKER_BUILDKIT_RUNC_COMMAND";

pub(super) fn docker(files: &Files) -> Option<Engine> {
    files.any(&["run/docker.sock", "usr/bin/dockerd"])?;
    let mut engine = Engine::named("docker");
    engine.has_nvidia = files.is_program(&files.program(NVIDIA_HOOK));
    let unit = Unit::read(files);
    let file = unit.flags("config-file").next();
    let file = file.unwrap_or("etc/docker/daemon.json").to_owned();
    let config = files.dockers(&mut engine, &files.at(&file));
    let config = config.unwrap_or(Value::Null);
    let runtimes = config["runtimes"].as_object().into_iter().flatten();
    for (name, runtime) in runtimes {
        let path = runtime["path"].as_str().unwrap_or_default();
        add(files, &mut engine, name, path, None);
    }
    let pairs = unit.flags("add-runtime");
    for (name, path) in pairs.filter_map(|pair| pair.split_once('=')) {
        add(files, &mut engine, name, path, None);
    }
    // Docker starts with none that both have.
    let said = |key: &str| {
        let told = config[key].as_str().or_else(|| unit.flags(key).last());
        told.map(str::to_owned)
    };
    engine.default = said("default-runtime");
    let of_builds = unit.variables.get(BUILDS);
    let is_ours = of_builds.is_some_and(|path| files.wrapper(path).is_some());
    engine.builds_past = config["features"]["cdi"] != false && !is_ours;
    let data = said("data-root").unwrap_or_else(|| "var/lib/docker".to_owned());
    engine.made_past = made::past(&engine, &files.at(&data).join("containers"));
    Some(engine)
}

/// What systemd starts as Docker's daemon.
#[derive(Debug, Default)]
struct Unit {
    command: String,
    variables: BTreeMap<String, String>,
}

impl Unit {
    fn read(files: &Files) -> Self {
        let mut unit = Self::default();
        for file in of_unit(files) {
            let text = fs::read_to_string(file).unwrap_or_default();
            for line in text.replace("\\\n", " ").lines() {
                unit.take(files, line.trim());
            }
        }
        unit
    }

    fn take(&mut self, files: &Files, line: &str) {
        let Some((key, value)) = line.split_once('=') else {
            return;
        };
        match key {
            "ExecStart" => value.clone_into(&mut self.command),
            "Environment" => self.variables.extend(assigned(value)),
            "EnvironmentFile" => {
                let file = files.at(value.trim_start_matches('-'));
                let text = fs::read_to_string(file).unwrap_or_default();
                let pairs = text.lines().filter_map(|line| {
                    let (name, value) = line.trim().split_once('=')?;
                    (!name.starts_with('#')).then(|| (name.to_owned(), unquoted(value).to_owned()))
                });
                self.variables.extend(pairs);
            }
            _ => {}
        }
    }

    /// The values of one of the daemon's flags, those of its variables in place of their names.
    fn flags(&self, name: &str) -> impl Iterator<Item = &str> {
        let words = self.command.split_whitespace().flat_map(|word| {
            let name = word.strip_prefix('$');
            let name = name.map(|name| name.trim_matches(['{', '}']));
            let value = name.map(|name| self.variables.get(name).map_or("", String::as_str));
            value.unwrap_or(word).split_whitespace()
        });
        let words: Vec<&str> = words.map(unquoted).collect();
        let flag = format!("--{name}");
        let value = |at: usize| {
            let rest = words[at].strip_prefix(&flag)?;
            match rest.strip_prefix('=') {
                Some(value) => Some(unquoted(value)),
                None if rest.is_empty() => words.get(at + 1).copied(),
                None => None,
            }
        };
        let values: Vec<&str> = (0..words.len()).filter_map(value).collect();
        values.into_iter()
    }
}

/// The unit's own file, and its drop-ins in their order.
fn of_unit(files: &Files) -> Vec<PathBuf> {
    let folders = UNITS.map(|folder| files.at(folder));
    let mut own = folders.iter().map(|folder| folder.join("docker.service"));
    let own = own.find(|path| path.is_file());
    let mut parts: BTreeMap<_, PathBuf> = BTreeMap::new();
    for folder in &folders {
        for part in listed(&folder.join("docker.service.d"), |name| {
            name.ends_with(".conf")
        }) {
            let name = part.file_name().map(Path::new).map(Path::to_owned);
            parts.entry(name).or_insert(part);
        }
    }
    own.into_iter().chain(parts.into_values()).collect()
}

/// The variables of a line of systemd's: words, each of which may be quoted.
fn assigned(value: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = value.trim();
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|letter| "\"'".contains(*letter));
        let (word, then) = match quote {
            Some(quote) => {
                let rest = &rest[1..];
                rest.split_once(quote).unwrap_or((rest, ""))
            }
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        let pair = word.split_once('=');
        all.extend(pair.map(|(name, value)| (name.to_owned(), unquoted(value).to_owned())));
        rest = then.trim_start();
    }
    all
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}
