//! Requests that a limit in percent implies follow what contexts take.
//!
//! Such a request is the rest of the tenant's part of the device beside its own contexts. It falls
//! as they grow and rises as they turn out smaller than expected. So as many equal parts as fit a
//! device run on it side by side. A request in bytes, or an explicit one, is never changed.

use super::World;
use super::tenants::Tenant;
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::part::Implied;
use crate::room::Room;
use crate::spec::TenantSpec;
use gpushare_protocol::units::Bytes;

impl World {
    /// Replaces the requests that `spec` implies by their current values. `tenant` may be
    /// registered already.
    pub fn fill_in(&self, tenant: Option<TenantId>, spec: &mut TenantSpec) {
        for (device, implied) in spec.implied.clone() {
            let request = self.implied_request(tenant, device, implied);
            for (_, quota) in spec.quotas.iter_mut().filter(|(on, _)| *on == device) {
                quota.request = request.min(quota.limit);
            }
        }
    }

    fn implied_request(
        &self,
        tenant: Option<TenantId>,
        device: DeviceId,
        implied: Implied,
    ) -> Bytes {
        let cost = self.context_cost(device);
        let Some(books) = self.ledger.get(device) else {
            return Bytes::ZERO;
        };
        let known = tenant.and_then(|tenant| {
            let before = self.tenants.get(tenant)?.spec().implied(device);
            Some((books.account(tenant)?, before))
        });
        match known {
            // A change of something else leaves it as it is: it may have been cut.
            Some((account, before)) if before == Some(implied) => account.request,
            Some((account, _)) => implied.request(books.usable(), contexts(account).max(cost)),
            None => {
                let request = implied.request(books.usable(), cost);
                request - self.cut(device, request, cost)
            }
        }
    }

    /// How much less is guaranteed to a newcomer with an implied request because tenants with
    /// implied requests use more than theirs, within their limits. It starts with the rest of its
    /// part instead of waiting for all of it.
    fn cut(&self, device: DeviceId, request: Bytes, cost: Bytes) -> Bytes {
        let Some(books) = self.ledger.get(device) else {
            return Bytes::ZERO;
        };
        let short = books.total().firm + request + cost - books.usable();
        let beyond = books.accounts().filter_map(|(tenant, account)| {
            self.tenants.get(tenant)?.spec().implied(device)?;
            (!account.loan.revocable).then(|| account.in_use - account.request)
        });
        let cut = short.min(beyond.sum());
        if cut < request { cut } else { Bytes::ZERO }
    }

    /// The request that a tenant's limit implies if its contexts take so much `more`; it does not
    /// rise by that. `None`: it implies none.
    pub(super) fn request_beside(
        &self,
        tenant: TenantId,
        device: DeviceId,
        more: Bytes,
    ) -> Option<Bytes> {
        let implied = self.tenants.get(tenant)?.spec().implied(device)?;
        let books = self.ledger.get(device)?;
        let account = books.account(tenant)?;
        let promise = account.promise_of(self.context_cost(device));
        let contexts = (account.overhead + more).max(promise);
        let request = implied.request(books.usable(), contexts);
        Some(request.min(account.request))
    }

    /// Updates this tenant's implied requests while it waits for its admission.
    pub(super) fn resolve_queued(&mut self, tenant: TenantId) {
        let Some(known) = self.tenants.get(tenant) else {
            return;
        };
        if known.admitted().is_none() && !known.spec().implied.is_empty() {
            let mut spec = known.spec().clone();
            self.fill_in(None, &mut spec);
            self.tenants.set_spec(tenant, spec);
        }
    }

    /// Updates all implied requests on a device by the measured contexts there. A raised request
    /// takes nothing from other tenants.
    pub(super) fn follow_parts(&mut self, device: DeviceId) {
        let cost = self.context_cost(device);
        let implies = |(tenant, known): (TenantId, &Tenant)| {
            let implied = known.spec().implied(device)?;
            known.admitted().map(|_| (tenant, implied))
        };
        let followers: Vec<_> = self.tenants.all().filter_map(implies).collect();
        for (tenant, implied) in followers {
            self.follow_part(tenant, device, implied, cost);
        }
    }

    /// As [`Self::follow_parts`] for one tenant.
    pub(super) fn follow_parts_of(&mut self, tenant: TenantId, device: DeviceId) {
        let known = self.tenants.get(tenant);
        if let Some(implied) = known.and_then(|known| known.spec().implied(device)) {
            let cost = self.context_cost(device);
            self.follow_part(tenant, device, implied, cost);
        }
    }

    fn follow_part(&mut self, tenant: TenantId, device: DeviceId, implied: Implied, cost: Bytes) {
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        let (usable, free) = (books.usable(), books.slack().firm);
        let followed = books.change(tenant, |account| {
            let mut after = account.clone();
            after.request = implied
                .request(usable, contexts(account).max(account.promise_of(cost)))
                .min(account.limit);
            if !after.request.is_zero() {
                after.promise = after.promise_of(cost);
            }
            let mut more = after.room().firm - account.room().firm - free;
            if after.request <= account.request {
                more = Bytes::ZERO;
            } else if !more.is_zero() {
                after.request = (after.request - more).max(account.request);
                after.promise = account.promise;
            }
            let changed = after.request != account.request;
            *account = after;
            (changed.then_some(account.request), more)
        });
        let (request, missing) = followed.unwrap_or_default();
        if !missing.is_zero() {
            let coming = self.lowering(device).firm;
            let short = Room {
                taken: Bytes::ZERO,
                firm: missing - coming,
            };
            self.reclaim_unused(device, Some(tenant), short);
        }
        let Some(request) = request else { return };
        if let Some(known) = self.tenants.get_mut(tenant) {
            known.set_request(device, request);
        }
    }
}

/// The measured or reserved memory of an account's contexts.
fn contexts(account: &Account) -> Bytes {
    account.overhead.max(account.promise)
}
