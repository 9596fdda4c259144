//! The billing of time: a tenant in a turn pays for it, drain included.
//!
//! Tenants that overlap because one did not drain split the time evenly, as the hardware does.
//! Their caps are charged all of it: a cap must hold whatever other tenants do. No clock gets
//! further ahead of its class than the largest debt.

use super::Schedule;
use super::clock::Reading;
use crate::lease::roster::Tenant as _;
use crate::time::Nanos;
use std::collections::{BTreeMap, BTreeSet};

impl Schedule {
    /// Lets time pass, and bills it.
    pub(super) fn pass(&mut self, now: Nanos) {
        let now = now.max(self.now);
        let time = now - self.now;
        let share = self.share_of(time);
        let (mut works, mut capped) = (false, false);
        for (_, tenant) in self.roster.iter_mut() {
            works |= tenant.is_free() || tenant.is_in_turn();
            capped |= tenant.is_throttled();
            let mark = self.marks.of(tenant.account().class());
            let share = if tenant.is_billed() {
                share
            } else {
                Nanos::ZERO
            };
            tenant.pass((now, time), mark, share, &self.policy);
        }
        if capped && !works {
            self.tally.capped = self.tally.capped + time;
        }
        self.now = now;
        self.forgive();
        self.note_caps();
    }

    /// The bill of each billed tenant for a span.
    pub(super) fn share_of(&self, time: Nanos) -> Nanos {
        Nanos(time.0 / self.payers().max(1))
    }

    /// How many tenants are billed.
    pub(super) fn payers(&self) -> u64 {
        let payers = self.roster.tenants().filter(|tenant| tenant.is_billed());
        payers.count() as u64
    }

    pub(super) fn forgive(&mut self) {
        for tenant in self.roster.tenants_mut() {
            tenant.forgive(&self.policy);
        }
    }

    /// Finds tenants whose cap allows a turn again. Moves the mark of each class up to its tenant
    /// that is furthest behind among those that work or wait.
    pub(super) fn note_caps(&mut self) {
        let freed = self.roster.iter();
        let freed = freed.filter(|(_, tenant)| tenant.is_throttled() != tenant.was_throttled());
        for id in freed.map(|(at, _)| at).collect::<Vec<_>>() {
            let turn = self.length(id);
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.note_cap(turn);
            }
        }
        let mut least: BTreeMap<u16, Reading> = BTreeMap::new();
        for (id, tenant) in self.roster.iter() {
            if tenant.is_next_in_line() || self.holder == Some(id) {
                let clock = tenant.clock();
                let least = least.entry(tenant.account().class()).or_insert(clock);
                *least = clock.min(*least);
            }
        }
        for (class, clock) in least {
            self.marks.reach(class, clock);
        }
        for (_, tenant) in self.roster.iter_mut() {
            let mark = self.marks.of(tenant.account().class());
            tenant.pass((self.now, Nanos::ZERO), mark, Nanos::ZERO, &self.policy);
        }
    }

    /// Recomputes the weights of each class.
    pub(super) fn reweigh(&mut self) {
        for (id, weight) in self.roster.weights() {
            if let Some(tenant) = self.roster.get_mut(id) {
                tenant.reweigh(weight);
            }
        }
        self.forgive();
        let used = self.roster.tenants().map(|tenant| tenant.account().class());
        let used: BTreeSet<u16> = used.collect();
        self.marks.keep(|class| used.contains(&class));
    }
}
