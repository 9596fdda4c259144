//! What users and operators set about compute.

use crate::time::Nanos;
use gpushare_protocol::units::Permille;

/// A part of a span of time.
pub(super) fn part_of(part: Permille, time: Nanos) -> Nanos {
    Nanos(part.of(time.0))
}

/// A container's compute share on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    /// Guaranteed under contention, also against higher priorities; at most `limit`. `None`: an equal part
    /// of what others of its priority do not have guaranteed.
    pub request: Option<Permille>,
    /// Never exceeded, also when alone. `None` and the whole are no cap.
    pub limit: Option<Permille>,
}

impl Compute {
    /// The cap, if it binds.
    pub fn cap(&self) -> Option<Permille> {
        self.limit.filter(|limit| *limit < Permille::WHOLE)
    }
}

/// How long turns are: latency against overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// 5 ms: short waits, about four times the overhead of the default.
    Interactive,
    /// 20 ms.
    #[default]
    Default,
    /// 50 ms: least overhead, longest waits.
    Batch,
}

impl Profile {
    /// The turn of a container with an average weight.
    pub fn quantum(self) -> Nanos {
        match self {
            Self::Interactive => Nanos::millis(5),
            Self::Default => Nanos::millis(20),
            Self::Batch => Nanos::millis(50),
        }
    }
}

/// The node's settings for compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePolicy {
    /// The turn of a container with an average weight; see [`Profile`].
    pub quantum: Nanos,
    /// No turn is shorter, whatever the weight: below this switching costs too much.
    pub shortest: Nanos,
    /// Most un-drained work by estimate while another container is on the device: a quarter of a turn, so that a client
    /// need not be woken more often, and what its estimates are wrong by is small beside the turn.
    pub window: Nanos,
    /// The same while one of a higher priority is: what it waits for at most, beside one kernel.
    pub urgent_window: Nanos,
    /// How long before the expected end of a drain the next is let in: what it takes until its first work is there. Zero: never
    /// before it has drained.
    pub lead: Nanos,
    /// How long a closed container may drain before the next is let in beside it.
    pub overrun: Nanos,
    /// The most a container can owe for time it held beyond its share.
    pub most_debt: Nanos,
    /// Least time between two overrun notices about one container on one device.
    pub notice_every: Nanos,
}

impl LeasePolicy {
    /// The settings of a profile.
    pub fn of(profile: Profile) -> Self {
        Self {
            quantum: profile.quantum(),
            shortest: Nanos::millis(2),
            window: Nanos(profile.quantum().0 / 4).max(Nanos::millis(2)),
            urgent_window: Nanos::micros(500),
            lead: Nanos(gpushare_protocol::page::lease::LEAD),
            overrun: Nanos::millis(10),
            most_debt: Nanos::secs(1),
            notice_every: Nanos::secs(10),
        }
    }
}

impl Default for LeasePolicy {
    fn default() -> Self {
        Self::of(Profile::default())
    }
}
