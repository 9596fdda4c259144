//! The seal: while one is set, no call of the process that can touch device memory is in the
//! driver.
//!
//! The gate is no seal. Copies pass it, and it opens by itself when the daemon is silent. A seal is
//! set and cleared by the mover alone, which moves the memory away meanwhile. It is set for one
//! device and holds the process on all of them, because work on one may touch memory of another.
//! Launches find it in the gate's word. Calls that pass no gate, such as copies, show themselves in
//! a field of their own in their thread's record ([`Record::touching`]), and only in a process
//! whose memory may move ([`may_move`]). So nothing of this costs other processes more than one
//! load.
//!
//! Stream memory operations are held only once all submitted work is complete: that work may wait
//! for a value which one of them writes. A held call holds no lock or guard, because a jump
//! may leave it. Why: ADR 82.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use gpushare_cuda_abi::cuda::CUresult;
use gpushare_protocol::wire::Request;

use super::guard::NAP;
use super::left;
use super::{GATE, Gate, tls};
use crate::account;
use crate::driver::contexts;
use crate::gate::word::{self, ANY_SEALED, CALM, DEVICES, DRAINED, OUT, Record, SOMEWHERE};
use crate::guest::background::Uncancelled;
use crate::guest::exit;
use crate::guest::frames::{self, Frame};
use crate::guest::futex::{FutexWaiter, wake_all};

/// The memory of this process may move.
static MOVES: AtomicBool = AtomicBool::new(false);
/// Devices whose seal a call has met, a bit each.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// Stream memory operations that passed: two for each that is over.
static OPERATIONS: AtomicU64 = AtomicU64::new(0);

/// A part of the process's memory is lost while it was away.
static MEMORY_LOST: AtomicBool = AtomicBool::new(false);

/// The answer of all calls that touch device memory from then on: as of a device that is gone.
pub(crate) const LOST: CUresult = CUresult::DEVICE_UNAVAILABLE;

/// Memory of the process cannot be brought back, ever: its calls fail instead of waiting. The seal
/// stays, so that no call sees other bytes.
pub(crate) fn lose() {
    MEMORY_LOST.store(true, Ordering::SeqCst);
    GATE.stir();
}

/// Whether that is so.
pub(crate) fn is_lost() -> bool {
    MEMORY_LOST.load(Ordering::SeqCst)
}

/// Whether seals may be set in this process.
#[inline(always)]
pub(crate) fn may_move() -> bool {
    MOVES.load(Ordering::Relaxed)
}

/// Whether a memset or copy may be for movable memory that the current context's device has no
/// right to: the process's memory moves, and it has contexts on more than one device.
#[inline(always)]
pub(crate) fn is_spread() -> bool {
    may_move() && contexts::on_several_devices()
}

/// From now on calls that touch device memory show themselves. Before the process has a context.
pub(crate) fn take_part() {
    MOVES.store(true, Ordering::SeqCst);
}

/// A forked child has no memory of the device. Stores only.
pub(super) fn after_fork_in_child() {
    MOVES.store(false, Ordering::Relaxed);
    WANTED.store(0, Ordering::Relaxed);
    MEMORY_LOST.store(false, Ordering::Relaxed);
}

/// Whether any seal is set.
pub(crate) fn is_set() -> bool {
    GATE.word.load() & ANY_SEALED != 0
}

/// Waits at the seal, as a call that touches device memory does. Whether one was set, and such a
/// call goes on.
pub(crate) fn waits() -> bool {
    is_set() && pass(|| CUresult::SUCCESS).is_success()
}

/// Seals: from now on no call begins that touches device memory.
pub(crate) fn set(device_index: usize) {
    WANTED.fetch_and(!(1 << device_index), Ordering::AcqRel);
    GATE.seal(device_index);
}

/// Takes the seal away.
pub(crate) fn clear(device_index: usize) {
    GATE.unseal(device_index);
}

/// Holds stream memory operations too for a device that is sealed, or no more for this one: they go
/// on once no device holds them.
pub(crate) fn hold_operations(device_index: usize, hold: bool) {
    GATE.hold_operations(device_index, hold);
}

/// Whether a call waits, or has waited, since a device was sealed.
pub(crate) fn is_wanted(device_index: usize) -> bool {
    WANTED.load(Ordering::Acquire) & 1 << device_index != 0
}

/// Changes when a stream memory operation enters the driver, and when it leaves it.
pub(crate) fn operations() -> u64 {
    OPERATIONS.load(Ordering::SeqCst)
}

