//! The compute settings of users and operators.

use crate::time::Nanos;
use gpushare_protocol::units::Permille;
use std::collections::BTreeMap;

/// Weights are parts of this.
pub(super) const WHOLE: u64 = 1000;

/// A part of a span of time.
pub(super) fn part_of(part: Permille, time: Nanos) -> Nanos {
    Nanos(part.of(time.0))
}

/// A tenant's compute share on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    /// Guaranteed under contention, also against higher priorities; at most `limit`. `None`: an
    /// equal part of the rest that guarantees of its priority leave.
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
    /// The turn of a tenant with an average weight.
    pub fn quantum(self) -> Nanos {
        match self {
            Self::Interactive => Nanos::millis(5),
            Self::Default => Nanos::millis(20),
            Self::Batch => Nanos::millis(50),
        }
    }
}

/// How tenants work on a device that several want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// At the same time, steered: no tenant's gaps idle the device.
    #[default]
    Together,
    /// One after the other, in exclusive turns.
    Turns,
}

/// The driver's time slice where it was not measured on this node: 2.09 ms on an H100 with driver
/// 580.159.04 (`docs/results/2026-11-26-verify-NVIDIA-H100-80GB-HBM3.md`).
const SLICE: Nanos = Nanos::millis(2);

/// The time of a change of contexts, likewise: 150 us on the same H100, whether the previous
/// context had work left or not.
const SWITCH: Nanos = Nanos::micros(150);

/// The node's settings for compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePolicy {
    /// How a device is shared.
    pub sharing: Sharing,
    /// The driver's time slice: how long it runs one context while others have work.
    pub slice: Nanos,
    /// The device's time for a change from one context to another.
    pub switch: Nanos,
    /// The turn of a tenant with an average weight; see [`Profile`].
    pub quantum: Nanos,
    /// The shortest turn, for any weight: below this switching costs too much.
    pub shortest: Nanos,
    /// The most estimated work in flight while another tenant is on the device: a quarter of a
    /// turn. Then a client need not be woken more often, and the estimates' error is small beside
    /// the turn.
    pub window: Nanos,
    /// The same while a tenant of a higher priority is: its longest wait, beside one kernel.
    pub urgent_window: Nanos,
    /// How long a closed tenant may drain before the next is let in beside it.
    pub overrun: Nanos,
    /// A tenant's largest debt for time beyond its share.
    pub most_debt: Nanos,
    /// Least time between two overrun notices about one tenant on one device.
    pub notice_every: Nanos,
}

impl LeasePolicy {
    /// How long after its turn a tenant without a report counts as having more work.
    pub(super) const GRACE: Nanos = Nanos::millis(1);

    /// For how long after its turn a tenant that asks for nothing keeps a turn of what it is owed.
    pub(super) const KEPT: Nanos = Nanos::secs(1);

    /// A resting tenant's debt fades by this fraction of the time: after a pause of 100 s a debt of
    /// one second is gone. No tenant gains more than a hundredth of the time by it.
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
            switch: SWITCH,
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

/// The least weight of all tenants of a class without a request together, when the requests of
/// others leave nothing: one percent.
const LEAST_WEIGHT: u64 = 10;

/// For each class, the thousandths that its tenants request, and the number of tenants without a
/// request.
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

/// A tenant's weight within its class. The pair: the thousandths requested in the class, and the
/// number of tenants without a request.
pub(super) fn weight(request: Option<Permille>, (asked, without): (u64, u64)) -> u64 {
    request.map_or_else(
        || (1000_u64.saturating_sub(asked).max(LEAST_WEIGHT) / without.max(1)).max(1),
        |request| u64::from(request.get()),
    )
}

/// A tenant's priority, share and weight.
pub(super) type Terms = (u16, Compute, u64);

/// Its part in thousandths while `all` want the device: in the highest class by weight, less the
/// guarantees of lower classes, but no less than its own guarantee; in other classes its own
/// guarantee. Never more than its cap.
pub(super) fn part(own: Terms, all: &[Terms]) -> u32 {
    let requests =
        |(_, compute, _): &Terms| compute.request.map_or(0, |part| u64::from(part.get()));
    let (class, compute, weight) = own;
    let part = if all.iter().any(|(other, ..)| *other > class) {
        requests(&own)
    } else {
        let lower = all.iter().filter(|(other, ..)| *other < class);
        let left = 1000_u64.saturating_sub(lower.map(requests).sum());
        let peers = || all.iter().filter(|(other, ..)| *other == class);
        let sum: u64 = peers().map(|(.., weight)| weight).sum();
        let by_weight = left * weight / sum.max(1);
        match compute.request {
            Some(_) => by_weight.max(requests(&own)),
            None => {
                let asked: u64 = peers().map(requests).sum();
                let others = peers().filter(|(_, compute, _)| compute.request.is_none());
                let rest = left.saturating_sub(asked) / (others.count() as u64).max(1);
                by_weight.min(rest.max(1))
            }
        }
    };
    let cap = compute.cap().map_or(1000, |cap| u64::from(cap.get()));
    u32::try_from(part.min(cap)).unwrap_or(1000)
}
