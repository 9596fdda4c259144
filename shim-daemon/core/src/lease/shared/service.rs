//! Each tenant's service and its due, from one sample to the next.
//!
//! A bill is the time that completed operations take alone. So the bills of a span add up to the
//! device's work in it, however the driver mixed it. A tenant's due is its part of all bills of its
//! class, while it was pending: the lags of a class sum to zero, but for what two equals without a
//! request tolerate. Operations longer than the driver's slice complete too seldom to be billed
//! this way. After four slices without a completion a tenant is billed an even part of the time,
//! which the driver's round robin gives it. A tenant whose claims are guesses is billed for the
//! time that the others' bills leave ([`Rest`]).

use super::done::Done;
use super::doubt::Left;
use super::gate::Gate;
use super::outside::Outside;
use super::rest::{Part, Rest};
use super::rules::{Rules, scaled, signed};
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::lease::roster::Roster;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// Returns the bill of each tenant for a `span`, in nanoseconds, and what is believed of its page,
/// and brings the tenants' lags up to `now`.
pub(super) fn settle(
    (tenants, rest, outside): (&mut Roster<Tenant>, &mut Rest, &mut Outside),
    done: &BTreeMap<TenantId, Done>,
    rules: &Rules,
    (now, span): (Nanos, Nanos),
) -> (BTreeMap<TenantId, u64>, BTreeMap<TenantId, Done>) {
    let told = done;
    let all_done = believed(tenants, done);
    let done = &all_done;
    // A closed tenant runs until its submitted work is complete.
    let runs = |id: &TenantId| {
        let tenant = tenants.get(*id);
        tenant.is_some_and(|tenant| !tenant.is_shut() || !tenant.is_drained())
    };
    let flight = |(id, done): (&TenantId, &Done)| (*id, if runs(id) { done.pending } else { 0 });
    let flights: Vec<(TenantId, u64)> = done.iter().map(flight).collect();
    let beside: u64 = flights.iter().map(|(_, flight)| flight).sum();
    outside.watch(span, beside);
    let contexts = outside.contexts(now);
    // The driver gives such work its turns, too.
    let beside = beside + contexts;
    let running: Vec<TenantId> = tenants
        .iter()
        .filter(|(_, tenant)| tenant.may_run(now))
        .map(|(id, _)| id)
        .collect();
    // After a late sample each may have run, and only what the span itself shows is certain.
    let had = |(id, flight): &(TenantId, u64)| {
        *flight > 0 || done.get(id).is_some_and(|done| done.service > 0)
    };
    let running: Vec<TenantId> = running
        .into_iter()
        .chain(flights.iter().filter(|all| had(all)).map(|(id, _)| *id))
        .collect();
    let alone = |id: TenantId| running.iter().all(|other| *other == id);
    let mut bills = BTreeMap::new();
    for (id, tenant) in tenants.iter_mut() {
        let done = done.get(&id).copied().unwrap_or_default();
        if !done.guessed {
            let bill = tenant.bill(done, rules, (span, beside));
            bills.insert(id, bill);
        }
    }
    let parts = flights.iter().map(|(id, flight)| Part {
        tenant: *id,
        flight: *flight,
        billed: bills.get(id).copied(),
        // Of a gang that is what its own kernels claim.
        least: told
            .get(id)
            .map_or(0, |told| if told.guessed { 0 } else { told.service }),
    });
    let parts: Vec<Part> = parts.collect();
    let unknown = rest.divide(&parts, (span, rules.between_changes()), contexts);
    let left_to = left_to_one(tenants, (done, &bills), rules, (now, span));
    for (id, tenant) in tenants.iter_mut() {
        let done = done.get(&id).copied().unwrap_or_default();
        let bill = *bills.entry(id).or_insert_with(|| {
            let had = unknown.get(&id).copied().unwrap_or(0);
            tenant.bill_rest(had, done, span)
        });
        let left = left_to.filter(|(open, _)| *open == id);
        let left = match alone(id) {
            true => Some(Left::Held(signed(span))),
            false => left.map(|(_, left)| left),
        };
        let left = left.map(|left| left.beside(contexts));
        tenant.note((now, span), (done, left), bill);
    }
    // A part of the rest shows nothing of its tenant's progress: as far as they fit into the rest,
    // its own claims do.
    let claims = done.values().filter(|done| done.guessed);
    let claimed = claims.fold(0, |sum: u64, done| sum.saturating_add(done.service));
    let fit: u64 = unknown.values().sum::<u64>().min(claimed);
    let served = |id: &TenantId, bill: &u64| match done.get(id) {
        Some(done) if done.guessed => scaled(done.service, fit, claimed),
        _ => *bill,
    };
    let all: u64 = bills.iter().map(|(id, bill)| served(id, bill)).sum();
    let runs = tenants
        .iter()
        .filter(|(_, one)| one.is_pending(now) && !one.is_shut());
    let keeps = |one: &Tenant| one.is_dense().then(|| one.slice(rules));
    let running: Vec<_> = runs.map(|(id, one)| (id, keeps(one))).collect();
    for (id, tenant) in tenants.iter_mut() {
        let own = bills.get(&id).map_or(0, |bill| served(&id, bill));
        let others = running.iter().filter(|(other, _)| *other != id);
        tenant.watch(
            rules,
            (span, beside),
            all.saturating_sub(own),
            left(others.map(|(_, keeps)| *keeps), rules),
        );
    }
    let mut classes: Vec<u16> = tenants.tenants().map(|tenant| tenant.class()).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut below = 0;
    for class in classes.iter().copied() {
        below += share(tenants, done, &bills, (class, below));
    }
    for (id, tenant) in tenants.iter_mut() {
        let done = done.get(&id).copied().unwrap_or_default();
        tenant.finish((now, span), done, rules);
    }
    for class in classes {
        forgive(tenants, class);
    }
    (bills, all_done)
}

