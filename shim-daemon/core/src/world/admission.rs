//! Admission: which tenants may start.
//!
//! A tenant is admitted when its request, and one context on each device where it has one, fits on
//! all its devices beside all firm memory. Otherwise it queues by priority, then age. A tenant
//! behind it does not overtake it on a device where both have a request. A request of zero never
//! queues.

use super::World;
use crate::decision::Decision;
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::room::Room;
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeSet;

impl World {
    /// Whether memory freed on this device can have admitted a tenant. Only the first that waits
    /// for it is checked, because all others there are behind it.
    pub(super) fn may_admit(&mut self, device: DeviceId) -> bool {
        let wants = |tenant: &TenantId| {
            let quota = self
                .tenants
                .get(*tenant)
                .and_then(|known| known.spec().quota(device));
            quota.is_some_and(|quota| !quota.request.is_zero())
        };
        let first = self.tenants.queued().find(wants);
        first.is_some_and(|tenant| {
            self.resolve_queued(tenant);
            let needs = self.admission_needs(tenant);
            self.fits_all(&needs)
        })
    }

    /// The queued tenant that this one, which would fit, waits behind: the first before it that
    /// asks for a part of one of its devices.
    pub fn queues_behind(&self, tenant: TenantId) -> Option<TenantId> {
        let needs = self.admission_needs(tenant);
        let fits = needs.iter().all(|(device, firm)| {
            let books = self.ledger.get(*device);
            books.is_some_and(|books| books.total().firm + *firm <= books.usable())
        });
        let before = self.tenants.queued().take_while(|other| *other != tenant);
        let mut before = before.filter(|other| {
            let theirs = self.admission_needs(*other);
            let mut devices = theirs.iter().map(|(device, _)| device);
            devices.any(|device| needs.iter().any(|(own, _)| own == device))
        });
        before.next().filter(|_| fits)
    }

    /// Admits the tenants whose turn has come.
    pub(super) fn admit_waiting(&mut self) {
        if self.is_recovering() {
            return;
        }
        let mut taken: BTreeSet<DeviceId> = BTreeSet::new();
        for tenant in self.tenants.queued().collect::<Vec<_>>() {
            self.resolve_queued(tenant);
            let needs = self.admission_needs(tenant);
            let blocked = needs.iter().any(|(device, _)| taken.contains(device));
            if !blocked && self.fits_all(&needs) {
                self.admit(tenant, self.timers.now());
                continue;
            }
            taken.extend(needs.into_iter().map(|(device, _)| device));
        }
    }

    /// The memory that must be firm for this tenant, per device.
    pub(super) fn admission_needs(&self, tenant: TenantId) -> Vec<(DeviceId, Bytes)> {
        let Some(known) = self.tenants.get(tenant) else {
            return Vec::new();
        };
        let guaranteed = known
            .spec()
            .quotas
            .iter()
            .filter(|(_, quota)| !quota.request.is_zero());
        guaranteed
            .map(|(device, quota)| (*device, quota.request + self.context_cost(*device)))
            .collect()
    }

    /// Whether all needs fit; where one does not, unused grants that are in the way are called
    /// back.
    fn fits_all(&mut self, needs: &[(DeviceId, Bytes)]) -> bool {
        let mut fits = true;
        for (device, firm) in needs {
            let Some(books) = self.ledger.get(*device) else {
                return false;
            };
            let short = books.total().firm + *firm - books.usable();
            if !short.is_zero() {
                fits = false;
                let coming = self.lowering(*device).firm;
                self.reclaim_unused(
                    *device,
                    None,
                    Room {
                        taken: Bytes::ZERO,
                        firm: short - coming,
                    },
                );
            }
        }
        fits
    }

    /// Admits it, however little room there is; it has run `since`.
    pub(super) fn admit(&mut self, tenant: TenantId, since: Nanos) {
        let now = self.timers.now();
        let Some(known) = self.tenants.admit(tenant, since, now) else {
            return;
        };
        let (quotas, loan) = (known.spec().quotas.clone(), known.spec().loan());
        let idle_at = known.idle_at();
        for (device, quota) in quotas {
            let cost = self.context_cost(device);
            if let Some(books) = self.ledger.get_mut(device) {
                let capacity = books.capacity();
                books.open(tenant, Account::new(quota, loan, cost, capacity));
                let booked = books.bookable(tenant);
                books.change(tenant, |account| account.book(booked));
            }
            if loan.moves && self.ledger.get(device).is_some() {
                self.residency.add(device, tenant);
                self.claims_nothing(tenant, device);
            }
        }
        self.decide(Decision::Admit { tenant });
        self.timers.set(Timer::Idle(tenant), idle_at);
        self.check_end(tenant);
        for device in self.devices_of(tenant) {
            self.settle(device);
        }
    }

    /// Firm memory that a better tenant waits for on this device: bursts of lower ones leave it
    /// alone.
    pub(super) fn kept_for_admission(&self, device: DeviceId, priority: u16) -> Bytes {
        let better = self.tenants.queued_above(priority);
        let needs = better.flat_map(|tenant| self.admission_needs(tenant));
        needs
            .filter(|(wanted, _)| *wanted == device)
            .map(|(_, firm)| firm)
            .next()
            .unwrap_or_default()
    }
}
