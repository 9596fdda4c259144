//! How long a tenant above its request does nothing before it counts as idle. At first that is the
//! time that its moves take: to keep idle memory on the card for so long costs at most twice what
//! foresight would. Then it is learned: half as long each time the tenant left as idle and stayed
//! away for much longer than its moves take, and twice as long each time it came back sooner.

use crate::time::Nanos;

/// The time is halved at most so often.
const MOST: u32 = 8;

/// See the module's page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest {
    halvings: u32,
    /// When it was last asked to leave because it was idle, until it wants to return.
    left: Option<Nanos>,
}

impl Rest {
    /// The time after which it counts as idle: `first` before anything was learned, never less than
    /// `least`, and never more than `first`.
    pub(crate) fn after(&self, first: Nanos, least: Nanos) -> Nanos {
        Nanos(first.0 >> self.halvings).max(least).min(first)
    }

    /// It is asked to leave, because it is `idle` or for another reason.
    pub(crate) fn leaves(&mut self, now: Nanos, idle: bool) {
        self.left = idle.then_some(now);
    }

    /// It wants to return; `cost` is the time that its moves take.
    pub(crate) fn returns(&mut self, now: Nanos, cost: Nanos) {
        let Some(left) = self.left.take() else {
            return;
        };
        self.halvings = match now > left + cost + cost {
            true => (self.halvings + 1).min(MOST),
            false => self.halvings.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Nanos = Nanos::secs(8);
    const LEAST: Nanos = Nanos::millis(600);

    fn at(seconds: u64) -> Nanos {
        Nanos::secs(seconds)
    }

    fn visit(rest: &mut Rest, from: u64, gone: u64) -> u64 {
        rest.leaves(at(from), true);
        rest.returns(at(from + gone), at(2));
        rest.after(FIRST, LEAST).0 / 1_000_000
    }

    #[test]
    fn a_tenant_that_stays_away_long_counts_as_idle_sooner_each_time() {
        let mut rest = Rest::default();
        assert_eq!(rest.after(FIRST, LEAST), FIRST);
        let learned = (0..6).map(|visits| visit(&mut rest, 30 * visits, 20));
        assert_eq!(
            learned.collect::<Vec<_>>(),
            [4000, 2000, 1000, 600, 600, 600]
        );
    }

    #[test]
    fn a_tenant_that_comes_back_soon_counts_as_idle_later_again() {
        let mut rest = Rest::default();
        visit(&mut rest, 0, 20);
        visit(&mut rest, 30, 20);
        assert_eq!(visit(&mut rest, 60, 4), 4000);
        assert_eq!(visit(&mut rest, 90, 1), 8000);
        assert_eq!(visit(&mut rest, 120, 1), 8000, "no later than at first");
    }

    #[test]
    fn only_leaves_of_an_idle_tenant_teach() {
        let mut rest = Rest::default();
        rest.leaves(at(1), false);
        rest.returns(at(60), at(2));
        rest.returns(at(90), at(2));
        assert_eq!(rest, Rest::default());
    }

    #[test]
    fn where_moves_are_fast_the_least_time_is_not_more_than_the_first() {
        let rest = Rest::default();
        let first = Nanos::millis(100);
        assert_eq!(rest.after(first, LEAST), first);
    }
}
