//! Every interleaving of launches and closings on the shipped word and records.
//!
//! Loom has no `membarrier`: in the model the launching thread's half of the asymmetric barrier is
//! a barrier of its own, as it is where the system has none. The litmus in `src/gate/litmus.rs`
//! shows that the real barrier does as much on real threads.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpushare-interposer --profile sim --test
//! gate_model`.
#![cfg(loom)]

mod sync {
    //! Loom's atomics in the place of the gate's.
    use std::cell::Cell;

    pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

    thread_local! {
        /// Taken away to see that the model notices. A model's threads are all one thread of the
        /// system.
        pub(super) static BARRIER: Cell<bool> = const { Cell::new(true) };
        /// What the fences of the shipped files are in the model: weaker or none, for the same.
        pub(super) static FENCE: Cell<Fence> = const { Cell::new(Fence::Whole) };
    }

    #[derive(Clone, Copy)]
    pub(super) enum Fence {
        Whole,
        AcqRel,
        None,
    }

    pub(super) fn fence(order: Ordering) {
        match FENCE.get() {
            Fence::Whole => loom::sync::atomic::fence(order),
            Fence::AcqRel => loom::sync::atomic::fence(Ordering::AcqRel),
            Fence::None => {}
        }
    }

    pub(super) fn light_barrier() {
        if BARRIER.get() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}

/// Where the shipped files look for it.
mod gate {
    pub(crate) use crate::{owner, sync};
}

#[path = "../src/gate/bell.rs"]
#[allow(dead_code, reason = "the model forks nothing and sleeps on no bell")]
mod bell;
#[path = "../src/gate/owner.rs"]
mod owner;
#[path = "../src/gate/ring.rs"]
mod ring;
#[path = "../src/gate/word.rs"]
#[allow(
    dead_code,
    reason = "the model uses only the closing side and the word"
)]
mod word;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use owner::Owner;
use ring::{Allowance, Launch, Ring};
use word::{ANY_SEALED, GateWord, Record, closed, slow, to};

#[path = "gate_model/bells.rs"]
mod bells;
#[path = "gate_model/owners.rs"]
mod owners;
#[path = "gate_model/seals.rs"]
mod seals;
#[path = "gate_model/turns.rs"]
mod turns;

/// The device that closes.
const DEVICE: usize = 0;

/// Where a call is on its stack.
const FRAME: u64 = 64;

/// A gate and its launching threads.
struct Gate {
    word: GateWord,
    threads: Vec<Launcher>,
}

struct Launcher {
    record: Record,
    /// The device as this thread uses it: loom fails if it is touched by two without an order
    /// between them.
    device: UnsafeCell<u32>,
}

impl Launcher {
    fn new() -> Self {
        Self {
            record: Record {
                inside: AtomicU64::new(0),
                owner: Owner(AtomicU64::new(0)),
                count: AtomicU64::new(0),
                found: AtomicU64::new(0),
                ledger: AtomicPtr::new(core::ptr::null_mut()),
                touching: AtomicU64::new(0),
            },
            device: UnsafeCell::new(0),
        }
    }
}

impl Gate {
    fn new(threads: usize) -> Arc<Self> {
        Arc::new(Self {
            word: GateWord::of(AtomicU64::new(0)),
            threads: (0..threads).map(|_| Launcher::new()).collect(),
        })
    }

    /// One launch, by the fast way or the slow one. `false` if it is held back: where a program's
    /// thread would begin to wait.
    fn launch(&self, thread: usize) -> bool {
        let Launcher { record, device } = &self.threads[thread];
        if !record.try_step_in(FRAME, &self.word) {
            let word = record.step_in(FRAME, to(1 << DEVICE), &self.word);
            if word & (closed(DEVICE) | ANY_SEALED) != 0 {
                record.step_out();
                return false;
            }
        }
        // SAFETY: loom hands out the cell's own address, and fails the model if another thread may
        // use it now.
        device.with_mut(|device| unsafe { *device += 1 });
        record.count();
        record.step_out();
        true
    }

    /// Closes, waits until no launch is inside, uses the device alone, opens.
    fn close_and_open(&self, then_slow: bool) {
        self.word.change(0, slow(DEVICE) | closed(DEVICE));
        fence(Ordering::SeqCst);
        for thread in &self.threads {
            while thread.record.may_submit_to(DEVICE) {
                loom::thread::yield_now();
            }
        }
        let launched = |gate: &Self| -> u32 {
            let threads = gate.threads.iter();
            // SAFETY: as in `launch`; the model checks that no launch is inside.
            threads
                .map(|thread| thread.device.with_mut(|device| unsafe { *device }))
                .sum()
        };
        let before = launched(self);
        loom::thread::yield_now();
        assert_eq!(before, launched(self), "a launch slipped through");
        let left = if then_slow { slow(DEVICE) } else { 0 };
        self.word.change(slow(DEVICE) | closed(DEVICE), left);
    }
}

fn run(threads: usize, launches: usize, closings: usize, then_slow: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let gate = Gate::new(threads);
        let launching: Vec<_> = (0..threads)
            .map(|thread| {
                let gate = Arc::clone(&gate);
                loom::thread::spawn(move || (0..launches).filter(|_| gate.launch(thread)).count())
            })
            .collect();
        for _ in 0..closings {
            gate.close_and_open(then_slow);
        }
        for (thread, launched) in gate.threads.iter().zip(launching) {
            let launched = launched.join().unwrap();
            // SAFETY: as in `launch`; its thread has ended.
            let seen = thread.device.with_mut(|device| unsafe { *device });
            assert_eq!(
                seen as usize, launched,
                "each launch that passed was made once"
            );
        }
    });
}

