//! The launches that a thread made without the device's lock, until a thread with that lock enters
//! them into the device's accounts. Atomics only, so that a model can check the shipped code.
//!
//! Only its thread adds, one launch after another, before it calls the driver; only the holder of
//! the device's lock takes out. The amount of such launches is an [`Allowance`] of the device. A
//! launch is announced in its ring first and takes from the allowance then. A reader takes the
//! allowance away first and reads the rings then. So a launch that the reader does not see finds no
//! allowance, and is not made this way.

use crate::gate::sync::{AtomicU32, AtomicU64, Ordering};

/// The outcome of a launch, in the lowest bits of [`Slot::what`]. A launch that was given up and
/// returned after all is counted as made: both bits.
const LAUNCHING: u32 = 0;
const MADE: u32 = 1;
const NOT_MADE: u32 = 2;
const STATES: u32 = 2;

const fn state_of(what: u32) -> u32 {
    what & ((1 << STATES) - 1)
}

/// One launch.
#[derive(Debug)]
struct Slot {
    /// When it was announced, in ticks.
    at: AtomicU64,
    /// Its kind, as the thread numbers it, and its outcome.
    what: AtomicU32,
}

/// The launches of one thread.
#[derive(Debug)]
pub(super) struct Ring<const SLOTS: usize> {
    /// Launches announced and taken out so far.
    head: AtomicU64,
    tail: AtomicU64,
    slots: [Slot; SLOTS],
}

/// A launch as it is taken out: its kind, and when it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    pub(super) of: u32,
    pub(super) at: u64,
}

impl<const SLOTS: usize> Ring<SLOTS> {
    /// An empty one: all zeros.
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        let slot = |_| Slot {
            at: AtomicU64::new(0),
            what: AtomicU32::new(0),
        };
        Self {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            slots: core::array::from_fn(slot),
        }
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest bits are enough"
    )]
    fn slot(&self, number: u64) -> &Slot {
        &self.slots[number as usize % SLOTS]
    }

    /// Announces a launch; [`ended`](Self::ended) follows with the returned number. `None` if there
    /// is no room. For its thread.
    #[inline(always)]
    pub(super) fn announce(&self, launch: Launch) -> Option<u64> {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) >= SLOTS as u64 {
            return None;
        }
        let slot = self.slot(head);
        slot.at.store(launch.at, Ordering::Relaxed);
        slot.what
            .store(launch.of << STATES | LAUNCHING, Ordering::Relaxed);
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Some(head)
    }

    /// The launch `number` was made, or not. For its thread.
    #[inline(always)]
    pub(super) fn ended(&self, number: u64, made: bool) {
        let what = &self.slot(number).what;
        let state = if made { MADE } else { NOT_MADE };
        what.store(what.load(Ordering::Relaxed) | state, Ordering::Release);
    }

    /// How many have been taken out: the number of the next one. For the thread that takes out.
    pub(super) fn taken_out(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    /// Whether all that was announced has been taken out.
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }

    /// Takes out completed launches in their order: the last of each run of one kind, and how many
    /// the run has. A launch in progress stays, and is returned. For one thread at a time, which
    /// has taken the allowance away.
    pub(super) fn take_out(&self, mut made: impl FnMut(Launch, u32)) -> Option<Launch> {
        // A launch that is announced from here on finds no allowance.
        let head = self.head.load(Ordering::Acquire);
        let mut tail = self.tail.load(Ordering::Relaxed);
        let mut launching = None;
        while tail != head {
            let what = self.slot(tail).what.load(Ordering::Acquire);
            if state_of(what) == LAUNCHING {
                launching = Some(self.launch(tail, what));
                break;
            }
            let (mut last, mut count) = (tail, 1);
            tail = tail.wrapping_add(1);
            while tail != head && self.slot(tail).what.load(Ordering::Acquire) == what {
                (last, count) = (tail, count + 1);
                tail = tail.wrapping_add(1);
            }
            if state_of(what) != NOT_MADE {
                made(self.launch(last, what), count);
            }
        }
        self.tail.store(tail, Ordering::Release);
        launching
    }

    fn launch(&self, number: u64, what: u32) -> Launch {
        Launch {
            of: what >> STATES,
            at: self.slot(number).at.load(Ordering::Relaxed),
        }
    }

    /// The launch in progress was left by a jump, or its thread has died: it is not waited for.
    pub(super) fn abandon(&self) {
        let head = self.head.load(Ordering::Acquire);
        if head != self.tail.load(Ordering::Acquire) {
            let what = &self.slot(head.wrapping_sub(1)).what;
            let seen = what.load(Ordering::Acquire);
            if state_of(seen) == LAUNCHING {
                let dropped = seen | NOT_MADE;
                let _ = what.compare_exchange(seen, dropped, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

/// How much may be launched on a device without its lock, in expected nanoseconds.
#[derive(Debug)]
pub(super) struct Allowance(AtomicU64);

impl Allowance {
    /// The longest launch that may take from it (ns).
    pub(super) const MOST: u64 = 1 << 61;

    /// None.
    pub(super) const fn of(none: AtomicU64) -> Self {
        Self(none)
    }

    /// Takes `ns` from it, at most [`MOST`](Self::MOST). `false` if there would be no room for one
    /// more such launch: the last one of an allowance is made with the lock.
    #[inline(always)]
    pub(super) fn takes(&self, ns: u64) -> bool {
        // Both a full barrier between the announcement and later reads of other threads, and an
        // order with threads that take it away.
        let before = self.0.fetch_sub(ns, Ordering::AcqRel).cast_signed();
        before >= ns.wrapping_mul(2).cast_signed()
    }

    /// Takes it away. From now on the reader sees every announcement made with a part of it.
    pub(super) fn revoke(&self) {
        self.0.swap(0, Ordering::AcqRel);
    }

    /// From now on so much may be launched.
    pub(super) fn grant(&self, ns: u64) {
        self.0.store(ns, Ordering::Release);
    }
}
