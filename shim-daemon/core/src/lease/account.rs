//! A tenant's compute terms on one device and its bills, in either regime.

use super::promise::Promise;
use super::terms::{Compute, LeasePolicy, Terms, WHOLE};
use crate::time::Nanos;
use gpushare_protocol::cap::Bucket;
use gpushare_protocol::histogram::Histogram;

/// See the module's page.
#[derive(Debug)]
pub(super) struct ComputeAccount {
    /// Priority: strict, higher first.
    pub(super) class: u16,
    compute: Compute,
    /// Its part within its class, in thousandths; computed from all tenants' requests, and from
    /// those without one that count.
    pub(super) weight: u64,
    /// It asks for the device, or did not long ago ([`LeasePolicy::RECENT`]): without a request it
    /// takes a part of what requests leave.
    counts: bool,
    bucket: Option<Bucket>,
    promise: Option<Promise>,
    /// All it was billed for since it came.
    pub(super) held: Nanos,
    /// How long its gate was closed while it wanted the device, each time.
    pub(super) waits: Histogram,
    /// Whether it was reported that one of its processes passes no gate.
    told_ungated: bool,
}

impl ComputeAccount {
    /// Of a tenant whose cap leaves it this allowance; `None`: a fresh one.
    pub(super) fn owing(allowance: Option<Bucket>, class: u16, compute: Compute) -> Self {
        Self {
            class,
            compute,
            weight: WHOLE,
            counts: false,
            bucket: compute.cap().map(|cap| Bucket::under(allowance, cap)),
            promise: compute.request.map(Promise::new),
            held: Nanos::ZERO,
            waits: Histogram::default(),
            told_ungated: false,
        }
    }

    /// Changes the terms. Savings and debts of the old terms stay.
    pub(super) fn set(&mut self, class: u16, compute: Compute) {
        (self.class, self.compute) = (class, compute);
        self.bucket = compute.cap().map(|cap| Bucket::under(self.bucket, cap));
        self.promise = compute
            .request
            .map(|part| Promise::under(self.promise, part));
    }

    pub(super) fn terms(&self) -> Terms {
        (self.class, self.compute, self.weight)
    }

    /// Whether its terms make other tenants' weights: a request does, and one that asks.
    pub(super) fn counts(&self) -> bool {
        self.counts || self.compute.request.is_some()
    }

    /// It asks for the device, or did not long ago; or not. Whether that is new and of weight.
    pub(super) fn count(&mut self, asks: bool) -> bool {
        let was = self.counts();
        self.counts = asks;
        was != self.counts()
    }

    /// Its gate opens; it was closed for so long while it wanted the device.
    pub(super) fn waited(&mut self, time: Nanos) {
        self.waits.record(time.0);
    }

    /// Bills it this much time.
    pub(super) fn bill(&mut self, time: Nanos) {
        self.held = self.held + time;
    }

    /// Time passes; `held` of it counts against its cap, to which it owes so much at `most`.
    pub(super) fn pay_cap(&mut self, time: Nanos, held: Nanos, most: Nanos) {
        if let Some(bucket) = &mut self.bucket {
            bucket.pass(time.0, held.0, most.0);
        }
    }

    /// Time passes in which it asks for the device; it is billed for `had` of it.
    pub(super) fn pay_promise(&mut self, time: Nanos, had: Nanos) {
        if let Some(promise) = &mut self.promise {
            promise.pass(time, had);
        }
    }

    /// Time passes in which it asks for nothing. What it is owed is forgotten, or at most a turn of
    /// it `kept`.
    pub(super) fn rest(&mut self, time: Nanos, kept: bool, policy: &LeasePolicy) {
        if let Some(promise) = &mut self.promise {
            let turn = promise.turn(policy.quantum);
            promise.idles(time, if kept { turn } else { Nanos::ZERO });
        }
    }

    /// A turn is over, `cut` short or given up.
    pub(super) fn turn_over(&mut self, cut: bool) {
        if let Some(bucket) = &mut self.bucket {
            bucket.turn_over(cut);
        }
    }

    /// Its cap was charged where gates open and close without turns.
    pub(super) fn charged(&mut self) {
        if let Some(bucket) = &mut self.bucket {
            bucket.used();
        }
    }

    /// What its cap leaves it; `None`: it has none.
    pub(super) fn allowance(&self) -> Option<Bucket> {
        self.bucket
    }

    pub(super) fn is_capped(&self) -> bool {
        self.bucket.is_some()
    }

    /// Whether its cap is used up now.
    pub(super) fn is_throttled(&self) -> bool {
        self.bucket.is_some_and(|bucket| !bucket.allows())
    }

    /// How long until its cap allows a turn, if it uses no time meanwhile.
    pub(super) fn throttled_for(&self) -> Nanos {
        Nanos(
            self.bucket
                .map_or(0, |bucket| if bucket.allows() { 0 } else { bucket.wait() }),
        )
    }

    /// For how long its cap lets it hold the device from now on. `None`: it has no cap.
    pub(super) fn cap_lasts(&self) -> Option<Nanos> {
        self.bucket.map(|bucket| Nanos(bucket.lasts()))
    }

    /// Whether its debt to its cap is [`LeasePolicy::MOST_DEBT`], or more.
    pub(super) fn owes_its_cap_all(&self) -> bool {
        let most = LeasePolicy::MOST_DEBT.0;
        self.bucket.is_some_and(|bucket| bucket.at_most_debt(most))
    }

    /// How much of a bill for `time` its guarantee explains (ns); nothing where it has none: see
    /// [`Promise::explains`].
    pub(super) fn promised(&self, time: Nanos) -> u64 {
        self.promise.map_or(0, |promise| promise.explains(time))
    }

    pub(super) fn has_promise(&self) -> bool {
        self.promise.is_some()
    }

    /// Its guarantee saves up no more than a turn.
    pub(super) fn save_a_turn(&mut self, policy: &LeasePolicy) {
        if let Some(promise) = &mut self.promise {
            promise.bound(promise.turn(policy.quantum));
        }
    }

    /// What its guarantee is owed, in thousandths of its turn. `None`: it has no guarantee.
    pub(super) fn turns_owed(&self, policy: &LeasePolicy) -> Option<u64> {
        let promise = self.promise?;
        Some(promise.turns_owed(promise.turn(policy.quantum)))
    }

    /// The turn that its guarantee gives it, and how long until then, if it keeps waiting. `None`:
    /// it has no guarantee.
    pub(super) fn guaranteed_turn(&self, policy: &LeasePolicy) -> Option<(Nanos, Nanos)> {
        let promise = self.promise?;
        let turn = promise.turn(policy.quantum);
        Some((turn, promise.wait(turn)))
    }

    /// Whether its guarantee gives it a turn now.
    pub(super) fn is_due(&self, policy: &LeasePolicy) -> bool {
        let turn = self.guaranteed_turn(policy);
        turn.is_some_and(|(_, wait)| wait == Nanos::ZERO)
    }

    /// Whether to report that one of its processes passes no gate: once.
    pub(super) fn tell_ungated(&mut self, ungated: u32) -> bool {
        ungated > 0 && !std::mem::replace(&mut self.told_ungated, true)
    }
}
