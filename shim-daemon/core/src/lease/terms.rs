//! What users and operators set about compute.

use crate::time::Nanos;
use gpushare_protocol::units::Permille;
use std::collections::BTreeMap;

/// Weights are parts of this.
pub(super) const WHOLE: u64 = 1000;

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

/// How containers work on a device that several want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// At the same time, steered: nobody's gaps idle the device.
    #[default]
    Together,
    /// One after the other, in exclusive turns.
    Turns,
}

/// The driver's time slice where nobody measured it: softgpu's; drivers are said to use 1 or 2 ms.
/// Unverified.
const SLICE: Nanos = Nanos::millis(2);

/// The node's settings for compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePolicy {
    /// How a device is shared.
    pub sharing: Sharing,
    /// The driver's time slice: how long it lets one context run while others have work.
    pub slice: Nanos,
    /// The turn of a container with an average weight; see [`Profile`].
    pub quantum: Nanos,
    /// No turn is shorter, whatever the weight: below this switching costs too much.
    pub shortest: Nanos,
    /// Most un-drained work by estimate while another container is on the device: a quarter of a turn, so that a client
    /// need not be woken more often, and what its estimates are wrong by is small beside the turn.
    pub window: Nanos,
    /// The same while one of a higher priority is: what it waits for at most, beside one kernel.
    pub urgent_window: Nanos,
    /// How long a closed container may drain before the next is let in beside it.
    pub overrun: Nanos,
    /// The most a container can owe for time it held beyond its share.
    pub most_debt: Nanos,
    /// Least time between two overrun notices about one container on one device.
    pub notice_every: Nanos,
}

impl LeasePolicy {
    /// How long after its turn a tenant that says nothing counts as one that has more to do.
    pub(super) const GRACE: Nanos = Nanos::millis(1);

    /// A debt of a tenant that rests fades by one part in so many of the time: after a pause of
    /// 100 s a second's debt is gone, and nobody gains more than a hundredth of the time by it.
    pub(super) const PARDON: u64 = 100;

    /// The default settings with exclusive turns.
    pub fn turns() -> Self {
        Self {
            sharing: Sharing::Turns,
            ..Self::default()
        }
    }

    /// The settings of a profile.
    pub fn of(profile: Profile) -> Self {
        Self {
            sharing: Sharing::default(),
            slice: SLICE,
            quantum: profile.quantum(),
            shortest: Nanos::millis(2),
            window: Nanos(profile.quantum().0 / 4).max(Nanos::millis(2)),
            urgent_window: Nanos::micros(500),
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

/// The least weight of a container without a request of its own, when others' requests leave
/// nothing: one percent.
const LEAST_WEIGHT: u64 = 10;

/// Of each class, how many thousandths its containers request, and how many of them request
/// nothing.
pub(super) fn requests(
    all: impl Iterator<Item = (u16, Option<Permille>)>,
) -> BTreeMap<u16, (u64, u64)> {
    let mut requests: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    for (class, request) in all {
        let (asked, without) = requests.entry(class).or_default();
        match request {
            Some(request) => *asked += u64::from(request.get()),
            None => *without += 1,
        }
    }
    requests
}

/// A container's weight among those of its class, of whom so many thousandths are requested, and so
/// many containers have no request.
pub(super) fn weight(request: Option<Permille>, (asked, without): (u64, u64)) -> u64 {
    request.map_or_else(
        || (1000_u64.saturating_sub(asked) / without.max(1)).max(LEAST_WEIGHT),
        |request| u64::from(request.get()),
    )
}

/// A container's priority, share and weight.
pub(super) type Terms = (u16, Compute, u64);

/// Its part in thousandths while `all` want the device: by weight among the highest class, less
/// what lower ones are guaranteed; else what it is guaranteed itself. Never more than its cap.
pub(super) fn part(own: Terms, all: &[Terms]) -> u32 {
    let requests =
        |(_, compute, _): &Terms| compute.request.map_or(0, |part| u64::from(part.get()));
    let (class, compute, weight) = own;
    let part = if all.iter().any(|(other, ..)| *other > class) {
        requests(&own)
    } else {
        let lower = all.iter().filter(|(other, ..)| *other < class);
        let left = 1000_u64.saturating_sub(lower.map(requests).sum());
        let peers = all.iter().filter(|(other, ..)| *other == class);
        let sum: u64 = peers.map(|(.., weight)| weight).sum();
        left * weight / sum.max(1)
    };
    let cap = compute.cap().map_or(1000, |cap| u64::from(cap.get()));
    u32::try_from(part.min(cap)).unwrap_or(1000)
}