/// Whether no call that can touch device memory is in the driver. Calls that were left by a jump
/// are not.
pub(crate) fn is_still() -> bool {
    GATE.is_still() || {
        GATE.records.reap();
        GATE.is_still() || GATE.is_abandoned()
    }
}

/// A call that touches device memory and passes no gate is in the driver.
#[derive(Debug)]
#[must_use = "a seal waits for this thread to leave"]
pub(crate) struct Touching(&'static Record);

impl Touching {
    /// The driver has answered. It is a memset or a copy: work of the process, as a launch is.
    #[inline(always)]
    pub(crate) fn leave(self) {
        self.0.count();
        self.0.touched();
    }
}

/// Steps in if everything is free and the thread has no other such call in the driver. `None`: it
/// takes the slow way.
#[inline(always)]
pub(crate) fn fast(frame: &Frame) -> Option<Touching> {
    GATE.try_touch(frame, 0)
}

/// Makes a call that touches device memory and passes no gate by `call`, while no seal is set.
#[inline]
pub(crate) fn pass(call: impl FnOnce() -> CUresult) -> CUresult {
    if may_move() {
        passing(&GATE, ANY_SEALED, call)
    } else {
        call()
    }
}

/// The same for a copy or a prefetch, which counts as work of the process. A process that only
/// copied would count as idle otherwise, and its memory would leave first.
#[inline]
pub(crate) fn pass_work(call: impl FnOnce() -> CUresult) -> CUresult {
    if may_move() {
        GATE.stirs();
    }
    let answer = pass(call);
    super::submitted();
    answer
}

/// Changes the books of movable memory by `change` while no seal is set. It calls no driver.
///
/// # Errors
/// As a call that a seal holds for ever.
#[inline]
pub(crate) fn pass_books<R>(change: impl FnOnce() -> R) -> Result<R, CUresult> {
    try_pass_books(change).or_else(pass_books_slowly)
}

/// The same if it can be done at once.
///
/// # Errors
/// `change` itself: a seal is set, or another such call of this thread was interrupted.
#[inline]
pub(crate) fn try_pass_books<R, F: FnOnce() -> R>(change: F) -> Result<R, F> {
    let frame = Frame::new();
    // It is no work, and ends no calm.
    match GATE.try_touch(&frame, CALM) {
        Some(touching) => {
            let _within = Within(touching);
            Ok(change())
        }
        None => Err(change),
    }
}

#[cold]
fn pass_books_slowly<R>(change: impl FnOnce() -> R) -> Result<R, CUresult> {
    let mut made = None;
    let answer = pass(|| {
        made = Some(change());
        CUresult::SUCCESS
    });
    made.ok_or(answer)
}

/// Steps out when dropped, without a submission.
struct Within(Touching);

impl Drop for Within {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.0.touched();
    }
}

/// Makes a stream memory operation by `call`, unless a seal is set and all work is complete.
#[inline]
pub(crate) fn pass_until_drained(call: impl FnOnce() -> CUresult) -> CUresult {
    if !may_move() {
        return call();
    }
    passing(&GATE, DRAINED, || {
        // Before and after: one that is in the driver when the count is read changes it later.
        OPERATIONS.fetch_add(1, Ordering::SeqCst);
        let answer = call();
        OPERATIONS.fetch_add(1, Ordering::SeqCst);
        answer
    })
}

/// A launch that came from a signal handler interrupts the one that `record` has `shown` as inside:
/// that one is in the driver. Returns what else was shown there, to be shown again afterwards.
pub(super) fn interrupts(record: &Record, shown: u64) -> u64 {
    let interrupted = word::frame_of(shown) | SOMEWHERE;
    record.touching.swap(interrupted, Ordering::SeqCst)
}

/// Where it shows that a call is in the driver.
#[derive(Debug)]
enum Seat {
    /// In its thread's record, which showed this of a call that it interrupts.
    Own(&'static Record, u64),
    /// The system has no page for one more record: it is counted with others.
    Shared(&'static AtomicU32),
}

impl Seat {
    fn of(gate: &'static Gate, frame: &Frame) -> Self {
        let Some(record) = tls::get().or_else(|| gate.records.claim()) else {
            return Self::Shared(gate.records.touching());
        };
        tls::set(Some(record));
        let mut outer = record.touching.load(Ordering::Relaxed);
        if outer != OUT && frames::is_gone(word::frame_of(outer), frame.address()) {
            // It was left by a jump, perhaps after it had submitted something.
            record.count();
            outer = OUT;
        }
        Self::Own(record, outer)
    }

    fn step_in(&self, gate: &Gate, frame: &Frame) -> u64 {
        match self {
            Self::Own(record, _) => record.touch(frame.address(), &gate.word),
            Self::Shared(count) => {
                count.fetch_add(1, Ordering::SeqCst);
                fence(Ordering::SeqCst);
                gate.word.load()
            }
        }
    }

    fn step_out(&self) {
        match self {
            Self::Own(record, outer) => record.touches_again(*outer),
            Self::Shared(count) => {
                count.fetch_sub(1, Ordering::Release);
            }
        }
    }
}

/// Steps out when dropped: also when `call` panics.
struct In<'a>(&'a Seat);

impl Drop for In<'_> {
    fn drop(&mut self) {
        self.0.step_out();
    }
}

