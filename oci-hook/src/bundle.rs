//! The runtime's input to a hook: the state on standard input, and `config.json` in the bundle.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use gpushare_inject::strict;
use gpushare_protocol::wire::is_container_id;
use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use serde_json::Value;

use crate::{Failure, cannot};

/// Bytes of a state.
const MOST_STATE: u64 = 1 << 20;
/// Bytes of a configuration.
const MOST_CONFIG: u64 = 16 << 20;
/// Permission bits of the group and of others to write.
const OTHERS_WRITE: u32 = 0o022;

/// A container that is being created.
#[derive(Debug)]
pub struct State {
    /// Its id.
    pub id: String,
    /// Its first process, in this pid namespace.
    pub pid: i32,
    /// The folder of its configuration.
    pub bundle: PathBuf,
}

impl State {
    /// Reads a state.
    ///
    /// # Errors
    /// If it is too long, no state, or names something odd.
    pub fn read(from: &mut dyn Read) -> Result<Self, Failure> {
        let text = bounded(from, (USUAL_STATE, MOST_STATE), "the container's state")?;
        let state = strict::parse(&text)
            .map_err(|error| Failure(format!("the container's state is no state: {error}")))?;
        let odd = |what: &str| Failure(format!("the container's state has no {what}"));
        let id = state.get("id").and_then(Value::as_str).unwrap_or("");
        if !is_container_id(id) {
            return Err(odd(
                "id of 1 to 128 of A-Z a-z 0-9 _ . + -, not beginning with a dot",
            ));
        }
        let pid = state.get("pid").and_then(Value::as_i64);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok());
        let bundle = state.get("bundle").and_then(Value::as_str).map(Path::new);
        Ok(Self {
            id: id.to_owned(),
            pid: pid.filter(|pid| *pid > 1).ok_or_else(|| {
                odd("pid of a first process; this has to run as a createRuntime hook")
            })?,
            bundle: bundle
                .filter(|bundle| bundle.is_absolute())
                .ok_or_else(|| odd("absolute bundle"))?
                .to_owned(),
        })
    }
}

/// The configuration of a bundle, a file of root's or of this user's. Its folder may be any user's
/// who lets nobody else write: older Podmans give it to the root of the container's user namespace.
/// The runtime takes its hooks from the same file.
///
/// # Errors
/// If others may write there, or it is too long or no JSON.
pub fn config(bundle: &Path) -> Result<Value, Failure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let name = bundle.display();
    let folder = open(bundle, flags | OFlags::DIRECTORY, Mode::empty())
        .map_err(cannot(&format!("open the bundle {name}")))?;
    let what = format!("the bundle {name}");
    trust_of(&folder, FileType::Directory, &what, |_| true)?;
    let file = openat(
        &folder,
        "config.json",
        flags | OFlags::NONBLOCK,
        Mode::empty(),
    )
    .map_err(cannot(&format!("open {name}/config.json")))?;
    let what = format!("{name}/config.json");
    trust(&file, FileType::RegularFile, &what)?;
    let text = bounded(
        &mut std::fs::File::from(file),
        (USUAL_CONFIG, MOST_CONFIG),
        &what,
    )?;
    strict::parse(&text).map_err(|error| Failure(format!("{what}: {error}")))
}

/// Where the container's file system is, by its configuration.
///
/// # Errors
/// If the configuration does not say.
pub fn root(config: &Value, bundle: &Path) -> Result<PathBuf, Failure> {
    let path = config.pointer("/root/path").and_then(Value::as_str);
    let path = path.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| Failure("config.json has no root.path".to_owned()))?;
    Ok(bundle.join(path))
}

/// Refuses a file of another user, or one that others may write.
fn trust(file: impl AsFd, kind: FileType, what: &str) -> Result<(), Failure> {
    trust_of(file, kind, what, is_own)
}

/// As [`trust`], for a file of the host. In the user namespace of a rootless engine the machine's
/// root is a user without a number here, like all other users that it does not map.
pub(crate) fn trust_hosts(file: impl AsFd, kind: FileType, what: &str) -> Result<(), Failure> {
    let is_roots = |user| is_own(user) || Some(user) == unmapped();
    trust_of(file, kind, what, is_roots)
}

fn is_own(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// The number that the machine's root has in this user namespace, if that has other users.
fn unmapped() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let maps_root = |line: &str| line.split_ascii_whitespace().nth(1) == Some("0");
    if map.lines().any(maps_root) {
        return None;
    }
    let number = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    number.trim().parse().ok()
}

fn trust_of(
    file: impl AsFd,
    kind: FileType,
    what: &str,
    may_own: impl Fn(u32) -> bool,
) -> Result<(), Failure> {
    let found = fstat(file).map_err(cannot(&format!("look at {what}")))?;
    let fault = if FileType::from_raw_mode(found.st_mode) != kind {
        "is of another kind than it has to be".to_owned()
    } else if !may_own(found.st_uid) {
        format!("belongs to user {}", found.st_uid)
    } else if found.st_mode & OTHERS_WRITE != 0 {
        format!(
            "has mode {:04o}, which lets others write",
            found.st_mode & 0o7777
        )
    } else {
        return Ok(());
    };
    Err(Failure(format!("{what} {fault}")))
}

