//! The word {charged, credit}: the memory that one process holds and may hold on one device, in
//! units of 512 bytes.
//!
//! Every operation is one compare-and-swap loop and keeps `charged <= credit`, with one exception.
//! The process that owns the word charges and releases; the holder of the tenant lock may also
//! [`Word::reclaim`] unused credit. A daemon that lowers a limit below the charges may
//! [`Word::bind`] a word: its credit is then less than its charges. So nothing can be charged
//! without the lock, and released memory does not become credit.

use super::sync::{AtomicU64, Ordering};

/// One process's charges and credit on one device. All-zero memory is a valid, empty word.
#[repr(transparent)]
#[derive(Debug)]
pub struct Word(AtomicU64);

/// A word taken apart. Both numbers are in units of 512 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Booked before the driver was asked.
    pub charged: u32,
    /// May be booked without asking.
    pub credit: u32,
}

/// A charge that does not fit in the credit at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// Credit missing, in units; at least one.
    pub by: u64,
}

impl Split {
    const fn pack(self) -> u64 {
        (self.charged as u64) << 32 | self.credit as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of the word are taken apart on purpose"
    )]
    const fn unpack(word: u64) -> Self {
        Self {
            charged: (word >> 32) as u32,
            credit: word as u32,
        }
    }

    /// The word's value in a sum that must not exceed a limit: its credit, and in a bound word the
    /// charges above that.
    pub const fn held(self) -> u32 {
        if self.charged > self.credit {
            self.charged
        } else {
            self.credit
        }
    }

    /// Credit that is not used. Zero in a bound word.
    pub const fn unused(self) -> u32 {
        self.credit.saturating_sub(self.charged)
    }
}

impl Word {
    /// An empty word: nothing charged, no credit.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The word as it is now.
    #[inline]
    pub fn load(&self) -> Split {
        Split::unpack(self.0.load(Ordering::Acquire))
    }

    /// Charges `units` within the credit at hand.
    ///
    /// # Errors
    /// [`Short`] if the credit does not suffice; the word is unchanged.
    #[inline]
    pub fn charge(&self, units: u32) -> Result<(), Short> {
        self.charge_taking(units, 0, 0).map(drop)
    }

    /// Charges `units`. Where the available credit does not suffice, takes up to `step` units of
    /// credit out of `available`, and at least the missing ones. Returns the credit taken.
    ///
    /// Raising credit is the tenant lock's holder's right: without the lock `available` must be
    /// zero.
    ///
    /// # Errors
    /// [`Short`] if more than `available` would be needed; the word is unchanged.
    #[inline]
    pub fn charge_taking(&self, units: u32, available: u64, step: u64) -> Result<u32, Short> {
        self.update(|now| {
            let wanted = u64::from(now.charged) + u64::from(units);
            let missing = wanted.saturating_sub(u64::from(now.credit));
            let Ok(charged) = u32::try_from(wanted) else {
                return Err(Short { by: missing.max(1) });
            };
            if missing == 0 {
                return Ok((Split { charged, ..now }, 0));
            }
            if missing > available {
                return Err(Short { by: missing });
            }
            let taken = step
                .clamp(missing, available)
                .min(u64::from(u32::MAX - now.credit));
            let taken = u32::try_from(taken).unwrap_or(u32::MAX - now.credit);
            Ok((
                Split {
                    charged,
                    credit: now.credit + taken,
                },
                taken,
            ))
        })
    }

    /// Charges `units` whatever the credit, which rises with the charge where it must. Returns the
    /// charged units: less than `units` only where the word is at its maximum.
    ///
    /// For devices without a limit, and for bytes the driver has already taken and cannot give
    /// back.
    pub fn charge_anyway(&self, units: u32) -> u32 {
        let booked = self.update(|now| -> Result<_, std::convert::Infallible> {
            let charged = now.charged.saturating_add(units);
            Ok((
                Split {
                    charged,
                    credit: now.credit.max(charged),
                },
                charged - now.charged,
            ))
        });
        match booked {
            Ok(units) => units,
            Err(never) => match never {},
        }
    }

    /// Releases `units`; the credit stays, for the next charge. Never goes below zero. Returns the
    /// released units.
    #[inline]
    pub fn release(&self, units: u32) -> u32 {
        let given = self.update(|now| -> Result<_, std::convert::Infallible> {
            let given = units.min(now.charged);
            Ok((
                Split {
                    charged: now.charged - given,
                    ..now
                },
                given,
            ))
        });
        match given {
            Ok(units) => units,
            Err(never) => match never {},
        }
    }

    /// Takes back up to `at_most` units of unused credit. Returns the units taken. For the tenant
    /// lock's holder.
    pub fn reclaim(&self, at_most: u64) -> u32 {
        self.update(|now| {
            let taken = u32::try_from(at_most).unwrap_or(u32::MAX).min(now.unused());
            if taken == 0 {
                Err(())
            } else {
                Ok((
                    Split {
                        credit: now.credit - taken,
                        ..now
                    },
                    taken,
                ))
            }
        })
        .unwrap_or(0)
    }

