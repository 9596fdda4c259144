//! A daemon that hangs, before its greeting or after it: commands give up in their time.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use gpushare_client::{CONTROL, Talk};
use gpushare_protocol::wire::{Hello, encode};
use gpushare_tests::terminal::Terminal;
use gpushare_tests::waiting::PATIENCE;
use gpushare_tests::{GIB, Home, artefacts, until};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::unistd::Pid;
use serde_json::Value;

/// A daemon's socket with room for one connection that is not accepted, and that one.
fn full(folder: &Path) -> (UnixListener, UnixStream) {
    let (stream, closed) = (SockType::Stream, SockFlag::SOCK_CLOEXEC);
    let ours = socket(AddressFamily::Unix, stream, closed, None).expect("a socket");
    let path = folder.join(CONTROL);
    let address = UnixAddr::new(&path).expect("a short path");
    bind(ours.as_raw_fd(), &address).expect("the folder is writable");
    listen(&ours, Backlog::new(0).expect("a length")).expect("it is bound");
    let first = UnixStream::connect(path).expect("there is room");
    (ours.into(), first)
}

/// What comes of a connection, in another thread.
fn connects(folder: &Path, patience: Duration) -> Receiver<Option<ErrorKind>> {
    let (say, said) = channel();
    let folder = folder.to_owned();
    thread::spawn(move || {
        let made = Talk::connect_within(&folder, Some(patience));
        say.send(made.err().map(|error| error.kind()))
    });
    said
}

/// Answers a hello.
fn greet(mut socket: &UnixStream) {
    let mut bytes = [0; 4096];
    assert!(socket.read(&mut bytes).expect("a hello") > 0);
    let mut frame = Vec::new();
    encode(0, &Hello::of_this_build(7), &mut frame).expect("a hello");
    socket.write_all(&frame).expect("it is read");
}

#[test]
fn a_connection_that_is_never_taken_is_given_up() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_listener, _first) = full(folder.path());
    let made = connects(folder.path(), Duration::from_millis(300));
    let made = made.recv_timeout(PATIENCE).expect("it gives up");
    assert_eq!(made, Some(ErrorKind::WouldBlock));
}

#[test]
fn a_connection_that_is_taken_late_is_made() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (listener, _first) = full(folder.path());
    let made = connects(folder.path(), PATIENCE);
    listener.accept().expect("the first");
    let (second, _) = listener.accept().expect("the second");
    greet(&second);
    let made = made.recv_timeout(PATIENCE).expect("it is answered");
    assert_eq!(made, None);
}

#[test]
fn a_run_whose_daemon_never_answers_ends_by_its_start_timeout() {
    let home = Home::new("");
    let listener = home.listener();
    let daemon = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("the command connects");
        greet(&socket);
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut bytes = [0; 4096];
        while socket.read(&mut bytes).is_ok_and(|read| read > 0) {}
    });
    let flags = ["--mem-limit", "1GiB", "--start-timeout", "100ms"];
    let output = home.run("one", &flags).args(["echo", "ran"]).output();
    let output = output.expect("gpushare starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(output.stdout.is_empty(), "no program ran");
    assert!(told.contains("--start-timeout of 100ms is over"), "{told}");
    daemon.join().expect("it served");
}

/// Answers a hello as a daemon of another protocol.
fn greet_otherwise(mut socket: &UnixStream) {
    let mut bytes = [0; 4096];
    assert!(socket.read(&mut bytes).expect("a hello") > 0);
    let ours = Hello::of_this_build(7);
    let theirs = Hello {
        major: ours.major + 1,
        ..ours
    };
    let mut frame = Vec::new();
    encode(0, &theirs, &mut frame).expect("a hello");
    socket.write_all(&frame).expect("it is read");
}

/// Its programs live on, and may have the tenant.
#[test]
fn a_private_daemon_of_another_protocol_is_not_done_without() {
    let home = Home::new("");
    let listener = home.listener();
    let daemon = thread::spawn(move || {
        let (socket, _) = listener.accept().expect("the command connects");
        greet_otherwise(&socket);
        listener
    });
    let output = home.run("one", &[]).args(["echo", "ran"]).output();
    let output = output.expect("gpushare starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(output.stdout.is_empty(), "no program ran");
    assert!(told.contains("speaks protocol"), "{told}");
    daemon.join().expect("it served");
}

/// The answer of `why NAME --json` to a test's tenant, and its status.
fn why(command: &mut Command) -> (Option<i32>, Value) {
    let output = command.output().expect("gpushare starts");
    let json = serde_json::from_slice(&output.stdout);
    (output.status.code(), json.unwrap_or(Value::Null))
}

/// A daemon that greets, and leaves when it is asked for anything.
fn leaves_at_the_first_question(folder: &Path) {
    fs::create_dir_all(folder).expect("the folder is writable");
    let listener = UnixListener::bind(folder.join(CONTROL)).expect("it is new");
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            greet(&socket);
            let _ = (&socket).read(&mut [0]);
        }
    });
    drop(Talk::connect(folder).expect("it greets"));
}

