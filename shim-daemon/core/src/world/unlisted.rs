//! Memory in a device's total that its list of processes lacks.
//!
//! Drivers differ in what they list. One sums the objects of each process's own clients, and pages
//! of managed memory belong to a client of its kernel module: a process that holds 30 GiB of them
//! is listed with its context alone. So memory that no process lists is a tenant's as far as its
//! charges go beyond what is listed of it; only the rest is unmanaged. Where managed memory is
//! listed, charges do not go beyond it, but for pages on the host.
//!
//! A tenant explains no more than it had charged all through the look: memory that it was granted
//! meanwhile may not be on the card yet, and is booked beside what is. It explains charges that its
//! account books on the card anyway, and the managed memory beyond that: the driver evicts such
//! pages for any allocation, so they count for nothing, listed or not. Nor does the memory of
//! managed pages that have gone to the host, which the driver keeps until it is needed. Memory that
//! was not unlisted before may be a dead process's, or may be leaving: it is explained by the
//! living only if it counts as neither.

use super::World;
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::residency::Place;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// A tenant's charges beyond what its processes are listed with.
#[derive(Clone, Copy, Debug)]
struct Gap {
    tenant: TenantId,
    most: Bytes,
    /// The part of it that unlisted memory filled at the last look.
    before: Bytes,
    held: Bytes,
}

/// Those of all tenants on a device.
#[derive(Debug)]
pub(in crate::world) struct Gaps(Vec<Gap>);

impl Gaps {
    /// Unlisted memory fills the gaps as far as it did before. Returns how much.
    pub(super) fn fill_as_before(&mut self, unlisted: Bytes) -> Bytes {
        self.fill_to(unlisted, |gap| gap.most.min(gap.before))
    }

    /// It fills the gaps. Returns how much.
    pub(super) fn fill(&mut self, unlisted: Bytes) -> Bytes {
        self.fill_to(unlisted, |gap| gap.most)
    }

    /// How much of unlisted memory is a tenant's so far.
    pub(in crate::world) fn held(&self, tenant: TenantId) -> Bytes {
        let own = self.0.iter().find(|gap| gap.tenant == tenant);
        own.map_or(Bytes::ZERO, |gap| gap.held)
    }

    /// So much more of it is a tenant's, whose gap is the smaller for that.
    pub(in crate::world) fn narrow(&mut self, tenant: TenantId, by: Bytes) {
        let own = self.0.iter_mut().find(|gap| gap.tenant == tenant);
        if let Some(gap) = own {
            gap.most -= by;
        }
    }

    fn fill_to(&mut self, mut unlisted: Bytes, level: impl Fn(&Gap) -> Bytes) -> Bytes {
        let mut all = Bytes::ZERO;
        for gap in &mut self.0 {
            let more = (level(gap) - gap.held).min(unlisted);
            gap.held += more;
            unlisted -= more;
            all += more;
        }
        all
    }
}

impl World {
    /// The gaps at a look that was `taken` then and that shows this as `living`: those that are
    /// filled, or were at the last look. Where nothing is `unlisted` none is filled.
    pub(super) fn gaps(
        &self,
        (device, taken): (DeviceId, Nanos),
        unlisted: Bytes,
        living: &BTreeMap<TenantId, Bytes>,
        charged: &BTreeMap<TenantId, Bytes>,
    ) -> Gaps {
        let books = self.ledger.get(device).into_iter();
        let gap = |(tenant, account): (TenantId, &Account)| {
            let most = || {
                let listed = living.get(&tenant).copied().unwrap_or_default();
                // An overhead that is above all that is listed is a guess.
                let shown = listed - account.overhead;
                // A charge of a moment ago may be memory that the look came too early for.
                let charged = charged.get(&tenant).copied().unwrap_or_default();
                let in_use = account.used_by_page().min(charged);
                self.beyond((in_use, shown), (tenant, account), device, taken)
            };
            let gap = Gap {
                tenant,
                most: (!unlisted.is_zero()).then(most).unwrap_or_default(),
                before: account.unlisted,
                held: Bytes::ZERO,
            };
            (!gap.most.is_zero() || !gap.before.is_zero()).then_some(gap)
        };
        let accounts = books.flat_map(|books| books.accounts());
        Gaps(accounts.filter_map(gap).collect())
    }

    /// Adds what fills the gaps to what is `living`. Most looks show the same as the last one.
    pub(super) fn explain(
        &mut self,
        device: DeviceId,
        taken: Nanos,
        gaps: Gaps,
        living: &mut BTreeMap<TenantId, Bytes>,
    ) {
        for gap in gaps.0 {
            let (tenant, held) = (gap.tenant, gap.held);
            if held != gap.before {
                let steady = self.residency.is_in_since(device, tenant, taken);
                self.ledger.change(device, tenant, |account| {
                    if steady || account.loan.paged {
                        account.unlisted = held;
                    }
                });
            }
            if !held.is_zero() {
                *living.entry(tenant).or_default() += held;
            }
        }
    }

    /// The memory of so much `in_use` that a tenant may have had on the card beyond what was shown
    /// of it, at a look that was `taken` then. While memory that is listed moves, no more than
    /// before.
    fn beyond(
        &self,
        (in_use, shown): (Bytes, Bytes),
        (tenant, account): (TenantId, &Account),
        device: DeviceId,
        taken: Nanos,
    ) -> Bytes {
        let most = in_use - account.away - shown;
        let Some(resident) = self.residency.get(device, tenant) else {
            return most;
        };
        match resident.place() {
            // The driver keeps the memory of pages that have left, until other memory needs it.
            Place::Confirming | Place::Out if account.loan.paged => in_use - shown,
            Place::Confirming | Place::Out => in_use - resident.told_away() - shown,
            _ if account.loan.paged => most,
            Place::Sealing => most,
            Place::In if resident.since() <= taken => most,
            Place::In | Place::Leaving | Place::Entering => most.min(account.unlisted),
        }
    }
}
