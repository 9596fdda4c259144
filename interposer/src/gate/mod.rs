//! The gate: the one place where a program's work for the devices passes on its way to the driver.
//!
//! While nobody else is on a device and no cap binds, a launch reads one word, finds it zero, and is through ([`fast`]); that it is
//! inside shows in its thread's own record. As soon as a column is not free its launches take the slow way ([`pass`]): they are told apart by
//! device, wait while it is closed, and are noted ([`drain`]). [`close`] and [`quiet`] together are the promise the drain stands on:
//! after them, and until [`open`] or [`free`], no launch on that column reaches the driver.
//!
//! Never held back: what a capturing stream records, launches from inside another call of this library (a signal handler that interrupted
//! one, the driver calling itself), and what the driver will refuse anyway, calls from host callbacks among it ([`place`]).
//!
//! # Safety
//! `unsafe` turns the pointer to a thread's record into a reference; records are never unmapped.
#![allow(unsafe_code, reason = "the record a thread-local pointer names")]

mod barrier;
mod cap;
mod clock;
mod column;
pub(crate) mod drain;
#[cfg(test)]
mod ending_tests;
mod estimate;
mod futex;
#[cfg(test)]
mod litmus;
mod marks;
mod mirror;
#[cfg(test)]
mod mirror_tests;
mod passage;
mod place;
mod queue;
mod records;
pub(crate) mod streams;
mod sync;
mod thread;
mod tls;
mod window;
#[cfg(test)]
mod window_tests;
mod word;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use gpushare_cuda_abi::cuda::CUresult;
use gpushare_protocol::page::MAX_DEVICES;

use crate::exit;
pub(crate) use passage::Passage;
pub(crate) use place::{Key, Place, Work};
use records::Records;
pub(crate) use thread::{follow_leases, wake};
use word::{ANY_SLOW, COLUMNS, FENCED, NOT_READY, Record, Word};

const _: () = assert!(COLUMNS == MAX_DEVICES, "the word has a bit for each device");

/// A gate. The process has one; tests make their own.
#[derive(Debug)]
pub(crate) struct Gate {
    word: Word,
    records: Records,
    /// Rises whenever a column opens, for those who sleep.
    turn: AtomicU32,
    /// Threads that wait, by column.
    waiting: [AtomicU32; COLUMNS],
}

static GATE: Gate = Gate::new(NOT_READY);

impl Gate {
    const fn new(bits: u64) -> Self {
        Self {
            word: Word::of(AtomicU64::new(bits)),
            records: Records::new(),
            turn: AtomicU32::new(0),
            waiting: [const { AtomicU32::new(0) }; COLUMNS],
        }
    }

    fn close(&self, column: usize) {
        self.word
            .change(0, word::slow(column) | word::closed(column));
        if self.word.load() & FENCED == 0 && !barrier::heavy() {
            // It was offered when the library started. From now on each launch brings its own; those under way have long been seen
            // by all processors when this thread runs again.
            self.word.change(0, FENCED);
            std::thread::sleep(Duration::from_millis(1));
        }
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// See [`fast`].
    #[inline(always)]
    fn fast(&self) -> Option<Inside> {
        // SAFETY: null, or a record, which stays mapped.
        let record: &Record = unsafe { tls::get().as_ref() }?;
        (!record.is_inside() && record.try_step_in(&self.word)).then_some(Inside(record))
    }

    fn open(&self, column: usize, slow: bool) {
        let set = if slow { word::slow(column) } else { 0 };
        self.word
            .change(word::slow(column) | word::closed(column), set);
        self.turn.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&self.turn);
    }

    fn is_quiet(&self, column: usize) -> bool {
        self.records.crowd().load(Ordering::Acquire) == 0
            && !self
                .records
                .all()
                .any(|record| record.may_submit_to(column))
    }
}

