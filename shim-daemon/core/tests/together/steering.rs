//! The reports of the processes on a device to the daemon, and its orders to their gates.

/// A process: its tenant and its own number. Both count from 0 in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Who {
    pub tenant: usize,
    pub process: usize,
}

/// The admission of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Everything.
    Free,
    /// Work in flight of at most `window` ns by estimate. With a `slice`, and while `contended`: at
    /// most so much (ns, by estimate) before all that was submitted is complete. An operation that
    /// is longer than a bound goes alone.
    Open {
        window: u64,
        slice: Option<u64>,
        contended: bool,
    },
    /// Nothing passes. Submitted work continues.
    Closed,
}

impl Gate {
    /// How much may be submitted at a time (ns), where its tenant yields.
    pub fn yields(self) -> Option<u64> {
        match self {
            Self::Open {
                slice,
                contended: true,
                ..
            } => slice.filter(|slice| *slice > 0),
            _ => None,
        }
    }
}

/// A process's reports in memory that it shares with the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub who: Who,
    /// Device time that its completed operations take alone, by its own estimate (cumulative ns).
    pub service: u64,
    /// Time in which work was pending, up to the last time that none was (cumulative ns).
    pub busy: u64,
    /// Since when work has been pending; `None` if none is. Work is pending while it is submitted
    /// and not complete, or while a launch waits at the gate.
    pub pending: Option<u64>,
    /// Less than 80 % of the service is of operations with a measured length.
    pub guessed: bool,
}

/// Steers the gates of a device. Messages arrive in the order in which they were sent.
pub trait Steering {
    /// A process has its context on the device. Its gate is asked for next.
    fn joined(&mut self, _now: u64, _who: Who) {}
    /// A process has ended.
    fn left(&mut self, _now: u64, _who: Who) {}
    /// A process that was idle, or is new, has launched.
    fn busy(&mut self, now: u64, who: Who);
    /// A process has had nothing pending for [`Rig::idle_after`](super::Rig::idle_after).
    fn idle(&mut self, now: u64, who: Who);
    /// A launch waits at a closed gate. Said once each time that the gate is closed.
    fn wanted(&mut self, _now: u64, _who: Who) {}
    /// A closed process has nothing submitted any more. Said once each time that the gate is
    /// closed.
    fn drained(&mut self, _now: u64, _who: Who) {}
    /// The moment that [`next`](Self::next) named has come. `samples` are of all processes that
    /// have not ended, by number.
    fn tick(&mut self, now: u64, samples: &[Sample]);
    /// In the last `span` each process had so much of the device, as the driver's samples say it.
    /// Those that are not registered have no number.
    fn ran(&mut self, _now: u64, _span: u64, _ran: &[(Option<Who>, u64)]) {}
    /// When to tick next.
    fn next(&self) -> Option<u64>;
    /// The gate of a process now. Asked after each of the calls above.
    fn gate(&self, who: Who) -> Gate;
}

/// The bare driver: all gates are free, always.
#[derive(Clone, Copy, Debug)]
pub struct NoSteering;

impl Steering for NoSteering {
    fn busy(&mut self, _: u64, _: Who) {}
    fn idle(&mut self, _: u64, _: Who) {}
    fn tick(&mut self, _: u64, _: &[Sample]) {}
    fn next(&self) -> Option<u64> {
        None
    }
    fn gate(&self, _: Who) -> Gate {
        Gate::Free
    }
}
