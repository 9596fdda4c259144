//! Whose turn it is on an engine, agreed between processes: a log of turns that anybody may go on
//! writing.
//!
//! Each context has a *seat*. A seat says how much work it certainly has without a pause (its
//! *claim*); the turns that follow from the claims are the same whichever process computes them, so
//! a process whose threads sleep gets its turns all the same, and one that wakes late reads what it
//! had. A turn is written when it begins, by one compare-and-swap on its place in the log, and is
//! at most a slice long and never longer than the claim; seats take turns in a circle. Where a
//! change of seats costs time, the log has that time as a turn without an owner. There is no lock:
//! a process may be stopped or killed anywhere.
//!
//! The words: where the log ends (a hint), seats ever used, the log, the seats' owners, the claims.

use std::sync::atomic::{AtomicU64, Ordering};

use super::op::EngineKind;
use crate::spec::{SLICE, Spec};

/// How an engine changes from one context to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The longest a context holds the engine before others get their turn (ns).
    pub slice: u64,
    /// How long the engine stands still when a context follows one that has no more work (ns).
    pub switch: u64,
    /// The same when a context follows one that has work left (ns).
    pub preempt: u64,
}

impl Pace {
    /// That of `spec`'s multiprocessors; copy engines change at no cost.
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

/// Turns that are remembered. A process that falls further behind loses its count.
const LOG: usize = 2048;
/// Contexts that share an engine, at most.
pub(super) const SEATS: usize = 240;
/// Words of one engine.
pub(crate) const WORDS: usize = 2 + LOG + 2 * SEATS;

/// A turn is its end and, from this bit on, whose it is.
const SEAT_AT: u32 = 56;
/// In place of a seat and one: the engine changes to another context.
const CHANGING: u64 = 0xff;
/// A claim is nanoseconds and, from this bit on, the place in the log behind which they are wanted.
const PLACE_AT: u32 = 44;

/// Whose a time on the engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// No seat wanted the engine.
    Nobody,
    /// The engine changes to another context.
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
            0 => Holder::Nobody,
            CHANGING => Holder::Changing,
            seat => Holder::Seat(index(seat) - 1),
        };
        let end = word & ((1 << SEAT_AT) - 1);
        Self { holder, end }
    }

    fn word(self) -> u64 {
        let holder = match self.holder {
            Holder::Nobody => 0,
            Holder::Changing => CHANGING,
            Holder::Seat(seat) => seat as u64 + 1,
        };
        (holder << SEAT_AT) | self.end
    }

    fn seat(self) -> Option<usize> {
        match self.holder {
            Holder::Seat(seat) => Some(seat),
            Holder::Nobody | Holder::Changing => None,
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
    /// Those that `words`, [`WORDS`] of them, hold. `lives` is asked before another's seat gets a
    /// turn.
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

    /// The place and the turn the log ends with.
    fn last(&self) -> (u64, Turn) {
        let mut place = self.words[0].load(Ordering::Acquire);
        loop {
            let last = Turn::of(self.at(place).load(Ordering::Acquire));
            let next = Turn::of(self.at(place + 1).load(Ordering::Acquire));
            let known = self.words[0].load(Ordering::Acquire);
            // Ends only grow, so a place that has been written for this round of the log ends later
            // than the one before.
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

    /// Where the log ends now.
    pub(super) fn place(&self) -> u64 {
        self.last().0
    }

    /// Says that behind `place`, the last place this seat has read, it wants `ns` more without a
    /// pause.
    pub(super) fn claim(&self, seat: usize, place: u64, ns: u64) {
        let ns = ns.min((1 << PLACE_AT) - 1);
        let word = if ns == 0 { 0 } else { (place << PLACE_AT) | ns };
        self.claim_of(seat).store(word, Ordering::Release);
    }

    /// What a seat still wants behind the end of the log at `place`.
    fn wanted(&self, seat: usize, place: u64) -> u64 {
        let word = self.claim_of(seat).load(Ordering::Acquire);
        if word == 0 {
            return 0;
        }
        let age = place.wrapping_sub(word >> PLACE_AT) & ((1 << (64 - PLACE_AT)) - 1);
        if age >= LOG as u64 - 1 {
            return 0;
        }
        let had = (place - age + 1..=place).map(|at| self.length(at, seat));
        (word & ((1 << PLACE_AT) - 1)).saturating_sub(had.sum())
    }

    /// How long the turn at `place` is if it is the seat's.
    fn length(&self, place: u64, seat: usize) -> u64 {
        let turn = Turn::of(self.at(place).load(Ordering::Acquire));
        if turn.seat() != Some(seat) {
            return 0;
        }
        turn.end
            .saturating_sub(Turn::of(self.at(place - 1).load(Ordering::Acquire)).end)
    }

    /// How long the seat that had the last turn has had the engine without a pause, as far as that
    /// matters.
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

    /// The seat that had the engine last before the end of the log at `place`, and the place of
    /// that turn.
    fn before(&self, place: u64) -> Option<(usize, u64)> {
        // Between two turns of seats there is at most one time that no seat wanted, and one change.
        (place.saturating_sub(3)..=place).rev().find_map(|at| {
            let seat = Turn::of(self.at(at).load(Ordering::Acquire)).seat();
            seat.map(|seat| (seat, at))
        })
    }

    /// How long the engine stands still if `seat` follows what the log ends with.
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

    /// The seats that come next behind the turn at `place`, in order, each with the time it may
    /// have: first a seat that has begun a slice and not had all of it.
    fn order(&self, place: u64, last: Turn) -> impl Iterator<Item = (usize, u64)> + '_ {
        let seats = index(self.words[1].load(Ordering::Acquire)).min(SEATS);
        let slice = self.pace.slice;
        // A change of seats leaves the circle where it was.
        let (at, seat) = match last.holder {
            Holder::Nobody => (place, None),
            Holder::Seat(seat) => (place, Some(seat)),
            Holder::Changing => self
                .before(place)
                .map_or((place, None), |(seat, at)| (at, Some(seat))),
        };
        let held = seat.map_or(slice, |seat| self.held(at, seat));
        // The rest of a slice is over once the engine has changed to another seat.
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

    /// Writes the next turn if anybody wants one; `own` is a seat whose owner need not be looked
    /// at.
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
        }
    }

    /// Lets the engine work until its last turn begins after `moment`, or no seat wants one.
    pub(super) fn run(&self, moment: u64, own: usize) {
        while self.last().1.end <= moment && self.write_next(own) {}
    }

    /// As [`run`](Self::run); then the log reaches `moment`, with a pause if need be.
    pub(super) fn reach(&self, moment: u64, own: usize) {
        loop {
            self.run(moment.saturating_sub(1), own);
            let (place, last) = self.last();
            if last.end >= moment {
                return;
            }
            let old = self.at(place + 1).load(Ordering::Acquire);
            if Turn::of(old).end <= last.end {
                let holder = Holder::Nobody;
                let end = moment;
                self.write(place + 1, old, Turn { holder, end });
            }
        }
    }

    /// The seat's next turn behind `place`, which moves to it.
    pub(super) fn next(&self, seat: usize, place: &mut u64) -> Option<(u64, u64)> {
        let (end, _) = self.last();
        if end - *place >= LOG as u64 - 1 {
            *place = end;
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

    /// Whether the engine is another seat's at `moment`, or changes to one. The end of a turn
    /// belongs to it, too.
    pub(super) fn is_others(&self, seat: usize, moment: u64) -> bool {
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
        moment < to && holder != Holder::Nobody && holder != Holder::Seat(seat) && !own(before)
    }

    /// The turn behind `place`, of any seat: its owner, its begin and its end. `None` if the log
    /// ends at `place`.
    pub(super) fn behind(&self, place: u64) -> Option<(Holder, u64, u64)> {
        let turn = |at| Turn::of(self.at(at).load(Ordering::Acquire));
        (place < self.place()).then(|| {
            let Turn { holder, end } = turn(place + 1);
            (holder, turn(place).end, end)
        })
    }

    /// When the seat's next turn begins, at the earliest, if it wants one.
    pub(super) fn expected(&self, seat: usize) -> u64 {
        let (place, last) = self.last();
        let before = self
            .order(place, last)
            .take_while(|(other, _)| *other != seat);
        last.end + before.map(|(_, ns)| ns).sum::<u64>()
    }

    /// Until when the engine is busy.
    #[cfg(test)]
    pub(super) fn until(&self) -> u64 {
        self.last().1.end
    }
}

/// The end of a log in `words`, for a process that only watches.
pub(crate) fn busy_until(words: &[AtomicU64]) -> u64 {
    Turns::watched(words).last().1.end
}

/// A turn as the log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Had {
    /// The owner of the seat now; 0 if it was left.
    pub(crate) owner: u64,
    /// When it began (ns).
    pub(crate) from: u64,
    /// When it ends (ns).
    pub(crate) to: u64,
}

/// The turns behind `place` that are still remembered, oldest first, and the place they end with.
pub(crate) fn had(words: &[AtomicU64], place: u64) -> (Vec<Had>, u64) {
    let turns = Turns::watched(words);
    let oldest = |end: u64| end.saturating_sub(LOG as u64 - 2);
    let (end, _) = turns.last();
    let read = |at: u64| {
        let turn = Turn::of(turns.at(at).load(Ordering::Acquire));
        let from = Turn::of(turns.at(at - 1).load(Ordering::Acquire)).end;
        let owner = turns.owner(turn.seat()?).load(Ordering::Acquire);
        let to = turn.end;
        Some((at, Had { owner, from, to }))
    };
    let read: Vec<_> = (place.max(oldest(end)).saturating_add(1)..=end)
        .filter_map(read)
        .collect();
    // What was written over meanwhile is none of these.
    let (now, _) = turns.last();
    let whole = read.into_iter().filter(|(at, _)| *at > oldest(now));
    (whole.map(|(_, turn)| turn).collect(), end)
}

/// Frees the seats a dead process left.
pub(crate) fn evict(words: &[AtomicU64], owner: u64) {
    let turns = Turns::watched(words);
    for seat in 0..SEATS {
        if turns.owner(seat).load(Ordering::Acquire) == owner {
            turns.clear(seat, owner);
        }
    }
}
