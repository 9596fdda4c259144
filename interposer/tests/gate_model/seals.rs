//! The seal: while it is set no call that touches device memory is in the driver, and a drain
//! misses no work.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::word::{self, ANY_SEALED, GateWord, Record, sealed, slow};
use super::{DEVICE, FRAME, Gate, Launcher, sync};

/// The device for whose memory the process is sealed: another than that of the launches.
const AWAY: usize = 3;

impl Gate {
    /// One copy, by the fast way or the slow one. `false` if a seal holds it.
    fn copy(&self, thread: usize) -> bool {
        let Launcher { record, device } = &self.threads[thread];
        if !record.try_touch(FRAME, &self.word, 0) {
            return self.copy_slowly(thread);
        }
        // SAFETY: as in `launch`.
        device.with_mut(|device| unsafe { *device += 1 });
        record.touched();
        true
    }

    /// One copy by the slow way alone: the first of its thread, or one that interrupts another.
    fn copy_slowly(&self, thread: usize) -> bool {
        let Launcher { record, device } = &self.threads[thread];
        let is_held = record.touch(FRAME, &self.word) & ANY_SEALED != 0;
        if !is_held {
            // SAFETY: as in `launch`.
            device.with_mut(|device| unsafe { *device += 1 });
        }
        record.touched();
        !is_held
    }

    /// Seals, waits until no call is in the driver, uses the memory alone, opens. With `copies` it
    /// waits for copies too.
    fn seal_and_open(&self, copies: bool) {
        self.word.change(0, sealed(AWAY));
        fence(Ordering::SeqCst);
        for thread in &self.threads {
            let record = &thread.record;
            let is_busy = |record: &Record| {
                if copies {
                    record.may_touch()
                } else {
                    record.may_submit_to(DEVICE)
                }
            };
            while is_busy(record) {
                loom::thread::yield_now();
            }
        }
        for thread in &self.threads {
            // SAFETY: as in `launch`; the model checks that no call is in the driver.
            thread.device.with_mut(|device| unsafe { *device += 1 });
        }
        loom::thread::yield_now();
        self.word.change(sealed(AWAY), 0);
    }
}

/// Copies and launches of `threads` threads while the process is sealed `seals` times. The gate may
/// be bound and close meanwhile: that is not what holds them.
fn seals(threads: usize, seals: usize, bound: bool, copies: bool) {
    sealed_against(threads, seals, (bound, copies), |gate, thread| {
        u32::from(gate.copy(thread)) + u32::from(gate.launch(thread))
    });
}

/// Copies of one thread by the slow way alone while the process is sealed.
fn seals_slow_copies(copies: usize, seals: usize) {
    sealed_against(1, seals, (false, true), move |gate, thread| {
        (0..copies)
            .map(|_| u32::from(gate.copy_slowly(thread)))
            .sum()
    });
}

/// What each thread calls while the process is sealed. It returns how many of its calls were made.
fn sealed_against(
    threads: usize,
    seals: usize,
    (bound, copies): (bool, bool),
    calls: impl Fn(&Gate, usize) -> u32 + Copy + Send + Sync + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if threads * seals == 1 { 3 } else { 2 });
    model.check(move || {
        let gate = Gate::new(threads);
        if bound {
            gate.word.change(0, slow(DEVICE));
        }
        let calling: Vec<_> = (0..threads)
            .map(|thread| {
                let gate = Arc::clone(&gate);
                loom::thread::spawn(move || calls(&gate, thread))
            })
            .collect();
        for _ in 0..seals {
            gate.seal_and_open(copies);
        }
        for (thread, made) in gate.threads.iter().zip(calling) {
            let made = made.join().unwrap();
            // SAFETY: as in `launch`; its thread has ended.
            let seen = thread.device.with_mut(|device| unsafe { *device });
            assert_eq!(seen, made + seals as u32, "each call was made once");
        }
    });
}

#[test]
fn no_call_that_touches_memory_is_in_the_driver_while_sealed() {
    seals(1, 1, false, true);
    seals(1, 1, true, true);
}

#[test]
fn nor_under_the_second_seal_or_of_two_threads() {
    seals(1, 2, false, true);
    seals(2, 1, false, true);
}

#[test]
#[should_panic(expected = "oncurrent")]
fn a_seal_that_looked_at_launches_alone_would_let_a_copy_through() {
    seals(1, 1, false, false);
}

#[test]
#[should_panic(expected = "oncurrent")]
fn without_the_barrier_a_copy_slips_through_a_seal() {
    sync::BARRIER.set(false);
    seals(1, 1, false, true);
}

#[test]
fn a_call_that_takes_the_slow_way_at_once_is_held_too() {
    seals_slow_copies(1, 1);
    seals_slow_copies(2, 1);
    seals_slow_copies(1, 2);
}

#[test]
#[should_panic(expected = "oncurrent")]
fn without_the_fence_of_the_slow_way_it_slips_through() {
    sync::FENCE.set(sync::Fence::None);
    seals_slow_copies(1, 1);
}

#[test]
#[should_panic(expected = "oncurrent")]
fn a_fence_that_orders_no_store_before_a_load_is_too_weak() {
    sync::FENCE.set(sync::Fence::AcqRel);
    seals_slow_copies(1, 1);
}

/// A stream memory operation, the work that waits for its value, and a drain.
struct Draining {
    word: GateWord,
    record: Record,
    operations: AtomicU64,
    /// Work in a stream that is not complete.
    under_way: AtomicU32,
}

impl Draining {
    /// `seal::pass_until_drained`: counted before the driver's call and, with `twice`, after it.
    fn operate(&self, twice: bool) {
        let word = self.record.touch(FRAME, &self.word);
        if word & word::DRAINED == 0 {
            self.operations.fetch_add(1, Ordering::SeqCst);
            self.under_way.store(1, Ordering::SeqCst);
            if twice {
                self.operations.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.record.touched();
    }

    /// `Drain::look`, one round: whether it says that all is drained.
    fn drains(&self) -> bool {
        let before = self.operations.load(Ordering::SeqCst);
        // The marks are put, and are passed.
        if self.under_way.load(Ordering::SeqCst) != 0 {
            return false;
        }
        self.word.change(0, word::DRAINED);
        fence(Ordering::SeqCst);
        while self.record.may_touch() {
            loom::thread::yield_now();
        }
        self.operations.load(Ordering::SeqCst) == before
    }
}

fn drains(twice: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let Launcher { record, .. } = Launcher::new();
        let draining = Arc::new(Draining {
            word: GateWord::of(AtomicU64::new(sealed(AWAY))),
            record,
            operations: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
        });
        let operating = Arc::clone(&draining);
        let operating = loom::thread::spawn(move || operating.operate(twice));
        if draining.drains() {
            let left = draining.under_way.load(Ordering::SeqCst);
            assert_eq!(left, 0, "work is under way");
        }
        operating.join().unwrap();
    });
}

#[test]
fn no_work_of_a_stream_operation_is_missed_by_a_drain() {
    drains(true);
}

#[test]
#[should_panic(expected = "work is under way")]
fn one_counted_only_before_its_call_would_be_missed() {
    drains(false);
}
