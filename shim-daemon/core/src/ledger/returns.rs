//! How much more a tenant may be granted beside the room that others need to come back.

use super::{Account, Device};
use crate::ids::TenantId;
use crate::room::Room;
use gpushare_protocol::units::Bytes;

impl Device {
    /// How the sums grow if a tenant's grant becomes `level`, or its overhead grows by `overhead`.
    /// A growth that would keep a tenant from coming back needs more than the firm memory there is.
    pub(crate) fn growth(&self, tenant: TenantId, level: Bytes, overhead: Bytes) -> Room {
        self.growth_to(tenant, level, overhead, None)
    }

    /// The same if its request becomes another one by that.
    pub(crate) fn growth_to(
        &self,
        tenant: TenantId,
        level: Bytes,
        overhead: Bytes,
        request: Option<Bytes>,
    ) -> Room {
        let Some(account) = self.accounts.get(&tenant) else {
            return Room::both(Bytes::MAX);
        };
        let mut grown = account.grown(level, self.bookable(tenant), overhead);
        grown.request = request.unwrap_or(grown.request);
        let mut growth = grown.room() - account.room();
        if self.loans.is_empty() && !account.loan.moves {
            return growth;
        }
        let after = self.rotates_with(tenant, &grown);
        let over = after - self.usable();
        if after > self.rotates_in() && !over.is_zero() && !self.may_open(tenant, (account, &grown))
        {
            growth.firm = growth.firm.max(self.slack().firm + over);
        }
        growth
    }

    /// Whether a growth is a context that may take of the room to return: that is taken already, by
    /// requests or facts, and would be there again beside all else, were those gone.
    fn may_open(&self, tenant: TenantId, (before, after): (&Account, &Account)) -> bool {
        let opens = after.grant == before.grant && after.overhead > before.overhead;
        if !opens || self.rotates_in() <= self.usable() {
            return false;
        }
        let others = self.accounts.iter().filter(|(other, _)| **other != tenant);
        let others: Bytes = others.map(|(_, one)| one.fixed_beside_request()).sum();
        let loan = self.largest_loan(None).unwrap_or_default();
        others + after.fixed_beside_request() + loan <= self.usable()
    }

    /// So much of `most` bytes as a tenant that uses `in_use` may be granted beyond that: within
    /// its request, or as far as each tenant with a loan can still come back.
    pub(crate) fn beside_returns(&self, tenant: TenantId, in_use: Bytes, most: Bytes) -> Bytes {
        let Some(account) = self.account(tenant) else {
            return Bytes::ZERO;
        };
        let firm = self.slack().firm;
        let fits = |more: Bytes| {
            let level = in_use + more;
            let guaranteed = level <= account.request && account.limbo.is_zero();
            guaranteed || self.growth(tenant, level, Bytes::ZERO).firm <= firm
        };
        if fits(most) {
            return most;
        }
        let (mut least, mut over) = (0, most.0);
        while over - least > 1 {
            let middle = least + (over - least) / 2;
            match fits(Bytes(middle)) {
                true => least = middle,
                false => over = middle,
            }
        }
        Bytes(least)
    }
}
