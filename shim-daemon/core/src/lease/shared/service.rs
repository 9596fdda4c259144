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
use super::rules::Rules;
use super::still::Watch;
use super::tenant::{State, Tenant};
use crate::ids::TenantId;
use crate::lease::arithmetic::{scaled, signed};
use crate::lease::roster::Roster;
use crate::time::Nanos;

/// Bills each tenant for a `span`, and brings the tenants' lags up to `now`.
pub(super) fn settle(
    (tenants, rest, outside): (&mut Roster<State>, &mut Rest, &mut Outside),
    rules: &Rules,
    (now, span): (Nanos, Nanos),
) {
    for tenant in tenants.tenants_mut() {
        tenant.believe();
    }
    let beside: u64 = tenants.tenants().map(Tenant::contexts).sum();
    outside.watch(span, beside);
    let contexts = outside.contexts(now);
    // The driver gives such work its turns, too.
    let beside = beside + contexts;
    // After a late sample each may have run, and only what the span itself shows is certain.
    let had = |one: &Tenant| one.flight() > 0 || one.own.done.service > 0;
    let running = tenants.ids(|one| one.may_run(now) || had(one));
    let alone = |id: TenantId| running.iter().all(|other| *other == id);
    for tenant in tenants.tenants_mut() {
        tenant.bill(rules, (span, beside));
    }
    let part = |(id, one): (TenantId, &Tenant)| Part {
        tenant: id,
        flight: one.flight(),
        contexts: one.contexts(),
        billed: (!one.own.done.guessed).then_some(one.own.bill),
        // Of a gang that is what its own kernels claim.
        least: match one.own.told {
            Some(told) if !told.guessed => told.service,
            _ => 0,
        },
    };
    let parts: Vec<Part> = tenants.iter().map(part).collect();
    let unknown = rest.divide(&parts, (span, rules.between_changes()), contexts);
    let left_to = left_to_one(tenants, rules, (now, span));
    for (id, tenant) in tenants.iter_mut() {
        if let Some(had) = unknown.get(&id) {
            tenant.bill_rest(*had, span);
        }
        let left = left_to.filter(|(open, _)| *open == id);
        let left = match alone(id) {
            // Looked at now and then, it may have begun its work while nothing was recorded.
            true if tenant.own.bond.is_some() => None,
            true => Some(Left::Held(signed(span))),
            false => left.map(|(_, left)| left),
        };
        let left = left.map(|left| left.beside((tenant.contexts(), contexts)));
        tenant.note((now, span), left);
    }
    // A part of the rest shows nothing of its tenant's progress: as far as they fit into the rest,
    // its own claims do.
    let claims = tenants.tenants().filter(|one| one.own.done.guessed);
    let claimed = claims.fold(0, |sum: u64, one| sum.saturating_add(one.own.done.service));
    let fit: u64 = unknown.values().sum::<u64>().min(claimed);
    let served = |one: &Tenant| match one.own.done.guessed {
        true => scaled(one.own.done.service, fit, claimed),
        false => one.own.bill,
    };
    let all: u64 = tenants.tenants().map(served).sum();
    let runs = tenants
        .iter()
        .filter(|(_, one)| one.is_pending(now) && !one.is_shut());
    let keeps = |one: &Tenant| one.is_dense().then(|| one.slice(rules));
    let running: Vec<_> = runs.map(|(id, one)| (id, keeps(one))).collect();
    for (id, tenant) in tenants.iter_mut() {
        let others = running.iter().filter(|(other, _)| *other != id);
        let left = left(others.map(|(_, keeps)| *keeps), rules);
        let had = all.saturating_sub(served(tenant));
        // A bill by time may be for a process of it that completes nothing.
        let by_others = match tenant.own.done.service {
            0 => had,
            _ => all,
        };
        let watch = Watch {
            span,
            contexts: beside,
            others: by_others,
            left,
        };
        tenant.watch(rules, had, watch);
    }
    let mut classes: Vec<u16> = tenants.tenants().map(Tenant::class).collect();
    classes.sort_unstable();
    classes.dedup();
    let asking = tenants.tenants().filter(|one| one.asks() > 0);
    let highest = asking.map(Tenant::class).max();
    let mut below = 0;
    for class in classes.iter().copied() {
        // Against a higher class guarantees are kept by time, and not by weight.
        let outranked = highest.is_some_and(|highest| class < highest);
        let kept = if outranked { span } else { Nanos::ZERO };
        below += share(tenants, (class, below), kept);
    }
    let asking = tenants.tenants().filter(|one| one.asks() > 0);
    let lowest = asking.map(Tenant::class).min();
    let others = tenants
        .tenants()
        .filter(|one| one.is_active())
        .count()
        .saturating_sub(1);
    for tenant in tenants.tenants_mut() {
        if tenant.asks() > 0 && lowest == Some(tenant.class()) {
            tenant.own.lag.fade_passed_over(span);
        }
        tenant.finish((now, span), rules, others);
    }
    for class in classes {
        forgive(tenants, class, rules);
    }
}

