//! The runtime wrapper: adds the hook to a container's configuration before the real runtime
//! creates it, for engines that have neither CDI nor folders of hooks.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gpushare_inject::{Request, apply};

use crate::{Failure, bundle, cannot};

/// Folders in which the real runtime is looked for.
const FOLDERS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// Names of runtimes that may be wrapped; the first that is found is used.
const RUNTIMES: [&str; 2] = ["runc", "crun"];
/// Our own option, which the real runtime is not given: the path of the real runtime.
const RUNTIME: &str = "--gpushare-runtime=";
/// Our own option: arguments for the hook, separated by commas.
const HOOK: &str = "--gpushare-hook-args=";

/// A call of a runtime, as an engine makes it.
#[derive(Debug)]
pub struct Call {
    /// The real runtime.
    pub runtime: PathBuf,
    /// The arguments for the real runtime.
    pub arguments: Vec<OsString>,
    /// The hook's own arguments.
    hook: Vec<String>,
}

impl Call {
    /// Takes our own options out of the arguments.
    ///
    /// # Errors
    /// If no runtime is found.
    pub fn of(arguments: impl Iterator<Item = OsString>) -> Result<Self, Failure> {
        let (mut runtime, mut hook, mut rest) = (None, Vec::new(), Vec::new());
        for argument in arguments {
            let text = argument.as_bytes();
            if let Some(path) = text.strip_prefix(RUNTIME.as_bytes()) {
                runtime = Some(PathBuf::from(OsStr::from_bytes(path)));
            } else if let Some(list) = text.strip_prefix(HOOK.as_bytes()) {
                let list = String::from_utf8_lossy(list);
                hook = list.split(',').map(str::to_owned).collect();
            } else {
                rest.push(argument);
            }
        }
        let found = || {
            let all = RUNTIMES.iter().flat_map(|name| {
                FOLDERS
                    .iter()
                    .map(move |folder| Path::new(folder).join(name))
            });
            all.into_iter().find(|path| path.is_file())
        };
        let runtime = runtime.or_else(found).ok_or_else(|| {
            Failure(format!(
                "no runtime to wrap: install runc, or give {RUNTIME}PATH"
            ))
        })?;
        Ok(Self {
            runtime,
            arguments: rest,
            hook,
        })
    }

    /// The bundle of the container that this call creates, if it creates one.
    #[must_use]
    pub fn creates(&self) -> Option<PathBuf> {
        let creates = |argument: &&OsString| *argument == "create" || *argument == "run";
        let at = self
            .arguments
            .iter()
            .position(|argument| creates(&argument))?;
        let mut rest = self.arguments[at..].iter();
        while let Some(argument) = rest.next() {
            let bytes = argument.as_bytes();
            if argument == "--bundle" || argument == "-b" {
                return rest.next().map(PathBuf::from);
            }
            for start in [&b"--bundle="[..], b"-b="] {
                if let Some(path) = bytes.strip_prefix(start) {
                    return Some(PathBuf::from(OsStr::from_bytes(path)));
                }
            }
        }
        std::env::current_dir().ok()
    }

    /// Adds the hook to the configuration in `bundle`, if the container asks for a share.
    ///
    /// # Errors
    /// Why the container must not start.
    pub fn prepare(&self, bundle: &Path, hook: &Path) -> Result<(), Failure> {
        let bundle = fs::canonicalize(bundle).map_err(cannot("find the bundle"))?;
        let mut config = bundle::config(&bundle)?;
        if Request::of(&config)?.is_none() {
            return Ok(());
        }
        apply::add_hook(&mut config, &hook.to_string_lossy(), &self.hook)?;
        write(&bundle, &config.to_string()).map_err(cannot("write config.json"))
    }
}

/// Replaces the configuration, whole or not at all.
fn write(bundle: &Path, text: &str) -> std::io::Result<()> {
    let (path, whole) = (
        bundle.join("config.json"),
        bundle.join(".config.json.gpushare"),
    );
    let found = fs::symlink_metadata(&path)?;
    match fs::remove_file(&whole) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(found.mode() & 0o777)
        .open(&whole)?;
    file.write_all(text.as_bytes())?;
    fs::rename(whole, path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;

    fn call(arguments: &[&str]) -> Call {
        let own = ["--gpushare-runtime=/x/runc"];
        let all = own.iter().chain(arguments).map(OsString::from);
        Call::of(all).unwrap()
    }

    #[test]
    fn only_a_call_that_creates_is_edited() {
        for (arguments, bundle) in [
            (
                &["--root", "/r", "create", "--bundle", "/b", "id"][..],
                Some("/b"),
            ),
            (&["create", "-b", "/b", "id"], Some("/b")),
            (&["--log", "l", "run", "--bundle=/b", "id"], Some("/b")),
            (&["start", "id"], None),
            (&["delete", "--force", "id"], None),
            (&["state", "id"], None),
            (&[], None),
        ] {
            let call = call(arguments);
            assert_eq!(call.creates(), bundle.map(PathBuf::from), "{arguments:?}");
            assert_eq!(call.runtime, Path::new("/x/runc"));
            assert_eq!(call.arguments, arguments, "the rest is passed on");
        }
    }

    #[test]
    fn a_container_that_asks_for_nothing_keeps_its_configuration() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("config.json");
        let text = "{ \"process\" : { \"env\" : [ \"A=1\" ] } }";
        fs::write(&file, text).unwrap();
        let call = call(&[]);
        call.prepare(place.path(), Path::new("/h")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        fs::write(
            &file,
            "{\"process\":{\"env\":[\"GPUSHARE_MEM_LIMIT=1GiB\"]},\"x\":[1]}",
        )
        .unwrap();
        call.prepare(place.path(), Path::new("/h")).unwrap();
        let config = bundle::config(place.path()).unwrap();
        assert_eq!(config["hooks"]["createRuntime"][0]["path"], "/h");
        assert_eq!(config["x"][0], 1);
        assert_eq!(
            fs::read_dir(place.path()).unwrap().count(),
            1,
            "nothing is left"
        );
    }
}
