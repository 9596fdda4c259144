//! Reconciliation: the device's own figures against the accounts.
//!
//! A sample gives overhead (a process's memory beyond its charges), limbo (memory that dead
//! processes still hold), excess (a tenant's memory beyond all its grants) and unmanaged memory (of
//! processes that belong to no tenant). It is the one source of truth that no tenant can forge.

use super::World;
use crate::decision::Notice;
use crate::event::{ProcessSample, Sample};
use crate::ids::{CostClass, DeviceId, ProcessId, TenantId};
use crate::ledger::{Account, Device};
use crate::limbo::Limbo;
use crate::spec::Policy;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl World {
    pub(super) fn sampled(&mut self, device: DeviceId, sample: Sample) {
        let taken = sample.taken.min(self.timers.now());
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        if !books.sample(taken, sample.free) {
            return;
        }
        match &sample.processes {
            Some(processes) => self.by_process((device, taken), &sample, processes),
            None => {
                self.update_away(device, taken, None);
                self.settle_making(device, taken, None);
                if let Some(books) = self.ledger.get_mut(device) {
                    by_total(books, &self.policy, taken, sample.used);
                }
            }
        }
        self.confirm(device, taken);
        self.show_grants(device);
        self.facts_changed(device);
        self.end_overdue(device, taken);
        self.book_managed(device);
    }

    fn by_process(
        &mut self,
        (device, taken): (DeviceId, Nanos),
        sample: &Sample,
        processes: &[ProcessSample],
    ) {
        let (used, mut strangers) = (sample.used, sample.strangers);
        let expected = self.context_cost(device);
        let mut ours = Bytes::ZERO;
        let mut dead: BTreeMap<ProcessId, Bytes> = BTreeMap::new();
        let mut living: BTreeMap<TenantId, Bytes> = BTreeMap::new();
        for seen in processes {
            if let Some(tenant) = self.holder(seen.process, device) {
                *living.entry(tenant).or_default() += seen.used;
                ours += seen.used;
                self.measure((device, taken), tenant, *seen);
            } else if self
                .ledger
                .get(device)
                .is_some_and(|books| books.holds(seen.process))
            {
                *dead.entry(seen.process).or_default() += seen.used;
                ours += seen.used;
            } else {
                strangers += seen.used;
            }
        }
        let mut unlisted = used - ours - strangers;
        let mut gaps = self.gaps((device, taken), unlisted, &living, &sample.charged);
        let known = gaps.fill_as_before(unlisted);
        unlisted -= known;
        ours += known;
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        let entries = books.limbo().map(|(id, entry)| (id, *entry));
        let mut entries: Vec<(ProcessId, Limbo)> = entries.collect();
        // A process that died after the sample was taken lived in it: its memory comes first.
        let had_died = |entry: &Limbo| entry.since < taken;
        entries.sort_by_key(|(_, entry)| had_died(entry));
        // A device may no longer list a process, or all of its memory, before it gives that back:
        // memory that was not unlisted before.
        let mut late = unlisted - books.unlisted();
        for (process, entry) in entries {
            let listed = dead.get(&process).copied().unwrap_or_default();
            let died = had_died(&entry);
            let counts = entry.since + self.policy.limbo_grace(&entry) > self.timers.now();
            let most = if counts || !died { late } else { Bytes::ZERO };
            let held = (entry.bytes - listed).min(most);
            let all = (entry.bytes + entry.evictable - listed).min(most);
            late -= all;
            unlisted -= all;
            ours += all;
            // Of how much stays the sample says nothing, if the process died after it.
            if died {
                books.exhume(process, listed + held);
            }
        }
        let more = unlisted - books.unlisted();
        let late = self.not_gone(device, more, &mut gaps, &mut living);
        let known = late + gaps.fill(unlisted - late);
        unlisted -= known;
        ours += known;
        self.explain(device, taken, gaps, &mut living);
        let kept = self.drop_kept(device, &mut living);
        if let Some(books) = self.ledger.get_mut(device) {
            books.set_unmanaged(used - ours, unlisted);
            books.kept = kept;
        }
        self.lapse_unseen(device, taken, processes);
        self.settle_making(device, taken, Some(processes));
        self.update_away(device, taken, Some(&living));
        self.update_excess(device, &living);
        self.update_late(device, &living);
        self.learned(device, expected);
    }

    /// The tenant to which a live process's memory on the device belongs; `None` if the process
    /// holds it from before it became another program.
    fn holder(&self, process: ProcessId, device: DeviceId) -> Option<TenantId> {
        let known = self.tenants.process(process)?;
        let books = self.ledger.get(device)?;
        let there = known.on(device).is_some() || !books.holds(process);
        there.then_some(known.tenant())
    }

    /// A process's memory beyond its charges, if its slot did not change around the sample.
    fn measure(
        &mut self,
        (device, taken): (DeviceId, Nanos),
        tenant: TenantId,
        seen: ProcessSample,
    ) {
        let (most, expected) = (self.policy.most_overhead, self.context_cost(device));
        let now = self.timers.now();
        // While some of it may be on the host, its charges say nothing of what is on the card.
        let steady = self.residency.is_in_since(device, tenant, taken);
        let Some(process) = self.tenants.process_mut(seen.process) else {
            return;
        };
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        let Some(account) = books.account(tenant) else {
            return;
        };
        let paged = account.loan.paged;
        let fresh = process.on(device).is_none();
        let opened = process.open(device, expected.min(seen.used), now);
        let before = if fresh {
            Bytes::ZERO
        } else {
            opened.overhead()
        };
        let mut learned: Option<(CostClass, Bytes)> = None;
        // Nor do those of managed memory of which a part is on the host, or that is not listed.
        // What a tenant with managed memory shows beyond its charges is at most a context: it says
        // nothing if it is less than one was taken for.
        let least = if paged {
            opened.overhead()
        } else {
            Bytes::ZERO
        };
        let tells = |charged: &Bytes| {
            let is_all = charged.is_zero() || seen.used - *charged >= least;
            steady && *charged <= seen.used && is_all
        };
        if let Some(charged) = seen.charged.filter(tells) {
            let first = opened.measure((seen.used - charged).min(most), taken);
            if first && !seen.used.is_zero() {
                learned = Some((books.class(), opened.overhead()));
            }
        } else {
            opened.take_at_most(seen.used);
        }
        let after = opened.overhead();
        if before != after {
            books.change(tenant, |account| {
                account.overhead = account.overhead - before + after
            });
        }
        if let Some((class, overhead)) = learned {
            self.costs.learn(class, overhead, most);
        }
    }

    /// Updates the memory that tenants freed and that the device showed in use when it was last
    /// looked at: it may be free now.
    fn update_late(&mut self, device: DeviceId, living: &BTreeMap<TenantId, Bytes>) {
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        let late = books
            .accounts()
            .filter(|(_, account)| !account.late.is_zero());
        let late: Vec<TenantId> = late.map(|(tenant, _)| tenant).collect();
        for tenant in late {
            let used = living.get(&tenant).copied().unwrap_or_default();
            books.change(tenant, |account| {
                let shown = used - account.overhead + account.away;
                let page = account.used_by_page();
                account.in_use = account.in_use.min(page.max(shown));
                account.late = account.in_use - page;
                account.away = account.away.min(account.in_use);
                if account.late.is_zero() {
                    account.judged = None;
                }
            });
        }
    }

    /// Updates the memory that each tenant holds beyond grant and overhead. Such memory can only
    /// come from a bypass or a forged page.
    fn update_excess(&mut self, device: DeviceId, living: &BTreeMap<TenantId, Bytes>) {
        let Some(books) = self.ledger.get(device) else {
            return;
        };
        let excess = |(tenant, account): (TenantId, &Account)| {
            let used = living.get(&tenant).copied().unwrap_or_default();
            let bytes = used - account.may_be_on_card() - account.overhead;
            (account.excess != bytes).then_some((tenant, bytes))
        };
        let changes: Vec<(TenantId, Bytes)> = books.accounts().filter_map(excess).collect();
        for (tenant, bytes) in changes {
            let before = self.ledger.change(device, tenant, |account| {
                std::mem::replace(&mut account.excess, bytes)
            });
            if before.is_some_and(Bytes::is_zero) {
                self.notice(Notice::Excess {
                    tenant,
                    device,
                    bytes,
                });
            }
        }
    }
}

