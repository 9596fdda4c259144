//! How many events a tenant's programs may cause, and the commands of a user. Decisions only;
//! `events.rs` carries them out.
//!
//! The node keeps the last 1,024 events, and a journal of bounded size, for all tenants. A program
//! that asks without end would replace the events of all others with its own, and so would a
//! command of a user that is not root ([ADR
//! 212](../../../docs/adr/0212-what-a-user-asks-is-bounded-before-it-is-worked-at.md)).

use std::collections::BTreeMap;

use gpushare_core::{Nanos, TenantId};

/// Events of a tenant at once: an eighth of those that are kept.
const BURST: u64 = 128;
/// The time in which one more may come.
const EACH: Nanos = Nanos::secs(1);
/// The same of all tenants of a user, for what is not limited by tenant. A job is two events.
const BURST_OF_USER: u64 = 256;
const EACH_OF_USER: Nanos = Nanos::millis(500);
/// The part of that burst that only ends of tenants may use: what is told of a name later begins
/// with them.
const KEPT_FOR_ENDS: u64 = 32;
const ENDS: [&str; 2] = ["ended", "gone"];
/// The time in which one more of the daemon's own decisions about them may come.
const EACH_DECISION: Nanos = Nanos::millis(200);
/// How long events are only counted before that is told.
const COUNTED: Nanos = Nanos::secs(10);

/// How many others were left out: told whatever the budget.
pub(super) const LEFT_OUT: &str = "events-left-out";

/// Told whatever the budget, and at no tenant's cost. Of `unmanaged`: the audit tells it once of a
/// process, and again when its memory has doubled, and only that names the process. Else a tenant
/// would hide one by many events of others.
const ALWAYS: [&str; 2] = [LEFT_OUT, "unmanaged"];

/// Kinds of events that commands cause. They are told of each tenant of the machine, and a user's
/// tenants have a budget together: a user can command, register and end them without end.
const COMMANDED: [&str; 11] = [
    "admitted",
    "attached",
    "container-refused",
    "ended",
    "gone",
    "not-registered",
    "queued",
    "resumed",
    "set",
    "suspended",
    "unenforced",
];

/// Decisions of the daemon, whose rate is its own. A user's tenants have another budget together: a
/// user can have memory moved without end, and honest tenants that swap must not take what is kept
/// for commands.
const DECIDED: [&str; 12] = [
    "awaited",
    "ends-soon",
    "fence",
    "fence-failed",
    "fence-foreign",
    "fence-off",
    "leaving",
    "left",
    "returned",
    "spared",
    "unsaved",
    "will-not-yield",
];

/// Events that were not told: since when, and how many of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) since: Nanos,
    pub(super) kinds: BTreeMap<&'static str, u64>,
}

/// What may be told of one tenant, or of one user.
#[derive(Debug)]
pub(super) struct Budget {
    most: u64,
    /// Of that, for ends alone.
    kept: u64,
    each: Nanos,
    left: u64,
    /// Until when `left` has been added to.
    filled: Nanos,
    left_out: Option<LeftOut>,
}

impl Budget {
    fn of_tenant(now: Nanos) -> Self {
        Self {
            most: BURST,
            kept: 0,
            each: EACH,
            left: BURST,
            filled: now,
            left_out: None,
        }
    }

    fn of_user(now: Nanos) -> Self {
        Self {
            most: BURST_OF_USER,
            kept: KEPT_FOR_ENDS,
            each: EACH_OF_USER,
            left: BURST_OF_USER,
            ..Self::of_tenant(now)
        }
    }

    fn of_decisions(now: Nanos) -> Self {
        Self {
            kept: 0,
            each: EACH_DECISION,
            ..Self::of_user(now)
        }
    }

    fn is_whole(&self) -> bool {
        self.left == self.most && self.left_out.is_none()
    }

    fn fill(&mut self, now: Nanos) {
        let more = (now - self.filled).0 / self.each.0;
        self.left = self.left.saturating_add(more).min(self.most);
        self.filled = self.filled + Nanos(more * self.each.0);
    }

