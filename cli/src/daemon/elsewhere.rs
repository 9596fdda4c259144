//! This user's daemons in other runtime folders than the one that this shell names: those in the
//! usual folders, and those that hold a GPU, of which the kernel tells the process
//! ([ADR 51](../../../docs/adr/0051-one-daemon-for-a-gpu.md)).

use super::{NODE, Talk};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
    sockopt::PeerCredentials,
};
use nix::unistd::geteuid;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How the abstract name begins on which a daemon listens for each GPU that it holds.
const CLAIM: &str = "gpushare/";
/// The flag of a socket that listens, in `/proc/net/unix`: `__SO_ACCEPTCON`.
const LISTENS: &str = "00010000";

/// The folders of such daemons, but for those in `own`. They need not serve.
pub(super) fn folders(own: &Path) -> BTreeSet<PathBuf> {
    let user = geteuid().as_raw();
    let usual = bases(user).into_iter().filter(|base| is_ours(base, user));
    let usual = usual.flat_map(|base| worlds(&base.join("d")));
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let pids = claims(&table, user).filter_map(|name| holder(name, user));
    let held = pids.filter_map(|pid| folder_of(&fs::read(format!("/proc/{pid}/cmdline")).ok()?));
    let mut found: BTreeSet<PathBuf> = usual.chain(held).collect();
    found.retain(|folder| !folder.starts_with(own) && folder != Path::new(NODE));
    found
}

/// A sentence about those that serve; `None` where there are none.
pub(super) fn told(own: &Path) -> Option<String> {
    let folders = folders(own);
    let (folder, pid) = folders
        .iter()
        .find_map(|folder| Some((folder, Talk::listener(folder)?)))?;
    Some(format!(
        "another daemon of yours serves at {} (process {pid}): {}",
        folder.display(),
        way_to(folder)
    ))
}

/// How a command is made to see the daemon of this folder: an instruction for its user.
fn way_to(folder: &Path) -> String {
    let base = folder.parent().and_then(Path::parent);
    let runtime = base.filter(|base| base.ends_with("gpushare"));
    match runtime.and_then(Path::parent) {
        Some(runtime) => format!("use XDG_RUNTIME_DIR={}", runtime.display()),
        None => "leave XDG_RUNTIME_DIR out to see it".to_owned(),
    }
}

/// The folders of daemons in `d`.
pub(super) fn worlds(d: &Path) -> Vec<PathBuf> {
    let worlds = fs::read_dir(d).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = worlds.map(|world| world.path()).collect();
    folders.sort();
    folders
}

/// Where the folders of a user's daemons usually are: that of a login, and those without one.
fn bases(user: u32) -> [PathBuf; 4] {
    [
        format!("/run/user/{user}/gpushare"),
        format!("/run/user/{user}/gpushare-shm"),
        format!("/dev/shm/gpushare-{user}"),
        format!("/run/gpushare-{user}"),
    ]
    .map(PathBuf::from)
}

/// Whether no other user can have made what is in it.
fn is_ours(folder: &Path, user: u32) -> bool {
    let found = fs::symlink_metadata(folder);
    found.is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

/// The names in the kernel's `table` of sockets by which a user's daemon may hold a GPU: one of the
/// machine, or one of this user's alone.
fn claims(table: &str, user: u32) -> impl Iterator<Item = &str> {
    let own = format!("{user}/");
    table.lines().filter_map(move |line| {
        let mut fields = line.split_whitespace().skip(3);
        let (flags, name) = (fields.next()?, fields.nth(3)?.strip_prefix('@')?);
        let gpu = name.strip_prefix(CLAIM)?;
        let is_own = gpu.starts_with(&own) || !gpu.contains('/');
        (flags == LISTENS && is_own).then_some(name)
    })
}

/// The process that listens on a name, if it is this user's. Does not wait: a listener that does
/// not accept may have a full backlog.
fn holder(name: &str, user: u32) -> Option<i32> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let asker = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    let address = UnixAddr::new_abstract(name.as_bytes()).ok()?;
    connect(asker.as_raw_fd(), &address).ok()?;
    let credentials = getsockopt(&asker, PeerCredentials).ok()?;
    (credentials.uid() == user && credentials.pid() > 0).then(|| credentials.pid())
}

/// The folder that a daemon was started for, from its command line.
fn folder_of(line: &[u8]) -> Option<PathBuf> {
    let mut words = line.split(|byte| *byte == 0);
    words.find(|word| *word == b"--runtime-dir")?;
    let folder = PathBuf::from(OsStr::from_bytes(words.next()?));
    folder.is_absolute().then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_gpus_are_told_from_other_sockets_and_other_users() {
        let line = |flags: &str, name: &str| format!("0: 02 00 {flags} 0001 01 7 {name}\n");
        let table: String = [
            line(LISTENS, "@gpushare/GPU-a"),
            line(LISTENS, "@gpushare/5/GPU-b"),
            line(LISTENS, "@gpushare/6/GPU-c"),
            line(LISTENS, "/run/gpushare/GPU-d"),
            line(LISTENS, "@other/GPU-e"),
            line("00000000", "@gpushare/GPU-f"),
            "0: 02 00 00010000 0001 01 7\n".to_owned(),
        ]
        .concat();
        let found: Vec<&str> = claims(&table, 5).collect();
        assert_eq!(found, ["gpushare/GPU-a", "gpushare/5/GPU-b"]);
    }

    #[test]
    fn a_daemons_folder_is_the_one_that_its_command_line_names() {
        let line = b"gpushared\0--private\0--runtime-dir\0/x/gpushare/d/gpu\0--log\0/y\0";
        assert_eq!(folder_of(line), Some(PathBuf::from("/x/gpushare/d/gpu")));
        assert_eq!(folder_of(b"gpushared\0--runtime-dir\0x\0"), None);
        assert_eq!(folder_of(b"gpushared\0--runtime-dir"), None);
        assert_eq!(folder_of(b"sleep\09\0"), None);
    }

    #[test]
    fn the_way_to_a_daemon_is_its_runtime_folder_or_none() {
        let way = |folder: &str| way_to(Path::new(folder));
        assert_eq!(way("/x/gpushare/d/gpu"), "use XDG_RUNTIME_DIR=/x");
        let none = "leave XDG_RUNTIME_DIR out to see it";
        assert_eq!(way("/dev/shm/gpushare-7/d/gpu"), none);
    }
}
