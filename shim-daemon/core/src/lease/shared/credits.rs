//! What a tenant was billed by time, and no completed operation has claimed.
//!
//! Each silence leaves a credit of its own. An operation that was in flight during it can have had,
//! since its end, no more service than others left; all beyond is of the silence, and was billed.
//! So a credit soon pays for no operation that began later, however long a stall has made it.

use std::collections::VecDeque;

use super::rules::Rules;

/// Credits that are kept apart. The oldest two become one where there are more.
const APART: usize = 32;

/// One part in so many of the time may be nobody's service: changes of contexts, and bills that are
/// too short.
const LOST: u64 = 8;

/// The credit of one silence.
#[derive(Clone, Copy, Debug)]
struct Credit {
    /// Nanoseconds billed.
    ns: u64,
    /// The most service that the tenant can have had since (ns): the time less what others had,
    /// also at its closed gate, behind which submitted work runs.
    could: u64,
}

/// The credits of one tenant, the newest first: together at most as much as is remembered of a
/// debt.
#[derive(Clone, Debug, Default)]
pub(super) struct Credits(VecDeque<Credit>);

impl Credits {
    /// A silence has ended for which so much was billed (ns).
    pub(super) fn add(&mut self, ns: u64) {
        if ns == 0 {
            return;
        }
        self.0.push_front(Credit { ns, could: 0 });
        if self.0.len() > APART
            && let Some(oldest) = self.0.pop_back()
            && let Some(next) = self.0.back_mut()
        {
            next.ns += oldest.ns;
        }
        let mut room = Rules::MOST.0;
        for credit in &mut self.0 {
            credit.ns = credit.ns.min(room);
            room -= credit.ns;
        }
        self.0.retain(|credit| credit.ns > 0);
    }

    /// So much time has passed (ns).
    pub(super) fn pass(&mut self, span: u64) {
        for credit in &mut self.0 {
            credit.could += span - span / LOST;
        }
    }

    /// Others had so much of it (ns).
    pub(super) fn leave(&mut self, others: u64) {
        for credit in &mut self.0 {
            credit.could = credit.could.saturating_sub(others);
        }
    }

    /// The part that is paid of completed `service`, of which so much `is` already. Of a silence
    /// and all before it, that is at most what the operation cannot have had since.
    pub(super) fn pay(&mut self, service: u64, is: u64) -> u64 {
        let most = service.saturating_sub(is);
        let mut unpaid = most;
        for credit in &mut self.0 {
            let paid = service.saturating_sub(credit.could).min(unpaid);
            let paid = paid.min(credit.ns);
            credit.ns -= paid;
            unpaid -= paid;
        }
        self.0.retain(|credit| credit.ns > 0);
        most - unpaid
    }

    /// Nothing is owed any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The credit of a silence, after which the tenant could have had so much.
    fn after(ns: u64, could: u64) -> Credits {
        let mut credits = Credits::default();
        credits.add(ns);
        credits.pass(could * 2);
        credits.leave(could * 3 / 4);
        credits
    }

    #[test]
    fn an_operation_of_the_silence_is_paid_for_its_part_in_it() {
        let mut credits = after(80 * MS, 20 * MS);
        assert_eq!(credits.pay(100 * MS, 0), 80 * MS);
        assert_eq!(credits.pay(100 * MS, 0), 0, "once");
    }

    #[test]
    fn an_operation_that_may_have_begun_later_is_not_paid() {
        let mut credits = after(1000 * MS, 20 * MS);
        assert_eq!(credits.pay(20 * MS, 0), 0);
        assert_eq!(credits.pay(30 * MS, 0), 10 * MS);
        assert_eq!(credits.pay(30 * MS, 25 * MS), 5 * MS);
    }

    #[test]
    fn a_stall_pays_nothing_that_silences_since_have_paid() {
        let mut credits = after(1000 * MS, 300 * MS);
        credits.add(10 * MS);
        credits.pass(8 * MS);
        credits.add(10 * MS);
        credits.pass(8 * MS);
        assert_eq!(credits.pay(100 * MS, 0), 20 * MS, "of both");
        assert_eq!(credits.pay(324 * MS, 0), 10 * MS, "of the stall");
    }

    #[test]
    fn credits_are_no_more_than_a_debt_that_is_remembered() {
        let mut credits = Credits::default();
        for _ in 0..100 {
            credits.add(50 * MS);
        }
        assert!(credits.0.len() <= APART);
        assert_eq!(credits.pay(10_000 * MS, 0), Rules::MOST.0);
        credits.add(50 * MS);
        credits.clear();
        assert_eq!(credits.pay(MS, 0), 0);
    }
}
