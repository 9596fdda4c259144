//! What each tenant had and what it should have had, from one sample to the next.
//!
//! A bill is what completed operations take alone, so the bills of a span are what the device did
//! in it, whatever the driver mixed. What a tenant should have had is its part of all bills of its
//! class, while it was pending: the lags of a class sum to nothing. Operations longer than the
//! driver lets run at once complete too seldom to be billed so; after four slices without a
//! completion a tenant is billed its even part of the time, as the driver's round robin gives it.

use super::rules::{Rules, signed};
use super::tenant::{Done, Gate, Stuck, Tenant};
use crate::ids::ContainerId;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// What each tenant is billed for a span of `span`; and brings their lags up to `now`.
pub(super) fn settle(
    tenants: &mut BTreeMap<ContainerId, Tenant>,
    done: &BTreeMap<ContainerId, Done>,
    rules: &Rules,
    (now, span): (Nanos, Nanos),
) -> BTreeMap<ContainerId, u64> {
    let done = &believed(tenants, done);
    // A closed tenant runs until what it had submitted is complete.
    let runs = |container: &ContainerId| {
        let tenant = tenants.get(container);
        tenant.is_some_and(|tenant| tenant.gate != Gate::Shut || !tenant.is_drained())
    };
    let beside = done.iter().filter(|(container, _)| runs(container));
    let beside: u64 = beside.map(|(_, done)| done.pending).sum();
    let running: Vec<ContainerId> = tenants
        .iter()
        .filter(|(_, tenant)| tenant.may_run(now))
        .map(|(container, _)| *container)
        .collect();
    let mut bills = BTreeMap::new();
    for (container, tenant) in tenants.iter_mut() {
        let done = done.get(container).copied().unwrap_or_default();
        let alone = running.iter().all(|other| other == container);
        tenant.doubt.note(now, (span, alone), done);
        let bill = bill(tenant, done, rules, (span, beside));
        tenant.note(now, span, bill, done.pending);
        tenant.works = done.works;
        bills.insert(*container, bill);
    }
    let all: u64 = bills.values().sum();
    for (container, tenant) in tenants.iter_mut() {
        let own = bills.get(container).copied().unwrap_or(0);
        tenant.watch((span, beside), all - own);
    }
    let mut classes: Vec<u16> = tenants.values().map(|tenant| tenant.class()).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut below = 0;
    for class in classes.iter().copied() {
        below += share(tenants, done, &bills, (class, below));
    }
    for (container, tenant) in tenants.iter_mut() {
        let done = done.get(container).copied().unwrap_or_default();
        if tenant.asks(done.pending) == 0 {
            tenant.fade(span);
        }
        if done.guessed && tenant.unknown > Nanos::ZERO {
            tenant.unknown = tenant.unknown - Nanos(span.0 * done.pending / 1000);
            tenant.lag = 0;
        }
        tenant.bound(rules);
        if tenant.doubt.is(now) {
            tenant.lag = tenant.lag.min(0);
        }
    }
    for class in classes {
        forgive(tenants, class);
    }
    bills
}

/// Nobody owes what nobody is owed any more: the debts of a class are no more than what its tenants
/// are behind.
fn forgive(tenants: &mut BTreeMap<ContainerId, Tenant>, class: u16) {
    let lags = |tenants: &BTreeMap<ContainerId, Tenant>, sign: i64| -> i128 {
        let of_class = tenants.values().filter(|tenant| tenant.class() == class);
        of_class
            .map(|tenant| i128::from(tenant.lag.saturating_mul(sign).max(0)))
            .sum()
    };
    let (owed, owing) = (lags(tenants, 1), lags(tenants, -1));
    if owing <= owed {
        return;
    }
    for tenant in tenants.values_mut() {
        if tenant.class() == class && tenant.lag < 0 {
            tenant.lag = i64::try_from(i128::from(tenant.lag) * owed / owing).unwrap_or(0);
        }
    }
}

/// What is believed of what the pages say: a tenant that is stuck has nothing pending until it
/// completes something.
fn believed(
    tenants: &mut BTreeMap<ContainerId, Tenant>,
    done: &BTreeMap<ContainerId, Done>,
) -> BTreeMap<ContainerId, Done> {
    let mut done = done.clone();
    for (container, tenant) in tenants {
        let Some(done) = done.get_mut(container) else {
            continue;
        };
        if done.service > 0 || done.pending < 990 {
            tenant.stuck = Stuck::default();
        } else if tenant.stuck.is {
            (done.pending, done.works) = (0, false);
        }
    }
    done
}

