//! What a round of the gate thread concludes from facts that a launch has overtaken.

use gpushare_pacing::window::StreamKey;
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE};

use super::*;
use crate::gate::Key;
use crate::gate::device_gate::Told;

const IN: StreamKey = StreamKey {
    context: 1,
    stream: 2,
    thread: 0,
};
/// For a kind of launch that loads nothing.
fn key() -> Key {
    Key::other(3)
}
/// For how long nothing is under way before a process is idle (ns).
const REST: u64 = 1_000_000_000;

/// A turn of a device that tenants share.
fn shared() -> Turn {
    Turn {
        word: LeaseWord::new(1, LeaseState::Open),
        deadline: NO_DEADLINE,
        idle_after: REST,
        contended: true,
        ..Turn::default()
    }
}

/// A gate that is open, of a process whose work has been complete for long.
fn rested() -> DeviceGate {
    let gate = DeviceGate::new(0, false);
    let mut inner = gate.lock();
    let act = inner.follower.step(1, &shared(), &Facts::default());
    assert_eq!(act, Act::Open);
    inner.unseen = None;
    inner.window.last_submitted = 1;
    drop(inner);
    gate
}

/// What a round concludes if `then` happens between its facts and its conclusion.
fn concludes(gate: &DeviceGate, then: impl FnOnce(&DeviceGate)) -> Act {
    let stands = gate.stands();
    let facts = gate.facts(&shared());
    assert!(facts.empty, "{facts:?}");
    then(gate);
    gate.conclude(&shared(), stands, facts)
}

fn is_admitted(gate: &DeviceGate) {
    let told = gate.ask(IN, key(), false);
    assert!(matches!(told, Told::Go(go) if go.was_idle.is_none()));
}

#[test]
fn a_process_is_not_called_idle_once_a_launch_has_been_admitted() {
    let gate = rested();
    let act = concludes(&gate, is_admitted);
    assert!(matches!(act, Act::Sleep(_)), "{act:?}");
    assert!(!gate.lock().follower.is_idle());
}

#[test]
fn a_process_whose_launch_has_just_been_completed_is_not_called_idle() {
    let gate = rested();
    let act = concludes(&gate, |gate| {
        gate.lock().window.last_submitted = clock::now()
    });
    assert!(matches!(act, Act::Sleep(_)), "{act:?}");
}

#[test]
fn a_process_that_launches_nothing_is_called_idle() {
    let gate = rested();
    assert_eq!(concludes(&gate, |_| ()), Act::Idle(1));
    is_taken_back(&gate);
}

/// A launch from here on says that the process works.
fn is_taken_back(gate: &DeviceGate) {
    let told = gate.ask(IN, key(), false);
    assert!(matches!(told, Told::Go(go) if go.was_idle == Some(1)));
}
