//! Processes come to a shared device and go, terms change, and pages are read.

use super::super::bucket::Bucket;
use super::super::promise::Promise;
use super::super::schedule::Output;
use super::super::terms::{Compute, requests, weight};
use super::rules::Rules;
use super::tenant::{Done, Member, Tenant};
use super::{Shared, Work};
use crate::ids::{ContainerId, ProcessId};
use crate::time::Nanos;
use std::collections::BTreeMap;

impl Tenant {
    /// Its gate has another position: what its processes said before is over.
    pub(super) fn reopen(&mut self) {
        for member in self.members.values_mut() {
            (member.waits, member.drained) = (false, false);
        }
    }

    /// Sampling begins: what it may claim begins anew.
    pub(super) fn begin(&mut self) {
        self.room = Rules::MOST.0;
        self.samples = 0;
        (self.silent, self.by_time, self.advance) = (Nanos::ZERO, false, 0);
    }
}

impl Shared {
    pub(super) fn joined(
        &mut self,
        container: ContainerId,
        process: ProcessId,
        gated: bool,
        (class, compute): (u16, Compute),
    ) {
        let owner = self.owners.get(&process);
        if owner.is_some_and(|owner| *owner != container) {
            return;
        }
        let fresh = !self.tenants.contains_key(&container);
        if fresh {
            self.epochs += 1;
            let came = Tenant::new(class, compute, (self.epochs, self.now));
            self.tenants.insert(container, came);
        }
        self.owners.insert(process, container);
        if let Some(tenant) = self.tenants.get_mut(&container) {
            let member = tenant.members.entry(process).or_insert_with(|| Member {
                gated,
                away: false,
                idle: false,
                waits: false,
                drained: false,
                seen: Work::default(),
            });
            member.gated = gated;
        }
        if fresh {
            self.reweigh();
        }
        self.tell_ungated();
    }

    pub(super) fn left(&mut self, process: ProcessId) {
        let Some(container) = self.owners.remove(&process) else {
            return;
        };
        let gone = self.tenants.get_mut(&container).is_some_and(|tenant| {
            tenant.members.remove(&process);
            tenant.members.is_empty()
        });
        if gone {
            self.tenants.remove(&container);
            self.reweigh();
        }
    }

    pub(super) fn set(&mut self, container: ContainerId, class: u16, compute: Compute) {
        if let Some(tenant) = self.tenants.get_mut(&container) {
            (tenant.class, tenant.compute) = (class, compute);
            tenant.bucket = compute.cap().map(|cap| Bucket::under(tenant.bucket, cap));
            tenant.dry &= tenant.bucket.is_some();
            tenant.promise = compute
                .request
                .map(|part| Promise::under(tenant.promise, part));
            tenant.due &= tenant.promise.is_some();
        }
        self.reweigh();
    }

    /// Deals the weights of each class: a request is its own weight, the rest is shared equally by
    /// those without.
    fn reweigh(&mut self) {
        let terms = |tenant: &Tenant| (tenant.class, tenant.compute.request);
        let requests = requests(self.tenants.values().map(terms));
        for tenant in self.tenants.values_mut() {
            let of_class = requests.get(&tenant.class).copied().unwrap_or_default();
            tenant.weight = weight(tenant.compute.request, of_class);
        }
    }

    /// Takes a report about the present position of a tenant's gate.
    pub(super) fn report(&mut self, process: ProcessId, epoch: u64, say: impl FnOnce(&mut Member)) {
        let owner = self.owners.get(&process);
        let known = owner.and_then(|container| self.tenants.get(container));
        if known.is_some_and(|tenant| tenant.epoch == epoch) {
            self.say(process, say);
        }
    }

    pub(super) fn say(&mut self, process: ProcessId, say: impl FnOnce(&mut Member)) {
        let owner = self.owners.get(&process);
        let tenant = owner.and_then(|container| self.tenants.get_mut(container));
        if let Some(member) = tenant.and_then(|tenant| tenant.members.get_mut(&process)) {
            say(member);
        }
    }

    /// What each tenant did in the last `span`, by its processes' pages.
    pub(super) fn read(
        &mut self,
        works: &[(ProcessId, Work)],
        span: Nanos,
    ) -> BTreeMap<ContainerId, Done> {
        let mut all: BTreeMap<ContainerId, Done> = BTreeMap::new();
        for (process, work) in works {
            let Some(container) = self.owners.get(process) else {
                continue;
            };
            let tenant = self.tenants.get_mut(container);
            let Some(member) = tenant.and_then(|tenant| tenant.members.get_mut(process)) else {
                continue;
            };
            let seen = std::mem::replace(&mut member.seen, *work);
            if !member.gated || member.away {
                continue;
            }
            let pending = pending(&seen, work, (self.now, span));
            let done = all.entry(*container).or_default();
            let served = work.service.saturating_sub(seen.service);
            done.service = done.service.saturating_add(served);
            done.guessed |= work.guessed;
            done.works |= work.since.is_some();
            // Processes that work side by side: at least one of them.
            done.pending = 1000 - (1000 - done.pending) * (1000 - pending) / 1000;
        }
        all
    }

    /// Says of each tenant that shares the device and has a process without a gate that this one is
    /// not steered.
    fn tell_ungated(&mut self) {
        if self.tenants.len() < 2 {
            return;
        }
        for (container, tenant) in &mut self.tenants {
            let ungated = tenant.members.values().any(|member| !member.gated);
            if ungated && !std::mem::replace(&mut tenant.told_ungated, true) {
                let container = *container;
                self.outputs.push_back(Output::Ungated { container });
            }
        }
    }
}

/// For how much of the last `span` a process had work pending, in thousandths.
fn pending(seen: &Work, work: &Work, (now, span): (Nanos, Nanos)) -> u64 {
    let began = now - span;
    // What is counted since, less what of it was known then.
    let counted = seen.since.map_or(0, |since| (began - since).0);
    let ended = work.busy.saturating_sub(seen.busy);
    let ended = if ended > 0 {
        ended.saturating_sub(counted)
    } else {
        0
    };
    let runs = work.since.map_or(0, |since| (now - since.max(began)).0);
    ended.saturating_add(runs).min(span.0) * 1000 / span.0.max(1)
}