/// What one tenant is billed. No more than the time since it came allows it to have had.
fn bill(tenant: &mut Tenant, done: Done, rules: &Rules, (span, beside): (Nanos, u64)) -> u64 {
    tenant.room = (tenant.room + span.0).min(Rules::MOST.0);
    let bill = if done.service > 0 {
        (tenant.silent, tenant.by_time) = (Nanos::ZERO, false);
        if done.guessed && std::mem::take(&mut tenant.advance) > 0 {
            0
        } else {
            let billed = done.service.min(tenant.advance);
            tenant.advance -= billed;
            done.service - billed
        }
    } else if done.pending >= 990 && tenant.gate == Gate::Shut && !tenant.spins() {
        0
    } else if done.pending >= 990 {
        by_time(tenant, rules, (span, beside))
    } else {
        (tenant.silent, tenant.by_time) = (Nanos::ZERO, false);
        0
    };
    let bill = bill.min(tenant.room);
    tenant.room -= bill;
    bill
}

/// The even part of the time, once nothing was completed for long; the first time for all of it.
fn by_time(tenant: &mut Tenant, rules: &Rules, (span, beside): (Nanos, u64)) -> u64 {
    tenant.silent = tenant.silent + span;
    if tenant.silent < rules.silent() {
        return 0;
    }
    let time = if std::mem::replace(&mut tenant.by_time, true) {
        span
    } else {
        tenant.silent
    };
    let even = time.0 * 1000 / beside.max(1000);
    // What waits for a peer at a closed gate completes later, by so much more.
    if !tenant.spins() {
        tenant.advance += even;
    }
    even
}

/// Divides what a class had among its tenants. Returns what the class had.
fn share(
    tenants: &mut BTreeMap<ContainerId, Tenant>,
    done: &BTreeMap<ContainerId, Done>,
    bills: &BTreeMap<ContainerId, u64>,
    (class, below): (u16, u64),
) -> u64 {
    let of_class: Vec<Claim> = tenants
        .iter()
        .filter(|(_, tenant)| tenant.class() == class)
        .map(|(container, tenant)| Claim {
            container: *container,
            weight: tenant.weight(),
            pending: done
                .get(container)
                .map_or(0, |done| tenant.asks(done.pending)),
            had: bills.get(container).copied().unwrap_or(0),
        })
        .collect();
    let had = of_class.iter().map(|claim| claim.had).sum();
    for (claim, due) in of_class.iter().zip(dues(&of_class, had)) {
        if let Some(tenant) = tenants.get_mut(&claim.container) {
            tenant.lag += signed(Nanos(due)) - signed(Nanos(claim.had));
            tenant.passed_over += signed(Nanos(below * claim.pending / 1000));
        }
    }
    had
}

/// What a tenant asked for and had in a span.
#[derive(Clone, Copy, Debug)]
struct Claim {
    container: ContainerId,
    weight: u64,
    /// Thousandths of the time.
    pending: u64,
    had: u64,
}

/// What each should have had of `all`: its part while it was pending; and who was not pending all
/// the time is not in debt for what lies within its part of the whole time.
fn dues(claims: &[Claim], all: u64) -> Vec<u64> {
    // All weights, each as far as its tenant was pending.
    let asked: u64 = claims
        .iter()
        .map(|claim| claim.weight * claim.pending)
        .sum();
    let part = |claim: &Claim| {
        // While it was pending the others were with their usual probability.
        let own = claim.weight * claim.pending;
        let against = claim.weight * 1000 + (asked - own);
        u128::from(own) * 1_000_000 / u128::from(against.max(1))
    };
    let whole: u128 = claims.iter().map(part).sum::<u128>().max(1);
    let weights: u64 = claims
        .iter()
        .filter(|claim| claim.pending > 0)
        .map(|claim| claim.weight)
        .sum();
    let scaled = |value: u128, of: u128| u64::try_from(u128::from(all) * value / of.max(1));
    let natural = claims
        .iter()
        .map(|claim| scaled(part(claim), whole).unwrap_or(all));
    let natural: Vec<u64> = natural.collect();
    let least = |claim: &Claim| {
        let part = scaled(claim.weight.into(), weights.into()).unwrap_or(all);
        part.min(claim.had)
    };
    let lacks = |(claim, due): (&Claim, &u64)| least(claim).saturating_sub(*due);
    let lacking: u64 = claims.iter().zip(&natural).map(lacks).sum();
    let rich = |(claim, due): &(&Claim, &u64)| lacks((claim, due)) == 0;
    let riches: u64 = claims
        .iter()
        .zip(&natural)
        .filter(rich)
        .map(|(_, due)| due)
        .sum();
    let given = |(claim, due): (&Claim, &u64)| match lacks((claim, due)) {
        0 => {
            let gives = u128::from(lacking) * u128::from(*due) / u128::from(riches.max(1));
            due.saturating_sub(u64::try_from(gives).unwrap_or(*due))
        }
        lack => due + lack,
    };
    claims.iter().zip(&natural).map(given).collect()
}
