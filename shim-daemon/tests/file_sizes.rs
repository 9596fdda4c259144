//! A private daemon has the limits of the program that needs it, also that on the size of files
//! (`ulimit -f`), which batch systems set.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::binary::Binary;
use crate::support::{create, until};
use gpushare_protocol::wire::{Control, ControlReply, Cursor, Listing, Rows};

/// What the journal has before the daemon starts: more than a tenant's page.
const BYTES: u64 = 700 << 10;

/// A daemon under this limit of a shell, which counts blocks of 512 bytes.
fn daemon(limit: &str) -> Binary {
    let before = format!(
        "mkdir -p \"$2/state\"
         head -c {BYTES} /dev/zero | tr '\\0' '\\n' > \"$2/state/journal.jsonl\"
         ulimit {limit}"
    );
    Binary::with(&[], &before)
}

/// How often its journal lacks events.
fn gaps(daemon: &Binary) -> u64 {
    let (of, from) = (Listing::EventCounts, Cursor::default());
    let reply: ControlReply = daemon.command().call(&Control::Page { of, from });
    let ControlReply::Page {
        rows: Rows::EventCounts(rows),
        ..
    } = reply
    else {
        panic!("{reply:?}")
    };
    let lost = rows.iter().find(|row| row.kind == "journal-lost");
    lost.unwrap().count
}

/// Makes a tenant, of which the journal is to tell.
fn creates(daemon: &Binary) -> ControlReply {
    daemon.command().call(&create("a", &[]))
}

#[test]
fn a_daemon_whose_journal_may_not_grow_serves_and_tells_the_gap() {
    let daemon = daemon(&format!("-f {}", BYTES / 512));
    let created = creates(&daemon);
    assert!(
        matches!(created, ControlReply::Created { .. }),
        "{created:?}"
    );
    until("the gap is told", || gaps(&daemon) > 0);
    assert_eq!(daemon.journal(), BYTES);
}

#[test]
fn a_daemon_goes_on_up_to_the_hard_limit_on_files() {
    let daemon = daemon(&format!("-S -f {}", BYTES / 512));
    creates(&daemon);
    until("the journal grows", || daemon.journal() > BYTES);
    assert_eq!(gaps(&daemon), 0);
}

#[test]
fn a_daemon_that_may_make_no_page_refuses_tenants_and_serves() {
    let daemon = daemon("-f 100");
    for _ in 0..2 {
        let refused = creates(&daemon);
        assert!(matches!(refused, ControlReply::Error(_)), "{refused:?}");
    }
}
