//! What refused a tenant's allocations, and the answers that tell.

use gpushare_core::Denial;
use gpushare_protocol::units::Bytes;

/// Refused allocations, by what refused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusals {
    /// The tenant's own limit.
    pub(super) over_limit: u64,
    /// An allocation waited as long as it may.
    pub(super) timed_out: u64,
    /// There was no room, and the tenant does not wait.
    pub(super) no_room: u64,
    /// It waited for a tenant that waited for it.
    pub(super) cycle: u64,
    /// The driver had no memory.
    pub(super) driver: u64,
    /// No memory can come: its device is lost, it is being ended, or too many of its threads wait.
    pub(super) gone: u64,
    /// How many of all of these had waited before.
    pub(super) waited: u64,
    /// The most that was missing to one of those without room.
    pub(super) short: Bytes,
}

impl Refusals {
    pub(super) fn sum(&self) -> u64 {
        let all = self.parts();
        all.iter()
            .fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Those for which no room was found, or none could come.
    pub(super) fn without_room(&self) -> u64 {
        let known = self.no_room.saturating_add(self.cycle);
        known.saturating_add(self.gone)
    }

    /// Each with the name of its fact.
    pub(super) fn parts(&self) -> [(&'static str, u64); 6] {
        [
            ("over_limit", self.over_limit),
            ("timed_out", self.timed_out),
            ("no_room", self.no_room),
            ("cycle", self.cycle),
            ("driver", self.driver),
            ("gone", self.gone),
        ]
    }

    pub(super) fn add(&mut self, other: Self) {
        for (known, more) in [
            (&mut self.over_limit, other.over_limit),
            (&mut self.timed_out, other.timed_out),
            (&mut self.no_room, other.no_room),
            (&mut self.cycle, other.cycle),
            (&mut self.driver, other.driver),
            (&mut self.gone, other.gone),
            (&mut self.waited, other.waited),
        ] {
            *known = known.saturating_add(more);
        }
        self.short = self.short.max(other.short);
    }

    /// Takes at most so many out.
    fn take(&mut self, most: u64) -> Self {
        let mut left = most;
        let mut of = |known: &mut u64| {
            let part = left.min(*known);
            left -= part;
            *known -= part;
            part
        };
        let mut taken = Self {
            timed_out: of(&mut self.timed_out),
            cycle: of(&mut self.cycle),
            driver: of(&mut self.driver),
            gone: of(&mut self.gone),
            no_room: of(&mut self.no_room),
            over_limit: of(&mut self.over_limit),
            waited: 0,
            short: Bytes::ZERO,
        };
        if taken.no_room > 0 {
            taken.short = self.short;
        }
        if self.no_room == 0 {
            self.short = Bytes::ZERO;
        }
        taken
    }
}

/// Denials of a second.
#[derive(Debug, Default)]
struct Answers {
    /// Of asks that had waited.
    waited: Refusals,
    others: Refusals,
}

impl Answers {
    /// Takes out at most so many, those that had waited first.
    fn take(&mut self, most: u64) -> Refusals {
        let mut taken = self.waited.take(most);
        taken.waited = taken.sum();
        taken.add(self.others.take(most - taken.sum()));
        taken
    }

    fn sum(&self) -> u64 {
        self.waited.sum() + self.others.sum()
    }
}

/// The answers to one process that may explain refusals that its counters show later.
///
/// A process counts a refusal after it has the answer, so its counters may be read in between, also
/// several times: by each scrape of metrics. An answer explains what they show until the end of the
/// second after it. One that no refusal has followed by then, such as that to a program that found
/// memory of its own instead, explains nothing.
///
/// What cannot be had at once is asked for up to three times for one allocation. So these answers
/// explain what no other one does, and none of them anything after a read that shows a refusal.
#[derive(Debug, Default)]
pub(super) struct Denied {
    /// Answers of this second.
    fresh: Answers,
    /// Answers of the one before.
    older: Answers,
}

impl Denied {
    /// An ask was denied; before it the `driver` may have refused, and it may have `waited`.
    pub(super) fn add(&mut self, denial: &Denial, driver: bool, waited: bool) {
        let fresh = match waited {
            true => &mut self.fresh.waited,
            false => &mut self.fresh.others,
        };
        *match denial {
            _ if driver => &mut fresh.driver,
            Denial::TimedOut { .. } => &mut fresh.timed_out,
            Denial::Cycle => &mut fresh.cycle,
            Denial::NoRoom { short } => {
                fresh.short = fresh.short.max(*short);
                &mut fresh.no_room
            }
            // The limit was lowered meanwhile. One that is over it at once needs no answer.
            Denial::OverLimit { .. } if waited => &mut fresh.over_limit,
            Denial::OverLimit { .. } => return,
            Denial::NoQuota | Denial::Ending | Denial::TooMany | Denial::DeviceLost => {
                &mut fresh.gone
            }
        } += 1;
    }

    /// What could not be had at once was refused, or is waited for.
    pub(super) fn at_once_is_over(&mut self) {
        self.take_at_once();
    }

    /// Takes out what could not be had at once.
    fn take_at_once(&mut self) -> Refusals {
        let mut all = Refusals::default();
        for answers in [&mut self.older, &mut self.fresh] {
            all.no_room += std::mem::take(&mut answers.others.no_room);
            all.short = all.short.max(std::mem::take(&mut answers.others.short));
            all.gone += std::mem::take(&mut answers.others.gone);
        }
        all
    }

    /// The counters are read, and show so many refusals more: those that answers explain.
    pub(super) fn explain(&mut self, count: u64) -> Refusals {
        let mut at_once = match count {
            0 => Refusals::default(),
            _ => self.take_at_once(),
        };
        let mut explained = self.older.take(count);
        explained.add(self.fresh.take(count - explained.sum()));
        explained.add(at_once.take(count - explained.sum()));
        explained
    }

    /// A second has passed.
    pub(super) fn age(&mut self) {
        self.older = std::mem::take(&mut self.fresh);
    }

    /// Whether it explains nothing any more.
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.sum() + self.older.sum() == 0
    }
}
