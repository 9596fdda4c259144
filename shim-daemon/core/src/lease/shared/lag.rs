//! How far a tenant is behind its share of a shared device.

use super::rules::Rules;
use crate::lease::arithmetic::{scaled, signed};
use crate::time::Nanos;

/// See the module's page. In nanoseconds of service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lag {
    /// How far it is behind its share of its class; negative if ahead.
    share: i64,
    /// What lower classes had while it was pending.
    passed_over: i64,
}

impl Lag {
    /// How far it is behind its share of its class; negative if ahead.
    pub(super) fn of_share(self) -> i64 {
        self.share
    }

    /// How far it is behind its guarantee, for comparison.
    pub(super) fn behind(self) -> i64 {
        self.share.saturating_add(self.passed_over)
    }

    /// It should have had `due` of what its class had, and had `had`; lower classes had so much
    /// while it was pending.
    pub(super) fn owe(&mut self, (due, had): (u64, u64), lower: u64) {
        self.share += signed(Nanos(due)) - signed(Nanos(had));
        self.passed_over += signed(Nanos(lower));
    }

    /// No lower class asks for anything: what one had is forgotten as fast as an unused lag.
    /// Nothing repays it, so otherwise its tenant would stay far behind for as long as it asks.
    pub(super) fn fade_passed_over(&mut self, span: Nanos) {
        if self.passed_over > 0 {
            self.passed_over -= faded(self.passed_over, span);
        }
    }

    /// Neither of two equals has a request: a lag of a small part of `due`, one in so many, does
    /// not count. Debts without a creditor lapse by themselves.
    pub(super) fn tolerate(&mut self, due: Nanos, one_in: i64) {
        let part = signed(due) / one_in;
        self.share -= self.share.clamp(0, part);
    }

    /// Of its debt `owed` parts of `owing` stay.
    pub(super) fn forgive(&mut self, owed: i128, owing: i128) {
        if self.share < 0 {
            self.share = i64::try_from(i128::from(self.share) * owed / owing).unwrap_or(0);
        }
    }

    /// Of its lag `owing` parts of `owed` stay, and what is less than the threshold of a hold.
    pub(super) fn lapse_to(&mut self, (owing, owed): (i128, i128), rules: &Rules) {
        if self.share > rules.hold_at() {
            let left = i64::try_from(i128::from(self.share) * owing / owed).unwrap_or(0);
            self.share = left.max(rules.hold_at());
        }
    }

    /// Bounds it. The lag of a tenant that leaves gaps (is not dense) ends at the threshold of a
    /// hold.
    pub(super) fn bound(&mut self, is_dense: bool, rules: &Rules) {
        let most = if is_dense {
            signed(Rules::MOST)
        } else {
            rules.hold_at()
        };
        self.share = self.share.clamp(-signed(Rules::MOST), most);
        self.passed_over = self.passed_over.clamp(0, rules.hold_at());
    }

    /// Its bills are doubted: it is not behind.
    pub(super) fn lapse(&mut self) {
        (self.share, self.passed_over) = (self.share.min(0), 0);
    }

    /// Time passes without demand.
    pub(super) fn fade(&mut self, span: Nanos) {
        if self.share > 0 {
            self.share -= faded(self.share, span);
        } else {
            self.share = (self.share + signed(span) / Rules::PARDON).min(0);
        }
        self.fade_passed_over(span);
    }
}

/// How much of a lag above zero fades in a span: at least a nanosecond.
fn faded(lag: i64, span: Nanos) -> i64 {
    let gone = scaled(lag.unsigned_abs(), span.0, Rules::FADE.0);
    signed(Nanos(gone)).min(lag).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(due: u64, had: u64) -> Lag {
        let mut lag = Lag::default();
        lag.owe((due, had), 0);
        lag
    }

    #[test]
    fn what_is_owed_fades_in_twenty_milliseconds_without_demand() {
        let mut lag = lag(8_000_000, 0);
        lag.fade(Nanos(Rules::FADE.0 / 4));
        assert_eq!(lag.of_share(), 6_000_000);
        lag.fade(Rules::FADE);
        assert_eq!(lag.of_share(), 0);
    }

    #[test]
    fn it_fades_to_nothing_in_small_steps_too() {
        let mut lag = lag(1_000, 0);
        for _ in 0..1_000 {
            lag.fade(Nanos(1_000));
        }
        assert!(lag.of_share() <= 950, "{}", lag.of_share());
        for _ in 0..100_000 {
            lag.fade(Nanos(1_000));
        }
        assert_eq!(lag.of_share(), 0);
    }

    #[test]
    fn of_a_debt_a_hundredth_of_the_pause_is_pardoned() {
        let mut lag = lag(0, 5_000_000);
        lag.fade(Nanos::millis(100));
        assert_eq!(lag.of_share(), -4_000_000);
        // It ends at nothing: it is not turned round.
        lag.fade(Nanos::secs(10));
        assert_eq!(lag.of_share(), 0);
    }
}
