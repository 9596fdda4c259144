//! The log goes to a pipe, and its reader stops reading.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::binary::Binary;
use crate::support::{PATIENCE, Wire, create};
use gpushare_protocol::wire::{Control, ControlReply, Listing, Rows};
use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;

/// Changes a limit so often, each an event and a line of the log.
fn changes(control: &Path, times: usize) {
    let mut command = Wire::connect(control);
    let created: ControlReply = command.call(&create("a", &[]));
    assert!(
        matches!(created, ControlReply::Created { .. }),
        "{created:?}"
    );
    for time in 0..times {
        let set = Control::Set {
            tenant: "a".to_owned(),
            changes: vec![(
                "GPUSHARE_MEM_LIMIT".to_owned(),
                format!("{}MiB", 1000 + time % 2),
            )],
        };
        let done: ControlReply = command.call(&set);
        assert_eq!(done, ControlReply::Done);
    }
}

/// Does it in a thread that has a while for it.
fn within_a_while<T: Send + 'static>(does: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (say, said) = channel();
    std::thread::spawn(move || say.send(does()));
    said.recv_timeout(PATIENCE).ok()
}

#[test]
fn a_log_that_is_not_read_stops_no_daemon() {
    let (daemon, errors) = Binary::unread(&[], "", "");
    let control = daemon.control();
    let answered = within_a_while(move || {
        changes(&control, 500);
        // The loop itself says that this one was cut off.
        for _ in 0..3 {
            let mut rude = UnixStream::connect(&control).unwrap();
            rude.write_all(b"abc").unwrap();
        }
        let mut command = Wire::connect(&control);
        (0..10).all(|_| {
            matches!(
                command.call(&Listing::Tenants.first()),
                ControlReply::Page {
                    rows: Rows::Tenants(_),
                    ..
                }
            )
        })
    });
    assert_eq!(answered, Some(true));
    // Its reader finds all of it later.
    let found = within_a_while(move || {
        let lines = errors.lines().map_while(Result::ok);
        let changed = lines.filter(|line| line.contains("MEM_LIMIT"));
        changed.take(500).count()
    });
    assert_eq!(found, Some(500));
}

/// journald drops what a unit says beyond 10,000 lines in 30 s, whatever it is.
#[test]
fn a_user_that_is_cut_off_without_end_does_not_fill_the_log() {
    let (daemon, errors) = Binary::unread(&[], "", "");
    let read = std::thread::spawn(move || {
        let lines = errors.lines().map_while(Result::ok);
        lines.filter(|line| line.contains("cut off")).count()
    });
    let mut command = daemon.command();
    for _ in 0..20 {
        for _ in 0..50 {
            let mut rude = UnixStream::connect(daemon.control()).unwrap();
            rude.write_all(b"a").unwrap();
        }
        let answer: ControlReply = command.call(&Listing::Tenants.first());
        assert!(
            matches!(
                answer,
                ControlReply::Page {
                    rows: Rows::Tenants(_),
                    ..
                }
            ),
            "{answer:?}"
        );
    }
    drop(daemon);
    let told = read.join().unwrap();
    assert!(
        (1..200).contains(&told),
        "{told} lines for 1000 connections"
    );
}

/// The first character of the lines that a daemon with wrong settings says, where standard error
/// is journald's or is not.
fn begins_with(is_journald: bool) -> Vec<char> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    std::fs::write(&file, "no_such_key = 1\n").unwrap();
    let stream = match is_journald {
        true => "export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2);",
        false => "export JOURNAL_STREAM=1:1;",
    };
    let output = Command::new("sh")
        .args(["-c", &format!("{stream} exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_gpushared"))
        .arg("--runtime-dir")
        .arg(folder.path().join("run"))
        .arg("--config")
        .arg(file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no_such_key"), "{said}");
    let firsts = said.lines().filter_map(|line| line.chars().next());
    firsts.collect()
}

#[test]
fn an_error_has_its_priority_where_standard_error_is_journalds() {
    let file = begins_with(true);
    assert!(!file.is_empty() && file.iter().all(|first| *first == '<'));
    assert!(begins_with(false).iter().all(|first| *first != '<'));
}
