//! Folders of this user's daemons that ended before their tenants. Their programs may live on.

use gpushare_protocol::time_namespace::Offsets;
use nix::unistd::geteuid;
use serde::Deserialize;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// How long the environments of all of a user's processes are read for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The part of a registration that says which devices and processes the tenant had.
#[derive(Debug, Default, Deserialize)]
struct Registered {
    #[serde(default)]
    devices: Vec<[u8; 16]>,
    #[serde(default)]
    members: Vec<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    pid: u32,
    /// In clock ticks since boot.
    start: u64,
}

/// How many tenants in this daemon's folder have processes that live.
pub(super) fn living(folder: &Path) -> usize {
    let entries = fs::read_dir(folder.join("registered"));
    let files = entries.into_iter().flatten().flatten();
    let files = files.map(|entry| entry.path());
    let kept = files.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let names = kept.filter_map(|file| Some(file.file_stem()?.to_owned()));
    names
        .filter(|name| is_alive(folder, name, |_| true))
        .count()
}

/// Whether this daemon's folder has the tenant, on one of the devices that are meant, and processes
/// of it live.
pub(super) fn lives(folder: &Path, tenant: &str, is_meant: impl Fn([u8; 16]) -> bool) -> bool {
    is_alive(folder, tenant.as_ref(), is_meant)
}

/// The same of a name that the folder may have.
fn is_alive(folder: &Path, name: &OsStr, is_meant: impl Fn([u8; 16]) -> bool) -> bool {
    let mut file = name.to_owned();
    file.push(".json");
    let file = folder.join("registered").join(file);
    if !file.exists() {
        return false;
    }
    let text = fs::read(file).unwrap_or_default();
    let registered: Registered = serde_json::from_slice(&text).unwrap_or_default();
    // A registration that names no device may be on any.
    let on = &registered.devices;
    (on.is_empty() || on.iter().any(|uuid| is_meant(*uuid)))
        && (registered.has_members() || has_programs(&folder.join("sockets").join(name)))
}

impl Registered {
    /// Whether one of the processes that the daemon last saw in the tenant lives.
    fn has_members(&self) -> bool {
        let lives = |member: &Member| started(member.pid) == Some(member.start);
        self.members.iter().any(lives)
    }
}

/// Whether a process of this user was started in the tenant with this socket folder: also one that
/// has not used the GPU yet.
///
/// The kernel does not show the environment of a process within an `exec`, which lasts as long as a
/// file system of its user likes. So a user reads no others', and another thread reads: what is not
/// found out within [`PATIENCE`] is taken for such a process.
fn has_programs(socket: &Path) -> bool {
    let variable = [b"GPUSHARE_SOCKET=", socket.as_os_str().as_bytes()].concat();
    let own = geteuid().as_raw();
    let (says, heard) = channel();
    let reads = move || {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        // A program that root started may have another user by now.
        let is_own = |entry: &fs::DirEntry| {
            own == 0 || entry.metadata().is_ok_and(|found| found.uid() == own)
        };
        let mut environments = processes
            .filter(is_own)
            .filter_map(|entry| fs::read(entry.path().join("environ")).ok());
        let found = environments.any(|all| all.split(|byte| *byte == 0).any(|one| one == variable));
        let _ = says.send(found);
    };
    let begun = std::thread::Builder::new().spawn(reads);
    begun.is_err() || heard.recv_timeout(PATIENCE).unwrap_or(true)
}

/// When a process was started, field 22 of its `stat`; `None` if it is none, or has ended.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, also parentheses and half a letter.
    let stat = String::from_utf8_lossy(&stat);
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    let start = fields.nth(18)?.parse().ok()?;
    (!is_over).then(|| Offsets::here().machines_start(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio, id};

    fn register(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder.join("registered")).unwrap();
        fs::write(folder.join("registered").join(format!("{name}.json")), text).unwrap();
    }

    #[test]
    fn a_tenant_lives_as_long_as_a_process_that_it_had_does() {
        let dir = tempfile::tempdir().unwrap();
        let (pid, start) = (id(), started(id()).unwrap());
        let member = |start: u64| format!(r#"{{"members":[{{"pid":{pid},"start":{start}}}]}}"#);
        register(dir.path(), "a", &member(start));
        assert_eq!(living(dir.path()), 1);
        let lives = |name: &str| lives(dir.path(), name, |_| true);
        assert!(lives("a") && !lives("b"));
        // The pid is another process's now.
        register(dir.path(), "a", &member(start + 1));
        assert_eq!(living(dir.path()), 0);
        assert!(!lives("a"));
    }

    #[test]
    fn a_tenant_lives_on_the_devices_that_it_was_registered_for() {
        let dir = tempfile::tempdir().unwrap();
        let (pid, start) = (id(), started(id()).unwrap());
        let devices = serde_json::to_string(&[[1_u8; 16], [2; 16]]).unwrap();
        let members = format!(r#""members":[{{"pid":{pid},"start":{start}}}]"#);
        register(
            dir.path(),
            "a",
            &format!(r#"{{"devices":{devices},{members}}}"#),
        );
        register(dir.path(), "b", &format!("{{{members}}}"));
        let on = |name: &str, device: u8| lives(dir.path(), name, |uuid| uuid == [device; 16]);
        assert!(on("a", 1) && on("a", 2) && !on("a", 3));
        assert!(on("b", 3), "nothing says that it is not there");
    }

    #[test]
    fn a_process_whose_name_is_cut_within_a_letter_lives() {
        let mut child = Command::new("sh")
            .args(["-c", r"printf 'a\320' > /proc/$$/comm; echo; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It has its name once it says something.
        let read = child.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
        assert_eq!(read, 1);
        assert!(started(child.id()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(started(child.id()).is_none());
    }

    #[test]
    fn a_tenant_lives_as_long_as_a_program_that_was_started_in_it_does() {
        let dir = tempfile::tempdir().unwrap();
        register(dir.path(), "a", "{}");
        assert_eq!(living(dir.path()), 0);
        let socket = dir.path().join("sockets/a");
        let mut program = Command::new("sh")
            .args(["-c", "echo; read line"])
            .env("GPUSHARE_SOCKET", socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // `spawn` may return before the kernel has set the new program's environment.
        let read = program.stdout.as_mut().unwrap().read(&mut [0]).unwrap();
        assert_eq!(read, 1);
        assert_eq!(living(dir.path()), 1);
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(living(dir.path()), 0);
        assert_eq!(living(Path::new("/nonexistent")), 0);
    }
}
