//! A set of small numbers, as bits: for the granules of a slab. Runs are found a word at a time.

/// Bits of a word.
const WORD: u32 = u64::BITS;

/// Numbers from 0 up to a length.
#[derive(Debug)]
pub(super) struct Bits {
    words: Box<[u64]>,
    length: u32,
}

/// The bits of one word from `from` up to `to`, which is not 0 and at most 64.
fn between(from: u32, to: u32) -> u64 {
    (u64::MAX >> (WORD - to)) & (u64::MAX << from)
}

/// The bit of a number in its word.
#[inline(always)]
pub(super) fn bit_of(at: u32) -> u64 {
    1 << (at % WORD)
}

/// The bits of `count` numbers from `from` on, where they are of one word.
#[inline]
fn run_in_word(from: u32, count: u32) -> Option<u64> {
    let start = from % WORD;
    // As unsigned numbers: none is no run of one word either.
    (count.wrapping_sub(1) < WORD - start).then(|| u64::MAX >> (WORD - count) << start)
}

impl Bits {
    /// None of the numbers below `length`.
    pub(super) fn new(length: u32) -> Self {
        let words = length.div_ceil(WORD) as usize;
        Self {
            words: vec![0; words].into_boxed_slice(),
            length,
        }
    }

    #[inline]
    fn word(&self, at: u32) -> u64 {
        self.words.get((at / WORD) as usize).copied().unwrap_or(0)
    }

    #[cfg(test)]
    fn has(&self, at: u32) -> bool {
        self.word(at) >> (at % WORD) & 1 != 0
    }

    fn has_all(&self, from: u32, to: u32) -> bool {
        to <= self.length && self.next_from(from, to, u64::MAX) == to
    }

    /// The word that holds a number, as [`bit_of`] says where.
    #[inline(always)]
    pub(super) fn word_of(&mut self, at: u32) -> Option<&mut u64> {
        self.words.get_mut((at / WORD) as usize)
    }

    /// Takes `count` from `from` on out, if all of them are in.
    #[inline]
    pub(super) fn take_run(&mut self, from: u32, count: u32) -> bool {
        if let Some(bits) = run_in_word(from, count) {
            let word = self.words.get_mut((from / WORD) as usize);
            return word.is_some_and(|word| {
                let all = *word & bits == bits;
                if all {
                    *word ^= bits;
                }
                all
            });
        }
        self.take_long_run(from, count)
    }

    #[cold]
    fn take_long_run(&mut self, from: u32, count: u32) -> bool {
        let to = from.saturating_add(count);
        let all = self.has_all(from, to);
        if all {
            self.change(from, to, false);
        }
        all
    }

    /// Puts `count` from `from` on in.
    #[inline]
    pub(super) fn put_run(&mut self, from: u32, count: u32) {
        match run_in_word(from, count) {
            Some(bits) => {
                if let Some(word) = self.words.get_mut((from / WORD) as usize) {
                    *word |= bits;
                }
            }
            None => self.change(from, from.saturating_add(count), true),
        }
    }

    /// Puts all of `from..to` in, or takes all out.
    pub(super) fn change(&mut self, from: u32, to: u32, put: bool) {
        let (mut from, to) = (from, to.min(self.length));
        while from < to {
            let start = from % WORD;
            let end = (start + to - from).min(WORD);
            if let Some(word) = self.words.get_mut((from / WORD) as usize) {
                let bits = between(start, end);
                *word = if put { *word | bits } else { *word & !bits };
            }
            from += end - start;
        }
    }

    /// The first from `at` on that is in, or the first that is not; `to` if there is none before.
    #[inline]
    pub(super) fn next(&self, at: u32, to: u32, is_in: bool) -> u32 {
        let flip = if is_in { 0 } else { u64::MAX };
        let rest = (self.word(at) ^ flip) >> (at % WORD);
        if rest & 1 != 0 && at < to && at < self.length {
            return at;
        }
        self.next_from(at, to, flip)
    }

    fn next_from(&self, at: u32, to: u32, flip: u64) -> u32 {
        let to = to.min(self.length);
        let mut at = at;
        while at < to {
            let rest = (self.word(at) ^ flip) >> (at % WORD);
            if rest != 0 {
                return to.min(at + rest.trailing_zeros());
            }
            at += WORD - at % WORD;
        }
        to
    }

    /// How many directly below `at` are in, `most` or a few more at most.
    pub(super) fn run_before(&self, at: u32, most: u32) -> u32 {
        let mut from = at;
        while from > 0 && at - from < most {
            // The bits below `from`, shifted up to the top.
            let end = (from - 1) % WORD + 1;
            let ones = (self.word(from - 1) << (WORD - end))
                .leading_ones()
                .min(end);
            from -= ones;
            if ones < end {
                break;
            }
        }
        at - from
    }

    /// The last below `at` that is in.
    pub(super) fn last_before(&self, at: u32) -> Option<u32> {
        let mut from = at.min(self.length);
        while from > 0 {
            let end = (from - 1) % WORD + 1;
            let bits = self.word(from - 1) << (WORD - end);
            if bits != 0 {
                return Some(from - 1 - bits.leading_zeros());
            }
            from -= end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a list of flags: all ranges and all questions.
    #[test]
    fn bits_are_as_a_list_of_flags() {
        const LENGTH: u32 = 200;
        let mut seed = 12345_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 8) % below
        };
        let mut bits = Bits::new(LENGTH);
        let mut flags = [false; LENGTH as usize];
        for round in 0..400 {
            let from = random(LENGTH);
            let to = from + random(LENGTH - from + 1);
            let put = round % 2 == 0;
            bits.change(from, to, put);
            flags[from as usize..to as usize].fill(put);
            let at = random(LENGTH + 1);
            let end = at + random(LENGTH - at + 1);
            let all = flags[at as usize..end as usize].iter().all(|flag| *flag);
            assert_eq!(bits.has_all(at, end), all);
            if end > at && all {
                assert!(bits.take_run(at, end - at) && !bits.take_run(at, end - at));
                assert!((at..end).all(|i| !bits.has(i)));
                bits.put_run(at, end - at);
            } else if end > at {
                assert!(!bits.take_run(at, end - at), "nothing is taken then");
            }
            for is_in in [true, false] {
                let expected = (at..end).find(|i| flags[*i as usize] == is_in);
                assert_eq!(bits.next(at, end, is_in), expected.unwrap_or(end));
            }
            let last = (0..at).rev().find(|i| flags[*i as usize]);
            assert_eq!(bits.last_before(at), last);
            let run = (0..at).rev().take_while(|i| flags[*i as usize]).count();
            assert_eq!(bits.run_before(at, LENGTH) as usize, run);
            for (i, flag) in flags.iter().enumerate() {
                assert_eq!(bits.has(u32::try_from(i).unwrap()), *flag);
            }
        }
    }

    #[test]
    fn a_long_run_is_followed_for_a_while_only() {
        let mut bits = Bits::new(4096);
        bits.change(0, 4096, true);
        assert!((128..256).contains(&bits.run_before(4000, 128)));
        assert_eq!(bits.run_before(4000, 4096), 4000);
        assert_eq!(bits.run_before(0, 128), 0);
    }
}