#[test]
fn no_launch_of_one_thread_slips_through_a_closing() {
    run(1, 2, 1, false);
    run(1, 2, 1, true);
}

#[test]
fn no_launch_slips_through_the_second_closing_either() {
    run(1, 1, 2, false);
    run(1, 1, 2, true);
}

#[test]
fn no_launch_of_two_threads_slips_through() {
    run(2, 1, 1, true);
}

#[test]
#[should_panic(expected = "oncurrent")]
fn without_the_barrier_the_model_finds_one_that_does() {
    sync::BARRIER.set(false);
    run(1, 1, 1, false);
}

/// A device whose launches take the short path, and its accounts.
struct Shared {
    word: GateWord,
    record: Record,
    ring: Ring<2>,
    allowance: Allowance,
    /// Launches that the books have. Their lock.
    books: Mutex<u32>,
    /// The launches that the driver got, counted by their thread.
    made: AtomicU32,
}

impl Shared {
    fn new(allowed: u64) -> Arc<Self> {
        let Launcher { record, .. } = Launcher::new();
        Arc::new(Self {
            word: GateWord::of(AtomicU64::new(slow(DEVICE))),
            record,
            ring: Ring::new(),
            allowance: Allowance::of(AtomicU64::new(allowed)),
            books: Mutex::new(0),
            made: AtomicU32::new(0),
        })
    }

    /// One launch, as `ledger::go` makes it. With `announces` it is in the ring before it takes
    /// from the allowance. `false` if it would take the slow way.
    fn launch(&self, announces: bool) -> bool {
        let word = self.record.step_in(FRAME, to(1 << DEVICE), &self.word);
        let mut goes = false;
        if word & closed(DEVICE) == 0 {
            let launch = Launch { of: 0, at: 0 };
            if announces {
                if let Some(number) = self.ring.announce(launch) {
                    goes = self.allowance.takes(1);
                    if goes {
                        self.made.fetch_add(1, Ordering::Relaxed);
                    }
                    self.ring.ended(number, goes);
                }
            } else if self.allowance.takes(1) {
                goes = true;
                self.made.fetch_add(1, Ordering::Relaxed);
                if let Some(number) = self.ring.announce(launch) {
                    self.ring.ended(number, true);
                }
            }
        }
        self.record.step_out();
        goes
    }

    /// Takes the books' lock, as `DeviceGate::lock` does: the launches they have, and whether one
    /// is just being made. It gives `again` to launches when it is done.
    fn look(&self, again: u64) -> (u32, bool) {
        let mut books = self.books.lock().unwrap();
        self.allowance.revoke();
        let launching = self.ring.take_out(|_, count| *books += count).is_some();
        let seen = (*books, launching);
        if again > 0 {
            self.allowance.grant(again);
        }
        seen
    }
}

/// A look that says nothing is under way, while launches go on: whatever was made is in the books
/// or seen to be on its way, and nothing more is made until there is an allowance again.
fn looks(announces: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Shared::new(3);
        let launching = Arc::clone(&shared);
        let launching = loom::thread::spawn(move || {
            (0..2).filter(|_| launching.launch(announces)).count() as u32
        });
        let (known, on_its_way) = shared.look(0);
        let made = shared.made.load(Ordering::Relaxed);
        assert!(made <= known + u32::from(on_its_way), "one was not seen");
        let went = launching.join().unwrap();
        assert_eq!(shared.look(0), (went, false), "each is entered once");
    });
}

#[test]
fn no_launch_is_made_that_whoever_takes_the_books_does_not_see() {
    looks(true);
}

#[test]
#[should_panic(expected = "one was not seen")]
fn a_launch_announced_after_it_took_from_the_allowance_would_be_missed() {
    looks(false);
}

#[test]
fn what_is_granted_again_beside_launches_is_entered_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new(0);
        let launching = Arc::clone(&shared);
        let launching =
            loom::thread::spawn(move || (0..3).filter(|_| launching.launch(true)).count() as u32);
        for _ in 0..2 {
            shared.look(4);
        }
        let went = launching.join().unwrap();
        assert_eq!(shared.look(0), (went, false));
    });
}

#[test]
fn a_closed_and_quiet_gate_leaves_nothing_out_of_the_books() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new(3);
        let launching = Arc::clone(&shared);
        let launching =
            loom::thread::spawn(move || (0..2).filter(|_| launching.launch(true)).count() as u32);
        shared.word.change(0, closed(DEVICE));
        fence(Ordering::SeqCst);
        while shared.record.may_submit_to(DEVICE) {
            loom::thread::yield_now();
        }
        // No launch is inside: the accounts are complete until it opens.
        let (known, on_its_way) = shared.look(0);
        assert!(!on_its_way);
        let went = launching.join().unwrap();
        assert_eq!(known, went, "a launch slipped through");
    });
}

#[test]
fn a_launch_left_by_a_jump_is_dropped_and_the_next_is_not() {
    loom::model(|| {
        let shared = Shared::new(9);
        let launch = Launch { of: 1, at: 7 };
        shared.ring.announce(launch).unwrap();
        assert!(shared.look(0).1, "it may still come");
        shared.ring.abandon();
        assert!(shared.ring.announce(launch).is_some_and(|number| {
            shared.ring.ended(number, true);
            true
        }));
        shared.ring.abandon();
        assert_eq!(shared.look(0), (1, false));
        assert!(shared.ring.is_empty());
    });
}
