//! Podman, as its files say, and its version as Debian's list of packages says.

use super::files::{self, Files, listed, texts};
use super::{HOOKS, add};
use crate::doctor::facts::Engine;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Debian's list of the packages that are installed.
const PACKAGES: &str = "var/lib/dpkg/status";
/// The first version that takes no annotation of an image over into its container (release notes of
/// 4.5.1, Security).
const TAKES_NONE: [u32; 3] = [4, 5, 1];

pub(super) fn podman(files: &Files, home: Option<&Path>) -> Option<Engine> {
    files.any(&[
        "usr/bin/podman",
        "usr/local/bin/podman",
        "run/podman/podman.sock",
    ])?;
    let mut engine = Engine::named("podman");
    let mut all = vec![
        files.at("usr/share/containers/containers.conf"),
        files.at("etc/containers/containers.conf"),
    ];
    let own = home.map(|home| home.join(".config/containers/containers.conf"));
    let parts = files.at("etc/containers/containers.conf.d");
    all.extend(listed(&parts, |name| name.ends_with(".conf")));
    all.extend(own);
    let mut folders = vec![HOOKS.to_owned()];
    // Once a file says so, the lists of later ones add to those before as well (Podman 5).
    let mut appends = false;
    for file in all {
        let Some(config) = files.toml(&mut engine, &file) else {
            continue;
        };
        let config = &config["engine"];
        if config["hooks_dir"].is_array() {
            appends = files::appends(&config["hooks_dir"]).unwrap_or(appends);
            if !appends {
                folders.clear();
            }
            folders.extend(texts(&config["hooks_dir"]).map(str::to_owned));
        }
        for (name, paths) in config["runtimes"].as_object().into_iter().flatten() {
            let path = texts(paths).next().unwrap_or_default();
            add(files, &mut engine, name, path, None);
        }
        let default = config["runtime"].as_str();
        engine.default = default.map(str::to_owned).or(engine.default);
    }
    files.add_hooks(&mut engine, folders);
    engine.images_annotate = images_annotate(files, &engine);
    Some(engine)
}

/// The version of this Podman, if it takes annotations of images over, and crun, which opens files
/// of the host by some, may be its runtime.
fn images_annotate(files: &Files, engine: &Engine) -> Option<String> {
    let default = engine.default.as_deref();
    if default == Some("runc") || !files.is_program(&files.program("crun")) {
        return None;
    }
    let version = installed(&files.at(PACKAGES), "podman")?;
    (numbers(&version) < TAKES_NONE).then_some(version)
}

/// The first three numbers of a version, 0 for those that are not there.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split(|one: char| !one.is_ascii_digit());
    [(); 3].map(|()| parts.next().and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// The version of an installed package, without its epoch and Debian's own revision.
fn installed(list: &Path, package: &str) -> Option<String> {
    let lines = BufReader::new(File::open(list).ok()?).lines();
    let (mut is_it, mut is_installed) = (false, false);
    for line in lines.map_while(Result::ok) {
        let Some((field, value)) = line.split_once(": ") else {
            continue;
        };
        match field {
            "Package" => (is_it, is_installed) = (value == package, false),
            "Status" => is_installed = value.ends_with(" installed"),
            "Version" if is_it && is_installed => {
                let upstream = value.split_once(':').map_or(value, |(_, rest)| rest);
                let end = upstream.find(['+', '-', '~']).unwrap_or(upstream.len());
                return Some(upstream[..end].to_owned());
            }
            _ => {}
        }
    }
    None
}