    /// Whether an event of this kind is told now. If not, it is counted.
    fn allows(&mut self, now: Nanos, kind: &'static str) -> bool {
        self.fill(now);
        let kept = if ENDS.contains(&kind) { 0 } else { self.kept };
        if self.left > kept {
            self.left -= 1;
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
    fn take_left_out(&mut self, now: Nanos, end: bool) -> Option<LeftOut> {
        self.left_out
            .take_if(|left_out| end || now - left_out.since >= COUNTED)
    }
}

/// All budgets: of the tenants and users that have caused events.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    tenants: BTreeMap<TenantId, Budget>,
    users: BTreeMap<u32, OfUser>,
    /// Of containers that root's hooks brought and the daemon refused. Authors of pods cause them.
    refused: Option<Budget>,
}

/// The budgets of a user's tenants together.
#[derive(Debug)]
struct OfUser {
    commanded: Budget,
    decided: Budget,
}

impl OfUser {
    fn new(now: Nanos) -> Self {
        Self {
            commanded: Budget::of_user(now),
            decided: Budget::of_decisions(now),
        }
    }

    fn both(&mut self) -> [&mut Budget; 2] {
        [&mut self.commanded, &mut self.decided]
    }
}

impl Budgets {
    /// Whether an event of this kind is told now, of a tenant of this user; `None`: of the machine.
    pub(super) fn allows(
        &mut self,
        now: Nanos,
        kind: &'static str,
        (tenant, user): (TenantId, Option<u32>),
    ) -> bool {
        if ALWAYS.contains(&kind) {
            return true;
        }
        let users = &mut self.users;
        let budget = user.map(|user| users.entry(user));
        let of_user = budget.map(|one| one.or_insert_with(|| OfUser::new(now)));
        if COMMANDED.contains(&kind) {
            return of_user.is_none_or(|of| of.commanded.allows(now, kind));
        }
        if DECIDED.contains(&kind) {
            return of_user.is_none_or(|of| of.decided.allows(now, kind));
        }
        let own = self.tenants.entry(tenant).or_insert_with(|| {
            let mut new = Budget::of_tenant(now);
            // Else a user would have a burst by each new tenant.
            if let Some(OfUser { commanded, .. }) = of_user {
                commanded.fill(now);
                new.left = new.left.min(commanded.left.saturating_sub(commanded.kept));
            }
            new
        });
        own.allows(now, kind)
    }

    /// Whether an event of this kind is told now of a container that is no tenant, which this
    /// user's hook brought; `None`: root's.
    pub(super) fn allows_refusal(
        &mut self,
        now: Nanos,
        kind: &'static str,
        user: Option<u32>,
    ) -> bool {
        let budget = match user {
            Some(user) => {
                let of = self.users.entry(user);
                &mut of.or_insert_with(|| OfUser::new(now)).commanded
            }
            None => self.refused.get_or_insert_with(|| Budget::of_tenant(now)),
        };
        budget.allows(now, kind)
    }

    /// What was left out of refused containers that root's hooks brought, once it is time to tell.
    pub(super) fn take_left_out_of_refused(&mut self, now: Nanos) -> Option<LeftOut> {
        self.refused.as_mut()?.take_left_out(now, false)
    }

    /// Forgets tenants that have ended, and users that have all of their budget.
    pub(super) fn tidy(&mut self, now: Nanos, is_there: impl Fn(TenantId) -> bool) {
        self.tenants.retain(|tenant, _| is_there(*tenant));
        self.users.retain(|_, of| {
            let mut budgets = of.both().into_iter();
            !budgets.all(|budget| {
                budget.fill(now);
                budget.is_whole()
            })
        });
    }

    /// What was left out of a tenant, once it is time to tell, or at its end.
    pub(super) fn take_left_out(
        &mut self,
        now: Nanos,
        tenant: TenantId,
        end: bool,
    ) -> Option<LeftOut> {
        self.tenants.get_mut(&tenant)?.take_left_out(now, end)
    }