/// Without NVML's list of processes: memory that live processes do not explain is limbo first, the
/// youngest first, then unmanaged. Managed pages can be there beyond what is booked, which leave
/// for any other memory: they are what a process left that died long ago, and no stranger's. So is
/// the memory of managed pages that have gone to the host.
fn by_total(books: &mut Device, policy: &Policy, taken: Nanos, used: Bytes) {
    let living: Bytes = books
        .accounts()
        .map(|(_, account)| {
            let on_card = account.in_use - account.away;
            on_card.min(account.booked) + account.overhead
        })
        .sum();
    let mut rest = used - living;
    let paged = books.accounts().filter(|(_, account)| account.loan.paged);
    let beyond = paged.map(|(_, account)| {
        let on_card = account.in_use - account.away;
        (on_card - account.booked + account.away, account.away)
    });
    let (beyond, kept) = beyond.fold((Bytes::ZERO, Bytes::ZERO), |all, one| {
        (all.0 + one.0, all.1 + one.1)
    });
    let mut entries: Vec<(Nanos, ProcessId, Limbo)> = books
        .limbo()
        .map(|(process, entry)| (entry.since, process, *entry))
        .collect();
    entries.sort_unstable_by_key(|(died, process, _)| (Reverse(*died), Reverse(*process)));
    for (died, process, entry) in entries {
        let most = match (died >= taken, died + policy.limbo_grace(&entry) > taken) {
            // The sample says nothing about a process that died after it was taken.
            (true, _) => Bytes::MAX,
            (false, true) => rest,
            (false, false) => rest - beyond,
        };
        let holds = entry.bytes.min(most);
        rest -= holds;
        books.exhume(process, holds);
    }
    // Memory that dead processes still hold can be given to no tenant.
    books.kept = kept.min(rest);
    rest -= beyond;
    books.set_unmanaged(rest, rest);
}