/// Makes the call when none of these bits stands in the word.
pub(super) fn passing(
    gate: &'static Gate,
    held_by: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let _uncancelled = Uncancelled::begin();
    let frame = Frame::new();
    let seat = Seat::of(gate, &frame);
    loop {
        let word = seat.step_in(gate, &frame);
        let inside = In(&seat);
        if word & held_by == 0 {
            return call();
        }
        drop(inside);
        if exit::is_leaving() {
            // The memory will not come back: the process ends. An error, never other data.
            exit::hold();
            return CUresult::DEINITIALIZED;
        }
        if is_lost() {
            return LOST;
        }
        gate.sleep_sealed(held_by);
    }
}

impl Gate {
    /// See [`fast`]; free also with these bits.
    #[inline(always)]
    pub(super) fn try_touch(&self, frame: &Frame, but: u64) -> Option<Touching> {
        let record = tls::get()?;
        let is_only = record.touching.load(Ordering::Relaxed) == OUT;
        let steps_in = || record.try_touch(frame.address(), &self.word, but);
        (is_only && steps_in()).then_some(Touching(record))
    }

    pub(super) fn seal(&self, device_index: usize) {
        self.word.change(0, word::sealed(device_index));
        self.barrier();
    }

    pub(super) fn unseal(&self, device_index: usize) {
        self.word.change(word::sealed(device_index), 0);
        self.hold_operations(device_index, false);
    }

    /// See [`hold_operations`].
    pub(super) fn hold_operations(&self, device_index: usize, hold: bool) {
        let bit = 1 << device_index;
        if hold {
            self.holding.fetch_or(bit, Ordering::SeqCst);
            self.word.change(0, DRAINED);
            self.barrier();
        } else {
            // The mover's thread alone holds and lets go.
            if self.holding.fetch_and(!bit, Ordering::SeqCst) & !bit == 0 {
                self.word.change(DRAINED, 0);
            }
            self.stir();
        }
    }

    /// Has held calls read the word again.
    fn stir(&self) {
        self.turn.fetch_add(1, Ordering::AcqRel);
        wake_all(&self.turn);
    }

    /// One nap of a call that these bits hold.
    pub(super) fn sleep_sealed(&'static self, held_by: u64) {
        let cleared = FutexWaiter::own(&self.turn);
        let word = self.word.load();
        if word & held_by != 0 {
            say_wanted(word);
            frames::away(|| cleared.sleep(NAP));
        }
    }

    pub(super) fn is_still(&self) -> bool {
        self.records.crowd().load(Ordering::Acquire) == 0
            && self.records.touching().load(Ordering::Acquire) == 0
            && !self.records.all().any(Record::may_touch)
    }

    /// Whether all calls that seem to be in the driver have been left by a jump.
    fn is_abandoned(&self) -> bool {
        let has_left = |record: &Record| {
            let shown = record.shown();
            let launch = shown == OUT || left::is_left(record, shown);
            let shown = record.touching.load(Ordering::Acquire);
            launch && (shown == OUT || left::has_left_touching(record, shown))
        };
        self.records.crowd().load(Ordering::Acquire) == 0
            && self.records.touching().load(Ordering::Acquire) == 0
            && self.records.all().all(has_left)
    }
}

/// Tells the daemon, once for each seal, that a call waits.
fn say_wanted(word: u64) {
    for device_index in (0..DEVICES).filter(|device_index| word & word::sealed(*device_index) != 0)
    {
        let bit = 1 << device_index;
        if WANTED.fetch_or(bit, Ordering::AcqRel) & bit == 0
            && let Ok(device_index) = u8::try_from(device_index)
            && let Some(session) = account::compute().and_then(|compute| compute.session)
        {
            session.says(&Request::WantIn { device_index });
        }
    }
}
