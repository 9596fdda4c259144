//! How much more a tenant may be granted beside the room that others need to come back.

use super::Device;
use crate::ids::TenantId;
use gpushare_protocol::units::Bytes;

impl Device {
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
