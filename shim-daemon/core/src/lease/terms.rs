//! The compute settings of users and operators.

use crate::time::Nanos;
use gpushare_protocol::units::Permille;

/// Weights are parts of this.
pub(super) const WHOLE: u64 = 1000;

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
    /// The turn of a tenant with an average weight: latency against overhead.
    pub quantum: Nanos,
    /// How long a closed tenant may drain before the next is let in beside it.
    pub overrun: Nanos,
}

impl LeasePolicy {
    /// The shortest turn, for any weight: below this switching costs too much.
    pub(super) const SHORTEST: Nanos = Nanos::millis(2);

    /// The [window](Self::window) while a tenant of a higher priority is on the device: its longest
    /// wait, beside one kernel.
    pub(super) const URGENT_WINDOW: Nanos = Nanos::micros(500);

    /// A tenant's largest debt for time beyond its share.
    pub(super) const MOST_DEBT: Nanos = Nanos::secs(1);

    /// A tenant's largest debt to its cap on a shared device, where it pays for work that is known
    /// to have run. The library keeps the same without a daemon.
    pub(super) const MOST_CAP_DEBT: Nanos = Nanos::secs(60);

    /// How long a tenant holds the device beside waiting ones of lower classes alone before it is
    /// closed once, because it may have been stopped; and for how long it may drain then.
    pub(super) const ASKED: (Nanos, Nanos) = (Nanos::secs(1), Nanos::millis(250));

    /// Least time between two overrun notices about one tenant on one device.
    pub(super) const NOTICE_EVERY: Nanos = Nanos::secs(10);

    /// How long after its turn a tenant without a report counts as having more work.
    pub(super) const GRACE: Nanos = Nanos::millis(1);

    /// For how long after its turn a tenant that asks for nothing keeps a turn of what it is owed.
    pub(super) const KEPT: Nanos = Nanos::secs(1);

    /// For how long after its last work a tenant without a request takes a part of what requests
    /// leave, and verdicts on steering are about it: pauses of an interactive user are shorter.
    pub(super) const RECENT: Nanos = Nanos::secs(4);

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

    /// The most estimated work in flight while another tenant is on the device: a quarter of a
    /// turn. Then a client need not be woken more often, and the estimates' error is small beside
    /// the turn.
    pub(super) fn window(&self) -> Nanos {
        Nanos(self.quantum.0 / 4).max(Nanos::millis(2))
    }
}

impl Default for LeasePolicy {
    fn default() -> Self {
        Self {
            sharing: Sharing::default(),
            slice: SLICE,
            switch: SWITCH,
            quantum: Nanos::millis(20),
            overrun: Nanos::millis(10),
        }
    }
}

/// The least weight of all tenants of a class without a request together, when the requests of
/// others leave nothing: one percent.
const LEAST_WEIGHT: u64 = 10;

/// A tenant's priority, share and weight.
pub(super) type Terms = (u16, Compute, u64);

/// The thousandths that it requests.
fn requests((_, compute, _): &Terms) -> u64 {
    compute.request.map_or(0, |part| part.get().into())
}

/// Those of a class, and how many of them request nothing.
fn peers(class: u16, all: &[Terms]) -> (impl Iterator<Item = &Terms> + Clone, u64) {
    let peers = all.iter().filter(move |(other, ..)| *other == class);
    let without = peers
        .clone()
        .filter(|(_, compute, _)| compute.request.is_none());
    let without = without.count() as u64;
    (peers, without)
}

/// A tenant's weight among `all` of the device that count: its request, or without one an equal
/// part of the rest of its class. It `counts` itself in any case.
pub(super) fn weight((own, counts): (Terms, bool), all: &[Terms]) -> u64 {
    let (class, compute, _) = own;
    if compute.request.is_some() {
        return requests(&own);
    }
    let (peers, without) = peers(class, all);
    let without = without + u64::from(!counts);
    let asked: u64 = peers.map(requests).sum();
    (1000_u64.saturating_sub(asked).max(LEAST_WEIGHT) / without.max(1)).max(1)
}

/// The weights of `all` while each of them wants the device.
pub(super) fn weighed(all: &[Terms]) -> Vec<Terms> {
    let weighed = |own: &Terms| (own.0, own.1, weight((*own, true), all));
    all.iter().map(weighed).collect()
}

/// Its part in thousandths while `all`, which are [`weighed`], want the device: in the highest
/// class by weight, less the guarantees of lower classes, but no less than its own guarantee; in
/// other classes its own guarantee. Never more than its cap.
pub(super) fn part(own: Terms, all: &[Terms]) -> u32 {
    let (class, compute, weight) = own;
    let part = if all.iter().any(|(other, ..)| *other > class) {
        requests(&own)
    } else {
        let lower = all.iter().filter(|(other, ..)| *other < class);
        let left = 1000_u64.saturating_sub(lower.map(requests).sum());
        let (peers, without) = peers(class, all);
        let sum: u64 = peers.clone().map(|(.., weight)| weight).sum();
        let by_weight = left * weight / sum.max(1);
        match compute.request {
            Some(_) => by_weight.max(requests(&own)),
            None => {
                let asked: u64 = peers.map(requests).sum();
                let rest = left.saturating_sub(asked) / without.max(1);
                by_weight.min(rest.max(1))
            }
        }
    };
    let cap = compute.cap().map_or(1000, |cap| u64::from(cap.get()));
    u32::try_from(part.min(cap)).unwrap_or(1000)
}
