//! The round robin of one engine in virtual time, for tests of software that schedules work on it.
//!
//! A [`RoundRobin`] is one engine of one device. Contexts take a [`Seat`], submit operations, and
//! share the engine in time slices. The caller sets the time. The scheduling rule is not
//! implemented here: the turns come from the log that the devices of this crate share between
//! processes ([`turns`](super::turns)), and each seat is a [`Lane`], as in the timeline of a
//! process. The model therefore gives the same turns as softgpu's `libcuda.so.1` gives when no
//! thread is late.
//!
//! One seat has one queue: its operations run one after the other, as in one stream. All times are
//! nanoseconds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use super::engine::OpId;
use super::lane::Lane;
pub use super::turns::Pace;
use super::turns::{Holder, Turns, WORDS};

/// A context that shares the engine. Seats are numbered from 0 in the order of [`RoundRobin::sit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seat(pub usize);

/// A span of engine time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// The context that had the engine; `None` during a context switch.
    pub seat: Option<Seat>,
    /// The start of the span (ns).
    pub from: u64,
    /// The end of the span (ns).
    pub to: u64,
}

/// An operation that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The context that submitted it.
    pub seat: Seat,
    /// The number that [`RoundRobin::submit`] returned for it.
    pub op: u64,
    /// When it completed (ns).
    pub at: u64,
}

/// One context: its lane, and the operations queued behind the one in the lane.
#[derive(Debug, Clone)]
struct SeatContext {
    lane: Lane,
    running: bool,
    waiting: VecDeque<(OpId, u64)>,
    waiting_ns: u64,
}

impl SeatContext {
    /// Starts the next queued operation, if there is one.
    fn start(&mut self, turns: &Turns<'_>, at: u64) {
        let next = self.waiting.pop_front();
        self.running = next.is_some();
        if let Some((op, ns)) = next {
            self.waiting_ns -= ns;
            self.lane.push(turns, op, at, ns, 1);
        }
    }

    fn claim(&mut self, turns: &Turns<'_>) {
        let ahead = self.waiting_ns;
        self.lane.claim(turns, |_| ahead);
    }
}

/// One engine that several contexts share in time slices, in virtual time.
#[derive(Debug)]
pub struct RoundRobin {
    words: Vec<AtomicU64>,
    pace: Pace,
    contexts: Vec<SeatContext>,
    now: u64,
    last_op: OpId,
    ended: Vec<Ended>,
    /// The place in the log of turns, and the moment, up to which [`advance`](Self::advance) has
    /// reported.
    told: (u64, u64),
}

const ALL_LIVE: &dyn Fn(u64) -> bool = &|_| true;

impl RoundRobin {
    /// An idle engine at time 0.
    pub fn new(pace: Pace) -> Self {
        Self {
            words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(),
            pace,
            contexts: Vec::new(),
            now: 0,
            last_op: 0,
            ended: Vec::new(),
            told: (0, 0),
        }
    }

    /// Adds a context; `None` if the engine has no free seat (240 in all). Seats are not reused.
    pub fn sit(&mut self) -> Option<Seat> {
        let place = Turns::new(&self.words, ALL_LIVE, self.pace).sit(1)?;
        self.contexts.push(SeatContext {
            lane: Lane::new(1, place, 0),
            running: false,
            waiting: VecDeque::new(),
            waiting_ns: 0,
        });
        Some(Seat(self.contexts.len() - 1))
    }

    /// The present (ns).
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Submits an operation of `ns` (at least 1) in `seat` now. It follows the seat's queued
    /// operations without a pause. Returns its number, unique on this engine.
    pub fn submit(&mut self, seat: Seat, ns: u64) -> u64 {
        self.last_op += 1;
        let turns = Turns::new(&self.words, ALL_LIVE, self.pace);
        let context = &mut self.contexts[seat.0];
        let ns = ns.max(1);
        context.waiting.push_back((self.last_op, ns));
        context.waiting_ns += ns;
        if !context.running {
            context.start(&turns, self.now);
        }
        context.claim(&turns);
        self.last_op
    }

    /// Drops the queued operations of `seat`, as at the death of its process. The running operation
    /// completes.
    pub fn abandon(&mut self, seat: Seat) {
        let context = &mut self.contexts[seat.0];
        context.waiting.clear();
        context.waiting_ns = 0;
        context.claim(&Turns::new(&self.words, ALL_LIVE, self.pace));
    }

