//! A record of a dead thread that a reaping thread frees while the kernel gives the thread's id to
//! a new one, which finds the record as its own.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Launcher;
use super::owner::{IN_HAND, NOBODY, Owner};
use super::word::{GateWord, Record, SOMEWHERE, frame_of, may_submit, to};

/// The id that two threads have, one after the other.
const THREAD: i32 = 7;

/// A record whose owner died inside.
struct Left {
    owner: Owner,
    /// A thread with the owner's id lives.
    lives: AtomicBool,
    /// The record's content: loom fails if two threads use it without an order between them.
    holds: UnsafeCell<u32>,
}

impl Left {
    fn new() -> Arc<Self> {
        let owner = Owner(AtomicU64::new(0));
        assert!(owner.passes_from(NOBODY, THREAD));
        Arc::new(Self {
            owner,
            lives: AtomicBool::new(false),
            holds: UnsafeCell::new(0),
        })
    }

    fn uses(&self) {
        // SAFETY: loom hands out the cell's own address, and fails the model if another thread may
        // use it now.
        self.holds.with_mut(|holds| unsafe { *holds += 1 });
    }

    /// `Records::reap`.
    fn reap(&self) {
        let owner = self.owner.seen();
        let is_dead = owner.thread() > 0 && !self.lives.load(Ordering::SeqCst);
        if is_dead && self.owner.passes(owner, IN_HAND) {
            self.uses();
            assert!(self.owner.passes_from(IN_HAND, NOBODY));
        }
    }

    /// A new thread begins, and claims the record if that is its own. With `takes` as
    /// `Records::claim` does. Whether it is.
    fn claim(&self, takes: bool) -> bool {
        self.lives.store(true, Ordering::SeqCst);
        let is_mine = if takes {
            self.owner.passes_from(THREAD, THREAD)
        } else {
            self.owner.seen().thread() == THREAD
        };
        if is_mine {
            self.uses();
        }
        is_mine
    }
}

fn claims(takes: bool) {
    loom::model(move || {
        let left = Left::new();
        let claiming = Arc::clone(&left);
        let claiming = loom::thread::spawn(move || claiming.claim(takes));
        left.reap();
        let is_mine = claiming.join().unwrap();
        let owner = left.owner.seen().thread();
        assert_eq!(is_mine, owner == THREAD, "one of the two has it");
    });
}

#[test]
fn a_record_is_not_taken_from_a_thread_whose_id_came_again() {
    claims(true);
}

#[test]
#[should_panic(expected = "oncurrent")]
fn one_claimed_by_a_look_alone_would_be_taken_from_its_thread() {
    claims(false);
}

#[test]
fn no_call_is_seen_with_the_place_or_the_frame_of_another() {
    const SOME: u64 = 0x7ffd_0000_1000;
    const ONE: u64 = 0x7ffd_0000_2000;
    loom::model(|| {
        let Launcher { record, .. } = Launcher::new();
        let record = Arc::new(record);
        let calling = Arc::clone(&record);
        let calling = loom::thread::spawn(move || {
            let word = GateWord::of(AtomicU64::new(0));
            let calls = |record: &Record| {
                assert!(record.try_step_in(SOME, &word));
                record.step_out();
                let _ = record.step_in(ONE, to(1 << 15), &word);
            };
            calls(&calling);
        });
        let shown = record.shown();
        match frame_of(shown) {
            0 => assert!(!may_submit(shown, 0)),
            SOME => assert!(shown & SOMEWHERE != 0 && may_submit(shown, 0)),
            ONE => assert!(may_submit(shown, 15) && !may_submit(shown, 0)),
            frame => panic!("no call is at {frame:x}"),
        }
        calling.join().unwrap();
    });
}
