//! The log goes to a pipe, and its reader stops reading.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::binary::Binary;
use crate::support::{Wire, create};
use gpushare_protocol::wire::{Control, ControlReply};
use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

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
    said.recv_timeout(Duration::from_secs(10)).ok()
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
        (0..10).all(|_| matches!(command.call(&Control::List), ControlReply::Tenants(_)))
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
