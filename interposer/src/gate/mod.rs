//! The gate: the one place where a program's work for the devices passes on its way to the driver.
//!
//! While no other tenant is on a device and no cap binds, a launch reads one word, finds it zero,
//! and passes ([`fast`]); its thread's own record shows that it is inside. As soon as a device is
//! not free its launches take the slow path ([`pass`]): they are told apart by device, wait while
//! it is closed, and are recorded ([`drain`]). The drain relies on the guarantee of [`close`] and
//! [`quiet`] together: after them, and until [`open`] or [`free`], no launch on that device reaches
//! the driver. A graph is a launch on its stream's device, whatever devices its nodes are on.
//!
//! Never held back: launches that a capturing stream records, launches by a signal handler that
//! interrupted this library's own code, and launches that the driver will refuse anyway, including
//! those from host callbacks ([`place`]). A launch may be left by a jump wherever it waits and
//! wherever it is in the driver: the abandoned launch is detected ([`left`]).

pub(crate) mod apart;
pub(crate) mod awaited;
pub(crate) mod bell;
mod calm;
mod device_gate;
pub(crate) mod drain;
mod guard;
mod ledger;
mod left;
#[cfg(test)]
mod litmus;
pub(crate) mod marks;
mod owner;
mod records;
mod ring;
pub(crate) mod ringing;
pub(crate) mod seal;
mod stillness;
mod sync;
mod target;
mod thread;
mod tls;
pub(crate) mod word;
pub(crate) mod work;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use gpushare_cuda_abi::cuda::CUresult;
use gpushare_protocol::page::MAX_DEVICES;

use crate::driver::stream_ref::StreamRef;
use crate::guest::frames::{self, Frame};
use crate::guest::{barrier, exit, futex};
pub(crate) use guard::GateGuard;
pub(crate) use ledger::Going;
use ledger::Ledger;
use records::Records;
pub(crate) use target::{Key, LaunchTarget, Work};
pub(crate) use thread::{each_second, follow_leases, joins, wake};
use word::{ANY_SLOW, CALM, DEVICES, FENCED, GateWord, NOT_READY, Record};

const _: () = assert!(DEVICES == MAX_DEVICES, "the word has a bit for each device");

/// A gate. The process has one; tests make their own.
#[derive(Debug)]
pub(crate) struct Gate {
    word: GateWord,
    records: Records,
    /// Rises whenever a device opens; sleeping threads wait on it.
    turn: AtomicU32,
    /// By device, until when a thread is known to wait (`CLOCK_MONOTONIC` ns). A number of them
    /// would never be right again once one leaves its wait by a jump.
    waiting: [AtomicU64; DEVICES],
    /// Sealed devices whose drains hold stream memory operations, a bit each.
    holding: AtomicU32,
    /// Calms that ended since the gate thread last looked; each was published as a submission.
    ended_calms: AtomicU64,
}

static GATE: Gate = Gate::new(NOT_READY);

impl Gate {
    const fn new(bits: u64) -> Self {
        Self {
            word: GateWord::of(AtomicU64::new(bits)),
            records: Records::new(),
            turn: AtomicU32::new(0),
            waiting: [const { AtomicU64::new(0) }; DEVICES],
            holding: AtomicU32::new(0),
            ended_calms: AtomicU64::new(0),
        }
    }

    fn close(&self, device_index: usize) {
        self.word
            .change(0, word::slow(device_index) | word::closed(device_index));
        self.barrier();
    }

