//! What is booked on the card of managed memory, when facts change.

use super::World;
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;

impl World {
    /// Books less of managed memory where more has come to stay on the card beside it: the driver
    /// evicts pages for that, or has. What facts lowered is booked again once they allow it, before
    /// others are served: its tenant is in, and leaves like any other when its stay is over.
    pub(super) fn book_what_fits(&mut self, device: DeviceId) {
        let paged = self.paged(device, |_| true);
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        for tenant in &paged {
            let most = books.bookable(*tenant);
            books.change(*tenant, |account| {
                account.booked = account.booked.min(most);
            });
        }
        for tenant in paged {
            if self.is_lowered(tenant, device)
                && let Some(books) = self.ledger.get_mut(device)
            {
                let (most, free) = (books.bookable(tenant), books.slack().taken);
                books.change(tenant, |account| {
                    let more = (account.on_card() + free).min(account.meant).min(most);
                    account.booked = account.booked.max(more);
                });
            }
        }
    }

    /// Whether facts lowered what is booked of a tenant that may have more on the card. One that
    /// leaves, or that reports its memory gone, needs none.
    fn is_lowered(&self, tenant: TenantId, device: DeviceId) -> bool {
        let resident = self.residency.get(device, tenant);
        let leaves = resident.is_some_and(|resident| resident.is_leaving());
        let account = self.ledger.account(device, tenant);
        account.filter(|_| !leaves).is_some_and(|account| {
            let gone = self.gone_by_report(device, tenant, account);
            let may_be = account.may_be_on_card().min(account.grant - gone);
            account.booked < account.meant && account.on_card() < may_be
        })
    }

    /// The tenants with managed memory on a device whose accounts are so.
    fn paged(&self, device: DeviceId, are: impl Fn(&Account) -> bool) -> Vec<TenantId> {
        let books = self.ledger.get(device).into_iter();
        let all = books.flat_map(|books| books.accounts());
        let paged = all.filter(|(_, account)| account.loan.paged && are(account));
        paged.map(|(tenant, _)| tenant).collect()
    }

    /// Books managed memory of which a part counts as on the host where the card has room for it
    /// that no ask waits for: the driver has it there, or will.
    pub(super) fn book_managed(&mut self, device: DeviceId) {
        if self.asks.count_on(device) > 0 || self.residency.is_waited(device) {
            return;
        }
        let paged = self.paged(device, |account| {
            account.on_card() < account.may_be_on_card()
        });
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        for tenant in paged {
            let (most, free) = (books.bookable(tenant), books.slack().taken);
            books.change(tenant, |account| {
                let more = (account.on_card() + free).min(most);
                account.booked = account.booked.max(more);
                account.meant = account.meant.max(account.booked);
            });
        }
    }
}