    /// Takes all credit, also the credit under existing charges: nothing more can be charged before
    /// credit is raised under the tenant lock, and released memory does not return as credit
    /// meanwhile. For a daemon whose tenant is above its limit.
    pub fn bind(&self) {
        let bound = self.update(|now| {
            if now.credit == 0 {
                Err(())
            } else {
                Ok((Split { credit: 0, ..now }, ()))
            }
        });
        // Bound already.
        let _ = bound;
    }

    /// Empties the word of a process that is gone, and returns its value. For the tenant lock's
    /// holder.
    pub fn clear(&self) -> Split {
        Split::unpack(self.0.swap(0, Ordering::SeqCst))
    }

    #[inline]
    fn update<T, E>(&self, change: impl Fn(Split) -> Result<(Split, T), E>) -> Result<T, E> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let (next, answer) = change(Split::unpack(now))?;
            match self.0.compare_exchange_weak(
                now,
                next.pack(),
                // In one order with the following check for cached sums (`watch`).
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(answer),
                Err(seen) => now = seen,
            }
        }
    }
}

impl Default for Word {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn word(charged: u32, credit: u32) -> Word {
        let word = Word::new();
        word.charge_taking(credit, u64::MAX, 0).unwrap();
        word.release(credit - charged);
        word
    }

    #[test]
    fn a_charge_within_credit_is_booked() {
        let word = word(2, 10);
        assert_eq!(word.charge(8), Ok(()));
        assert_eq!(
            word.load(),
            Split {
                charged: 10,
                credit: 10
            }
        );
    }

    #[test]
    fn a_charge_above_credit_changes_nothing_and_says_what_is_missing() {
        let word = word(2, 10);
        assert_eq!(word.charge(11), Err(Short { by: 3 }));
        assert_eq!(
            word.load(),
            Split {
                charged: 2,
                credit: 10
            }
        );
    }

    #[test]
    fn freed_units_can_be_charged_again() {
        let word = word(10, 10);
        assert_eq!(word.release(4), 4);
        assert_eq!(word.charge(4), Ok(()));
        assert_eq!(word.charge(1), Err(Short { by: 1 }));
    }

    #[test]
    fn a_release_never_goes_below_zero() {
        let word = word(3, 10);
        assert_eq!(word.release(4), 3);
        assert_eq!(
            word.load(),
            Split {
                charged: 0,
                credit: 10
            }
        );
    }

    #[test]
    fn a_step_of_credit_is_cut_to_what_is_available() {
        let word = word(0, 0);
        assert_eq!(word.charge_taking(5, 7, 100), Ok(7));
        assert_eq!(
            word.load(),
            Split {
                charged: 5,
                credit: 7
            }
        );
    }

    #[test]
    fn a_step_is_never_less_than_what_is_missing() {
        let word = word(0, 1);
        assert_eq!(word.charge_taking(5, 7, 2), Ok(4));
        assert_eq!(word.charge_taking(9, 7, 2), Err(Short { by: 9 }));
        assert_eq!(
            word.load(),
            Split {
                charged: 5,
                credit: 5
            }
        );
    }

    #[test]
    fn reclaim_takes_unused_credit_and_nothing_else() {
        let word = word(4, 10);
        assert_eq!(word.reclaim(2), 2);
        assert_eq!(word.reclaim(u64::MAX), 4);
        assert_eq!(word.reclaim(u64::MAX), 0);
        assert_eq!(
            word.load(),
            Split {
                charged: 4,
                credit: 4
            }
        );
    }

    #[test]
    fn a_full_word_refuses_and_a_forced_charge_fills_it() {
        let word = word(u32::MAX - 1, u32::MAX - 1);
        assert!(word.charge_taking(2, u64::MAX, 0).is_err());
        assert_eq!(word.charge_anyway(2), 1);
        assert_eq!(
            word.load(),
            Split {
                charged: u32::MAX,
                credit: u32::MAX
            }
        );
    }

    #[test]
    fn a_bound_word_keeps_its_charges_and_what_is_released_is_no_credit() {
        let word = word(6, 10);
        word.bind();
        let split = |charged, credit| Split { charged, credit };
        assert_eq!((word.load(), word.load().held()), (split(6, 0), 6));
        assert_eq!(word.charge(1), Err(Short { by: 7 }));
        assert_eq!(word.release(4), 4);
        assert_eq!(word.charge(1), Err(Short { by: 3 }));
        assert_eq!((word.load().unused(), word.reclaim(9)), (0, 0));
        assert_eq!(word.charge_taking(1, 3, 0), Ok(3));
        assert_eq!(word.load(), split(3, 3));
    }

    #[test]
    fn a_cleared_word_says_what_it_held() {
        let word = word(4, 10);
        assert_eq!(
            word.clear(),
            Split {
                charged: 4,
                credit: 10
            }
        );
        assert_eq!(word.load(), Split::default());
    }
}
