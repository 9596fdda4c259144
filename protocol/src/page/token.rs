//! Which process of a tenant submits while the tenant yields: one at a time, the one that holds the
//! tenant's token of the device.
//!
//! The driver gives each context its slices, and a change of contexts takes time. If each of a
//! tenant's processes submitted a slice of its own, the tenant to which they yield would wait for a
//! change to each of them. So they submit one after another. A process takes the token with the
//! first launch of a slice. It keeps it for [`STAY`] while its launches wait for the end of their
//! slices, and frees it earlier if none does.
//!
//! The token promises nothing that a process relies on. If its holder is stopped or dead, another
//! one takes it after some milliseconds; two processes that submit at the same time are what there
//! is without a token.

use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// For how long a process keeps the token while others want it (ns): two of the driver's slices,
/// which its contexts get from the driver one after another. The device waits for a wake then.
pub const STAY: u64 = 4_000_000;
/// How much later than twice its expected time the end of a slice is waited for (ns): tenants to
/// which it yields may have the device meanwhile, three of them for 7.5 ms on an H100.
pub const LATE: u64 = 8_000_000;
/// After so many slices in a row that did not end in time a process needs no token for
/// [`SPARED`]: its work may wait for that of another process, which waits for the token.
const LOST: u32 = 3;
/// For how long it needs none (ns).
const SPARED: u64 = 1_000_000_000;
/// For how long the process that freed the token leaves it to the others (ns).
pub const GRACE: u64 = 300_000;
/// How long a process that waits sleeps at most (ns).
pub const NAP: u64 = 5_000_000;

/// The unit of the word's time (ns).
const UNIT: u64 = 1 << 10;
/// Bits of the word's time.
const TIME: u32 = 53;
const HELD: u64 = 1 << 63;

/// A tenant's token of one device. All zero is one that no process has had.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Token {
    /// The holder, or the process that held it last, and until when that counts.
    word: AtomicU64,
    /// Until when a process is known to want it (`CLOCK_MONOTONIC` ns).
    wanted_until: AtomicU64,
    /// A futex word: rises when the token is freed.
    pub freed: AtomicU32,
    padding: AtomicU32,
    reserved: [AtomicU64; 5],
}

/// The token is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The value of [`Token::freed`] to sleep on.
    pub seen: u32,
    /// For how long at most (ns).
    pub nap: u64,
}

/// The word's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    held: bool,
    /// Of the process: its slot plus one.
    who: u64,
    /// Held: until when. Free: until when it is left to others than this process.
    until: u64,
}

impl Place {
    fn of(word: u64) -> Self {
        Self {
            held: word & HELD != 0,
            who: (word & !HELD) >> TIME,
            until: (word & ((1 << TIME) - 1)) * UNIT,
        }
    }

    fn word(self) -> u64 {
        let until = self.until.div_ceil(UNIT) & ((1 << TIME) - 1);
        (if self.held { HELD } else { 0 }) | self.who << TIME | until
    }
}

fn who(slot: usize) -> u64 {
    (slot as u64).saturating_add(1) & ((1 << (63 - TIME)) - 1)
}

impl Token {
    /// A token that no process has had.
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            word: zero(),
            wanted_until: zero(),
            freed: AtomicU32::new(0),
            padding: AtomicU32::new(0),
            reserved: [zero(), zero(), zero(), zero(), zero()],
        }
    }

    /// The process of `slot` begins a slice at `now`, which should take so long.
    ///
    /// # Errors
    /// It waits, because another process has the token: for how long before it asks again.
    pub fn take(&self, slot: usize, now: u64, expected: u64) -> Result<(), Taken> {
        let me = who(slot);
        let seen = self.freed.load(Ordering::Acquire);
        let mine = Place {
            held: true,
            who: me,
            until: now
                .saturating_add(expected.saturating_mul(2))
                .saturating_add(LATE),
        };
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let place = Place::of(word);
            let is_over = place.until <= now;
            let may = match place.held {
                true => place.who == me || is_over,
                false => place.who != me || is_over || !self.is_wanted(now),
            };
            if !may {
                let nap = (place.until - now).clamp(UNIT, NAP);
                let until = now.saturating_add(nap).saturating_add(GRACE);
                self.wanted_until.fetch_max(until, Ordering::AcqRel);
                // Either this sees, as it goes to sleep, that the token is free, or the process
                // that frees it sees the wish.
                fence(Ordering::SeqCst);
                return Err(Taken { seen, nap });
            }
            let taken =
                self.word
                    .compare_exchange(word, mine.word(), Ordering::AcqRel, Ordering::Acquire);
            match taken {
                Ok(_) => return Ok(()),
                Err(other) => word = other,
            }
        }
    }

    /// The process of `slot` frees it, if it has it. Whether a process may sleep until then: it is
    /// to be woken.
    #[must_use = "a process may sleep on `freed`"]
    pub fn free(&self, slot: usize, now: u64) -> bool {
        let me = who(slot);
        let word = self.word.load(Ordering::Acquire);
        let place = Place::of(word);
        if !place.held || place.who != me {
            return false;
        }
        let free = Place {
            held: false,
            who: me,
            until: now.saturating_add(GRACE),
        };
        let freed =
            self.word
                .compare_exchange(word, free.word(), Ordering::AcqRel, Ordering::Acquire);
        if freed.is_err() {
            return false;
        }
        self.freed.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        self.is_wanted(now)
    }

    /// The slot of the process that has it now.
    pub fn holder(&self, now: u64) -> Option<usize> {
        let place = Place::of(self.word.load(Ordering::Acquire));
        let slot = usize::try_from(place.who.checked_sub(1)?).ok();
        slot.filter(|_| place.held && place.until > now)
    }

    /// Whether it is this process's, though another one may take it by now.
    fn is_of(&self, slot: usize) -> bool {
        let place = Place::of(self.word.load(Ordering::Acquire));
        place.held && place.who == who(slot)
    }

    /// Whether a process waits for it, or did just now.
    pub fn is_wanted(&self, now: u64) -> bool {
        self.wanted_until.load(Ordering::Acquire) > now
    }
}

