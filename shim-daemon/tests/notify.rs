//! The notifications that a service manager gets from a daemon. The daemon is a child of this test,
//! because its environment names the manager's socket.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::support::{Daemon, FakeDevices, PATIENCE};
use gpushared::node::Settings;
use gpushared::server::Reload;
use nix::sys::eventfd::EventFd;

/// Set for the child, so that it does not wait for input where all ignored tests are run.
const CHILD: &str = "GPUTEST_NOTIFY_CHILD";

/// The child: serves until its standard input ends, and reads its file again at each byte of it.
#[test]
#[ignore = "the daemon the other tests start"]
fn a_daemon_until_its_input_ends() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bell = Arc::new(EventFd::new().unwrap());
    let ours = Arc::clone(&bell);
    let reload = Reload {
        bell: bell.as_fd().try_clone_to_owned().unwrap(),
        read: Box::new(move || {
            ours.read().unwrap();
            Err("a file that is wrong".to_owned())
        }),
    };
    let _daemon = Daemon::with_file(
        folder.path(),
        FakeDevices::default(),
        Settings::default(),
        Some(reload),
    );
    for byte in std::io::stdin().lock().bytes() {
        byte.unwrap();
        bell.write(1).unwrap();
    }
}

fn daemon(variables: &[(&str, &Path)]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "notify::a_daemon_until_its_input_ends",
            "--ignored",
        ])
        .env(CHILD, "1")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env_remove("WATCHDOG_PID")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

fn stop(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

fn manager(folder: &Path) -> (UnixDatagram, std::path::PathBuf) {
    let path = folder.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (socket, path)
}

fn next(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
}

#[test]
fn a_manager_hears_of_start_life_and_end() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = manager(folder.path());
    let variables = [
        ("NOTIFY_SOCKET", path.as_path()),
        ("WATCHDOG_USEC", Path::new("30000000")),
    ];
    let child = daemon(&variables);
    assert_eq!(next(&socket), "READY=1");
    assert_eq!(next(&socket), "WATCHDOG=1");
    assert_eq!(next(&socket), "WATCHDOG=1");
    stop(child);
    let last = std::iter::repeat_with(|| next(&socket)).find(|told| told != "WATCHDOG=1");
    assert_eq!(last.unwrap(), "STOPPING=1");
}

#[test]
fn a_manager_that_does_not_watch_is_not_told_of_life() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = manager(folder.path());
    stop(daemon(&[]));
    let child = daemon(&[("NOTIFY_SOCKET", path.as_path())]);
    // The first message is the second daemon's: the first one said nothing.
    assert_eq!(next(&socket), "READY=1");
    stop(child);
    assert_eq!(next(&socket), "STOPPING=1");
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn a_manager_hears_of_a_reload_even_if_the_file_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, path) = manager(folder.path());
    let mut child = daemon(&[("NOTIFY_SOCKET", path.as_path())]);
    assert_eq!(next(&socket), "READY=1");
    child.stdin.as_mut().unwrap().write_all(b"r").unwrap();
    let told = next(&socket);
    assert!(told.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{told}");
    assert_eq!(next(&socket), "READY=1");
    stop(child);
    assert_eq!(next(&socket), "STOPPING=1");
}
