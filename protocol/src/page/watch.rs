//! Tells whether a sum over all processes' words may have changed since it was computed.
//!
//! The charges of a tenant are the sum of up to 512 words, each on a cache line of its own. A
//! process that computed the sum remembers it together with the value of this word, and marks in
//! the word that it does. A process that changes its charges reads the word afterwards, and changes
//! it where another process remembers a sum. No remembered sum has the right value then. While no
//! process asks, that read is one load of a line that is not written.
//!
//! It works by the order of four steps: a charge changes its own word, then reads this one; a
//! process that sums writes this one, then reads the words. So one of the two sees the other. A
//! cached sum is only shown, never granted: a process that writes nonsense here misleads only its
//! own tenant's view of free memory.

use super::sync::{AtomicU64, Ordering, fence};

/// The lowest bits tell which processes remember a sum: none, the process of one slot, or several.
const WHO: u64 = 0xFFFF;
const SEVERAL: u64 = WHO;
/// The word rises by this when the remembered sums become invalid.
const STEP: u64 = WHO + 1;

/// One for each device of a tenant. All zero is a valid one.
#[repr(transparent)]
#[derive(Debug)]
pub struct Watch(AtomicU64);

/// The stamp from [`Watch::begin`]: a sum computed after it is right as long as [`Watch::stamp`]
/// returns the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub u64);

impl Watch {
    /// No process remembers a sum.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// This process is about to take a sum and to remember it.
    pub fn begin(&self, writer: Writer) -> Stamp {
        let me = writer.0;
        let join = |now: u64| match now & WHO {
            0 => now | me,
            who if who == me => now,
            _ => now | SEVERAL,
        };
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let next = join(now);
            match self
                .0
                .compare_exchange(now, next, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => {
                    fence(Ordering::SeqCst);
                    return Stamp(next);
                }
                Err(seen) => now = seen,
            }
        }
    }

    /// The value that a remembered sum's stamp is compared with.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        Stamp(self.0.load(Ordering::Acquire))
    }

    /// The word of this process has changed its charges. No action is needed while no other process
    /// caches a sum.
    #[inline]
    pub fn changed(&self, writer: Writer) {
        let now = self.0.load(Ordering::SeqCst);
        let who = now & WHO;
        if who != 0 && who != writer.0 {
            self.forget(now);
        }
    }

    /// As [`Watch::changed`], for a process without a slot.
    pub fn changed_by_another(&self) {
        let now = self.0.load(Ordering::SeqCst);
        if now & WHO != 0 {
            self.forget(now);
        }
    }

    /// If the word has changed by now, another process has invalidated the sums, or has begun to
    /// sum after the change.
    #[cold]
    fn forget(&self, now: u64) {
        let next = (now & !WHO).wrapping_add(STEP);
        let _ = self
            .0
            .compare_exchange(now, next, Ordering::SeqCst, Ordering::Relaxed);
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// How a process names itself in the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer(u64);

impl Writer {
    /// That of the process in `slot`. Slots beyond the page have none of their own.
    pub fn of_slot(slot: usize) -> Self {
        Self(u64::try_from(slot).map_or(SEVERAL, |slot| slot.saturating_add(1).min(SEVERAL)))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::Barrier;

    use super::super::Word;
    use super::*;

    fn slot(slot: usize) -> Writer {
        Writer::of_slot(slot)
    }

    #[test]
    fn a_sum_is_over_when_another_process_charges_and_not_before() {
        let watch = Watch::new();
        let stamp = watch.begin(slot(3));
        watch.changed(slot(3));
        assert_eq!(watch.stamp(), stamp, "one's own charges are known");
        watch.changed(slot(4));
        assert_ne!(watch.stamp(), stamp);
        let idle = watch.stamp();
        watch.changed(slot(4));
        assert_eq!(
            watch.stamp(),
            idle,
            "no process caches a sum, so nothing is written"
        );
    }

    #[test]
    fn two_that_remember_are_both_told_and_may_be_each_other() {
        let watch = Watch::new();
        let (a, b) = (watch.begin(slot(0)), watch.begin(slot(1)));
        assert_ne!(watch.stamp(), a, "the first looks again, once");
        assert_eq!((watch.begin(slot(0)), watch.stamp()), (b, b));
        watch.changed(slot(0));
        assert_ne!(watch.stamp(), b);
        let again = watch.begin(slot(1));
        watch.changed_by_another();
        assert_ne!(watch.stamp(), again);
    }

    /// Two processes change their words as fast as they can while two others cache the sum. An
    /// acknowledgement follows each change, after which no cached sum may be the old one.
    #[test]
    fn no_remembered_sum_survives_a_change_that_was_told() {
        const ROUNDS: u32 = 100_000;
        let (watch, word, barrier) = (Watch::new(), Word::new(), Barrier::new(2));
        let told = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                for round in 1..=ROUNDS {
                    word.charge_anyway(1);
                    watch.changed(slot(7));
                    told.store(u64::from(round), Ordering::Release);
                    if round % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            barrier.wait();
            let mut known = None;
            loop {
                let least = told.load(Ordering::Acquire);
                let sum = match known {
                    Some((stamp, sum)) if watch.stamp() == stamp => sum,
                    _ => {
                        let stamp = watch.begin(slot(0));
                        let sum = u64::from(word.load().charged);
                        known = Some((stamp, sum));
                        sum
                    }
                };
                assert!(sum >= least, "{sum} remembered, {least} told");
                if least == u64::from(ROUNDS) {
                    break;
                }
            }
        });
    }
}