#[test]
fn a_daemon_that_leaves_while_it_is_asked_hides_no_other_one() {
    let home = Home::new("mem=16GiB");
    let guest = home.guest("held", &["--mem-limit", "1GiB"]);
    leaves_at_the_first_question(&home.folder().join("gpushare/d/leaves"));
    for arguments in [&["why", "held"][..], &["ps"], &["events"]] {
        let output = home.gpushare(arguments);
        let note = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {note}");
        assert!(note.contains("note: lost the daemon at "), "{note}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("held"), "{arguments:?}: {said}");
    }
    let row = home.row("held").expect("it lives");
    let gpu = row["device"].as_str().expect("a UUID");
    let trace = home.folder().join("trace").display().to_string();
    for arguments in [
        &["devices", "--gpu", gpu][..],
        &["events", "--gpu", gpu],
        &["events", "--perfetto", &trace],
    ] {
        let output = home.gpushare(arguments);
        let note = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {note}");
        assert!(note.contains("note: lost the daemon at "), "{note}");
    }
    // It may have been that one's.
    let output = home.gpushare(&["why", "absent"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("lost the daemon at "), "{told}");
    guest.finish().silently();
}

#[test]
fn devices_are_listed_with_a_note_of_the_daemon_that_cannot_tell_of_them() {
    let home = Home::new("mem=16GiB");
    let guest = home.guest("held", &["--mem-limit", "1GiB"]);
    let gpu = home.row("held").expect("it lives")["device"].clone();
    let gpu = gpu.as_str().expect("a UUID");
    let told = || {
        let output = home.gpushare(&["devices", "--gpu", gpu]);
        let note = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{note}");
        note
    };
    assert_eq!(told(), "");
    let folder = home.folder().join("gpushare/d/other");
    fs::create_dir_all(&folder).expect("the folder is writable");
    let listener = UnixListener::bind(folder.join(CONTROL)).expect("it is new");
    let daemon = thread::spawn(move || {
        greet_otherwise(&listener.accept().expect("the command connects").0);
    });
    let note = told();
    assert!(note.contains("note: your own daemon at "), "{note}");
    assert!(note.contains("is not to be used"), "{note}");
    daemon.join().expect("it served");
    guest.finish().silently();
}

#[test]
fn a_note_of_a_watched_list_is_said_once_where_nothing_is_cleared() {
    let home = Home::new("mem=16GiB");
    let guest = home.guest("held", &["--mem-limit", "1GiB"]);
    leaves_at_the_first_question(&home.folder().join("gpushare/d/leaves"));
    let mut watch = home.command(&["ps", "--watch", "0.1"]);
    let watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut watch = watch.expect("gpushare starts");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let rows = lines.filter(|line| line.as_ref().expect("a pipe").contains("held"));
    assert_eq!(rows.take(3).count(), 3);
    // Nothing reads it any more.
    let output = watch.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        told.matches("note: lost the daemon at ").count(),
        1,
        "{told}"
    );
    guest.finish().silently();
}

#[test]
fn a_note_of_a_watched_list_stays_below_it_on_the_screen() {
    let home = Home::new("mem=16GiB");
    let guest = home.guest("held", &["--mem-limit", "1GiB"]);
    leaves_at_the_first_question(&home.folder().join("gpushare/d/leaves"));
    let test = "a_note_of_a_watched_list_stays_below_it_on_the_screen";
    let Some(terminal) = Terminal::open(test, &home.command(&[]), (120, 40)) else {
        return;
    };
    let gpushare = artefacts::gpushare();
    terminal.write(&format!("{} ps --watch 0.1", gpushare.display()));
    terminal.press(&["Enter"]);
    terminal.until(|screen| {
        let row = screen.find("held ");
        let note = screen.find("note: lost the daemon at ");
        row.zip(note).is_some_and(|(row, note)| row < note)
    });
    guest.finish().silently();
}

#[test]
fn why_does_not_call_a_tenant_gone_whose_daemon_was_killed() {
    let home = Home::new("mem=16GiB");
    let guest = home.guest("held", &["--mem-limit", "1GiB"]);
    let daemon = Pid::from_raw(home.daemons()[0].cast_signed());
    guest.hold();
    kill(daemon, Signal::SIGKILL).expect("it is ours");
    home.until_no_daemon();
    let told = || why(&mut home.command(&["why", "held", "--json"]));
    let (status, json) = told();
    assert_eq!((status, &json["state"]), (Some(1), &"unknown".into()));
    let text = json["sentences"][0].as_str().expect("a sentence");
    let words = [
        "does not serve",
        "keep what they were granted",
        "takes them over",
    ];
    assert!(words.iter().all(|words| text.contains(words)), "{json}");
    // The next daemon has it, and tells its end.
    let next = home.guest("next", &[]);
    assert_eq!(told().1["state"], "running");
    guest.go_on();
    guest.finish().silently();
    until("it has ended", || told().1["state"] == "gone");
    assert_eq!(told().0, Some(0));
    assert!(next.finish().status.success());
}

#[test]
fn a_shell_without_a_runtime_folder_finds_the_daemon_of_one_with() {
    let (home, other) = (Home::new("mem=16GiB"), Home::new(""));
    let name = format!("found-{}", std::process::id());
    let guest = home.guest(&name, &["--mem-limit", "1GiB"]);
    let bare = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env_remove("XDG_RUNTIME_DIR");
        command
    };
    let (status, json) = why(&mut bare(&["why", &name, "--json"]));
    assert_eq!((status, &json["state"]), (Some(0), &"running".into()));
    let set = bare(&["set", &name, "--mem-limit", "2GiB"]).output();
    assert!(set.expect("gpushare starts").status.success());
    assert_eq!(home.row(&name).expect("it lives")["limit"], 2 * GIB);
    // A shell that names another folder means that one, and is told.
    let ps = other.gpushare(&["ps"]);
    let told = String::from_utf8_lossy(&ps.stderr).into_owned();
    assert_eq!(ps.status.code(), Some(3), "{told}");
    let words = ["no daemon is running in this", "serves at", "(process "];
    assert!(words.iter().all(|words| told.contains(words)), "{told}");
    guest.finish().silently();
}