/// The one tenant that always wants the device and is open, while all others that always want it
/// yield, or are held and have drained; and what the others leave it. Those that yield have what
/// they are billed, and the device changes to another context and back after each slice of theirs.
/// An operation that is longer than the span is billed when it ends, so what is left may be less
/// than nothing. Those that leave gaps have no more than the time for which they are pending.
fn left_to_one(
    tenants: &Roster<State>,
    rules: &Rules,
    (now, span): (Nanos, Nanos),
) -> Option<(TenantId, Left)> {
    let (mut open, mut yields, mut held) = (Vec::new(), false, false);
    let mut left = signed(span);
    for (id, tenant) in tenants.iter() {
        let Done {
            service,
            pending,
            guessed,
            ..
        } = tenant.own.done;
        if !tenant.is_pending(now) && pending == 0 && service == 0 {
            continue;
        }
        let had = match tenant.own.gate {
            Gate::Shut if tenant.members.is_drained() => {
                held = true;
                0
            }
            Gate::Shut => return None,
            _ if !tenant.is_dense() => span.0 * pending / 1000,
            Gate::Slice(_) if guessed => return None,
            Gate::Slice(slice) => {
                yields = true;
                let bill = tenant.own.bill;
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
/// are behind. So do lags without a debtor, as far as tenants would be held for them: the debtor
/// has ended, or is of another class now.
fn forgive(tenants: &mut Roster<State>, class: u16, rules: &Rules) {
    let lags = |tenants: &Roster<State>, sign: i64| -> i128 {
        let of_class = tenants.tenants().filter(|tenant| tenant.class() == class);
        of_class
            .map(|tenant| i128::from(tenant.lag().saturating_mul(sign).max(0)))
            .sum()
    };
    let (owed, owing) = (lags(tenants, 1), lags(tenants, -1));
    for tenant in tenants.tenants_mut() {
        if tenant.class() == class && owing > owed {
            tenant.own.lag.forgive(owed, owing);
        } else if tenant.class() == class && owed > owing {
            tenant.own.lag.lapse_to((owing, owed), rules);
        }
    }
}

/// Divides the service of a class among its tenants: see [`dues`]. Returns the service of the
/// class.
fn share(tenants: &mut Roster<State>, (class, below): (u16, u64), kept: Nanos) -> u64 {
    let all = tenants.tenants().filter(|one| one.class() == class);
    let all: Vec<&Tenant> = all.collect();
    let promised = all.iter().any(|one| one.account.has_promise());
    // Among more tenants each debt is a part of one tenant's lag, and would lapse.
    let two = all.iter().filter(|one| one.asks() > 0).count() == 2;
    let guessed = |one: &&Tenant| one.own.done.guessed && one.asks() > 0;
    let tolerated = match all.iter().any(guessed) {
        true => Rules::TOLERATED_OF_GUESSES,
        false => Rules::TOLERATED,
    };
    let had = all.iter().map(|one| one.own.bill).sum();
    let dues = dues(&all, had, kept);
    let all = tenants.tenants_mut().filter(|one| one.class() == class);
    for (tenant, due) in all.zip(dues) {
        let lower = below * tenant.asks() / 1000;
        tenant.own.lag.owe((due, tenant.own.bill), lower);
        if two && !promised {
            tenant.own.lag.tolerate(Nanos(due), tolerated);
        }
    }
    had
}

/// Each tenant's due of `all`: its part while it was pending. A tenant that was not pending all the
/// time owes nothing for service within its part of the whole time. Nor does one for what its
/// guarantee explains of the span that was `kept` against a higher class; zero: there is none.
fn dues(tenants: &[&Tenant], all: u64, kept: Nanos) -> Vec<u64> {
    let sum = |of: &dyn Fn(&Tenant) -> u64| tenants.iter().map(|one| of(one)).sum::<u64>();
    // All weights, each as far as its tenant was pending.
    let asked = sum(&|one| one.account.weight * one.asks());
    let part = |one: &Tenant| {
        // Other tenants' pending time is taken as independent of its own.
        let own = one.account.weight * one.asks();
        scaled(own, 1_000_000, one.account.weight * 1000 + (asked - own))
    };
    let whole = sum(&part);
    let natural = |one: &Tenant| scaled(all, part(one), whole);
    let weights = sum(&|one| one.account.weight * u64::from(one.asks() > 0));
    let lack = |one: &Tenant| {
        let promised = match kept {
            Nanos::ZERO => 0,
            kept => one.account.promised(kept),
        };
        let least = scaled(all, one.account.weight, weights).max(promised);
        least.min(one.own.bill).saturating_sub(natural(one))
    };
    // Those that lack nothing give to those that do.
    let lacking = sum(&lack);
    let riches = sum(&|one| if lack(one) > 0 { 0 } else { natural(one) });
    let due = |one: &Tenant| match lack(one) {
        0 => natural(one).saturating_sub(scaled(lacking, natural(one), riches)),
        lack => natural(one) + lack,
    };
    tenants.iter().map(|one| due(one)).collect()
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