    /// Engine time that the operations of `seat` still need (ns).
    pub fn left(&self, seat: Seat) -> u64 {
        let context = &self.contexts[seat.0];
        context.lane.left(self.now) + context.waiting_ns
    }

    /// The next moment at which the engine does something by itself: a turn begins or ends, or an
    /// operation completes. `None` means never, unless work is submitted. A caller that steps from
    /// each such moment to the next misses no end of an operation.
    pub fn next(&self) -> Option<u64> {
        self.next_step().map(|(at, _)| at)
    }

    /// When everything queued in `seat` will be complete if nothing more is submitted; `None` if
    /// nothing is queued.
    pub fn complete(&self, seat: Seat) -> Option<u64> {
        let mut ahead = self.clone();
        while ahead.left(seat) > 0 {
            let at = ahead.next()?;
            ahead.advance(at);
            if ahead.left(seat) == 0 {
                return Some(at);
            }
        }
        None
    }

    /// Lets time pass until `to`. Returns the spans of engine time between the previous call's `to`
    /// and this one, in order. Adjacent spans of one context are merged. Idle spans are left out.
    pub fn advance(&mut self, to: u64) -> Vec<Given> {
        let mut given = Vec::new();
        while let Some((at, index)) = self.next_step().filter(|(at, _)| *at <= to) {
            self.step(at, index);
            self.report(at, &mut given);
        }
        let turns = Turns::new(&self.words, ALL_LIVE, self.pace);
        for context in &self.contexts {
            turns.run(to, context.lane.seat());
        }
        self.now = self.now.max(to);
        self.report(to, &mut given);
        given
    }

    /// The operations that completed since the last call, in order of time.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    fn next_step(&self) -> Option<(u64, usize)> {
        let turns = Turns::new(&self.words, ALL_LIVE, self.pace);
        let lanes = self.contexts.iter().enumerate();
        let next = lanes.filter_map(|(at, context)| Some((context.lane.next_event(&turns)?, at)));
        next.min()
    }

    fn step(&mut self, at: u64, index: usize) {
        let turns = Turns::new(&self.words, ALL_LIVE, self.pace);
        let context = &mut self.contexts[index];
        for op in context.lane.step(&turns, at) {
            let seat = Seat(index);
            self.ended.push(Ended { seat, op, at });
            context.start(&turns, at);
        }
        context.claim(&turns);
    }

    /// Adds the spans of the log up to `to` that are not reported yet.
    fn report(&mut self, to: u64, given: &mut Vec<Given>) {
        let turns = Turns::new(&self.words, ALL_LIVE, self.pace);
        let (mut place, mut until) = self.told;
        while let Some((holder, from, end)) = turns.behind(place).filter(|turn| turn.1 < to) {
            let (from, part) = (from.max(until), end.min(to));
            if part > from
                && let Some(seat) = self.name(holder)
            {
                extend(given, seat, from, part);
            }
            if end > to {
                break;
            }
            place += 1;
            until = until.max(end);
        }
        self.told = (place, until.max(to));
    }

    /// The context to report for a span of the log; `None` for an idle span.
    fn name(&self, holder: Holder) -> Option<Option<Seat>> {
        let place = match holder {
            Holder::Idle => return None,
            Holder::Changing => return Some(None),
            Holder::Seat(place) => place,
        };
        let mut contexts = self.contexts.iter();
        contexts
            .position(|context| context.lane.seat() == place)
            .map(|at| Some(Seat(at)))
    }
}

/// Adds a span, or extends the last span if the same context continues without a pause.
fn extend(given: &mut Vec<Given>, seat: Option<Seat>, from: u64, to: u64) {
    match given.last_mut() {
        Some(last) if last.seat == seat && last.to == from => last.to = to,
        _ => given.push(Given { seat, from, to }),
    }
}

impl Clone for RoundRobin {
    fn clone(&self) -> Self {
        let words = self.words.iter();
        Self {
            words: words
                .map(|word| AtomicU64::new(word.load(Ordering::Relaxed)))
                .collect(),
            contexts: self.contexts.clone(),
            ended: self.ended.clone(),
            ..*self
        }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
