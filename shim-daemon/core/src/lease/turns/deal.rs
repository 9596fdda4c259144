//! Who is next, for how long, and when a turn is over.

use super::clock::Reading;
use super::tenant::{Order, Phase, Tenant, Turn};
use super::{Output, Schedule};
use crate::ids::ContainerId;
use crate::lease::roster::Tenant as _;
use crate::time::Nanos;

impl Schedule {
    /// Does the next thing that is due now, if there is any.
    pub(super) fn step(&mut self) -> bool {
        let (now, bound) = (self.now, self.policy.overrun);
        let drained = |tenant: &Tenant| tenant.is_in_turn() && tenant.members().is_drained();
        let mut tenants = self.roster.all().iter();
        if let Some((container, _)) = tenants.find(|(_, tenant)| drained(tenant)) {
            self.end(*container);
            return true;
        }
        let Some(holder) = self.holder else {
            let next = self.next();
            if let Some((container, promoted)) = next {
                self.grant(container, promoted);
            }
            return next.is_some();
        };
        let Some(tenant) = self.roster.get(holder) else {
            self.holder = None;
            return true;
        };
        match tenant.phase {
            Phase::Holding(turn) if self.is_over(tenant, &turn) => {
                if let Some(tenant) = self.roster.get_mut(holder) {
                    tenant.close(now);
                }
            }
            Phase::Closing(closed) if now >= closed + bound => self.overran(holder, closed),
            _ => return false,
        }
        true
    }

    /// Those that wait for a turn and may have one.
    fn in_line(&self) -> impl Iterator<Item = (ContainerId, &Tenant)> {
        let all = self.roster.all().iter();
        all.map(|(container, tenant)| (*container, tenant))
            .filter(|(_, tenant)| tenant.is_next_in_line())
    }

    /// Of the highest class in which a tenant waits, the one furthest behind.
    pub(super) fn first_in_line(&self) -> Option<(u16, Order)> {
        let class = |tenant: &Tenant| tenant.account().class();
        let keys = self.in_line().map(|(container, tenant)| {
            let order = tenant.order(container);
            (std::cmp::Reverse(class(tenant)), order)
        });
        keys.min().map(|(class, order)| (class.0, order))
    }

    /// Those of a class that wait and may have a turn.
    fn rivals(&self, class: u16) -> impl Iterator<Item = (ContainerId, &Tenant)> {
        let waits = self.in_line();
        waits.filter(move |(_, tenant)| tenant.account().class() == class)
    }

    /// The clock of the tenant that waits in a class and is furthest behind.
    pub(super) fn furthest_behind(&self, class: u16) -> Option<Reading> {
        self.rivals(class).map(|(_, tenant)| tenant.clock).min()
    }

    /// In how long those of lower classes than this that wait are due, by their guarantees.
    fn dues_below(&self, class: u16) -> impl Iterator<Item = (ContainerId, &Tenant, Nanos)> {
        let below = self.in_line();
        let below = below.filter(move |(_, tenant)| tenant.account().class() < class);
        below.filter_map(|(container, tenant)| {
            Some((container, tenant, tenant.due_in(&self.policy)?))
        })
    }

    /// Of the highest class below this in which a tenant is due by now, the one furthest behind.
    fn due_below(&self, class: u16) -> Option<ContainerId> {
        let due = self.dues_below(class).filter(|(.., wait)| wait.0 == 0);
        let keys = due.map(|(container, tenant, _)| {
            let class = std::cmp::Reverse(tenant.account().class());
            (class, tenant.order(container))
        });
        keys.min().map(|(_, (.., container))| container)
    }

    /// The next tenant, and whether it goes before a higher class for its guarantee.
    pub(super) fn next(&self) -> Option<(ContainerId, bool)> {
        let (class, (.., first)) = self.first_in_line()?;
        let due = self.due_below(class);
        Some(due.map_or((first, false), |due| (due, true)))
    }

