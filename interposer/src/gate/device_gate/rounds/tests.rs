//! What a round of the gate thread concludes from the launches that came before it.

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
    // A launch of this thread's is no call inside the process's gate: it is never looked for.
    inner.unreported.looked = u64::MAX;
    drop(inner);
    gate
}

fn round(gate: &DeviceGate) -> Act {
    gate.step(&shared(), gate.stands())
}

#[test]
fn a_process_is_not_called_idle_once_a_launch_has_been_admitted() {
    let gate = rested();
    let told = gate.ask(IN, key(), false);
    assert!(matches!(told, Told::Go { was_idle: None, .. }));
    let act = round(&gate);
    assert!(matches!(act, Act::Sleep(_)), "{act:?}");
    assert!(!gate.lock().follower.is_idle());
}

#[test]
fn a_process_whose_launch_has_just_been_completed_is_not_called_idle() {
    let gate = rested();
    // However long this thread stands still.
    gate.lock().window.last_submitted = clock::now() + 3_600_000_000_000;
    let act = round(&gate);
    assert!(matches!(act, Act::Sleep(_)), "{act:?}");
}

#[test]
fn a_process_that_launches_nothing_is_called_idle() {
    let gate = rested();
    assert_eq!(round(&gate), Act::Idle(1));
    // A launch from here on says that the process works.
    let told = gate.ask(IN, key(), false);
    assert!(matches!(
        told,
        Told::Go {
            was_idle: Some(1),
            ..
        }
    ));
}

#[test]
fn a_round_of_a_turn_from_before_the_gate_moved_does_nothing() {
    let gate = rested();
    let stands = gate.stands();
    assert!(gate.lock().follower.land(1));
    assert!(matches!(gate.step(&shared(), stands), Act::Sleep(_)));
    assert!(!gate.lock().follower.is_idle());
}

/// Whether a round under `turn` puts marks before it acts. A gate that has just opened has none
/// behind work of before.
fn marks_first(turn: &Turn) -> bool {
    let gate = rested();
    gate.lock().unseen = Some(0);
    let _ = gate.prepare(turn, gate.stands());
    gate.lock().unseen != Some(0)
}

#[test]
fn a_gate_that_has_to_close_puts_no_marks_before_it_is_closed() {
    let word = LeaseWord::new(2, LeaseState::Closed);
    let closed = Turn { word, ..shared() };
    assert!(!marks_first(&closed));
}

#[test]
fn a_gate_that_stays_open_gets_marks_behind_work_of_before() {
    assert!(marks_first(&shared()));
}
