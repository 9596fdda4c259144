//! The runtime wrapper: adds the hook to a container's configuration before the real runtime
//! creates it, for engines that have neither CDI nor folders of hooks.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gpushare_inject::apply::has_hook;
use gpushare_inject::{Request, apply, output_of_hooks};
use serde_json::Value;

use crate::hook::Places;
use crate::{Failure, bundle, cannot};

/// Folders in which the real runtime is looked for first.
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
/// A variable of the program that a wrapper calls: by how many wrappers the call has come. No tool
/// of gpushare's reads it, and no container gets it.
const CALLS: &str = "_GPUSHARE_RUNTIME_CALLS";
/// Wrappers in one call. NVIDIA's runtime may be between two.
const MOST_CALLS: u32 = 3;
/// Options of runc, crun and youki before the subcommand that have a value.
const VALUED: [&str; 9] = [
    "log",
    "log-format",
    "log-level",
    "root",
    "rootless",
    "criu",
    "cgroup-manager",
    // youki's short forms.
    "l",
    "r",
];
/// The names of the option for the bundle. Programs in Go take one dash as two.
const BUNDLE: [&str; 3] = ["--bundle", "-bundle", "-b"];

/// A call of a runtime, as an engine makes it.
#[derive(Debug)]
pub struct Call {
    /// The real runtime.
    pub runtime: PathBuf,
    /// The arguments for the real runtime.
    pub arguments: Vec<OsString>,
    /// The place of the subcommand among them; that of their end without one.
    subcommand: usize,
    /// The hook's own arguments.
    hook: Vec<String>,
}

