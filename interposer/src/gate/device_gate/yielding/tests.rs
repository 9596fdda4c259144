//! How long waiting threads sleep, and what the checking one does.

use gpushare_pacing::follower::Facts;
use gpushare_protocol::page::lease::{LeaseState, LeaseWord, NO_DEADLINE, Turn};

use super::*;
use crate::driver::marking::is_older;
use crate::gate::Key;
use crate::gate::device_gate::{Op, Told};
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

/// The step at `now` of a thread that waits for all that is under way and may mark it.
fn next(gate: &DeviceGate, now: u64, looks: &mut Option<Looks>, may_mark: bool) -> Next {
    let full = Full {
        ends: now + MS,
        limit: now + 5 * MS,
    };
    gate.next(now, full, looks, may_mark)
}

/// Another thread's launch comes into the books, without a mark behind it.
fn comes(gate: &DeviceGate, stream_key: StreamKey) {
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
        first: false,
    };
    let mut inner = gate.lock();
    let bounds = inner.bounds;
    inner.window.came(clock::now(), bounds, stream_key, op);
}

#[test]
fn a_launch_that_has_waited_long_enough_goes_into_a_full_slice() {
    let gate = yields();
    let ask = |insists| gate.ask(STREAM, Key::other(3), insists);
    // As another thread that is always before this one fills each slice.
    for _ in 0..2 {
        while matches!(ask(false), Told::Go { .. }) {}
        assert!(matches!(ask(false), Told::Full(_)));
        gate.lock().slices.emptied();
        gate.lock().slices.admitted(1, MS);
    }
    assert!(matches!(ask(false), Told::Full(_)), "it has not");
    assert!(matches!(ask(true), Told::Go { .. }));
    assert!(matches!(ask(false), Told::Full(_)), "the next one waits");
}

#[test]
fn the_checking_thread_marks_what_came_while_it_slept_once_a_look() {
    let (gate, now, mut looks) = (yields(), clock::now(), None);
    gate.lock().window.set_aside(1, US);
    assert!(matches!(next(&gate, now, &mut looks, true), Next::Look(_)));
    comes(&gate, STREAM);
    assert!(matches!(next(&gate, now, &mut looks, true), Next::Mark));
    assert!(matches!(next(&gate, now, &mut looks, false), Next::Look(_)));
}

#[test]
fn the_checking_thread_has_nothing_to_mark_while_a_call_is_in_the_driver() {
    let (gate, now, mut looks) = (yields(), clock::now(), None);
    gate.lock().window.set_aside(1, US);
    for _ in 0..3 {
        assert!(matches!(next(&gate, now, &mut looks, true), Next::Look(_)));
    }
}

#[test]
fn a_thread_that_does_not_check_leaves_the_marks_to_that_which_does() {
    let (gate, now, mut looks) = (yields(), clock::now(), None);
    comes(&gate, STREAM);
    assert!(matches!(next(&gate, now, &mut looks, true), Next::Mark));
    assert!(matches!(next(&gate, now, &mut None, true), Next::Sleep(_)));
}

/// A thread waits for another one's call in the driver, whose launch comes into the books meanwhile
/// without a mark, and perhaps is done at once. How long it waits, which is `limit` at most (ns).
fn waits(limit: u64, is_done: bool) -> u64 {
    // So no other thread can mark it.
    is_older();
    let gate = yields();
    gate.lock().window.set_aside(1, US);
    let begin = clock::now();
    let full = Full {
        ends: begin + limit,
        limit: begin + limit,
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            gate.rest(full, 0);
            clock::now() - begin
        });
        while gate.lock().sleepers.looker_until == 0 && !waiting.is_finished() {
            std::thread::yield_now();
        }
        let of_another_thread = StreamKey {
            thread: 7,
            ..STREAM
        };
        comes(&gate, of_another_thread);
        if is_done {
            let mut inner = gate.lock();
            inner.window.forget(|_| true);
            inner.window.nobody_inside();
        }
        waiting.join().unwrap()
    })
}

#[test]
fn a_mark_that_is_refused_while_a_thread_waits_does_not_end_the_slice() {
    assert!(waits(100 * MS, false) >= 100 * MS);
}

#[test]
fn a_thread_that_waits_goes_on_once_nothing_is_under_way() {
    assert!(waits(60_000 * MS, true) < 60_000 * MS);
}
