//! Time limits: which tenants are idle, and which have reached their idle or run limit.

use super::World;
use crate::decision::{Notice, Why};
use crate::ids::TenantId;
use crate::time::Nanos;
use crate::timers::Timer;

impl World {
    /// GPU work of a tenant moved on. Its timers are left alone: when they fire they look again.
    pub(super) fn worked(&mut self, tenant: TenantId) {
        let now = self.timers.now();
        let Some(known) = self
            .tenants
            .get_mut(tenant)
            .filter(|known| known.admitted().is_some())
        else {
            return;
        };
        if known.work(now) {
            let at = known.idle_at();
            self.timers.set(Timer::Idle(tenant), at);
            self.notice(Notice::Active { tenant });
        }
        let ending = self.tenants.get(tenant).and_then(|known| known.ending());
        if ending.is_some_and(|ending| {
            ending.why == Why::Idle && ending.rung == super::ladder::Rung::Terminated
        }) {
            self.spare(tenant);
        }
    }

    pub(super) fn check_idle(&mut self, tenant: TenantId) {
        let now = self.timers.now();
        let Some(known) = self.tenants.get_mut(tenant) else {
            return;
        };
        let at = known.idle_at();
        if now < at {
            self.timers.set(Timer::Idle(tenant), at);
            return;
        }
        known.rest();
        self.notice(Notice::Idle { tenant });
        for device in self.devices_of(tenant) {
            self.settle(device);
        }
    }

    /// Warns or ends a tenant whose time is up, else sets a timer for the earliest such time.
    pub(super) fn check_end(&mut self, tenant: TenantId) {
        if self.is_recovering() {
            // Its processes have not reconnected yet: they could not be warned.
            return;
        }
        let (now, warning) = (self.timers.now(), self.policy.end_warning);
        let Some((at, why)) = self.end_of(tenant) else {
            self.timers.stop(Timer::End(tenant));
            return;
        };
        if at <= now {
            self.end(tenant, why);
            return;
        }
        let waits = self.call_waits(tenant);
        let Some(known) = self.tenants.get_mut(tenant) else {
            return;
        };
        let warning = match (why, known.spec().idle_end) {
            // One that works puts its idle end off again and again, and is not about to end.
            (Why::Idle, Some(idle_end)) => warning.min(Nanos(idle_end.0 / 2)),
            _ => warning,
        };
        if now < at - warning {
            self.timers.set(Timer::End(tenant), at - warning);
            return;
        }
        self.timers.set(Timer::End(tenant), at);
        if !(waits && why == Why::Idle) && known.warn(at) {
            self.notice(Notice::EndsSoon { tenant, at, why });
        }
    }

    /// When it is to end, and by which limit; `None` without such a limit, if it is ending already,
    /// or if what is left of it outlived that. While a call waits for the tenant's turn on a
    /// device, the idle limit does not run.
    pub(super) fn end_of(&self, tenant: TenantId) -> Option<(Nanos, Why)> {
        let known = self.tenants.get(tenant);
        known.filter(|known| known.ending().is_none() && !known.has_outlived())?;
        let limits = [Why::RunLimit, Why::Idle].into_iter();
        let ends = limits.filter_map(|limit| Some((self.limit_of(tenant, limit)?, limit)));
        ends.min_by_key(|(at, _)| *at)
    }

    /// When this limit of its own is reached, if it has that.
    pub(super) fn limit_of(&self, tenant: TenantId, limit: Why) -> Option<Nanos> {
        let known = self.tenants.get(tenant)?;
        match limit {
            Why::RunLimit => Some(known.admitted()? + known.spec().run_limit?),
            Why::Idle => {
                let worked = match self.call_waits(tenant) {
                    true => self.timers.now(),
                    false => known.worked(),
                };
                Some(worked + known.spec().idle_end?)
            }
            Why::Collision { .. } => None,
        }
    }
}
