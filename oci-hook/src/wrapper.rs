//! The runtime wrapper: adds the hook to a container's configuration before the real runtime
//! creates it, for engines that have neither CDI nor folders of hooks.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
        let found = || runtime_in(&folders(std::env::var_os("PATH")));
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
        if !self.concerns(&config)? {
            return Ok(());
        }
        if let Some(name) = output_of_hooks(&config) {
            return Err(Failure(format!(
                "annotation {name} is refused: an image may have it, and crun would open the file that it names on the host for gpushare's hook; accepted: /dev/stderr, /dev/stdout or /dev/null"
            )));
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

fn runtime_in(folders: &[PathBuf]) -> Option<PathBuf> {
    let all = RUNTIMES.iter();
    let mut all = all.flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.find(|path| path.is_file())
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
            (&["create", "-b/b", "id"], Some("/b")),
            (&["run", "-bundle", "/b", "id"], Some("/b")),
            (&["run", "-bundle=/b", "id"], Some("/b")),
            (
                &["run", "--bundle", "/a", "--bundle", "/b", "id"],
                Some("/b"),
            ),
            (
                &["--root=run", "--debug", "run", "-b", "/b", "id"],
                Some("/b"),
            ),
            (
                &[
                    "--log",
                    "run",
                    "--log-format=json",
                    "create",
                    "-b=/b",
                    "run",
                ],
                Some("/b"),
            ),
            (
                &["--cgroup-manager", "systemd", "run", "-b", "/b", "id"],
                Some("/b"),
            ),
            (
                &["-l", "create", "-r", "/r", "-s", "create", "-b", "/b", "id"],
                Some("/b"),
            ),
            (&["--log", "run", "delete", "c1"], None),
            (&["--root", "create", "state", "run"], None),
            (&["-l", "run", "delete", "c1"], None),
            (&["--debug", "exec", "c1", "npm", "run", "build"], None),
            (
                &["exec", "--env", "create", "c1", "run", "--bundle", "/b"],
                None,
            ),
            (
                &[
                    "exec",
                    "c1",
                    "x",
                    "--gpushare-runtime=/y",
                    "--gpushare-hook-args=z",
                ],
                None,
            ),
            (&["delete", "run"], None),
            (&["--version"], None),
            (&["--log"], None),
            (&["start", "id"], None),
            (&["delete", "--force", "id"], None),
            (&["state", "id"], None),
            (&[], None),
        ] {
            let call = call(arguments);
            assert_eq!(call.creates(), bundle.map(PathBuf::from), "{arguments:?}");
            assert_eq!(call.restores(), None, "{arguments:?}");
            assert_eq!(call.runtime, Path::new("/x/runc"));
            assert_eq!(call.arguments, arguments, "the rest is passed on");
        }
    }

    #[test]
    fn a_call_that_restores_names_its_bundle_and_is_not_edited() {
        for arguments in [
            &["--root", "/r", "restore", "--bundle", "/b", "id"][..],
            &["restore", "--image-path", "/i", "-b", "/b", "id"],
            &["--log", "run", "restore", "--bundle=/b", "--detach", "id"],
        ] {
            let call = call(arguments);
            assert_eq!(call.restores().as_deref(), Some(Path::new("/b")));
            assert_eq!(call.creates(), None, "{arguments:?}");
            assert_eq!(call.arguments, arguments, "the rest is passed on");
        }
        for arguments in [
            &["checkpoint", "--image-path", "/i", "id"][..],
            &["exec", "c1", "restore", "--bundle", "/b"],
            &["--root", "restore", "state", "id"],
        ] {
            assert_eq!(call(arguments).restores(), None, "{arguments:?}");
        }
    }

    #[test]
    fn a_runtime_of_the_engines_path_is_found_behind_the_systems() {
        let place = tempfile::tempdir().unwrap();
        let [system, data] = ["system", "data"].map(|name| place.path().join(name));
        let searched = folders(Some(
            std::env::join_paths([&data, Path::new("bin")]).unwrap(),
        ));
        let (known, of_engine) = searched.split_at(FOLDERS.len());
        assert_eq!(known, FOLDERS.map(PathBuf::from));
        assert_eq!(of_engine, std::slice::from_ref(&data), "not a relative one");
        assert_eq!(folders(None), FOLDERS.map(PathBuf::from));
        let put = |folder: &Path, name: &str| {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), "").unwrap();
        };
        let found = || runtime_in(&[system.clone(), data.clone()]);
        assert_eq!(found(), None);
        put(&system, "crun");
        assert_eq!(found(), Some(system.join("crun")));
        put(&data, "runc");
        assert_eq!(found(), Some(data.join("runc")), "runc is wanted first");
        put(&system, "runc");
        assert_eq!(found(), Some(system.join("runc")));
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

    #[test]
    fn a_file_of_the_host_that_an_image_chose_for_hooks_is_refused() {
        let prepared = |annotations: Value, cgroup: &str| {
            let place = tempfile::tempdir().unwrap();
            let linux = serde_json::json!({"cgroupsPath": cgroup});
            let config = serde_json::json!({"annotations": annotations, "linux": linux});
            fs::write(place.path().join("config.json"), config.to_string()).unwrap();
            let done = call(&[]).prepare(place.path(), Path::new("/h"));
            done.map_err(|why| why.to_string())
        };
        let of = |name: &str, value: &str, limit: &str| {
            let mut all = serde_json::json!({"run.oci.handler": "krun"});
            all[format!("run.oci.hooks.{name}")] = value.into();
            if !limit.is_empty() {
                all["gpushare.io/mem-limit"] = limit.into();
            }
            all
        };
        let podmans = "/a/libpod-1";
        for name in ["stderr", "stdout"] {
            let told = prepared(of(name, "/etc/nologin", "4GiB"), podmans).unwrap_err();
            assert!(told.contains(&format!("run.oci.hooks.{name}")), "{told}");
            // Without a hook of ours nothing is opened, and elsewhere no image has annotations.
            prepared(of(name, "/etc/nologin", ""), podmans).unwrap();
            prepared(of(name, "/log", "4GiB"), "/kubepods/crio-1").unwrap();
            prepared(of(name, "/dev/stderr", "4GiB"), podmans).unwrap();
        }
    }

    #[test]
    fn another_file_than_the_one_that_is_edited_is_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("config.json"), "{}").unwrap();
        let prepare = |options: &[&str]| {
            let all = [&["create", "--bundle", "/b"], options, &["id"]].concat();
            call(&all).prepare(place.path(), Path::new("/h"))
        };
        for options in [
            &["--config", "other.json"][..],
            &["--config=other.json"],
            &["--conf=other.json"],
            &["-f", "other.json"],
            &["-fother.json"],
        ] {
            let told = prepare(options).unwrap_err().to_string();
            assert!(told.contains("config.json"), "{told}");
        }
        prepare(&["--console-socket", "/c", "--pid-file=/p"]).unwrap();
        // Before the subcommand it is another option.
        let before = call(&["--conf", "create", "--bundle", "/b", "id"]);
        before.prepare(place.path(), Path::new("/h")).unwrap();
    }

    #[test]
    fn a_bundle_is_prepared_again_and_its_limit_may_have_changed() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("config.json");
        let read = || fs::read_to_string(&file).unwrap();
        let prepare = |call: &Call| call.prepare(place.path(), Path::new("/h"));
        let own = call(&["--gpushare-hook-args=--daemon,/s"]);
        fs::write(
            &file,
            "{\"process\":{\"env\":[\"GPUSHARE_MEM_LIMIT=1GiB\"]}}",
        )
        .unwrap();
        prepare(&own).unwrap();
        let once = read();
        // What the hook reads when the container is created is the limit of that time.
        let changed = once.replace("1GiB", "2GiB");
        for text in [&once, &changed] {
            fs::write(&file, text).unwrap();
            prepare(&own).unwrap();
            assert_eq!(&read(), text, "it stays as it is");
        }
        for (text, call, word) in [
            (once.replace("LIMIT", "LIMT"), own, "GPUSHARE_MEM_LIMT"),
            (once, call(&[]), "with other arguments"),
        ] {
            fs::write(&file, &text).unwrap();
            let told = prepare(&call).unwrap_err().to_string();
            assert!(told.contains(word), "{told}");
            assert_eq!(read(), text);
        }
    }
}
