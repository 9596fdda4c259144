//! A command that is stopped (Ctrl-Z) while it waits for its daemon, and goes on.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use gpushare_client::{CONTROL, Talk};
use gpushare_protocol::wire::{Hello, encode};
use gpushare_tests::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The folder of the child's daemon.
const FOLDER: &str = "GPUTEST_STOPPED_FOLDER";

#[test]
#[ignore = "the process another test starts"]
fn a_command_that_connects() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let talk = Talk::connect(Path::new(&folder));
        let answer = talk.map(|talk| talk.instance());
        println!("connected: {answer:?}");
    }
}

/// The state of a process, as its `stat` has it.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a thread of a process waits for bytes of a socket.
fn receives(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives");
    let mut calls = threads.flatten().filter_map(|thread| {
        let call = fs::read_to_string(thread.path().join("syscall")).ok()?;
        call.split(' ').next()?.parse::<i64>().ok()
    });
    calls.any(|call| [nix::libc::SYS_recvfrom, nix::libc::SYS_read].contains(&call))
}

#[test]
fn a_command_that_is_stopped_while_it_waits_has_not_lost_its_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(folder.path().join(CONTROL)).expect("a socket");
    let child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("client_stopped::a_command_that_connects")
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let (pid, mut daemon) = (child.id(), listener.accept().expect("a connection").0);
    let read = daemon.read(&mut [0; 4096]).expect("its hello");
    assert!(read > 0);
    until("it waits for the daemon's", || receives(pid));
    let to = Pid::from_raw(pid.cast_signed());
    kill(to, Signal::SIGSTOP).expect("a signal");
    until("it is stopped", || state(pid) == Some('T'));
    kill(to, Signal::SIGCONT).expect("a signal");
    until("it goes on", || state(pid) != Some('T'));
    let mut frame = Vec::new();
    encode(0, &Hello::of_this_build(7), &mut frame).expect("a frame");
    // A command that has given up reads it no more.
    let _ = daemon.write_all(&frame);
    let said = child.wait_with_output().expect("an end").stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("connected: Ok(7)"), "{said}");
}