impl Call {
    /// Takes our own options out of the arguments. Those after the subcommand are a container's or
    /// its program's, and stay.
    ///
    /// # Errors
    /// If no runtime is found.
    pub fn of(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, Failure> {
        let (mut runtime, mut hook, mut rest) = (None, Vec::new(), Vec::new());
        let mut subcommand = None;
        while let Some(argument) = arguments.next() {
            let text = argument.as_bytes();
            if let Some(path) = text.strip_prefix(RUNTIME.as_bytes()) {
                runtime = Some(PathBuf::from(OsStr::from_bytes(path)));
                continue;
            }
            if let Some(list) = text.strip_prefix(HOOK.as_bytes()) {
                let list = String::from_utf8_lossy(list);
                hook = list.split(',').map(str::to_owned).collect();
                continue;
            }
            let (is_option, has_value) = (text.starts_with(b"-"), has_value(text));
            rest.push(argument);
            if !is_option {
                subcommand = Some(rest.len() - 1);
                break;
            }
            if has_value {
                rest.extend(arguments.next());
            }
        }
        let subcommand = subcommand.unwrap_or(rest.len());
        rest.extend(arguments);
        let own = std::env::current_exe().and_then(fs::canonicalize).ok();
        let found = || runtime_in(&folders(std::env::var_os("PATH")), own.as_deref());
        let runtime = runtime.or_else(found).ok_or_else(|| {
            Failure(format!(
                "no runtime to wrap in the system's folders and PATH: install runc, or give {RUNTIME}PATH"
            ))
        })?;
        Ok(Self {
            runtime,
            arguments: rest,
            subcommand,
            hook,
        })
    }

    /// The bundle of the container that this call creates, if it creates one.
    #[must_use]
    pub fn creates(&self) -> Option<PathBuf> {
        self.bundle_of(&["create", "run"])
    }

    /// The bundle of the container that this call restores from a checkpoint, if it restores one.
    #[must_use]
    pub fn restores(&self) -> Option<PathBuf> {
        self.bundle_of(&["restore"])
    }

    /// The bundle of a call with one of these subcommands.
    fn bundle_of(&self, subcommands: &[&str]) -> Option<PathBuf> {
        let mut all = self.arguments[self.subcommand..].iter();
        let subcommand = all.next()?;
        if !subcommands.iter().any(|known| subcommand == known) {
            return None;
        }
        let mut bundle = None;
        while let Some(argument) = all.next() {
            if BUNDLE.iter().any(|name| argument == name) {
                bundle = all.next().map(PathBuf::from);
            } else if let Some(path) = attached(argument.as_bytes()) {
                bundle = Some(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
        bundle.or_else(|| std::env::current_dir().ok())
    }

    /// Whether the runtime is told another file than `config.json`, by crun's option or a beginning
    /// of its name.
    fn names_another_file(&self) -> bool {
        let all = self.arguments.get(self.subcommand..).unwrap_or_default();
        let mut all = all.iter().map(|argument| argument.as_bytes());
        all.any(|text| text.starts_with(b"--conf") || text.starts_with(b"-f"))
    }

    /// Adds the hook to the configuration in `bundle`, if the container asks for a share, or the
    /// daemon is to be asked about it, and the hook is not there from the last time.
    ///
    /// # Errors
    /// Why the container must not start.
    pub fn prepare(&self, bundle: &Path, hook: &Path) -> Result<(), Failure> {
        if self.names_another_file() {
            return Err(Failure(
                "--config names another file than config.json, which would get no hook; leave the option out"
                    .to_owned(),
            ));
        }
        let bundle = fs::canonicalize(bundle).map_err(cannot("find the bundle"))?;
        let mut config = bundle::config(&bundle)?;
        let concerns = self.concerns(&config)?;
        // Also a hook that a file of hooks has added opens it.
        let has_output = output_of_hooks(&config).filter(|_| concerns || has_hook(&config));
        if let Some(name) = has_output {
            return Err(Failure(format!(
                "annotation {name} is refused: an image or a pod's author may have written it, and crun would open the file that it names on the host for gpushare's hook; accepted: /dev/stderr, /dev/stdout or /dev/null"
            )));
        }
        if !concerns {
            return Ok(());
        }
        match apply::add_hook(&mut config, &hook.to_string_lossy(), &self.hook)? {
            true => write(&bundle, &config.to_string()).map_err(cannot("write config.json")),
            false => Ok(()),
        }
    }

    /// Refuses to restore a container that is a matter of the daemon's: no hook registers its
    /// processes, which a checkpoint brings as they were, in an image of any author's.
    ///
    /// # Errors
    /// Why the container must not start.
    pub fn may_restore(&self, bundle: &Path) -> Result<(), Failure> {
        let bundle = fs::canonicalize(bundle).map_err(cannot("find the bundle"))?;
        match self.concerns(&bundle::config(&bundle)?)? {
            true => Err(Failure(
                "a container that has limits, or has a GPU where limits are mandatory, is not restored from a checkpoint: the daemon would not know its processes, and no limit would hold for them; create it anew"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }

    /// Whether the container of this configuration is a matter of the daemon's.
    fn concerns(&self, config: &Value) -> Result<bool, Failure> {
        let places = Places::of(&self.hook);
        let request = Request::of(config)?;
        Ok(request.is_some_and(|request| places.concerns(&request)))
    }
}

/// The system's folders, and then those of the engine's `PATH`: k3s and rke2 bring a runc of their
/// own, and name its folder there. The image has no part in it.
fn folders(path: Option<OsString>) -> Vec<PathBuf> {
    let of_engine = path.unwrap_or_default();
    let of_engine = std::env::split_paths(&of_engine).filter(|folder| folder.is_absolute());
    FOLDERS.iter().map(PathBuf::from).chain(of_engine).collect()
}

/// The first runtime that is not this program at `own` under another name.
fn runtime_in(folders: &[PathBuf], own: Option<&Path>) -> Option<PathBuf> {
    let all = RUNTIMES.iter();
    let mut all = all.flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let is_own = |path: &Path| own.is_some() && fs::canonicalize(path).ok().as_deref() == own;
    all.find(|path| path.is_file() && !is_own(path))
}

/// The number of wrappers that a call has come by, for the next program.
///
/// # Errors
/// If the runtime calls the wrapper again and again.
pub fn calls(runtime: &Path) -> Result<(&'static str, String), Failure> {
    let before = std::env::var(CALLS).ok();
    let before: u32 = before.and_then(|text| text.parse().ok()).unwrap_or(0);
    match before < MOST_CALLS {
        true => Ok((CALLS, (before + 1).to_string())),
        false => Err(Failure(format!(
            "{} calls gpushare-runtime again and again; name the real runtime by {RUNTIME}PATH",
            runtime.display()
        ))),
    }
}

/// Whether the value of this option is the next argument.
pub(crate) fn has_value(option: &[u8]) -> bool {
    let long = option.strip_prefix(b"--");
    let name = long.or_else(|| option.strip_prefix(b"-"));
    name.is_some_and(|name| VALUED.iter().any(|valued| name == valued.as_bytes()))
}

/// The bundle in an argument that is the option, too: `--bundle=PATH`, `-bPATH`.
fn attached(argument: &[u8]) -> Option<&[u8]> {
    let with_sign = BUNDLE.iter().find_map(|name| {
        let rest = argument.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    });
    with_sign.or_else(|| argument.strip_prefix(b"-b").filter(|rest| !rest.is_empty()))
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
mod tests;
