//! How long an ask may wait.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::{AT_ONCE, MARGIN, Session};
use crate::guest::clock;

/// In place of a wait whose end is no time of the clock.
const FAR: Duration = Duration::from_secs(30);

/// How an ask may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Not at all: only for memory that can be had at once.
    Not,
    /// As long as the tenant's limits say.
    AsLimitsSay,
    /// For memory within its request, as long as that takes.
    Guaranteed,
}

/// How long an asker may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(super) until: Instant,
    pub(super) end: Instant,
    pub(super) waits: bool,
    pub(super) asked: bool,
}

impl Bound {
    /// Of a question that is put at `now`, of a call that began to wait at `began` and may wait for
    /// `longest`; `None`: not at all.
    pub(super) fn new(now: Instant, began: Instant, longest: Option<Duration>) -> Self {
        let until = longest.map(|longest| began.checked_add(longest).unwrap_or(now + FAR));
        Self {
            until: until.unwrap_or(now),
            end: match until {
                Some(until) => until.max(now) + MARGIN,
                // Several of these in one call do not add up either.
                None => (began + AT_ONCE).max(now + AT_ONCE / 4),
            },
            waits: until.is_some(),
            asked: false,
        }
    }

    /// The ask was granted. If that was after an extension, what the call does with it may take
    /// its time again.
    pub(super) fn answered(&mut self, call: &Deadline) {
        if !self.waits || Instant::now() <= self.until {
            return;
        }
        call.begins_anew();
        self.until = Instant::now() + MARGIN;
        self.end = self.until + MARGIN;
    }

    /// The time left at `now`, in milliseconds, for the daemon; zero for an ask that may not wait.
    /// `None`: it was sent before, and there is no time to send it again.
    pub(super) fn patience_ms(&self, now: Instant) -> Option<u64> {
        let left = self.until.saturating_duration_since(now).as_millis();
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        match (self.waits, self.asked) {
            (true, _) if left > 0 => Some(left),
            (_, true) => None,
            (_, false) => Some(0),
        }
    }
}

impl Session {
    /// Until when an answer to an ask is waited for whose own time is over: its turn in the
    /// rotation of memory is certain, as the daemon last said.
    pub(super) fn extended(&self) -> Option<Instant> {
        let until = self.control().header.extended.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let left = until.checked_sub(clock::now())?;
        Some(Instant::now() + Duration::from_nanos(left) + MARGIN)
    }
}
