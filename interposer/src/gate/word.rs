//! The gate's word and a thread's record: whether launches may pass, and which are inside. Atomics
//! only, so that a model can check the shipped code.
//!
//! A launching thread writes *I am inside*, then reads the word; a closing thread changes the word,
//! then reads the records. Between its two steps each needs a full barrier, or both could miss the
//! other. The launching thread's barrier costs nothing where the closing one can make every thread
//! pass a barrier (`membarrier`). Where it cannot, [`FENCED`] stands in the word and sends every
//! launch the slow path, which has a barrier of its own.

use crate::gate::sync::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence, light_barrier,
};

/// Devices the word has bits for.
pub(super) const DEVICES: usize = 16;
/// There is no `membarrier` here: launches bring their own barrier.
pub(super) const FENCED: u64 = 1 << 62;
/// The library is not at work (yet).
pub(super) const NOT_READY: u64 = 1 << 63;

/// [`Record::inside`] of a thread that is not.
pub(super) const OUT: u32 = 0;
/// [`Record::inside`] of a thread that may be submitting to any device.
pub(super) const SOMEWHERE: u32 = 1;

/// The bit of a device on which launches take the slow way.
pub(super) const fn slow(device_index: usize) -> u64 {
    1 << device_index
}

/// The bit of a device on which nothing may be launched.
pub(super) const fn closed(device_index: usize) -> u64 {
    1 << (DEVICES + device_index)
}

/// The bit of a device for whose memory the process is sealed: nothing that touches device memory
/// begins, on whatever device. Only the mover sets and clears it.
pub(super) const fn sealed(device_index: usize) -> u64 {
    1 << (2 * DEVICES + device_index)
}

/// All sealed bits.
pub(super) const ANY_SEALED: u64 = ((1 << DEVICES) - 1) << (2 * DEVICES);
/// Beside a sealed bit: all submitted work is complete, or seems to be. From now on stream memory
/// operations are held too, for which that work may have waited.
pub(super) const DRAINED: u64 = 1 << 61;

/// Nothing was submitted for a while: the next launch or copy says first that the process works.
pub(super) const CALM: u64 = 1 << 60;

/// All slow bits.
pub(super) const ANY_SLOW: u64 = (1 << DEVICES) - 1;

/// The word that every launch reads: zero while everything is free.
#[derive(Debug)]
pub(super) struct GateWord(AtomicU64);

impl GateWord {
    /// A gate with this in its word.
    pub(super) const fn of(bits: AtomicU64) -> Self {
        Self(bits)
    }

    /// Its value.
    #[inline(always)]
    pub(super) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Adds `set` and takes `clear` away, in one step.
    pub(super) fn change(&self, clear: u64, set: u64) {
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |bits| {
                Some((bits & !clear) | set)
            });
    }

    /// Sets all of it: for a forked child.
    pub(super) fn reset(&self, bits: u64) {
        self.0.store(bits, Ordering::SeqCst);
    }
}

/// The state that one thread shows of itself. A cache line of its own; never unmapped; all zero is
/// a free one.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Record {
    /// [`OUT`], [`SOMEWHERE`], or 2 and the devices it submits to, shifted by 2.
    pub(super) inside: AtomicU32,
    /// The thread's kernel id, 0 without an owner.
    pub(super) owner: AtomicI32,
    /// Submissions so far, of all owners.
    pub(super) count: AtomicU64,
    /// The frame of the call that is inside: its thread may have left it without a word.
    pub(super) at: AtomicU64,
    /// The frame of a call that found its thread inside already, 0 if it knows that by now.
    pub(super) found: AtomicU64,
    /// The ledger of its thread's launches on the short path, null if there is none yet. It stays
    /// with the record.
    pub(super) ledger: AtomicPtr<()>,
    /// Calls of its thread in the driver that touch device memory and pass no gate, such as copies;
    /// 0 for none. A field of its own: they do not delay the end of a turn, only a seal.
    pub(super) touching: AtomicU32,
    /// The frame of the last of them.
    pub(super) touches_at: AtomicU64,
}

