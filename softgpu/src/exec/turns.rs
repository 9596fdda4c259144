//! The order in which contexts get an engine, agreed between processes: a log of turns that any
//! process can extend.
//!
//! Each context has a *seat*. A seat publishes how much work it certainly has without a pause (its
//! *claim*). Every process computes the same turns from the claims, so a process whose threads
//! sleep still gets its turns, and a process that wakes late reads its turns from the log. A turn
//! is written when it begins, by one compare-and-swap on its place in the log. A turn is at most a
//! slice long and never longer than the claim; seats take turns in a circle. If a context switch
//! costs time, the log holds that time as a turn without an owner. There is no lock: a process may
//! be stopped or killed at any point.
//!
//! The words: the end of the log (a hint), the number of seats ever used, the log, the seats'
//! owners, the claims.

mod claims;
mod watched;

use std::sync::atomic::{AtomicU64, Ordering};

use super::op::EngineKind;
use crate::spec::{SLICE, Spec};
pub(crate) use watched::{Had, busy_until, evict, had};

/// How an engine changes from one context to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The longest a context holds the engine while other contexts wait (ns).
    pub slice: u64,
    /// Time of a context switch if the previous context has no more work (ns).
    pub switch: u64,
    /// Time of a context switch if the previous context has work left (ns).
    pub preempt: u64,
}

impl Pace {
    /// The pace of `spec`'s multiprocessors; on copy engines a context switch costs nothing.
    pub(super) fn of(spec: &Spec, engine: EngineKind) -> Self {
        let (slice, switch, preempt) = (spec.slice, spec.switch, spec.preempt);
        match engine {
            EngineKind::Compute => Self {
                slice,
                switch,
                preempt,
            },
            EngineKind::ToDevice | EngineKind::ToHost => Self {
                slice,
                ..Self::default()
            },
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            slice: SLICE,
            switch: 0,
            preempt: 0,
        }
    }
}

/// Turns that the log keeps. A process that falls further behind knows from its claim what it has
/// had, but no longer when.
const LOG: usize = 2048;
/// The maximum number of contexts that share an engine.
pub(super) const SEATS: usize = 240;
/// Words of one engine.
pub(crate) const WORDS: usize = 2 + LOG + 2 * SEATS;

/// A word of the log holds the turn's end and, from this bit up, its holder.
const SEAT_AT: u32 = 56;
/// Stored in place of the seat's number plus one: a context switch.
const CHANGING: u64 = 0xff;
/// The holder of a span of engine time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// No seat wanted the engine.
    Idle,
    /// The engine switches to another context.
    Changing,
    Seat(usize),
}

/// A turn in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    holder: Holder,
    end: u64,
}

impl Turn {
    fn of(word: u64) -> Self {
        let holder = match word >> SEAT_AT {
            0 => Holder::Idle,
            CHANGING => Holder::Changing,
            seat => Holder::Seat(index(seat) - 1),
        };
        let end = word & ((1 << SEAT_AT) - 1);
        Self { holder, end }
    }

    fn word(self) -> u64 {
        let holder = match self.holder {
            Holder::Idle => 0,
            Holder::Changing => CHANGING,
            Holder::Seat(seat) => seat as u64 + 1,
        };
        (holder << SEAT_AT) | self.end
    }

    fn seat(self) -> Option<usize> {
        match self.holder {
            Holder::Seat(seat) => Some(seat),
            Holder::Idle | Holder::Changing => None,
        }
    }
}

/// A number from the words as an index.
fn index(number: u64) -> usize {
    usize::try_from(number).expect("addresses are 64 bits here")
}

/// The turns on one engine.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    words: &'a [AtomicU64],
    /// Whether the owner of a seat lives.
    lives: &'a dyn Fn(u64) -> bool,
    pace: Pace,
}

impl<'a> Turns<'a> {
    /// The turns held in `words`, which are [`WORDS`] words. `lives` is called before another seat
    /// gets a turn.
    pub(super) fn new(words: &'a [AtomicU64], lives: &'a dyn Fn(u64) -> bool, pace: Pace) -> Self {
        Self { words, lives, pace }
    }

    /// As [`Turns::new`] for a process that writes no turns.
    fn watched(words: &'a [AtomicU64]) -> Self {
        Self::new(words, &|_| true, Pace::default())
    }

    fn at(&self, place: u64) -> &AtomicU64 {
        &self.words[2 + index(place % LOG as u64)]
    }

    fn owner(&self, seat: usize) -> &AtomicU64 {
        &self.words[2 + LOG + seat]
    }

