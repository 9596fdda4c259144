//! What tenants without a process owe to their caps.
//!
//! A program that is started again and again, each time with one long kernel, would otherwise begin
//! with a fresh allowance each time, and its cap would bind nothing. A debt is remembered until the
//! time that has passed has repaid it: from then on a fresh allowance is no larger.

use crate::ids::TenantId;
use crate::time::Nanos;
use gpushare_protocol::cap::Bucket;
use gpushare_protocol::units::Permille;
use std::collections::BTreeMap;

/// See the module's page. By tenant: when its last process ended, and its allowance then.
#[derive(Debug, Default)]
pub(super) struct Debts(BTreeMap<TenantId, (Nanos, Bucket)>);

/// An allowance at `now` that was so at `at`.
fn later(now: Nanos, at: Nanos, mut bucket: Bucket) -> Bucket {
    bucket.pass((now - at).0, 0, u64::MAX);
    bucket
}

impl Debts {
    /// A tenant's last process has ended; its cap leaves it this allowance.
    pub(super) fn keep(&mut self, now: Nanos, id: TenantId, bucket: Option<Bucket>) {
        self.0.extend(bucket.map(|bucket| (id, (now, bucket))));
        self.0
            .retain(|_, (at, bucket)| later(now, *at, *bucket).is_short());
    }

    /// The cap of a tenant without a process changes: it repays at the new rate from `now` on, and
    /// owes nothing without a cap.
    pub(super) fn set(&mut self, now: Nanos, id: TenantId, cap: Option<Permille>) {
        let owed = self.take(now, id);
        if let (Some(owed), Some(cap)) = (owed, cap) {
            self.keep(now, id, Some(Bucket::under(Some(owed), cap)));
        }
    }

    /// A tenant has a process again: its allowance, if it is less than a fresh one.
    pub(super) fn take(&mut self, now: Nanos, id: TenantId) -> Option<Bucket> {
        let (at, bucket) = self.0.remove(&id)?;
        Some(later(now, at, bucket)).filter(Bucket::is_short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TenantId = TenantId(1);

    /// A cap of a tenth, and a debt of so many milliseconds.
    fn owing(ms: u64) -> Bucket {
        let mut bucket = Bucket::new(Permille::new(100).expect("a tenth"));
        bucket.pass(0, ms * 1_000_000, u64::MAX);
        bucket
    }

    #[test]
    fn a_debt_is_remembered_until_time_has_repaid_it() {
        for (seconds, remembered) in [(0, true), (9, true), (11, false)] {
            let mut debts = Debts::default();
            debts.keep(Nanos::secs(1), ONE, Some(owing(1000)));
            let now = Nanos::secs(1 + seconds);
            assert_eq!(debts.take(now, ONE).is_some(), remembered, "{seconds} s");
            assert!(debts.take(now, ONE).is_none(), "once");
        }
    }

    /// A debt of a second under a cap of a tenth, which changes after five seconds.
    #[test]
    fn a_debt_is_repaid_at_the_rate_of_the_present_cap() {
        for (cap, seconds, remembered) in [
            (Some(500), 0, true),
            (Some(500), 2, false),
            (Some(50), 9, true),
            (Some(50), 11, false),
            (None, 0, false),
        ] {
            let mut debts = Debts::default();
            debts.keep(Nanos::secs(1), ONE, Some(owing(1000)));
            let cap = cap.and_then(Permille::new);
            debts.set(Nanos::secs(6), ONE, cap);
            let owed = debts.take(Nanos::secs(6 + seconds), ONE);
            assert_eq!(owed.is_some(), remembered, "{cap:?} {seconds} s");
        }
    }

    #[test]
    fn repaid_debts_take_no_memory() {
        let mut debts = Debts::default();
        debts.keep(Nanos::secs(1), ONE, Some(owing(1000)));
        debts.keep(Nanos::secs(2), TenantId(2), None);
        assert_eq!(debts.0.len(), 1);
        debts.keep(Nanos::secs(60), TenantId(2), None);
        assert!(debts.0.is_empty());
    }
}
