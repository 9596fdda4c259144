//! Which tenants' pages must be read before a decision.
//!
//! Which tenants are moved or ended depends on which are idle, and the daemon reads their usage
//! pages only now and then. So before such a decision the daemon gets the list of tenants from
//! here, reads their pages, and reports those that worked. No request waits for that.

use super::World;
use crate::event::Event;
use crate::ids::{DeviceId, TenantId};
use crate::time::Nanos;
use crate::timers::Timer;
use std::collections::BTreeSet;

impl World {
    /// The tenants whose work may decide what this event leads to, if it comes at `now`. Few events
    /// need any: an ask that fits does not.
    pub fn judged_by(&self, now: Nanos, event: &Event) -> BTreeSet<TenantId> {
        let mut judged = self.judged_until(now);
        if let Some(device) = self.collides(event) {
            judged.extend(self.judged_on(device));
        }
        judged
    }

    /// The tenants whose work may decide what comes of it that it is `now`.
    pub fn judged_until(&self, now: Nanos) -> BTreeSet<TenantId> {
        let mut judged = BTreeSet::new();
        for timer in self.timers.due_until(now) {
            match timer {
                // It may count as idle then, which may let others go on, or be ended for that.
                Timer::Idle(tenant) | Timer::End(tenant) => {
                    judged.insert(tenant);
                    let devices = self.devices_of(tenant).into_iter();
                    judged.extend(devices.flat_map(|device| self.rotating_on(device)));
                }
                Timer::Settle(device) | Timer::Move(device, _) => {
                    judged.extend(self.rotating_on(device));
                }
                Timer::Patience(ask) => {
                    let pending = self.asks.get(ask).into_iter();
                    judged.extend(pending.flat_map(|pending| self.rotating_on(pending.device)));
                }
                _ => {}
            }
        }
        judged
    }

    /// These tenants were seen to have worked. As [`Event::Worked`], but before anything is decided
    /// that was due until `now`.
    pub fn worked_before(&mut self, now: Nanos, tenants: impl IntoIterator<Item = TenantId>) {
        self.timers.pass(now);
        for tenant in tenants {
            self.worked(tenant);
        }
    }

    /// The device on which an event may make others leave.
    fn collides(&self, event: &Event) -> Option<DeviceId> {
        match event {
            Event::Open { device, .. }
            | Event::OpenMore { device, .. }
            | Event::OpenAgain { device, .. }
            | Event::DriverRefused { device, .. }
            | Event::WantsIn { device, .. } => Some(*device),
            Event::Ask {
                process,
                device,
                held,
                bytes,
                ..
            } => {
                let asker = self.tenants.process(*process)?.tenant();
                let fits = self.fits(asker, *device, (*held, *bytes));
                (!fits || self.waiting_on(*device) > 0).then_some(*device)
            }
            _ => None,
        }
    }

    /// The tenants on a device that may have to leave it if they do nothing: they can be moved, or
    /// may be ended.
    pub(super) fn judged_on(&self, device: DeviceId) -> impl Iterator<Item = TenantId> {
        let rotation = self.residency.on(device).into_iter();
        let movable = rotation.flat_map(|rotation| rotation.all().map(|(tenant, _)| tenant));
        let books = self.ledger.get(device).into_iter();
        let lent = books.flat_map(|books| books.accounts());
        let lent = lent.filter(|(_, account)| account.loan.killable && account.over_request());
        movable.chain(lent.map(|(tenant, _)| tenant))
    }
}