/// The library is at work from here on: launches pass the gate.
pub(crate) fn started() {
    let fenced = if barrier::is_offered() {
        0
    } else {
        tracing::info!("no membarrier here: launches bring a barrier of their own");
        FENCED
    };
    GATE.word.change(NOT_READY, fenced);
    exit::watch();
}

/// The process ends: the gate thread stops calling the driver, launches pass. Those that wait now are not made ([`Passage`]).
pub(crate) fn leave() {
    thread::stop();
}

/// The gate of a forked child, before its first call. Stores only.
pub(crate) fn after_fork_in_child() {
    GATE.word.reset(NOT_READY);
    GATE.records.forget();
    thread::after_fork_in_child();
    for waiting in &GATE.waiting {
        waiting.store(0, Ordering::Relaxed);
    }
    tls::set(core::ptr::null());
}

/// Closes a column: from now on no launch on it begins. What is inside already may still be submitting: see [`quiet`].
pub(crate) fn close(column: usize) {
    GATE.close(column);
}

/// Whether nobody is inside any more who could submit to `column`, since it was closed. Never blocks; a thread may be inside for long,
/// where the driver makes it wait for room in a stream.
pub(crate) fn quiet(column: usize) -> bool {
    if !GATE.is_quiet(column) {
        GATE.records.bury();
    }
    GATE.is_quiet(column)
}

/// Opens a column; its launches are admitted and noted one by one.
pub(crate) fn open(column: usize) {
    GATE.open(column, true);
}

/// Opens a column whose launches need no look: the gate is not felt.
pub(crate) fn free(column: usize) {
    GATE.open(column, false);
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> u64 {
    clock::now()
}

/// Whether everything is free and the library at work: then what the program waits for teaches the gate nothing.
#[inline(always)]
pub(crate) fn is_free() -> bool {
    GATE.word.load() == 0
}

/// The program has waited for its work: it uses its devices. `false` where this thread has no record to note it in.
#[inline(always)]
pub(crate) fn waited() -> bool {
    // SAFETY: null, or a record, which stays mapped.
    let record = unsafe { tls::get().as_ref() };
    record.map(Record::count).is_some()
}

/// At the library's first call: what costs a process nothing while it has one thread.
pub(crate) fn prepare() {
    barrier::register_alone();
}

/// Whether anything may bind on any column.
fn is_bound() -> bool {
    GATE.word.load() & ANY_SLOW != 0
}

/// Whether a thread waits for a closed column.
pub(crate) fn waiting(column: usize) -> bool {
    GATE.waiting[column].load(Ordering::Acquire) != 0
}

/// What this process has submitted to all its devices: only that it differs means anything.
pub(crate) fn submissions() -> u64 {
    let counts = GATE.records.all();
    counts
        .map(|record| record.count.load(Ordering::Relaxed))
        .fold(0, u64::wrapping_add)
}

/// This thread is inside, by the fast way.
#[derive(Debug)]
#[must_use = "whoever closes waits for this thread to leave"]
pub(crate) struct Inside(&'static Record);

impl Inside {
    /// The driver has answered.
    #[inline(always)]
    pub(crate) fn leave(self) {
        self.0.count();
        self.0.step_out();
    }
}

/// Steps inside if everything is free and this thread is not inside already. `None`: the launch takes the slow way.
#[inline(always)]
pub(crate) fn fast() -> Option<Inside> {
    GATE.fast()
}

/// Whether this thread is inside already: the launch comes from a signal handler or the driver, and its way was admitted.
pub(crate) fn is_inside() -> bool {
    // SAFETY: null, or a record, which stays mapped.
    unsafe { tls::get().as_ref() }.is_some_and(Record::is_inside)
}

/// Makes a launch by `call` when its devices let it.
pub(crate) fn pass(work: &Work<'_>, mut call: impl FnMut() -> CUresult) -> CUresult {
    if is_inside() || exit::is_leaving() {
        return call();
    }
    passage::pass(&GATE, work, &mut call)
}