    fn claim_of(&self, seat: usize) -> &AtomicU64 {
        &self.words[2 + LOG + SEATS + seat]
    }

    /// Takes a seat for `owner`, which is not 0; `None` if all are taken.
    pub(super) fn sit(&self, owner: u64) -> Option<usize> {
        let free = |seat: &usize| {
            let taken =
                self.owner(*seat)
                    .compare_exchange(0, owner, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        let seat = (0..SEATS).find(free)?;
        self.words[1].fetch_max(seat as u64 + 1, Ordering::AcqRel);
        Some(seat)
    }

    /// Gives a seat back.
    pub(super) fn rise(&self, seat: usize) {
        self.claim_of(seat).store(0, Ordering::Release);
        self.owner(seat).store(0, Ordering::Release);
    }

    fn clear(&self, seat: usize, owner: u64) {
        self.claim_of(seat).store(0, Ordering::Release);
        let _ = self
            .owner(seat)
            .compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The last place of the log and its turn.
    fn last(&self) -> (u64, Turn) {
        let mut place = self.words[0].load(Ordering::Acquire);
        loop {
            let last = Turn::of(self.at(place).load(Ordering::Acquire));
            let next = Turn::of(self.at(place + 1).load(Ordering::Acquire));
            let known = self.words[0].load(Ordering::Acquire);
            // Ends only grow. So a place written in this round of the log ends later than the place
            // before it.
            if known > place {
                place = known;
            } else if next.end > last.end {
                place += 1;
                self.words[0].fetch_max(place, Ordering::AcqRel);
            } else {
                return (place, last);
            }
        }
    }

    /// The last place of the log now.
    pub(super) fn place(&self) -> u64 {
        self.last().0
    }

    /// The length of the turn at `place` if it is the seat's; else 0.
    fn length(&self, place: u64, seat: usize) -> u64 {
        let turn = Turn::of(self.at(place).load(Ordering::Acquire));
        if turn.seat() != Some(seat) {
            return 0;
        }
        turn.end
            .saturating_sub(Turn::of(self.at(place - 1).load(Ordering::Acquire)).end)
    }

    /// How long `seat`, which had the last turn, has held the engine without a pause. Counting
    /// stops at a slice.
    fn held(&self, place: u64, seat: usize) -> u64 {
        let mut held = 0;
        for at in (place.saturating_sub(LOG as u64 / 2) + 1..=place).rev() {
            let length = self.length(at, seat);
            held += length;
            if length == 0 || held >= self.pace.slice {
                break;
            }
        }
        held
    }

    /// The last seat that had the engine up to `place`, and the place of its turn.
    fn before(&self, place: u64) -> Option<(usize, u64)> {
        // Between two turns of seats the log has at most one idle span and one context switch.
        (place.saturating_sub(3)..=place).rev().find_map(|at| {
            let seat = Turn::of(self.at(at).load(Ordering::Acquire)).seat();
            seat.map(|seat| (seat, at))
        })
    }

    /// Time of the context switch if `seat` follows the end of the log.
    fn change(&self, place: u64, last: Turn, seat: usize) -> u64 {
        match self.before(place) {
            _ if last.holder == Holder::Changing => 0,
            Some((before, _)) if before == seat => 0,
            Some((before, at)) if at == place && self.wanted(before, place) > 0 => {
                self.pace.preempt
            }
            Some(_) => self.pace.switch,
            None => 0,
        }
    }

    /// The seats that come next after the turn at `place`, in order, each with the time it may
    /// have. A seat that has not used its whole slice comes first.
    fn order(&self, place: u64, last: Turn) -> impl Iterator<Item = (usize, u64)> + '_ {
        let seats = index(self.words[1].load(Ordering::Acquire)).min(SEATS);
        let slice = self.pace.slice;
        // A context switch does not advance the circle.
        let (at, seat) = match last.holder {
            Holder::Idle => (place, None),
            Holder::Seat(seat) => (place, Some(seat)),
            Holder::Changing => self
                .before(place)
                .map_or((place, None), |(seat, at)| (at, Some(seat))),
        };
        let held = seat.map_or(slice, |seat| self.held(at, seat));
        // A seat loses the rest of its slice once the engine has switched to another seat.
        let first = seat
            .filter(|_| last.holder != Holder::Changing)
            .filter(|_| held < slice)
            .map(|seat| (seat, slice - held));
        let from = seat.map_or(0, |seat| seat + 1);
        let circle = (0..seats).map(move |at| ((from + at) % seats, slice));
        let open = circle.filter(move |(seat, _)| first.is_none_or(|(first, _)| first != *seat));
        first
            .into_iter()
            .chain(open)
            .filter_map(move |(seat, most)| {
                let wanted = self.wanted(seat, place).min(most);
                (wanted > 0).then_some((seat, wanted))
            })
    }

    /// Writes the next turn if a seat wants one. The owner of seat `own` is taken to be alive.
    fn write_next(&self, own: usize) -> bool {
        let (place, last) = self.last();
        let old = self.at(place + 1).load(Ordering::Acquire);
        let Some((seat, ns)) = self.order(place, last).find(|(seat, _)| {
            let owner = self.owner(*seat).load(Ordering::Acquire);
            let lives = *seat == own || (self.lives)(owner);
            if !lives {
                self.clear(*seat, owner);
            }
            lives
        }) else {
            return false;
        };
        if Turn::of(old).end <= last.end {
            let (holder, ns) = match self.change(place, last, seat) {
                0 => (Holder::Seat(seat), ns),
                change => (Holder::Changing, change),
            };
            let end = last.end + ns;
            self.write(place + 1, old, Turn { holder, end });
        }
        true
    }

    fn write(&self, place: u64, old: u64, turn: Turn) {
        if self
            .at(place)
            .compare_exchange(old, turn.word(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            self.words[0].fetch_max(place, Ordering::AcqRel);
            self.renew(place);
        }
    }

    /// Writes turns until the last turn ends after `moment`, or no seat wants one.
    pub(super) fn run(&self, moment: u64, own: usize) {
        while self.last().1.end <= moment && self.write_next(own) {}
    }

    /// As [`run`](Self::run); then extends the log to `moment`, with an idle span if necessary.
    pub(super) fn reach(&self, moment: u64, own: usize) {
        loop {
            self.run(moment.saturating_sub(1), own);
            let (place, last) = self.last();
            if last.end >= moment {
                return;
            }
            let old = self.at(place + 1).load(Ordering::Acquire);
            if Turn::of(old).end <= last.end {
                let holder = Holder::Idle;
                let end = moment;
                self.write(place + 1, old, Turn { holder, end });
            }
        }
    }

    /// The seat's next turn after `place`, where it had claimed `claimed`; `place` moves to it.
    pub(super) fn next(&self, seat: usize, place: &mut u64, claimed: u64) -> Option<(u64, u64)> {
        let (end, _) = self.last();
        if end - *place >= LOG as u64 - 1
            && let Some(turn) = self.forgotten(seat, place, claimed)
        {
            return Some(turn);
        }
        while *place < end {
            let begin = Turn::of(self.at(*place).load(Ordering::Acquire)).end;
            *place += 1;
            let turn = Turn::of(self.at(*place).load(Ordering::Acquire));
            if turn.seat() == Some(seat) {
                return Some((begin, turn.end));
            }
        }
        None
    }

    /// Whether at `moment` another seat has the engine, or the engine switches to one. The end of a
    /// turn still belongs to the turn.
    pub(super) fn is_held_by_another(&self, seat: usize, moment: u64) -> bool {
        let (end, _) = self.last();
        let turns = (end.saturating_sub(LOG as u64 / 2)..end).rev();
        let behind = |place| self.behind(place).filter(|(_, from, _)| *from <= moment);
        let mut holders = turns.filter_map(behind);
        let Some((holder, from, to)) = holders.next() else {
            return false;
        };
        let before = holders.next().filter(|_| from == moment);
        let own = |turn: Option<(Holder, u64, u64)>| {
            turn.is_some_and(|(holder, _, _)| holder == Holder::Seat(seat))
        };
        moment < to && holder != Holder::Idle && holder != Holder::Seat(seat) && !own(before)
    }

    /// The turn after `place`: its holder, its begin and its end. `None` if the log ends at
    /// `place`.
    pub(super) fn behind(&self, place: u64) -> Option<(Holder, u64, u64)> {
        let turn = |at| Turn::of(self.at(at).load(Ordering::Acquire));
        (place < self.place()).then(|| {
            let Turn { holder, end } = turn(place + 1);
            (holder, turn(place).end, end)
        })
    }

    /// The earliest begin of the seat's next turn, if it wants one.
    pub(super) fn expected(&self, seat: usize) -> u64 {
        let (place, last) = self.last();
        let before = self
            .order(place, last)
            .take_while(|(other, _)| *other != seat);
        last.end + before.map(|(_, ns)| ns).sum::<u64>()
    }

    /// The end of the last turn.
    #[cfg(test)]
    pub(super) fn until(&self) -> u64 {
        self.last().1.end
    }
}