    /// Lets a tenant in.
    pub(super) fn grant(&mut self, container: ContainerId, promoted: bool) {
        let (now, policy, length) = (self.now, self.policy, self.length(container));
        self.epochs += 1;
        let epoch = self.epochs;
        self.holder = Some(container);
        let Some(tenant) = self.roster.get_mut(container) else {
            return;
        };
        let account = tenant.account();
        let guaranteed = account.guaranteed_turn(&policy).filter(|_| promoted);
        let turn = Turn {
            since: now,
            from: tenant.clock,
            read: now,
            length: guaranteed.map_or(length, |(turn, _)| turn),
            runs_dry: account.cap_lasts().map(|lasts| now + lasts),
            promoted,
        };
        tenant.begin(epoch, turn);
    }

    /// Whether a turn must end now.
    fn is_over(&self, tenant: &Tenant, turn: &Turn) -> bool {
        let first = self.first_in_line();
        let class = tenant.account().class();
        let preempted = !turn.promoted && first.is_some_and(|(other, _)| other > class);
        let needed = tenant.account().is_capped() || first.is_some();
        let given_up = needed && tenant.members().is_quiet();
        let expired = self
            .until(tenant, turn)
            .is_some_and(|until| until <= self.now);
        preempted || given_up || expired
    }

    /// When a turn ends by itself: when its cap's allowance is used up, or others of its class wait
    /// and it is a turn ahead of one of them, or one of a lower class is due.
    pub(super) fn until(&self, own: &Tenant, turn: &Turn) -> Option<Nanos> {
        let (class, weight) = (own.account().class(), own.account().weight());
        let full = turn.since + turn.length;
        let fair = if turn.promoted || self.due_below(class).is_some() {
            Some(full)
        } else {
            // One that has not drained from its last turn may not come when it is called.
            let drained = |(_, rival): &(_, &Tenant)| rival.phase == Phase::Out;
            let rival = self.rivals(class).filter(drained);
            let rival = rival.map(|(container, rival)| rival.order(container)).min();
            let allowed = rival.map(|(clock, ..)| allowance(turn, weight, clock));
            allowed.or_else(|| self.rivals(class).next().map(|_| full))
        };
        fair.into_iter().chain(turn.runs_dry).min()
    }

    /// A tenant has drained.
    fn end(&mut self, container: ContainerId) {
        let now = self.now;
        self.holder = self.holder.filter(|holder| *holder != container);
        if let Some(tenant) = self.roster.get_mut(container) {
            tenant.end(now);
        }
    }

    /// A tenant has not drained: others no longer wait for it.
    fn overran(&mut self, container: ContainerId, closed: Nanos) {
        self.holder = None;
        let (now, every) = (self.now, self.policy.notice_every);
        let after = now - closed;
        let shared = self.first_in_line().is_some();
        if let Some(tenant) = self.roster.get_mut(container)
            && tenant.overran((now, closed), every)
            && shared
        {
            tenant.told_overrun(now);
            self.outputs.push_back(Output::Overrun { container, after });
        }
    }

    /// When something is due that no input tells: a throttled tenant may go on, a turn or a drain
    /// ends, or a lower class's guarantee is due.
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        let now = self.now;
        let throttled = self.roster.all().values();
        // What is billed meanwhile gains nothing.
        let throttled = throttled.filter(|tenant| tenant.is_throttled() && !tenant.is_billed());
        let refilled = throttled.map(|tenant| now + tenant.account().throttled_for());
        let holder = self.holder.and_then(|holder| self.roster.get(holder));
        let over = holder.and_then(|holder| match holder.phase {
            Phase::Holding(turn) => self.until(holder, &turn),
            Phase::Closing(closed) => Some(closed + self.policy.overrun),
            _ => None,
        });
        let class = holder.map(|holder| holder.account().class());
        let dues = class.into_iter().flat_map(|class| self.dues_below(class));
        let due = dues.map(|(.., wait)| wait).filter(|wait| wait.0 > 0);
        let due = due.map(|wait| now + wait);
        refilled.chain(over).chain(due).min()
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