/// The value that [`Record::step_in`] stores for a thread that submits to these devices (a bit
/// each).
pub(super) const fn to(devices: u32) -> u32 {
    2 | devices << 2
}

impl Record {
    /// Whether its thread is inside: then a launch comes from a signal handler, or from the driver
    /// itself.
    #[inline(always)]
    pub(super) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed) != OUT
    }

    /// Steps inside if everything is free, by the call at `frame`. The thread must be outside.
    #[inline(always)]
    pub(super) fn try_step_in(&self, frame: u64, word: &GateWord) -> bool {
        self.at.store(frame, Ordering::Relaxed);
        self.inside.store(SOMEWHERE, Ordering::Relaxed);
        light_barrier();
        if word.load() == 0 {
            return true;
        }
        self.step_out();
        false
    }

    /// Steps inside and returns the word's value then.
    #[inline(always)]
    pub(super) fn step_in(&self, place: u32, word: &GateWord) -> u64 {
        self.inside.store(place, Ordering::Relaxed);
        light_barrier();
        word.load()
    }

    /// Steps in with a call that touches device memory and passes no gate, if everything is free
    /// `but` for these bits, by the call at `frame`. Its thread must have no other one in the
    /// driver.
    #[inline(always)]
    pub(super) fn try_touch(&self, frame: u64, word: &GateWord, but: u64) -> bool {
        self.touches_at.store(frame, Ordering::Relaxed);
        self.touching.store(1, Ordering::Relaxed);
        light_barrier();
        if word.load() & !but == 0 {
            return true;
        }
        self.touched();
        false
    }

    /// Steps in with such a call beside those that it interrupts, by a barrier of its own. Returns
    /// the word's value then.
    pub(super) fn touch(&self, beside: u32, frame: u64, word: &GateWord) -> u64 {
        self.touches_at.store(frame, Ordering::Relaxed);
        self.touching.store(beside + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        word.load()
    }

    /// The only such call has left the driver.
    #[inline(always)]
    pub(super) fn touched(&self) {
        self.touching.store(0, Ordering::Release);
    }

    /// Whether a call of its thread that can touch device memory may be in the driver. For the
    /// sealing thread, behind its barrier.
    pub(super) fn may_touch(&self) -> bool {
        const { assert!(OUT == 0) }
        self.inside.load(Ordering::Acquire) | self.touching.load(Ordering::Acquire) != 0
    }

    /// Counts a submission, which the driver has. Only the owner does; a signal handler between may
    /// lose one.
    #[inline(always)]
    pub(super) fn count(&self) {
        let before = self.count.load(Ordering::Relaxed);
        self.count.store(before.wrapping_add(1), Ordering::Release);
    }

    /// Its thread has died, or has left its calls by a jump: whatever they submitted counts.
    pub(super) fn was_left(&self) {
        if self.may_touch() {
            self.count();
        }
        self.step_out();
        self.touched();
    }

    /// Its content, and the call that wrote it.
    pub(super) fn shown(&self) -> (u32, u64) {
        let inside = self.inside.load(Ordering::Relaxed);
        (inside, self.at.load(Ordering::Relaxed))
    }

    /// Restores the content of a call that is still inside.
    pub(super) fn step_back(&self, inside: u32, frame: u64) {
        self.at.store(frame, Ordering::Relaxed);
        self.inside.store(inside, Ordering::Release);
    }

    /// Steps outside.
    #[inline(always)]
    pub(super) fn step_out(&self) {
        self.inside.store(OUT, Ordering::Release);
    }

    /// Whether its thread may be submitting to `device_index`. For the closing thread, behind its
    /// barrier.
    pub(super) fn may_submit_to(&self, device_index: usize) -> bool {
        match self.inside.load(Ordering::Acquire) {
            OUT => false,
            SOMEWHERE => true,
            place => place >> 2 & 1 << device_index != 0,
        }
    }
}