    /// Behind a change of the word: each thread inside is seen from here on, or sees the change.
    fn barrier(&self) {
        if self.word.load() & FENCED == 0 && !barrier::heavy() {
            // It was offered when the library started. From now on each launch brings its own;
            // those under way have long been seen by all processors when this thread runs again.
            self.word.change(0, FENCED);
            std::thread::sleep(Duration::from_millis(1));
        }
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// See [`fast`].
    #[inline(always)]
    fn fast(&self, frame: &Frame) -> Option<Inside> {
        let record = tls::get()?;
        let here = frame.address();
        if record.is_inside() {
            // No call from here: the arguments stay where they are. The slow way looks from this
            // far up the stack.
            record.found.store(here, Ordering::Relaxed);
            return None;
        }
        record
            .try_step_in(here, &self.word)
            .then_some(Inside(record))
    }

    fn open(&self, device_index: usize, slow: bool) {
        let set = if slow { word::slow(device_index) } else { 0 };
        self.word
            .change(word::slow(device_index) | word::closed(device_index), set);
        // A thread that has to wait again counts itself again.
        self.waiting[device_index].store(0, Ordering::Release);
        self.turn.fetch_add(1, Ordering::AcqRel);
        futex::wake_all(&self.turn);
    }

    fn is_quiet(&self, device_index: usize) -> bool {
        self.records.crowd().load(Ordering::Acquire) == 0
            && !self
                .records
                .all()
                .any(|record| record.may_submit_to(device_index))
    }

    /// Whether all launches inside have been left by a jump. `known` are the calls found so since
    /// the device was closed.
    fn is_left(&self, device_index: usize, known: &mut Vec<u64>) -> bool {
        let mut inside = self.records.all();
        let mut is_left = |record: &Record, shown: u64| {
            if !known.contains(&shown) && left::is_left(record, shown) {
                known.push(shown);
            }
            known.contains(&shown)
        };
        self.records.crowd().load(Ordering::Acquire) == 0
            && inside.all(|record| {
                let shown = record.shown();
                !word::may_submit(shown, device_index) || is_left(record, shown)
            })
    }
}

/// Whether the call that is inside was left by a jump, seen from the same thread's frame at `here`.
#[cold]
#[inline(never)]
fn was_left(record: &Record, here: u64) -> bool {
    let left = frames::is_gone(word::frame_of(record.shown()), here);
    if left {
        // If it submitted work, that was not recorded.
        ledger::abandon(record);
        device_gate::all()
            .iter()
            .for_each(device_gate::DeviceGate::was_left);
        record.count();
        record.step_out();
    }
    left
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
    exit::watch(thread::stop);
}

/// The gate of a forked child, before its first call. Stores only.
pub(crate) fn after_fork_in_child() {
    GATE.word.reset(NOT_READY);
    GATE.records.forget();
    apart::forget();
    GATE.holding.store(0, Ordering::Relaxed);
    GATE.ended_calms.store(0, Ordering::Relaxed);
    seal::after_fork_in_child();
    work::after_fork_in_child();
    thread::after_fork_in_child();
    for waiting in &GATE.waiting {
        waiting.store(0, Ordering::Relaxed);
    }
    tls::set(None);
}

/// Closes a device: from now on no launch on it begins. A launch that is already inside may still
/// be submitting: see [`quiet`].
pub(crate) fn close(device_index: usize) {
    GATE.close(device_index);
}

/// The launches inside a closed device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quiet {
    /// Threads that may still submit to it.
    No,
    /// Only threads that have left their calls by a jump, perhaps after they submitted.
    Left,
    /// None.
    Yes,
}

/// The launches inside that could submit to `device_index`, since it was closed. Never blocks; a
/// thread may be inside for long, where the driver makes it wait for room in a stream. `left` are
/// the calls that are known to have been left since then.
fn quiet(device_index: usize, left: &mut Vec<u64>) -> Quiet {
    if GATE.is_quiet(device_index) {
        return Quiet::Yes;
    }
    GATE.records.reap();
    if GATE.is_quiet(device_index) {
        Quiet::Yes
    } else if GATE.is_left(device_index, left) {
        Quiet::Left
    } else {
        Quiet::No
    }
}

/// Whether the thread of a ledger has certainly left its launch on `device_index`, by its end or by
/// a jump. A launch in progress that the ledger showed before and still shows afterwards never
/// ends.
fn has_left(device_index: usize, ledger: &Ledger) -> bool {
    let mut records = GATE.records.all();
    let record = records.find(|record| ledger::is_of(ledger, record));
    record.is_some_and(|record| {
        let (owner, shown) = (record.owner.seen(), record.shown());
        records::is_nobodys(owner.thread())
            || word::may_submit(shown, device_index) && left::is_left(record, shown)
    })
}

