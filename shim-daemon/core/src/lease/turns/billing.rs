//! The billing of time: a tenant in a turn pays for it, drain included.
//!
//! Tenants that overlap because one did not drain split the time evenly, as the hardware does.
//! Their caps are charged all of it: a cap must hold whatever other tenants do. No clock gets
//! further ahead of its class than the largest debt.

use super::Schedule;
use super::clock::Reading;
use super::tenant::Tenant;
use crate::time::Nanos;
use std::collections::{BTreeMap, BTreeSet};

impl Schedule {
    /// Lets time pass, and bills it. A `now` before the last one counts as the last one.
    pub(crate) fn pass(&mut self, now: Nanos) {
        let now = now.max(self.now);
        let time = now - self.now;
        let share = self.share_of(time);
        let highest = self.highest();
        let (mut works, mut capped) = (false, false);
        for tenant in self.roster.tenants_mut() {
            works |= tenant.is_free() || tenant.is_in_turn();
            capped |= tenant.is_throttled();
            let mark = self.marks.of(tenant.class());
            let outranked = highest.is_some_and(|highest| tenant.class() < highest);
            tenant.pass((now, time), mark, (share, outranked), &self.policy);
        }
        if capped && !works {
            let capped = &mut self.roster.tally.capped;
            *capped = *capped + time;
        }
        self.now = now;
        self.forgive();
        self.note_caps();
    }

    /// The bill of each billed tenant for a span.
    pub(super) fn share_of(&self, time: Nanos) -> Nanos {
        Nanos(time.0 / self.payers().max(1))
    }

    /// The highest class of those that work or want a turn.
    fn highest(&self) -> Option<u16> {
        let wanting = self.roster.tenants().filter(|one| one.is_in_demand());
        wanting.map(|one| one.class()).max()
    }

    /// How many tenants are billed.
    pub(super) fn payers(&self) -> u64 {
        let payers = self.roster.tenants().filter(|tenant| tenant.is_billed());
        payers.count() as u64
    }

    pub(super) fn forgive(&mut self) {
        for tenant in self.roster.tenants_mut() {
            tenant.forgive();
        }
    }

    /// Finds tenants whose cap allows a turn again. Moves the mark of each class up to its tenant
    /// that is furthest behind among those that work or wait.
    pub(super) fn note_caps(&mut self) {
        let freed = |tenant: &Tenant| tenant.is_throttled() != tenant.own.throttled;
        for id in self.roster.ids(freed) {
            let turn = self.length(id);
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.note_cap(turn);
            }
        }
        let mut least: BTreeMap<u16, Reading> = BTreeMap::new();
        for tenant in self.roster.tenants() {
            if tenant.is_next_in_line() || tenant.holds() {
                let clock = tenant.own.clock;
                let least = least.entry(tenant.class()).or_insert(clock);
                *least = clock.min(*least);
            }
        }
        for (class, clock) in least {
            self.marks.reach(class, clock);
        }
        for tenant in self.roster.tenants_mut() {
            let mark = self.marks.of(tenant.class());
            tenant.pass(
                (self.now, Nanos::ZERO),
                mark,
                (Nanos::ZERO, false),
                &self.policy,
            );
        }
    }

    /// Recomputes the weights of each class.
    pub(super) fn reweigh(&mut self) {
        self.roster.reweigh(Tenant::reweigh);
        self.forgive();
        let used = self.roster.tenants().map(|tenant| tenant.class());
        let used: BTreeSet<u16> = used.collect();
        self.marks.keep(|class| used.contains(&class));
    }

    /// Tenants that have begun to ask for the device take their parts, and those that have not
    /// asked for long give theirs up.
    pub(super) fn count(&mut self) {
        let now = self.now;
        if self.roster.count(|one| one.is_recent(now)) {
            self.reweigh();
        }
    }
}