impl Default for Token {
    fn default() -> Self {
        Self::new()
    }
}

/// A process's hold of the token of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// Since when it has the token.
    since: Option<u64>,
    /// Slices in a row in which another process took it.
    lost: u32,
    /// It needs none before.
    spared_until: u64,
}

impl Hold {
    /// The first launch of a slice comes, which should take so long.
    ///
    /// # Errors
    /// See [`Token::take`].
    pub fn begins(
        &mut self,
        token: &Token,
        slot: usize,
        now: u64,
        expected: u64,
    ) -> Result<(), Taken> {
        self.note(token, slot, now);
        if now < self.spared_until {
            return Ok(());
        }
        let taken = token.take(slot, now, expected);
        self.since = taken.is_ok().then(|| self.since.unwrap_or(now));
        taken
    }

    /// Counts the slices in which it lost the token.
    fn note(&mut self, token: &Token, slot: usize, now: u64) {
        if self.since.is_none() {
            return;
        }
        if token.is_of(slot) {
            self.lost = 0;
            return;
        }
        self.since = None;
        self.lost += 1;
        if self.lost >= LOST {
            (self.lost, self.spared_until) = (0, now.saturating_add(SPARED));
        }
    }

    /// Nothing of the process is under way. `waits`: a launch of it waited for that. Whether a
    /// process is to be woken.
    pub fn emptied(&mut self, token: &Token, slot: usize, now: u64, waits: bool) -> bool {
        let keeps =
            |since: u64| waits && (now < since.saturating_add(STAY) || !token.is_wanted(now));
        match self.since {
            Some(since) if !keeps(since) => self.ends(token, slot, now),
            _ => false,
        }
    }

    /// It yields no more, or its launches do not wait for their slices' ends. Whether processes are
    /// to be woken.
    pub fn ends(&mut self, token: &Token, slot: usize, now: u64) -> bool {
        self.note(token, slot, now);
        self.since.take().is_some() && token.free(slot, now)
    }