    /// What was left out of users' tenants, by user, once it is time to tell.
    pub(super) fn take_left_out_of_users(&mut self, now: Nanos) -> Vec<(u32, LeftOut)> {
        let users = self.users.iter_mut();
        let left_out = users.flat_map(|(user, of)| {
            let both = of.both().into_iter();
            both.filter_map(|budget| Some((*user, budget.take_left_out(now, false)?)))
        });
        left_out.collect()
    }

    /// The tenants that have caused events.
    pub(super) fn tenants(&self) -> Vec<TenantId> {
        self.tenants.keys().copied().collect()
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
        let mut budget = Budget::of_tenant(Nanos::secs(5));
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
        let mut budget = Budget::of_tenant(Nanos::ZERO);
        assert_eq!(told(&mut budget, Nanos::ZERO, 1_000), BURST);
        assert_eq!(told(&mut budget, Nanos::secs(30), 1_000), 30);
        assert_eq!(told(&mut budget, Nanos::secs(100_000), 1_000), BURST);
    }

    #[test]
    fn what_a_tenant_causes_at_a_low_rate_is_told_in_full() {
        let mut budget = Budget::of_tenant(Nanos::ZERO);
        let all = (0..10_000).map(|second| told(&mut budget, Nanos::secs(second), 1));
        assert_eq!(all.sum::<u64>(), 10_000);
        assert_eq!(budget.take_left_out(Nanos::secs(10_000), true), None);
    }

    #[test]
    fn what_is_left_out_is_told_as_one_count_after_ten_seconds() {
        let mut budget = Budget::of_tenant(Nanos::ZERO);
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
        let mut budget = Budget::of_tenant(Nanos::ZERO);
        told(&mut budget, Nanos::ZERO, BURST + 3);
        let left_out = budget.take_left_out(Nanos::ZERO, true).unwrap();
        assert_eq!(left_out.kinds["waiting"], 3);
    }

    const ONE: TenantId = TenantId(1);
    const USER: Option<u32> = Some(1001);

    #[test]
    fn an_operators_events_are_told_and_take_nothing() {
        let (mut budgets, now) = (Budgets::default(), Nanos::ZERO);
        for kind in COMMANDED.into_iter().chain(DECIDED) {
            assert!((0..1_000).all(|_| budgets.allows(now, kind, (ONE, None))));
        }
        let waits = |budgets: &mut Budgets| budgets.allows(now, "waiting", (ONE, None));
        assert_eq!((0..1_000).filter(|_| waits(&mut budgets)).count(), 128);
        assert!(budgets.allows(now, "gone", (ONE, None)));
    }

    #[test]
    fn a_users_tenants_have_one_budget_for_what_commands_cause() {
        let mut budgets = Budgets::default();
        let mut told = |now: Nanos, user| {
            let all = (0..1_000_u64).zip(COMMANDED.into_iter().cycle());
            let told = all.filter(|(at, kind)| budgets.allows(now, kind, (TenantId(*at), user)));
            told.count()
        };
        assert_eq!(told(Nanos::ZERO, USER), 256);
        assert_eq!(told(Nanos::secs(10), USER), 20);
        assert_eq!(told(Nanos::secs(10), Some(1002)), 256, "another's is whole");
        assert_eq!(told(Nanos::secs(100_000), USER), 256, "and no more");
        assert!(budgets.allows(Nanos::secs(100_000), LEFT_OUT, (ONE, USER)));
    }

    #[test]
    fn moves_without_end_take_no_event_of_commands() {
        let mut budgets = Budgets::default();
        let mut told = 0;
        for third in 0..3_000 {
            for kind in ["leaving", "left", "returned"] {
                let now = Nanos::millis(third * 333);
                told += u64::from(budgets.allows(now, kind, (ONE, USER)));
            }
        }
        let most = BURST_OF_USER + Nanos::secs(999).0 / EACH_DECISION.0;
        assert!(told <= most && told + 5 >= most, "{told} of {most}");
        let now = Nanos::secs(999);
        assert!(budgets.allows(now, "gone", (ONE, USER)));
        // A new tenant has what programs may cause.
        assert!((0..BURST).all(|_| budgets.allows(now, "refused", (TenantId(2), USER))));
    }

