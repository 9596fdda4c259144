//! The gate's word and a thread's record: whether launches may pass, and which are inside. Atomics
//! only, so that a model can check the shipped code.
//!
//! A launching thread writes *I am inside*, then reads the word; a closing thread changes the word,
//! then reads the records. Between its two steps each needs a full barrier, or both could miss the
//! other. The launching thread's barrier costs nothing where the closing one can make every thread
//! pass a barrier (`membarrier`). Where it cannot, [`FENCED`] stands in the word and sends every
//! launch the slow path, which has a barrier of its own.

use crate::gate::owner::Owner;
use crate::gate::sync::{AtomicPtr, AtomicU64, Ordering, fence, light_barrier};

/// Devices the word has bits for.
pub(super) const DEVICES: usize = 16;
/// There is no `membarrier` here: launches bring their own barrier.
pub(super) const FENCED: u64 = 1 << 62;
/// The library is not at work (yet).
pub(super) const NOT_READY: u64 = 1 << 63;

/// The content of a record without a call.
pub(super) const OUT: u64 = 0;
/// The place of a call that may be submitting to any device.
pub(super) const SOMEWHERE: u64 = 1;
/// The place of a call that submits to the devices of its highest bits, one each.
const DEVICES_ONLY: u64 = 2;
/// Bits that the address of a frame has beside them. Linux gives a program no address with more,
/// unless the program asks for one. The lowest two are 0.
pub(super) const FRAME_BITS: u32 = 48;
const _: () = assert!(FRAME_BITS as usize + DEVICES == u64::BITS as usize);

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
    /// [`OUT`], or the place of the call that is inside and its frame: its thread may have left it
    /// without a word. One word, so that a signal handler between two stores cannot leave its own
    /// frame there for the call that it interrupts.
    pub(super) inside: AtomicU64,
    /// The thread that it is for.
    pub(super) owner: Owner,
    /// Submissions so far, of all owners.
    pub(super) count: AtomicU64,
    /// The frame of a call that found its thread inside already, 0 if it knows that by now.
    pub(super) found: AtomicU64,
    /// The ledger of its thread's launches on the short path, null if there is none yet. It stays
    /// with the record.
    pub(super) ledger: AtomicPtr<()>,
    /// The same as `inside` of the last call of its thread in the driver that touches device memory
    /// and passes no gate, such as a copy. A field of its own: it does not delay the end of a turn,
    /// only a seal.
    pub(super) touching: AtomicU64,
}

/// The place of a call that submits to these devices (a bit each).
pub(super) const fn to(devices: u32) -> u64 {
    DEVICES_ONLY | (devices as u64) << FRAME_BITS
}

/// The frame of the call that a record shows.
pub(super) const fn frame_of(shown: u64) -> u64 {
    let frame = shown & !(SOMEWHERE | DEVICES_ONLY);
    if shown & SOMEWHERE == 0 {
        frame & ((1 << FRAME_BITS) - 1)
    } else {
        frame
    }
}

/// Whether the call that a record shows may be submitting to `device_index`.
pub(super) const fn may_submit(shown: u64, device_index: usize) -> bool {
    shown & SOMEWHERE != 0 || shown >> FRAME_BITS & 1 << device_index != 0
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
        self.inside.store(frame | SOMEWHERE, Ordering::Relaxed);
        light_barrier();
        if word.load() == 0 {
            return true;
        }
        self.step_out();
        false
    }

    /// Steps inside, by the call at `frame`, and returns the word's value then.
    #[inline(always)]
    pub(super) fn step_in(&self, frame: u64, place: u64, word: &GateWord) -> u64 {
        self.inside.store(frame | place, Ordering::Relaxed);
        light_barrier();
        word.load()
    }

    /// Steps in with a call that touches device memory and passes no gate, if everything is free
    /// `but` for these bits, by the call at `frame`. Its thread must have no other one in the
    /// driver.
    #[inline(always)]
    pub(super) fn try_touch(&self, frame: u64, word: &GateWord, but: u64) -> bool {
        self.touching.store(frame | SOMEWHERE, Ordering::Relaxed);
        light_barrier();
        if word.load() & !but == 0 {
            return true;
        }
        self.touched();
        false
    }

    /// Steps in with such a call, by a barrier of its own. Returns the word's value then. One that
    /// it interrupts is shown again by [`touches_again`](Self::touches_again).
    pub(super) fn touch(&self, frame: u64, word: &GateWord) -> u64 {
        self.touching.store(frame | SOMEWHERE, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        word.load()
    }

    /// The only such call has left the driver.
    #[inline(always)]
    pub(super) fn touched(&self) {
        self.touches_again(OUT);
    }

    /// The last such call has left the driver; this was shown before it.
    #[inline(always)]
    pub(super) fn touches_again(&self, shown: u64) {
        self.touching.store(shown, Ordering::Release);
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

    /// Its content of the call that is inside.
    pub(super) fn shown(&self) -> u64 {
        self.inside.load(Ordering::Acquire)
    }

    /// Shows a call again that is still inside.
    pub(super) fn step_back(&self, shown: u64) {
        self.inside.store(shown, Ordering::Release);
    }

    /// Steps outside.
    #[inline(always)]
    pub(super) fn step_out(&self) {
        self.inside.store(OUT, Ordering::Release);
    }

    /// Whether its thread may be submitting to `device_index`. For the closing thread, behind its
    /// barrier.
    pub(super) fn may_submit_to(&self, device_index: usize) -> bool {
        may_submit(self.shown(), device_index)
    }
}
