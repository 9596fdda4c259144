//! Which tenant is next, for how long, and when a turn is over.

use super::Schedule;
use super::clock::Reading;
use super::tenant::{Phase, Tenant, Turn};
use crate::ids::TenantId;
use crate::lease::input::Output;
use crate::lease::terms::LeasePolicy;
use crate::time::Nanos;

impl Schedule {
    /// Carries out the next due step, if there is one.
    pub(super) fn step(&mut self) -> bool {
        let now = self.now;
        let drained =
            |(_, tenant): &(_, &Tenant)| tenant.is_in_turn() && tenant.members.is_drained();
        let drained = self.roster.iter().find(drained).map(|(id, _)| id);
        if let Some(id) = drained {
            if self.has_its_turn_back(id) {
                self.grant(id);
                return true;
            }
            self.handing_on.get_or_insert(now);
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.end(now);
            }
            return true;
        }
        let Some((id, tenant)) = self.holder() else {
            let next = self.next();
            // Without a next tenant the device is idle because none wants it or may have it.
            let since = self.handing_on.take();
            if let Some(id) = next {
                if let Some(since) = since {
                    self.roster.tally.handoffs.record((now - since).0);
                }
                self.grant(id);
            }
            return next.is_some();
        };
        match tenant.own.phase {
            Phase::Holding(turn) if self.is_over(tenant, &turn) => {
                self.handing_on = Some(now);
                if let Some(tenant) = self.roster.get_mut(id) {
                    tenant.close(now);
                }
            }
            Phase::Holding(turn) if self.asked_at(tenant, &turn).is_some_and(|at| at <= now) => {
                if let Some(tenant) = self.roster.get_mut(id) {
                    tenant.ask_whether_it_runs(now);
                }
            }
            Phase::Asked(closed) if self.yields_to_others(tenant) => {
                self.handing_on = Some(closed);
                if let Some(tenant) = self.roster.get_mut(id) {
                    tenant.close_for_others(closed);
                }
            }
            // A call that waits at the closed gate shows that it runs. Another process of it may
            // not drain for long.
            Phase::Asked(_) if tenant.members.waits() => self.grant(id),
            // Its library says `Busy` before it launches anything.
            Phase::Closing(closed)
                if now >= closed + self.policy.overrun && tenant.members.is_quiet() =>
            {
                if let Some(tenant) = self.roster.get_mut(id) {
                    tenant.end(now);
                }
            }
            Phase::Closing(closed) if now >= closed + self.policy.overrun => {
                self.overran(id, closed);
            }
            Phase::Asked(closed) if now >= closed + LeasePolicy::ASKED.1 => {
                self.overran(id, closed);
            }
            _ => return false,
        }
        true
    }

    /// Whether a tenant that has drained was asked only whether it runs, and goes on.
    fn has_its_turn_back(&self, id: TenantId) -> bool {
        let tenant = self.roster.get(id);
        tenant.is_some_and(|one| {
            let asked = matches!(one.own.phase, Phase::Asked(_));
            asked && one.members.is_active() && !self.yields_to_others(one)
        })
    }

    /// Whether a tenant of its class or of a higher one waits, or one of a lower class is due, or
    /// its cap is used up.
    fn yields_to_others(&self, own: &Tenant) -> bool {
        let class = own.class();
        let first = self.first_in_line();
        let waits = first.is_some_and(|(other, _)| other >= class);
        waits || self.due_below(class).is_some() || own.account.is_throttled()
    }

    /// When a holder beside waiting tenants of lower classes alone is asked whether it still runs:
    /// nothing else ends its turn.
    fn asked_at(&self, own: &Tenant, turn: &Turn) -> Option<Nanos> {
        let first = self.first_in_line();
        let below = first.is_some_and(|(other, _)| other < own.class());
        below.then_some(turn.since + LeasePolicy::ASKED.0)
    }

    /// Whether a turn must end now.
    fn is_over(&self, tenant: &Tenant, turn: &Turn) -> bool {
        let needed = tenant.account.is_capped() || self.first_in_line().is_some();
        let given_up = needed && tenant.members.is_quiet();
        let expired = self
            .until(tenant, turn)
            .is_some_and(|until| until <= self.now);
        given_up || expired
    }

    /// When a turn ends by itself: when its cap's allowance is used up; where a higher class waits,
    /// at once or after the turn of its guarantee; when it is a turn ahead of a waiting tenant of
    /// its class; or where a tenant of a lower class is due, after the shortest turn. Never where
    /// only lower classes wait and none is due.
    pub(super) fn until(&self, own: &Tenant, turn: &Turn) -> Option<Nanos> {
        let (class, weight) = (own.class(), own.account.weight);
        let full = turn.since + turn.length;
        let first = self.first_in_line();
        let fair = if first.is_some_and(|(other, _)| other > class) {
            Some(turn.kept)
        } else if self.due_below(class).is_some() {
            Some((turn.since + LeasePolicy::SHORTEST).max(turn.kept))
        } else {
            // A tenant that has not drained its last turn may not start when called.
            let drained = |(_, rival): &(_, &Tenant)| rival.own.phase == Phase::Out;
            let rival = self.rivals(class).filter(drained);
            let rival = rival.map(|(id, rival)| rival.order(id)).min();
            let least = if self.is_taken_from(class) {
                turn.kept
            } else {
                turn.since
            };
            let allowed = rival.map(|(clock, ..)| allowance(turn, weight, clock).max(least));
            allowed.or_else(|| self.rivals(class).next().map(|_| full))
        };
        fair.into_iter().chain(turn.runs_dry).min()
    }

    /// The holder has not drained: others no longer wait for it. Reported if some are in line.
    fn overran(&mut self, id: TenantId, closed: Nanos) {
        let (now, wait) = (self.now, self.first_in_line().is_some());
        let Some(tenant) = self.roster.get_mut(id) else {
            return;
        };
        if tenant.overran((now, closed), wait) {
            let after = now - closed;
            self.roster
                .outputs
                .push_back(Output::Overrun { tenant: id, after });
        }
    }

    /// When to settle next if no event comes before: a throttled tenant may continue, or is no
    /// longer billed for its overrun, a turn or a drain ends, or a lower class's guarantee becomes
    /// due.
    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        let now = self.now;
        let throttled = || {
            let all = self.roster.tenants();
            all.filter(|tenant| tenant.is_throttled())
        };
        // Its cap collects nothing while it is billed.
        let refills = throttled().filter(|tenant| !tenant.is_billed());
        let refilled = refills.map(|tenant| now + tenant.account.throttled_for());
        let others = self.payers().saturating_sub(1);
        let billed = throttled().filter_map(|tenant| tenant.overruns_for(others));
        let billed = billed.map(|rest| now + rest);
        let holder = self.holder().map(|(_, holder)| holder);
        let over = holder.and_then(|holder| match holder.own.phase {
            Phase::Holding(turn) => {
                let ends = self.until(holder, &turn);
                let asked = self.asked_at(holder, &turn);
                ends.into_iter().chain(asked).min()
            }
            Phase::Closing(closed) => Some(closed + self.policy.overrun),
            Phase::Asked(closed) => Some(closed + LeasePolicy::ASKED.1),
            _ => None,
        });
        let due = self.in_line().filter_map(|(_, tenant)| {
            let is_below = holder?.class() > tenant.class();
            let (_, wait) = tenant.account.guaranteed_turn(&self.policy)?;
            (is_below && wait > Nanos::ZERO).then_some(now + wait)
        });
        refilled.chain(billed).chain(over).chain(due).min()
    }
}

/// How long a turn may last beside a rival: its length, and longer if the holder is behind the
/// rival, until it has caught up. A holder that is ahead was let in because the rival did not want;
/// it has as much less as it is ahead.
fn allowance(turn: &Turn, weight: u64, rival: Reading) -> Nanos {
    let (behind, ahead) = (
        rival.since(turn.from, weight),
        turn.from.since(rival, weight),
    );
    let full = turn.since + (turn.length - ahead);
    full.max(turn.read + behind)
}