/// The one tenant that always wants the device and is open, while all others that always want it
/// yield, or are held and have drained; and what the others leave it. Those that yield have what
/// they are billed, and the device changes to another context and back after each slice of theirs.
/// An operation that is longer than the span is billed when it ends, so what is left may be less
/// than nothing. Those that leave gaps have no more than the time for which they are pending.
fn left_to_one(
    tenants: &Roster<Tenant>,
    (done, bills): (&BTreeMap<TenantId, Done>, &BTreeMap<TenantId, u64>),
    rules: &Rules,
    (now, span): (Nanos, Nanos),
) -> Option<(TenantId, Left)> {
    let (mut open, mut yields, mut held) = (Vec::new(), false, false);
    let mut left = signed(span);
    for (id, tenant) in tenants.iter() {
        let Done {
            service, pending, ..
        } = done.get(&id).copied().unwrap_or_default();
        if !tenant.is_pending(now) && pending == 0 && service == 0 {
            continue;
        }
        let had = match tenant.gate() {
            Gate::Shut if tenant.is_drained() => {
                held = true;
                0
            }
            Gate::Shut => return None,
            _ if !tenant.is_dense() => span.0 * pending / 1000,
            Gate::Slice(slice) => {
                yields = true;
                let bill = *bills.get(&id)?;
                bill + bill.div_ceil(slice.0.max(1)) * 2 * rules.switch.0
            }
            Gate::Free | Gate::Noted => {
                open.push(id);
                0
            }
        };
        left = left.saturating_sub(signed(Nanos(had)));
    }
    match open[..] {
        [id] if yields => Some((id, Left::Yielded(left))),
        [id] if held => Some((id, Left::Held(left))),
        _ => None,
    }
}

/// Which part of the time, in thousandths, changes of contexts leave while these tenants have work:
/// one change to each, in the time for which those keep the device of which that is known. Where it
/// is known of none, nothing is said to be lost.
fn left(keep: impl Iterator<Item = Option<Nanos>>, rules: &Rules) -> u64 {
    let (mut many, mut kept) = (0, 0_u64);
    for keeps in keep {
        many += 1;
        kept = kept.saturating_add(keeps.unwrap_or_default().0);
    }
    let changes = rules.switch.0 * many;
    if many < 2 || kept == 0 || changes == 0 {
        return 1000;
    }
    scaled(1000, kept, kept + changes)
}

