//! Claims: what a seat wants, told once by its owner and kept by all who write turns.
//!
//! A claim names the place in the log after which it is wanted, and what a seat has had since is
//! read from the log. The log forgets. So whoever writes turns rewrites each old claim to the
//! present place and what is left of it: a process that is stopped, or late, keeps its turns for as
//! long as it has work. From what is left the process knows on waking what it has had.

use std::sync::atomic::Ordering;

use super::{LOG, SEATS, Turn, Turns, index};

/// A claim holds nanoseconds and, from this bit up, the place in the log after which they are
/// wanted.
const PLACE_AT: u32 = 44;
/// The bits of the nanoseconds.
const NS: u64 = (1 << PLACE_AT) - 1;
/// A claim is rewritten once it is older than this, by whoever writes a place that [`EACH`]
/// divides. Turns must not be lost if some of them are stopped just then.
const OLD: u64 = LOG as u64 / 2;
const EACH: u64 = LOG as u64 / 8;

impl Turns<'_> {
    /// Publishes that after `place`, the last place this seat has read, the seat wants `ns` more
    /// without a pause. Returns what it claims: at most some hours.
    pub(in super::super) fn claim(&self, seat: usize, place: u64, ns: u64) -> u64 {
        let ns = ns.min(NS);
        let word = if ns == 0 { 0 } else { (place << PLACE_AT) | ns };
        self.claim_of(seat).store(word, Ordering::Release);
        ns
    }

    /// How many places the log has after that of a claim, at `place`.
    fn age(word: u64, place: u64) -> u64 {
        place.wrapping_sub(word >> PLACE_AT) & (u64::MAX >> PLACE_AT)
    }

    /// The time that a seat still wants after the end of the log at `place`.
    pub(super) fn wanted(&self, seat: usize, place: u64) -> u64 {
        self.left_of(seat, place, self.claim_of(seat).load(Ordering::Acquire))
    }

    /// What is left of a seat's claim at `place`.
    fn left_of(&self, seat: usize, place: u64, word: u64) -> u64 {
        let age = Self::age(word, place);
        if word & NS == 0 || age >= LOG as u64 - 1 {
            return 0;
        }
        let had = (place - age + 1..=place).map(|at| self.length(at, seat));
        (word & NS).saturating_sub(had.sum())
    }

    /// Rewrites the old claims, now that the turn at `place` has been written.
    pub(super) fn renew(&self, place: u64) {
        if !place.is_multiple_of(EACH) {
            return;
        }
        for seat in 0..index(self.words[1].load(Ordering::Acquire)).min(SEATS) {
            let word = self.claim_of(seat).load(Ordering::Acquire);
            if word & NS == 0 || !(OLD..LOG as u64 - 1).contains(&Self::age(word, place)) {
                continue;
            }
            let renewed = (place << PLACE_AT) | self.left_of(seat, place, word);
            // A claim whose turns have been overwritten meanwhile is not summed up from others'.
            if Self::age(word, self.place()) < LOG as u64 - 1 {
                let _ = self.claim_of(seat).compare_exchange(
                    word,
                    renewed,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
        }
    }

    /// The turns of a seat that the log has forgotten since `place`, as one turn, if the seat had
    /// claimed `claimed` there. `place` moves to where the log is to be read on.
    pub(super) fn forgotten(
        &self,
        seat: usize,
        place: &mut u64,
        claimed: u64,
    ) -> Option<(u64, u64)> {
        let word = self.claim_of(seat).load(Ordering::Acquire);
        let end = self.place();
        *place = if claimed == 0 || Self::age(word, end) >= LOG as u64 - 1 {
            end
        } else {
            end - Self::age(word, end)
        };
        let had = claimed.saturating_sub(word & NS);
        let until = Turn::of(self.at(*place).load(Ordering::Acquire)).end;
        (had > 0).then(|| (until.saturating_sub(had), until))
    }
}
