//! The work of threads that died inside a launch.

use core::sync::atomic::AtomicU64;

use crate::gate::device_gate::{found, of};
use crate::gate::records::Records;
use crate::gate::word::{self, GateWord, Record};
use crate::guest::sys;

/// The device of the launch, and one beside it. No other test uses them.
const DEVICE: usize = 5;
const OTHER: usize = 6;

/// The record of a thread that `enters` something and dies there.
fn dies(records: &Records, enters: impl FnOnce(&Record) + Send) -> &'static Record {
    let thread = std::thread::scope(|scope| {
        let dying = scope.spawn(|| {
            let record = records.claim().unwrap();
            enters(record);
            (record, sys::this_thread())
        });
        dying.join().unwrap()
    });
    while sys::is_alive(thread.1) {
        std::thread::yield_now();
    }
    thread.0
}

/// Enters a launch on [`DEVICE`].
fn launches(record: &Record) {
    let word = GateWord::of(AtomicU64::new(0));
    let _ = record.step_in(0, word::to(1 << DEVICE), &word);
}

/// Enters a copy, which passes no gate.
fn copies(record: &Record) {
    let word = GateWord::of(AtomicU64::new(0));
    assert!(record.try_touch(0, &word, 0));
}

/// Whether work that is not recorded may be in flight on these devices once `finds` has found the
/// death of a thread that had entered something.
fn unseen(enters: impl FnOnce(&Record) + Send, finds: impl Fn(&Records, &Record)) -> [bool; 2] {
    found();
    let gates = [DEVICE, OTHER].map(|index| of(index).unwrap());
    gates.iter().for_each(|gate| gate.lock().unseen = None);
    let records = Records::new();
    let record = dies(&records, enters);
    finds(&records, record);
    assert!(!record.may_touch(), "its thread is not inside any more");
    gates.map(|gate| gate.lock().unseen.is_some())
}

fn reaped(records: &Records, _: &Record) {
    records.reap();
}

/// By a thread to which the system gives the dead one's id.
fn claimed(records: &Records, record: &Record) {
    let me = i32::try_from(sys::this_thread()).unwrap();
    let dead = record.owner.seen().thread();
    assert!(record.owner.passes_from(dead, me));
    assert!(core::ptr::eq(records.claim().unwrap(), record));
}

#[test]
fn the_launch_of_a_thread_that_died_in_it_is_unseen_work() {
    assert_eq!(unseen(launches, reaped), [true, false], "reaped");
    assert_eq!(unseen(launches, claimed), [true, false], "claimed");
    // In a test of its own it could run beside this one.
    assert_eq!(unseen(copies, reaped), [false, false], "a copy, reaped");
    assert_eq!(unseen(copies, claimed), [false, false], "a copy, claimed");
    assert_eq!(unseen(|_| {}, claimed), [false, false], "outside, claimed");
}
