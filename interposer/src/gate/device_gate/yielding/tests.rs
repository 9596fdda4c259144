//! How long waiting threads sleep, and what the checking one does.

use gpushare_pacing::follower::Facts;
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};

use super::*;
use crate::gate::device_gate::Op;
use crate::gate::ledger::tests::page;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const STREAM: StreamKey = StreamKey {
    context: 1,
    stream: 2,
    thread: 0,
};

#[test]
fn sleeps_are_shortened_by_what_they_lately_were_too_long() {
    let mut sleepers = Sleepers::default();
    assert_eq!(sleepers.shortened(500_000), 500_000);
    (0..100).for_each(|_| sleepers.woke(1_000_000, 1_030_000));
    let late = 500_000 - sleepers.shortened(500_000);
    assert!((29_000..=30_000).contains(&late), "{late}");
    assert_eq!(sleepers.shortened(20_000), 20_000, "as it is");
    (0..100).for_each(|_| sleepers.woke(1_000_000, 900_000));
    assert_eq!(
        500_000 - sleepers.shortened(500_000),
        late,
        "those were woken"
    );
    (0..100).for_each(|_| sleepers.woke(1_000_000, 9_000_000));
    assert!(500_000 - sleepers.shortened(500_000) <= MOST_LATE);
    (0..100).for_each(|_| sleepers.woke(1_000_000, 1_000_000));
    assert!(500_000 - sleepers.shortened(500_000) < 100);
}
/// A gate whose launches yield.
fn yields() -> DeviceGate {
    let gate = DeviceGate::new(0, false);
    let turn = Turn {
        word: LeaseWord::new(1, LeaseState::Open),
        deadline: NO_DEADLINE,
        ..Turn::default()
    };
    let page = page();
    page.slice.store(500 * US, Ordering::Relaxed);
    page.contended.store(1, Ordering::Relaxed);
    let mut inner = gate.lock();
    inner.follower.step(1, &turn, &Facts::default());
    inner.page = Some(page);
    drop(inner);
    gate
}

/// The step of a thread that waits for all that is under way and may mark it.
fn next(gate: &DeviceGate, looks: &mut Option<Looks>, may_mark: bool) -> Next {
    let now = clock::now();
    let full = Full {
        ends: now + MS,
        limit: now + 5 * MS,
    };
    gate.next(now, full, looks, may_mark)
}

/// Another thread's launch comes into the books, without a mark behind it.
fn comes(gate: &DeviceGate) {
    let expected = Expected {
        ns: US,
        in_stream: US,
        known: true,
    };
    let op = Op {
        count: 1,
        key: 3,
        expected,
        waits: false,
    };
    let mut inner = gate.lock();
    let bounds = inner.bounds;
    inner.window.came(clock::now(), bounds, STREAM, op);
}

#[test]
fn the_checking_thread_marks_what_came_while_it_slept_once_a_look() {
    let (gate, mut looks) = (yields(), None);
    gate.lock().window.set_aside(1, US);
    assert!(matches!(next(&gate, &mut looks, true), Next::Look(_)));
    comes(&gate);
    assert!(matches!(next(&gate, &mut looks, true), Next::Mark));
    assert!(matches!(next(&gate, &mut looks, false), Next::Look(_)));
}

#[test]
fn the_checking_thread_has_nothing_to_mark_while_a_call_is_in_the_driver() {
    let (gate, mut looks) = (yields(), None);
    gate.lock().window.set_aside(1, US);
    for _ in 0..3 {
        assert!(matches!(next(&gate, &mut looks, true), Next::Look(_)));
    }
}

#[test]
fn a_thread_that_does_not_check_leaves_the_marks_to_that_which_does() {
    let (gate, mut looks) = (yields(), None);
    comes(&gate);
    assert!(matches!(next(&gate, &mut looks, true), Next::Mark));
    assert!(matches!(next(&gate, &mut None, true), Next::Sleep(_)));
}