    #[test]
    fn refused_containers_are_told_at_a_tenants_rate_or_of_a_users_commands() {
        let (mut budgets, now) = (Budgets::default(), Nanos::ZERO);
        let mut told = |now, user| {
            let told =
                (0..1_000).filter(|_| budgets.allows_refusal(now, "container-refused", user));
            told.count() as u64
        };
        assert_eq!(told(now, None), BURST);
        assert_eq!(told(now, USER), BURST_OF_USER - KEPT_FOR_ENDS);
        assert_eq!(told(Nanos::secs(5), None), 5);
        assert_eq!(budgets.take_left_out_of_refused(Nanos::secs(5)), None);
        let left_out = budgets.take_left_out_of_refused(Nanos::secs(10)).unwrap();
        assert_eq!(left_out.kinds["container-refused"], 2_000 - BURST - 5);
        assert!(budgets.allows(now, "gone", (ONE, USER)), "kept for ends");
    }

    #[test]
    fn ends_are_told_after_a_flood_of_other_commands() {
        let (mut budgets, now) = (Budgets::default(), Nanos::ZERO);
        let mut told = |kind, many: u64| {
            let told = (0..many).filter(|_| budgets.allows(now, kind, (ONE, USER)));
            told.count() as u64
        };
        assert_eq!(told("attached", 1_000), BURST_OF_USER - KEPT_FOR_ENDS);
        assert_eq!(told("gone", 1_000), KEPT_FOR_ENDS);
    }

    #[test]
    fn a_process_without_limits_is_told_of_after_any_flood() {
        let (mut budgets, now) = (Budgets::default(), Nanos::ZERO);
        let mut told = |kind| {
            let allows = |_: &u64| budgets.allows(now, kind, (ONE, USER));
            (0..1_000).filter(allows).count()
        };
        assert_eq!(told("unmanaged"), 1_000);
        assert_eq!(told("waiting"), 128, "they have taken nothing");
        for kind in COMMANDED.into_iter().chain(DECIDED) {
            assert_ne!(told(kind), 1_000, "{kind}");
        }
        assert_eq!(told("unmanaged"), 1_000);
    }

    #[test]
    fn a_user_has_no_new_burst_by_a_new_tenant() {
        let (mut budgets, now) = (Budgets::default(), Nanos::ZERO);
        let mut told = 0;
        for at in 0..10_000 {
            let of = (TenantId(at), USER);
            for kind in ["admitted", "waiting", "waiting", "gone"] {
                told += usize::from(budgets.allows(now, kind, of));
            }
        }
        assert!((256..=512).contains(&told), "{told}");
        // One that a calm user registers has all of it.
        let later = Nanos::secs(1_000);
        let waits = |_: &i32| budgets.allows(later, "waiting", (TenantId(10_000), USER));
        assert_eq!((0..1_000).filter(waits).count(), 128);
    }

    #[test]
    fn a_calm_user_is_forgotten_and_one_with_untold_events_is_not() {
        let mut budgets = Budgets::default();
        for _ in 0..300 {
            budgets.allows(Nanos::ZERO, "set", (ONE, USER));
        }
        let tidy = |budgets: &mut Budgets, now| {
            budgets.tidy(now, |_| false);
            budgets.users.len()
        };
        assert_eq!(tidy(&mut budgets, Nanos::secs(200)), 1);
        let left_out = budgets.take_left_out_of_users(Nanos::secs(200));
        assert_eq!(left_out[0].1.kinds["set"], 300 - 256 + KEPT_FOR_ENDS);
        assert_eq!(tidy(&mut budgets, Nanos::secs(200)), 0);
    }
}
