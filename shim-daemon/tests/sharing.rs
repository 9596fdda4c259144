//! The shares of a device's time that commands are shown.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::gate::Gated;
use crate::support::{Daemon, FakeDevices, Wire, until};
use gpushare_protocol::wire::*;
use gpushared::node::Settings;

const PLAIN: [(&str, &str); 1] = [("GPUSHARE_MEM_REQUEST", "1MiB")];

fn page(wire: &mut Wire, of: Listing) -> Rows {
    let from = Cursor::default();
    match wire.call(&Control::Page { of, from }) {
        ControlReply::Page { rows, next: None } => rows,
        other => panic!("{other:?}"),
    }
}

fn regimes(daemon: &Daemon) -> Vec<Regime> {
    match page(&mut daemon.command(), Listing::Sharing) {
        Rows::Sharing(rows) => rows.iter().map(|row| row.regime).collect(),
        other => panic!("{other:?}"),
    }
}

fn states(wire: &mut Wire) -> Vec<ShareState> {
    match page(wire, Listing::Shares) {
        Rows::Shares(rows) => rows.into_iter().map(|row| row.state).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_is_listed_with_the_regime_of_the_settings() {
    for (sharing, expected) in [("together", Regime::Together), ("turns", Regime::Turns)] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("[compute]\nsharing = \"{sharing}\"");
        let settings = gpushared::config::read(&text, Settings::default()).unwrap();
        let daemon = Daemon::with_settings(folder.path(), FakeDevices::default(), settings);
        assert_eq!(regimes(&daemon), [expected]);
    }
}

#[test]
fn two_that_work_beside_each_other_are_told_as_sharing() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_one, one) = daemon.tenant("one", &PLAIN);
    let (_two, two) = daemon.tenant("two", &PLAIN);
    let _gates = [Gated::join(&one), Gated::join(&two)];
    let states = states(&mut daemon.command());
    let shares = |state: &ShareState| matches!(state, ShareState::Sharing { .. });
    assert!(states.len() == 2 && states.iter().all(shares), "{states:?}");
}

/// A library that took turns of its own while the daemon was silent names those, or a turn of an
/// earlier daemon.
#[test]
fn a_process_that_works_again_is_heard_whatever_turn_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path());
    let (_one, one) = daemon.tenant("one", &PLAIN);
    let (_two, two) = daemon.tenant("two", &PLAIN);
    let (mut one, _two) = (Gated::join(&one), Gated::join(&two));
    let mut command = daemon.command();
    let mut is_idle = || states(&mut command).contains(&ShareState::Idle);
    for named in [1 << 61, 0] {
        let (device_index, epoch) = (0, one.turn().word.epoch());
        one.client.wire.ask(&Request::Idle {
            device_index,
            epoch,
        });
        until("it is idle", &mut is_idle);
        // A turn that it cannot know of says nothing of its idleness.
        let epoch = named;
        one.client.wire.ask(&Request::Idle {
            device_index,
            epoch,
        });
        one.client.wire.ask(&Request::Busy {
            device_index,
            epoch,
        });
        until("it works", || !is_idle());
    }
}