/// Debts without a creditor lapse: the debts of a class are at most the sum by which its tenants
/// are behind.
fn forgive(tenants: &mut Roster<Tenant>, class: u16) {
    let lags = |tenants: &Roster<Tenant>, sign: i64| -> i128 {
        let of_class = tenants.tenants().filter(|tenant| tenant.class() == class);
        of_class
            .map(|tenant| i128::from(tenant.lag().saturating_mul(sign).max(0)))
            .sum()
    };
    let (owed, owing) = (lags(tenants, 1), lags(tenants, -1));
    if owing <= owed {
        return;
    }
    for tenant in tenants.tenants_mut() {
        if tenant.class() == class {
            tenant.forgive(owed, owing);
        }
    }
}

/// The believed part of the pages: a stuck tenant has nothing pending until it completes an
/// operation.
fn believed(
    tenants: &mut Roster<Tenant>,
    done: &BTreeMap<TenantId, Done>,
) -> BTreeMap<TenantId, Done> {
    let mut done = done.clone();
    for (id, tenant) in tenants.iter_mut() {
        let Some(done) = done.get_mut(&id) else {
            continue;
        };
        tenant.believe(done);
    }
    done
}

/// Divides the service of a class among its tenants. Returns the service of the class.
fn share(
    tenants: &mut Roster<Tenant>,
    done: &BTreeMap<TenantId, Done>,
    bills: &BTreeMap<TenantId, u64>,
    (class, below): (u16, u64),
) -> u64 {
    let of_class: Vec<Claim> = tenants
        .iter()
        .filter(|(_, tenant)| tenant.class() == class)
        .map(|(id, tenant)| Claim {
            tenant: id,
            weight: tenant.weight(),
            pending: done.get(&id).map_or(0, |done| tenant.asks(done.pending)),
            had: bills.get(&id).copied().unwrap_or(0),
        })
        .collect();
    let promised = |claim: &Claim| tenants.get(claim.tenant).is_some_and(Tenant::has_promise);
    let promised = of_class.iter().any(promised);
    // Among more tenants each debt is a part of one tenant's lag, and would lapse.
    let two = of_class.iter().filter(|claim| claim.pending > 0).count() == 2;
    let guessed = |claim: &Claim| {
        let done = done.get(&claim.tenant).is_some_and(|done| done.guessed);
        done && claim.pending > 0
    };
    let tolerated = match of_class.iter().any(guessed) {
        true => Rules::TOLERATED_OF_GUESSES,
        false => Rules::TOLERATED,
    };
    let had = of_class.iter().map(|claim| claim.had).sum();
    for (claim, due) in of_class.iter().zip(dues(&of_class, had)) {
        if let Some(tenant) = tenants.get_mut(claim.tenant) {
            tenant.owe((due, claim.had), below * claim.pending / 1000);
            if two && !promised {
                tenant.tolerate(due, tolerated);
            }
        }
    }
    had
}

/// A tenant's demand and service in a span.
#[derive(Clone, Copy, Debug)]
struct Claim {
    tenant: TenantId,
    weight: u64,
    /// Thousandths of the time.
    pending: u64,
    had: u64,
}

/// Each tenant's due of `all`: its part while it was pending. A tenant that was not pending all the
/// time owes nothing for service within its part of the whole time.
fn dues(claims: &[Claim], all: u64) -> Vec<u64> {
    // All weights, each as far as its tenant was pending.
    let asked: u64 = claims
        .iter()
        .map(|claim| claim.weight * claim.pending)
        .sum();
    let part = |claim: &Claim| {
        // Other tenants' pending time is taken as independent of its own.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_leave_what_the_slices_of_those_without_gaps_allow() {
        let rules = Rules {
            slice: Nanos::micros(2100),
            switch: Nanos::micros(150),
        };
        let left = |keep: &[Option<u64>]| {
            let keep = keep.iter().map(|keeps| keeps.map(Nanos::micros));
            left(keep, &rules)
        };
        // A trainer and a server; two trainers.
        assert_eq!(
            [left(&[Some(2700), None]), left(&[Some(300), None])],
            [900, 500]
        );
        assert_eq!(left(&[Some(2850), Some(2850)]), 950);
        // One has the device to itself. Only servers: nothing is known.
        assert_eq!([left(&[Some(300)]), left(&[None, None])], [1000, 1000]);
    }
}