/// Opens a device; its launches are admitted and noted one by one.
pub(crate) fn open(device_index: usize) {
    GATE.open(device_index, true);
}

/// Opens a device whose launches need no check: the gate costs nothing.
pub(crate) fn free(device_index: usize) {
    awaited::freed();
    GATE.open(device_index, false);
}

/// Whether everything is free and the library active: then the gate ignores the program's waits.
#[inline(always)]
pub(crate) fn is_free() -> bool {
    GATE.word.load() & !CALM == 0
}

/// The program has waited for its work: it uses its devices. `false` where this thread has no
/// record to note it in.
#[inline(always)]
pub(crate) fn waited() -> bool {
    tls::get().map(Record::count).is_some()
}

/// A call that passes no gate has submitted something: for a process whose memory may move.
pub(crate) fn submitted() {
    if seal::may_move() {
        GATE.stirs();
        if !waited() {
            GATE.records.count();
        }
    }
}

/// At the library's first call: what costs a process nothing while it has one thread.
pub(crate) fn prepare() {
    barrier::register_alone();
}

/// Whether anything may bind on any device.
fn is_bound() -> bool {
    GATE.word.load() & ANY_SLOW != 0
}

/// A thread waits for its turn on an open device, until then.
fn will_wait(device_index: usize, until: u64) {
    GATE.waiting[device_index].fetch_max(until, Ordering::AcqRel);
}

/// It does not wait any more. Another one may.
fn has_waited(device_index: usize, until: u64) {
    let waiting = &GATE.waiting[device_index];
    let _ = waiting.compare_exchange(until, 0, Ordering::AcqRel, Ordering::Relaxed);
}

/// Whether a thread waits for a device at `now`: a closed one, or its turn on an open one.
fn is_waited_for(device_index: usize, now: u64) -> bool {
    GATE.waiting[device_index].load(Ordering::Acquire) > now
}

/// This thread is inside, by the fast way.
#[derive(Debug)]
#[must_use = "a close waits for this thread to leave"]
pub(crate) struct Inside(&'static Record);

impl Inside {
    /// The driver has answered.
    #[inline(always)]
    pub(crate) fn leave(self) {
        self.0.count();
        self.0.step_out();
    }
}

/// Steps inside if everything is free and this thread is not inside already. `None`: the launch
/// takes the slow way.
#[inline(always)]
pub(crate) fn fast(frame: &Frame) -> Option<Inside> {
    GATE.fast(frame)
}

/// Steps inside if other tenants share the device, and the launch is of a kind that the thread has
/// launched before. `None`: it takes the slow way.
#[inline(always)]
pub(crate) fn beside(frame: &Frame, stream: StreamRef, key: Key) -> Option<Going> {
    ledger::go(stream, key.number, frame.address())
}

/// A call of this thread's does not take the slow way after all.
#[cold]
pub(crate) fn stepped_aside() {
    if let Some(record) = tls::get() {
        record.found.store(0, Ordering::Relaxed);
    }
}

/// Makes a launch by `call` when its devices allow it. A launch from inside another one, by a
/// signal handler or a callback, is treated like any other.
pub(crate) fn pass(work: &Work<'_>, mut call: impl FnMut() -> CUresult) -> CUresult {
    if exit::is_leaving() && !seal::is_set() {
        return call();
    }
    if let Work::One(stream, key) = work {
        let frame = Frame::new();
        if let Some(going) = beside(&frame, *stream, *key) {
            let answer = call();
            going.ended(answer);
            return answer;
        }
    }
    guard::pass(&GATE, work, &mut call)
}

/// The same for a launch that has just been refused the way [`beside`] others.
pub(crate) fn pass_slowly(work: &Work<'_>, mut call: impl FnMut() -> CUresult) -> CUresult {
    if exit::is_leaving() && !seal::is_set() {
        return call();
    }
    guard::pass(&GATE, work, &mut call)
}
