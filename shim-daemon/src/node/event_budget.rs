//! How many events a tenant's programs may cause. Decisions only; `events.rs` carries them out.
//!
//! The node keeps the last 1,024 events, and a journal of bounded size, for all tenants. A program
//! that asks without end would replace the events of all others with its own.

use std::collections::BTreeMap;

use gpushare_core::Nanos;

/// Events of a tenant at once: an eighth of those that are kept.
const BURST: u64 = 128;
/// The time in which one more may come.
const EACH: Nanos = Nanos::secs(1);
/// How long events are only counted before that is told.
const COUNTED: Nanos = Nanos::secs(10);

/// Kinds of events that no program causes: the operator's commands, and decisions of the daemon
/// whose rate is its own.
const UNLIMITED: [&str; 23] = [
    "admitted",
    "attached",
    "awaited",
    "ended",
    "ends-soon",
    "events-left-out",
    "fence",
    "fence-failed",
    "fence-foreign",
    "fence-off",
    "gone",
    "leaving",
    "left",
    "not-registered",
    "queued",
    "resumed",
    "returned",
    "set",
    "spared",
    "suspended",
    "unenforced",
    "unsaved",
    "will-not-yield",
];

/// Events that were not told: since when, and how many of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) since: Nanos,
    pub(super) kinds: BTreeMap<&'static str, u64>,
}

/// A tenant's part.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
    /// Until when `left` has been added to.
    filled: Nanos,
    left_out: Option<LeftOut>,
}

impl Budget {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            left: BURST,
            filled: now,
            left_out: None,
        }
    }

    /// Whether an event of this kind is told now. If not, it is counted.
    pub(super) fn allows(&mut self, now: Nanos, kind: &'static str) -> bool {
        if UNLIMITED.contains(&kind) {
            return true;
        }
        let more = (now - self.filled).0 / EACH.0;
        self.left = self.left.saturating_add(more).min(BURST);
        self.filled = self.filled + Nanos(more * EACH.0);
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return true;
        }
        let left_out = self.left_out.get_or_insert_with(|| LeftOut {
            since: now,
            kinds: BTreeMap::new(),
        });
        *left_out.kinds.entry(kind).or_default() += 1;
        false
    }

    /// What was left out, once it is time to tell, or at the tenant's end.
    pub(super) fn take_left_out(&mut self, now: Nanos, end: bool) -> Option<LeftOut> {
        self.left_out
            .take_if(|left_out| end || now - left_out.since >= COUNTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a kind that are told of so many at one time.
    fn told(budget: &mut Budget, now: Nanos, many: u64) -> u64 {
        (0..many)
            .map(|_| u64::from(budget.allows(now, "waiting")))
            .sum()
    }

    #[test]
    fn a_flood_is_told_up_to_the_burst_and_then_one_a_second() {
        let mut budget = Budget::new(Nanos::secs(5));
        assert_eq!(told(&mut budget, Nanos::secs(5), 10_000), BURST);
        let mut later = (1..=20).map(|tenth| {
            let now = Nanos::secs(5) + Nanos::millis(100 * tenth);
            told(&mut budget, now, 1_000)
        });
        assert_eq!(later.by_ref().take(9).sum::<u64>(), 0);
        assert_eq!(later.sum::<u64>(), 2);
    }

    #[test]
    fn a_tenant_that_is_calm_again_has_its_burst_again_and_no_more() {
        let mut budget = Budget::new(Nanos::ZERO);
        assert_eq!(told(&mut budget, Nanos::ZERO, 1_000), BURST);
        assert_eq!(told(&mut budget, Nanos::secs(30), 1_000), 30);
        assert_eq!(told(&mut budget, Nanos::secs(100_000), 1_000), BURST);
    }

    #[test]
    fn what_a_tenant_causes_at_a_low_rate_is_told_in_full() {
        let mut budget = Budget::new(Nanos::ZERO);
        let all = (0..10_000).map(|second| told(&mut budget, Nanos::secs(second), 1));
        assert_eq!(all.sum::<u64>(), 10_000);
        assert_eq!(budget.take_left_out(Nanos::secs(10_000), true), None);
    }

    #[test]
    fn what_is_left_out_is_told_as_one_count_after_ten_seconds() {
        let mut budget = Budget::new(Nanos::ZERO);
        told(&mut budget, Nanos::ZERO, BURST);
        let now = Nanos::millis(500);
        told(&mut budget, now, 40);
        assert!(!budget.allows(now, "fetched"));
        let early = now + Nanos::secs(10) - Nanos(1);
        assert_eq!(budget.take_left_out(early, false), None);
        let left_out = LeftOut {
            since: now,
            kinds: BTreeMap::from([("fetched", 1), ("waiting", 40)]),
        };
        let due = now + Nanos::secs(10);
        assert_eq!(budget.take_left_out(due, false), Some(left_out));
        assert_eq!(budget.take_left_out(due, true), None, "each is told once");
    }

    #[test]
    fn a_tenants_end_tells_what_was_left_out_at_once() {
        let mut budget = Budget::new(Nanos::ZERO);
        told(&mut budget, Nanos::ZERO, BURST + 3);
        let left_out = budget.take_left_out(Nanos::ZERO, true).unwrap();
        assert_eq!(left_out.kinds["waiting"], 3);
    }

    #[test]
    fn an_operators_events_are_told_and_take_nothing() {
        let mut budget = Budget::new(Nanos::ZERO);
        for kind in UNLIMITED {
            assert!((0..1_000).all(|_| budget.allows(Nanos::ZERO, kind)));
        }
        assert_eq!(told(&mut budget, Nanos::ZERO, 1_000), BURST);
        assert!(budget.allows(Nanos::ZERO, "gone"));
    }
}