    /// Whether it has the token, as far as it knows.
    pub fn is_held(self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SLICE: u64 = MS / 2;
    const NOW: u64 = 1_000_000 * MS;

    fn takes(token: &Token, slot: usize, now: u64) -> bool {
        token.take(slot, now, SLICE).is_ok()
    }

    #[test]
    fn a_word_keeps_its_parts() {
        for held in [false, true] {
            for slot in [0, 1, 511] {
                let place = Place {
                    held,
                    who: who(slot),
                    until: NOW - NOW % UNIT,
                };
                assert_eq!(Place::of(place.word()), place);
            }
        }
        assert!(!Place::of(0).held);
    }

    #[test]
    fn one_has_it_and_the_others_wait_until_it_is_free() {
        let token = Token::new();
        assert_eq!(token.holder(NOW), None);
        assert!(takes(&token, 0, NOW) && takes(&token, 0, NOW + 1));
        assert_eq!(token.holder(NOW + 1), Some(0));
        let taken = token.take(3, NOW + 1, SLICE).unwrap_err();
        assert!(taken.nap <= NAP && taken.seen == 0);
        assert!(!token.free(3, NOW + 2), "it is not the holder");
        assert!(token.free(0, NOW + 2), "one is to be woken");
        assert_eq!(token.freed.load(Ordering::Relaxed), 1);
        assert_eq!(token.holder(NOW + 2), None);
        assert!(!takes(&token, 0, NOW + 3), "it is left to the other");
        assert!(takes(&token, 3, NOW + 3) && !takes(&token, 0, NOW + 4));
    }

    #[test]
    fn one_alone_takes_it_again_and_again() {
        let token = Token::new();
        for now in (0..100).map(|at| NOW + at * SLICE) {
            assert!(takes(&token, 5, now));
            assert!(!token.free(5, now + SLICE), "no process sleeps");
        }
    }

    #[test]
    fn what_is_left_to_others_and_not_taken_is_taken_again() {
        let token = Token::new();
        assert!(takes(&token, 0, NOW) && !takes(&token, 1, NOW));
        assert!(token.free(0, NOW));
        assert!(!takes(&token, 0, NOW + GRACE / 2));
        assert!(takes(&token, 0, NOW + GRACE + UNIT));
    }

    #[test]
    fn a_holder_that_is_not_heard_of_loses_it_and_not_before() {
        let token = Token::new();
        assert!(takes(&token, 0, NOW));
        let end = NOW + 2 * SLICE + LATE;
        assert!(!takes(&token, 1, end - UNIT));
        assert!(takes(&token, 1, end + UNIT));
        assert!(!token.free(0, end + UNIT), "it is another's");
        assert!(!takes(&token, 0, end + UNIT));
    }

    #[test]
    fn one_stays_while_its_launches_wait_and_no_longer_than_it_may() {
        let (token, mut hold) = (Token::new(), Hold::default());
        for now in [NOW, NOW + SLICE, NOW + 2 * SLICE] {
            assert_eq!(hold.begins(&token, 0, now, SLICE), Ok(()));
            assert!(!takes(&token, 1, now));
            assert!(!hold.emptied(&token, 0, now + SLICE, true));
        }
        let later = NOW + STAY;
        assert_eq!(hold.begins(&token, 0, later, SLICE), Ok(()));
        assert!(hold.emptied(&token, 0, later + SLICE, true));
        assert!(!hold.is_held() && takes(&token, 1, later + SLICE));
    }

    #[test]
    fn one_whose_launches_do_not_wait_frees_it_at_once() {
        let (token, mut hold) = (Token::new(), Hold::default());
        assert_eq!(hold.begins(&token, 0, NOW, SLICE), Ok(()));
        assert!(!takes(&token, 1, NOW));
        assert!(hold.emptied(&token, 0, NOW + SLICE, false));
        assert!(takes(&token, 1, NOW + SLICE));
        assert!(hold.begins(&token, 0, NOW + SLICE, SLICE).is_err());
        assert!(!hold.is_held());
    }

    /// Begins a slice that does not end before another process takes the token.
    fn loses(token: &Token, hold: &mut Hold, now: u64) {
        assert_eq!(hold.begins(token, 0, now, SLICE), Ok(()));
        let late = now + 2 * SLICE + LATE + UNIT;
        assert!(takes(token, 1, late));
        let _ = token.free(1, late);
    }

    #[test]
    fn one_whose_slices_wait_for_other_processes_needs_no_token_for_a_second() {
        let (token, mut hold) = (Token::new(), Hold::default());
        let at = |nth: u64| NOW + nth * 100 * MS;
        (0..3).for_each(|nth| loses(&token, &mut hold, at(nth)));
        assert!(takes(&token, 1, at(3)), "another has it");
        assert_eq!(hold.begins(&token, 0, at(3), SLICE), Ok(()));
        assert!(!hold.is_held() && !hold.emptied(&token, 0, at(3), true));
        assert!(takes(&token, 1, at(3) + SPARED));
        assert!(
            hold.begins(&token, 0, at(3) + SPARED + UNIT, SLICE)
                .is_err()
        );
    }

    #[test]
    fn a_slice_that_ends_in_time_forgives_those_before() {
        let (token, mut hold) = (Token::new(), Hold::default());
        for nth in 0..10 {
            let now = NOW + nth * 1_000 * MS;
            loses(&token, &mut hold, now);
            loses(&token, &mut hold, now + 100 * MS);
            assert_eq!(hold.begins(&token, 0, now + 200 * MS, SLICE), Ok(()));
            let _ = hold.emptied(&token, 0, now + 201 * MS, false);
            assert!(takes(&token, 1, now + 300 * MS));
            assert!(hold.begins(&token, 0, now + 300 * MS, SLICE).is_err());
            let _ = token.free(1, now + 300 * MS);
        }
    }

    #[test]
    fn one_that_no_other_wants_it_from_stays() {
        let (token, mut hold) = (Token::new(), Hold::default());
        assert_eq!(hold.begins(&token, 0, NOW, SLICE), Ok(()));
        assert!(!hold.emptied(&token, 0, NOW + STAY, true));
        assert!(hold.is_held() && !takes(&token, 1, NOW + STAY));
        assert!(hold.emptied(&token, 0, NOW + STAY, true), "now it does");
    }
}