/// Bytes of most states.
const USUAL_STATE: usize = 1 << 10;
/// Bytes of most configurations.
const USUAL_CONFIG: usize = 16 << 10;

pub(crate) fn bounded(
    from: &mut dyn Read,
    (usual, most): (usize, u64),
    what: &str,
) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::with_capacity(usual);
    from.take(most + 1)
        .read_to_end(&mut text)
        .map_err(cannot(&format!("read {what}")))?;
    if text.len() as u64 > most {
        return Err(Failure(format!("{what} is longer than {} MiB", most >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn refused(text: &str) -> String {
        State::read(&mut text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_state_of_every_runtime_is_read() {
        let text = r#"{"ociVersion":"1.0","id":"a","status":"creating","pid":7,"root":"rootfs","bundle":"/b"}"#;
        let state = State::read(&mut text.as_bytes()).unwrap();
        assert_eq!((state.id.as_str(), state.pid), ("a", 7));
        assert_eq!(state.bundle, Path::new("/b"));
    }

    #[test]
    fn an_odd_state_is_refused() {
        for (text, word) in [
            ("", "no state"),
            ("[]", "no id"),
            (r#"{"id":"../a","pid":7,"bundle":"/b"}"#, "no id"),
            (r#"{"id":"a","pid":1,"bundle":"/b"}"#, "createRuntime"),
            (r#"{"id":"a","bundle":"/b"}"#, "no pid"),
            (r#"{"id":"a","pid":99999999999,"bundle":"/b"}"#, "no pid"),
            (r#"{"id":"a","pid":7,"bundle":"b"}"#, "absolute"),
            (r#"{"id":"a","id":"b","pid":7,"bundle":"/b"}"#, "twice"),
        ] {
            assert!(refused(text).contains(word), "{text}: {}", refused(text));
        }
        assert!(refused(&" ".repeat(2 << 20)).contains("longer than 1 MiB"));
    }

    #[test]
    fn a_configuration_that_others_may_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let bundle = place.path().join("b");
        fs::create_dir(&bundle).unwrap();
        let file = bundle.join("config.json");
        let told = || config(&bundle).unwrap_err().to_string();
        assert!(told().contains("config.json"));
        fs::write(&file, "{}").unwrap();
        config(&bundle).unwrap();
        for mode in [0o666, 0o620] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            assert!(told().contains("lets others write"));
        }
        fs::remove_file(&file).unwrap();
        symlink("/etc/hostname", &file).unwrap();
        told();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(told().contains("kind"));
        fs::set_permissions(&bundle, Permissions::from_mode(0o777)).unwrap();
        assert!(told().contains("0777"));
        let link = place.path().join("link");
        symlink(&bundle, &link).unwrap();
        config(&link).unwrap_err();
    }

    /// Podman gave the folder to the root of a container in a user namespace.
    #[test]
    fn a_folder_of_another_user_is_taken_with_a_file_of_ones_own() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("config.json");
        fs::write(&file, "{}").unwrap();
        if chown(place.path(), Some(100_000), None).is_err() {
            return; // Only root gives files away.
        }
        config(place.path()).unwrap();
        let told = || config(place.path()).unwrap_err().to_string();
        fs::set_permissions(place.path(), Permissions::from_mode(0o770)).unwrap();
        assert!(told().contains("0770"), "{}", told());
        fs::set_permissions(place.path(), Permissions::from_mode(0o700)).unwrap();
        chown(&file, Some(100_000), None).unwrap();
        assert!(told().contains("config.json belongs to user 100000"));
    }

    #[test]
    fn a_file_of_another_user_is_taken_only_if_that_may_be_root() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("library");
        fs::write(&path, "").unwrap();
        if chown(&path, Some(65_534), None).is_err() {
            return; // Only root gives files away.
        }
        let file = fs::File::open(&path).unwrap();
        let of = |user| trust_of(&file, FileType::RegularFile, "it", |owner| owner == user);
        assert!(of(65_533).unwrap_err().0.contains("user 65534"));
        assert!(trust(&file, FileType::RegularFile, "it").is_err());
        of(65_534).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(of(65_534).unwrap_err().0.contains("lets others write"));
    }

    #[test]
    fn a_configuration_is_not_read_without_an_end() {
        let place = tempfile::tempdir().unwrap();
        let file = fs::File::create(place.path().join("config.json")).unwrap();
        file.set_len(MOST_CONFIG + 1).unwrap();
        let told = config(place.path()).unwrap_err().to_string();
        assert!(told.contains("longer than 16 MiB"), "{told}");
    }

    #[test]
    fn a_reason_is_one_line() {
        let odd = Failure("a\nb\x1b[31m".to_owned()).to_string();
        assert_eq!(odd, "a\\nb\\u{1b}[31m");
    }
}
