//! Whether a process has work pending on a device, and since when, in one word of its usage line.

/// Since when work is pending, and whether its duration was measured.
///
/// The time is `CLOCK_MONOTONIC` in nanoseconds without its lowest bit, 0 while nothing is pending.
/// The lowest bit says that less than four fifths of the service completed lately was of measured
/// kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingWord(u64);

impl PendingWord {
    /// The word for work that is pending since `since`, or for none. A time of 0 or 1 counts as 2.
    pub const fn new(since: Option<u64>, guessed: bool) -> Self {
        let time = match since {
            None => 0,
            Some(0..=1) => 2,
            Some(since) => since & !1,
        };
        Self(time | guessed as u64)
    }

    /// The word with these bits. Any bits are one.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Since when work is pending; `None` while none is.
    pub const fn since(self) -> Option<u64> {
        match self.0 & !1 {
            0 => None,
            since => Some(since),
        }
    }

    /// Whether estimates of recently completed work are mostly guesses.
    pub const fn is_guessed(self) -> bool {
        self.0 & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::PendingWord;

    #[test]
    fn a_pending_word_comes_back_as_it_was_packed() {
        for guessed in [false, true] {
            let idle = PendingWord::new(None, guessed);
            assert_eq!((idle.since(), idle.is_guessed()), (None, guessed));
            let busy = PendingWord::new(Some(1_001), guessed);
            assert_eq!((busy.since(), busy.is_guessed()), (Some(1_000), guessed));
            assert_eq!(PendingWord::from_bits(busy.bits()), busy);
        }
    }

    #[test]
    fn pending_since_the_clocks_first_instant_is_not_idle() {
        assert_eq!(PendingWord::new(Some(0), false).since(), Some(2));
    }
}
