//! A guarantee against higher classes: how far a tenant is behind its explicit request.
//!
//! Its credit grows with the request's part of the time in which it works or waits, and falls by
//! the time it holds. In both directions it is bounded to one second's worth. Once the credit
//! covers a turn, the tenant gets that turn before all others.

use super::arithmetic::{part_of, signed};
use super::terms::LeasePolicy;
use crate::time::Nanos;
use gpushare_protocol::units::Permille;

/// How far back it looks.
const SECOND: Nanos = Nanos::secs(1);
/// The bound for a small part: enough for a shortest turn.
const LEAST: Nanos = Nanos::millis(10);

/// See the module's page. In nanoseconds of hold time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    part: Permille,
    owed: i64,
}

impl Promise {
    pub(super) fn new(part: Permille) -> Self {
        Self { part, owed: 0 }
    }

    /// The standing of `old`, if there was a request before, under this one.
    pub(super) fn under(old: Option<Self>, part: Permille) -> Self {
        old.map_or_else(|| Self::new(part), |old| Self { part, ..old })
    }

    /// Time passes in which the tenant works or waits; `held` of it it held the device.
    pub(super) fn pass(&mut self, time: Nanos, held: Nanos) {
        let most = signed(part_of(self.part, SECOND).max(LEAST));
        let owed = self
            .owed
            .saturating_add(signed(part_of(self.part, time)))
            .saturating_sub(signed(held));
        self.owed = owed.clamp(-most, most);
    }

    /// Time passes in which the tenant neither works nor waits: no credit accrues, at most so much
    /// is kept, and an excess is forgiven.
    pub(super) fn idles(&mut self, time: Nanos, most: Nanos) {
        let forgiven = self.owed.saturating_add(signed(part_of(self.part, time)));
        self.owed = self.owed.max(forgiven.min(0)).min(signed(most));
    }

    /// It saves up no more than this.
    pub(super) fn bound(&mut self, most: Nanos) {
        self.owed = self.owed.min(signed(most));
    }

    /// How much it is owed, in thousandths of this turn.
    pub(super) fn turns_owed(&self, turn: Nanos) -> u64 {
        let owed = u64::try_from(self.owed).unwrap_or(0);
        owed.saturating_mul(1000) / turn.0.max(1)
    }

    /// The turn it gets when it is that far behind.
    pub(super) fn turn(&self, quantum: Nanos) -> Nanos {
        part_of(self.part, quantum).max(LeasePolicy::SHORTEST)
    }

    /// How much of what its tenant is billed for `time`, which begins now, is its guarantee's: what
    /// it is owed, what accrues meanwhile, and the time of a drain beyond that. In nanoseconds.
    pub(super) fn explains(&self, time: Nanos) -> u64 {
        let accrued = signed(part_of(self.part, time));
        let all = self
            .owed
            .saturating_add(accrued)
            .saturating_add(signed(LEAST));
        u64::try_from(all).unwrap_or(0)
    }

    /// How long until this much credit has accrued, if it keeps waiting. Zero: now.
    pub(super) fn wait(&self, turn: Nanos) -> Nanos {
        let missing = u64::try_from(signed(turn).saturating_sub(self.owed)).unwrap_or(0);
        Nanos(
            missing
                .saturating_mul(1000)
                .div_ceil(self.part.get().into()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Nanos = Nanos::millis(10);

    /// A request of a half, after its tenant waited and held the device for so long.
    fn after(waited: u64, held: u64) -> Promise {
        let mut promise = Promise::new(Permille::new(500).expect("a half"));
        promise.pass(Nanos::millis(waited), Nanos::ZERO);
        promise.pass(Nanos::millis(held), Nanos::millis(held));
        promise
    }

    #[test]
    fn a_bill_beyond_what_was_owed_and_a_drain_is_not_its_own() {
        let explained = |waited, held| after(waited, held).explains(Nanos::millis(2));
        assert_eq!(explained(100, 0), 50_000_000 + 1_000_000 + LEAST.0);
        assert_eq!(explained(0, 10), 5_000_000 + 1_000_000);
        assert_eq!(explained(0, 40), 0);
    }

    #[test]
    fn a_rest_keeps_as_much_of_a_credit_as_it_is_let() {
        for (most, wait) in [(TURN, 0), (Nanos::ZERO, 20)] {
            let mut promise = after(100, 0);
            promise.idles(Nanos::millis(1), most);
            assert_eq!(promise.wait(TURN), Nanos::millis(wait));
            assert!(
                promise.turns_owed(TURN) <= 1000,
                "of five turns one at most"
            );
        }
    }

    #[test]
    fn a_rest_adds_nothing_to_a_credit() {
        let mut promise = after(10, 0);
        promise.idles(Nanos::secs(1), TURN);
        assert_eq!(promise.wait(TURN), Nanos::millis(10));
    }

    #[test]
    fn a_rest_forgives_an_excess() {
        let mut promise = after(0, 20);
        promise.idles(Nanos::millis(10), TURN);
        assert_eq!(promise.wait(TURN), Nanos::millis(30), "the half of it");
        promise.idles(Nanos::secs(1), TURN);
        assert_eq!(promise.wait(TURN), Nanos::millis(20), "all, and no more");
    }
}
