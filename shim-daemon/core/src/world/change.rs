//! Limits change while a tenant runs.
//!
//! A raised request must fit like a new one: unused grants that are in its way are called back, and
//! the change fits once they are. A lowered limit takes back unused memory at once, and
//! the rest as the tenant frees it. Until then its grant stays above the limit in the accounts,
//! because existing charges remain, while its control page shows the new limit at once. The next
//! daemon is told that grant ([`Running`](crate::Running)). Memory that it holds above a lowered
//! request is a burst like any other: an ask that needs it may take it by policy.

use super::World;
use crate::decision::Decision;
use crate::ids::{DeviceId, TenantId};
use crate::room::Room;
use crate::spec::{Quota, SpecError, TenantSpec};
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;

impl World {
    pub(super) fn set(&mut self, tenant: TenantId, mut spec: TenantSpec) {
        self.fill_in(Some(tenant), &mut spec);
        if let Err(error) = self.check_change(tenant, &spec) {
            if matches!(error, SpecError::NoRoom { .. }) {
                self.call_back_for_change(tenant, &spec);
            }
            self.decide(Decision::Refuse { tenant, error });
            return;
        }
        let Some(known) = self.tenants.get(tenant) else {
            return;
        };
        if known.admitted().is_some() {
            self.change_accounts(tenant, &spec);
        }
        self.replace(tenant, spec);
        self.spare_unless_due(tenant);
        for device in self.devices_of(tenant) {
            self.change_terms(tenant, device);
            self.trim(tenant, device);
            self.freed(device);
        }
        self.admit_waiting();
    }

    /// Calls back what others were granted and do not use, as far as the change needs it.
    fn call_back_for_change(&mut self, tenant: TenantId, spec: &TenantSpec) {
        for (device, quota) in &spec.quotas {
            let short = self.short_for_change(tenant, spec, *device, *quota);
            let short = Room {
                taken: Bytes::ZERO,
                firm: short - self.lowering(*device).firm,
            };
            self.reclaim_unused(*device, Some(tenant), short);
        }
    }

    fn replace(&mut self, tenant: TenantId, spec: TenantSpec) {
        let Some(known) = self.tenants.set_spec(tenant, spec) else {
            return;
        };
        if known.admitted().is_some() {
            if !known.is_idle() {
                self.timers.set(Timer::Idle(tenant), known.idle_at());
            }
            self.check_end(tenant);
        }
    }

    fn change_accounts(&mut self, tenant: TenantId, spec: &TenantSpec) {
        for (device, quota) in &spec.quotas {
            let cost = self.context_cost(*device);
            self.ledger.change(*device, tenant, |account| {
                account.set(*quota, spec.loan(), cost)
            });
        }
    }

    fn check_change(&self, tenant: TenantId, spec: &TenantSpec) -> Result<(), SpecError> {
        let known = self.tenants.get(tenant).ok_or(SpecError::Unknown)?;
        self.check_spec(tenant, spec, |device| {
            let account = self.ledger.account(device, tenant);
            account.map(|account| account.request)
        })?;
        let same = known.spec().quotas.len() == spec.quotas.len()
            && known
                .spec()
                .quotas
                .iter()
                .all(|(device, _)| spec.quota(*device).is_some());
        if !same {
            return Err(SpecError::Devices);
        }
        if known.spec().oversubscribe != spec.oversubscribe {
            return Err(SpecError::Oversubscribe);
        }
        if known.admitted().is_none() {
            return Ok(());
        }
        spec.quotas.iter().try_for_each(|(device, quota)| {
            let device = *device;
            let short = self.short_for_change(tenant, spec, device, *quota);
            if !short.is_zero() {
                return Err(SpecError::NoRoom { device, short });
            }
            let short = self.short_for_returns(tenant, spec, device, *quota);
            if !short.is_zero() {
                return Err(SpecError::NoReturn { device, short });
            }
            Ok(())
        })
    }

    /// The bytes missing for the largest tenant that moves to return, if the change keeps memory
    /// above a request from being taken back. Requests are exempt.
    fn short_for_returns(
        &self,
        tenant: TenantId,
        spec: &TenantSpec,
        device: DeviceId,
        quota: Quota,
    ) -> Bytes {
        let books = self.ledger.get(device);
        let Some((books, now)) = books.and_then(|books| Some((books, books.account(tenant)?)))
        else {
            return Bytes::ZERO;
        };
        let cost = self.context_cost(device);
        let with = |loan| {
            let mut account = now.clone();
            account.set(quota, loan, cost);
            account
        };
        books.short_for_returns(tenant, &with(now.loan), &with(spec.loan()))
    }

    /// The bytes missing to keep the memory firm that the change makes firm; zero if it adds no
    /// firm memory.
    fn short_for_change(
        &self,
        tenant: TenantId,
        spec: &TenantSpec,
        device: DeviceId,
        quota: Quota,
    ) -> Bytes {
        let Some(books) = self.ledger.get(device) else {
            return Bytes::ZERO;
        };
        let Some(account) = books.account(tenant) else {
            return Bytes::ZERO;
        };
        // Limbo and excess are temporary and firm memory is not, so they must not cover for it.
        let mut now = account.clone();
        (now.limbo, now.limbo_charged, now.excess) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        let mut after = now.clone();
        after.set(quota, spec.loan(), self.context_cost(device));
        let more = after.room().firm - now.room().firm;
        if more.is_zero() {
            Bytes::ZERO
        } else {
            books.total().firm + more - books.usable()
        }
    }
}
