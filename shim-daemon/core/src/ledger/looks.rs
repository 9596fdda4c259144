//! Extra looks at a device between the regular ones: soon after memory was given back, then ever
//! less often, at a bounded rate.
//!
//! After 1, 2, 4, 8 and 16 ms, then every 16 ms up to about a fifth of a second, then after 32, 64
//! … 512 ms: 22 looks in 1.2 s. Memory that a driver returns within that fifth of a second is seen
//! at most 16 ms later.

use crate::time::Nanos;

/// First and longest pause between two such looks. After the longest the regular looks, once a
/// second, are enough.
const PAUSES: (Nanos, Nanos) = (Nanos::millis(1), Nanos::millis(512));
/// A pause that is kept for a while, and for how many looks.
const STEADY: (Nanos, u32) = (Nanos::millis(16), 13);
/// At most one such look in this time on average: 64 a second. A look through NVML takes a driver a
/// few milliseconds at worst.
const SPACING: Nanos = Nanos::micros(15_625);
/// How many may follow each other faster than that.
const BURST: u64 = 16;

/// The pauses of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looks {
    pause: Nanos,
    /// How often the pause was [`STEADY`] already.
    steady: u32,
    /// The time up to which looks are paid for. A look may be taken while this is at most [`BURST`]
    /// spacings ahead of now.
    paid: Nanos,
    /// A look is due whether or not an ask waits.
    owed: bool,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            pause: PAUSES.0,
            steady: 0,
            paid: Nanos::ZERO,
            owed: false,
        }
    }
}

impl Looks {
    /// Something was given back: a look is due now, and the next ones soon.
    pub(crate) fn given_back(&mut self) {
        self.rest();
        self.owed = true;
    }

    /// No ask waits any more.
    pub(crate) fn rest(&mut self) {
        (self.pause, self.steady) = (PAUSES.0, 0);
    }

    /// Whether no look of this series was taken yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.pause == PAUSES.0
    }

    /// Whether a look is due whether or not an ask waits.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed
    }

    /// Takes a look if the rate allows it now; else returns when.
    ///
    /// # Errors
    /// The time from which on it may be.
    pub(crate) fn take(&mut self, now: Nanos) -> Result<(), Nanos> {
        let ahead = Nanos(SPACING.0 * (BURST - 1));
        let paid = self.paid.max(now);
        if paid > now + ahead {
            return Err(paid - ahead);
        }
        (self.paid, self.owed) = (paid + SPACING, false);
        Ok(())
    }

    /// When the next one is due after one at `now`; `None` once they are so rare that the regular
    /// ones are enough.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Nanos> {
        let pause = self.pause;
        self.steady += u32::from(pause == STEADY.0);
        if pause != STEADY.0 || self.steady == STEADY.1 {
            self.pause = pause + pause;
        }
        (pause <= PAUSES.1).then(|| now + pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end_and_begin_anew_when_something_is_given_back() {
        let mut looks = Looks::default();
        let pauses = |looks: &mut Looks| {
            let next = std::iter::from_fn(|| looks.next(Nanos::ZERO));
            next.map(|at| at.0 / 1_000_000).collect::<Vec<_>>()
        };
        let all = [&[1, 2, 4, 8][..], &[16; 13], &[32, 64, 128, 256, 512]].concat();
        assert_eq!(pauses(&mut looks), all);
        assert_eq!(looks.next(Nanos::ZERO), None);
        looks.given_back();
        assert_eq!(pauses(&mut looks), all);
    }

    #[test]
    fn a_burst_is_taken_at_once_and_then_one_in_each_spacing() {
        let mut looks = Looks::default();
        let now = Nanos::secs(5);
        let burst = (0..100).take_while(|_| looks.take(now).is_ok());
        assert_eq!(burst.count(), 16);
        let next = now + SPACING;
        assert_eq!(looks.take(now), Err(next));
        assert_eq!(looks.take(next), Ok(()));
        assert_eq!(looks.take(next), Err(next + SPACING));
    }
}
