//! The tenant's name, and its folder's end.

use crate::failure::Failure;
use crate::output;
use gpushare_protocol::paths::{self, IN_FILES, Root, TENANT, TenantName, USAGE};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::path::Path;

use crate::settings::Environment;

/// A name, and where it came from.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) name: TenantName,
    /// No other process can know it.
    made_here: bool,
}

/// `--name`, else the inherited tenant (a nested `run` must not leave its quota), else a new
/// name.
pub(crate) fn choose(name: Option<&str>, environment: &Environment) -> Result<Tenant, Failure> {
    let inherited = environment
        .get(OsStr::new(TENANT))
        .map(|name| name.to_string_lossy());
    let made_here = name.is_none() && inherited.is_none();
    let name = match (name, inherited) {
        (Some(name), _) => TenantName::parse("--name", name)?,
        (None, Some(name)) => TenantName::parse(TENANT, &name)?,
        (None, None) => invent()?,
    };
    Ok(Tenant { name, made_here })
}

/// Our pid for the reader, randomness against pid namespaces that share one `/dev/shm`.
fn invent() -> Result<TenantName, Failure> {
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(|error| {
        Failure::ours(format!(
            "cannot name the tenant: /proc/sys/kernel/random/uuid: {error}"
        ))
    })?;
    let random: String = random
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(12)
        .collect();
    Ok(TenantName::parse(
        "--name",
        &format!("run-{}-{random}", std::process::id()),
    )?)
}

impl Tenant {
    /// Whether this environment is that of a program of the tenant, whose books are in files.
    pub(crate) fn is_marked(&self, environment: &Environment) -> bool {
        paths::is_marked(&self.name, mark(environment))
    }

    /// The place of the tenant's books for a program with this environment.
    ///
    /// # Errors
    /// As [`Root::open`].
    pub(crate) fn root(&self, environment: &Environment) -> Result<Root, Error> {
        let runtime_dir = environment.get(OsStr::new("XDG_RUNTIME_DIR"));
        let (runtime_dir, user) = (runtime_dir.map(Path::new), geteuid().as_raw());
        Root::of(&self.name, mark(environment), runtime_dir, user)
    }

    /// Whether no other process can know the name.
    pub(crate) fn is_new(&self) -> bool {
        self.made_here
    }

    /// Says so in the environment, for the programs of the tenant and a `run` that one of them
    /// starts: all of them have its books in the place that is found now.
    pub(crate) fn mark(&self, environment: &mut Environment) {
        let mark = match self.root(environment) {
            Ok(root) => root.folder(&self.name).into_os_string(),
            // The library looks for it again, and has the message.
            Err(_) => self.name.as_str().into(),
        };
        environment.insert(IN_FILES.into(), mark);
    }

    /// Whether living processes keep the tenant's books in files, which is how it is done
    /// without a daemon.
    pub(crate) fn lives_in_files(&self, environment: &Environment) -> bool {
        if self.made_here {
            return false;
        }
        let Ok(root) = self.root(environment) else {
            return false;
        };
        is_locked(&root.folder(&self.name).join(USAGE))
    }

    /// Removes the folder of a tenant whose name no other process can know, unless one of its
    /// processes is still alive.
    pub(crate) fn clean_up(&self, environment: &Environment) {
        if !self.made_here {
            return;
        }
        let Ok(root) = self.root(environment) else {
            return;
        };
        let folder = root.folder(&self.name);
        if let Err(error) = remove_unused(&folder) {
            output::note(&format!(
                "{} is left behind: {error}; remove it when you like",
                folder.display()
            ));
        }
    }
}

fn mark(environment: &Environment) -> Option<&OsStr> {
    environment
        .get(OsStr::new(IN_FILES))
        .map(OsString::as_os_str)
}

/// Takes every lock of the usage file, which no living process of the tenant lets us, and
/// removes the folder under them. A process that comes too late finds its file unlinked and opens
/// the name again.
fn remove_unused(folder: &Path) -> Result<(), Error> {
    let usage = folder.join(USAGE);
    let file = match File::options().read(true).write(true).open(&usage) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return remove_empty(folder),
        Err(error) => return Err(error),
    };
    let whole = write_lock(0, 0);
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole)) {
        Err(Errno::EAGAIN | Errno::EACCES) => return Ok(()),
        Err(errno) => return Err(errno.into()),
        Ok(_) => {}
    }
    fs::remove_file(&usage)?;
    remove_empty(folder)
}

/// Whether a living process holds a lock in the file. Each that has a place in the books holds one.
fn is_locked(usage: &Path) -> bool {
    holds(usage, write_lock(0, 0))
}

/// Whether a living process holds the lock of this byte of the file.
pub(crate) fn is_locked_at(usage: &Path, byte: u64) -> bool {
    i64::try_from(byte).is_ok_and(|byte| holds(usage, write_lock(byte, 1)))
}

fn holds(usage: &Path, mut part: libc::flock) -> bool {
    let Ok(file) = File::open(usage) else {
        return false;
    };
    let asked = fcntl(&file, FcntlArg::F_OFD_GETLK(&mut part));
    asked.is_ok() && i32::from(part.l_type) != libc::F_UNLCK
}

/// `length` bytes from `start`; 0 reaches to the end of any file.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the C constants are ints and the fields shorts; their values are 0 to 2"
)]
fn write_lock(start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

fn remove_empty(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_name_wins_an_inherited_one_is_kept_and_a_new_one_is_unique() {
        let inherited: Environment = [(TENANT.into(), "outer".into())].into();
        assert_eq!(
            choose(Some("mine"), &inherited).unwrap().name.as_str(),
            "mine"
        );
        assert_eq!(choose(None, &inherited).unwrap().name.as_str(), "outer");
        let [one, other] = [(); 2].map(|()| choose(None, &Environment::new()).unwrap());
        assert!(one.made_here && one.name != other.name);
        assert!(!choose(None, &inherited).unwrap().made_here);
        assert!(
            choose(Some("a/b"), &inherited)
                .unwrap_err()
                .message
                .contains("--name")
        );
    }

    #[test]
    fn a_mark_is_of_the_tenant_that_it_names_and_a_name_is_none() {
        let mut environment: Environment = [(TENANT.into(), "one".into())].into();
        let one = choose(None, &environment).unwrap();
        assert!(!one.is_marked(&environment));
        one.mark(&mut environment);
        assert!(one.is_marked(&environment));
        let other = choose(Some("other"), &environment).unwrap();
        assert!(!other.is_marked(&environment));
    }

    #[test]
    fn a_folder_is_removed_only_when_nobody_holds_a_lock_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("c");
        fs::create_dir(&folder).unwrap();
        let member = File::create(folder.join(USAGE)).unwrap();
        let slot = write_lock(1024, 1);
        fcntl(&member, FcntlArg::F_OFD_SETLK(&slot)).unwrap();
        remove_unused(&folder).unwrap();
        assert!(folder.join(USAGE).exists(), "a living member keeps it");
        assert!(is_locked(&folder.join(USAGE)));
        drop(member);
        assert!(!is_locked(&folder.join(USAGE)));
        remove_unused(&folder).unwrap();
        assert!(!folder.exists() && !is_locked(&folder.join(USAGE)));
        remove_unused(&folder).unwrap();
    }
}
