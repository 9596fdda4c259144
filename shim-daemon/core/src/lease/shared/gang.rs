//! A gang's tenant on a shared device: never ordered to submit in slices, and closed only where its
//! gang is closed.
//!
//! A tenant in slices waits until all its streams are empty, and the streams of a gang may be empty
//! only after a peer on another device has run. So what this device alone would do with such a
//! tenant is a *wish*, which [`Bands`] weighs against the wishes of its other devices.
//!
//! [`Bands`]: super::super::bands::Bands

use super::Shared;
use super::bond::{Joint, Wish};
use super::filler::earns;
use super::gate::Aim;
use super::neighbours::is_neighbour;
use super::tenant::Tenant;
use crate::ids::TenantId;
use crate::time::Nanos;
use std::collections::BTreeMap;

/// The neighbours of a gang on one device: see [`is_neighbour`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// How many they are.
    pub(crate) many: i64,
    /// The sum of their lags. A lag or a lead counts for no more than others are helped from.
    pub(crate) lag: i64,
    /// The sum of their weights.
    pub(crate) weight: u64,
}

/// How a gang's tenant stands on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The gate that this device would choose.
    pub(crate) wish: Option<Wish>,
    /// The gang has used the device lately, other tenants want it, and the gang's lead there is
    /// less than the lag at which others are helped.
    pub(crate) behind: bool,
    /// The gang's lag there, and the lag from which others are helped, if it has a request there,
    /// and an equal that always has work. Of one of its tenants on a device.
    pub(crate) lag: Option<(i64, i64)>,
    /// It is silent or doubted there.
    pub(crate) apart: bool,
    /// The gang has work there that may wait for a peer.
    pub(crate) works: bool,
    /// The tenant's class.
    pub(crate) class: u16,
    /// Its neighbours there.
    pub(crate) beside: Beside,
    /// The tenant has used the device lately, or a call of it waits there.
    pub(crate) used: bool,
    /// There are other tenants, or the tenant has a cap: what is done here depends on whether the
    /// gang uses its other places.
    pub(crate) asks: bool,
}

impl Shared {
    /// A tenant belongs to a gang of which this is decided, or to no gang.
    pub(crate) fn bind(&mut self, now: Nanos, id: TenantId, joint: Option<Joint>) {
        self.pass(now);
        let Some(tenant) = self.roster.get_mut(id) else {
            return;
        };
        // Time may have filled the bucket of a cap meanwhile.
        if tenant.bind(joint) || self.wakes.is_some() {
            self.settle();
        }
    }

    /// The state of a gang's tenant, among all `mates` of the gang that are here. `None` if it is
    /// in no gang, or not here. What mates want of each other is the gang's own affair.
    pub(crate) fn gang_part(&self, now: Nanos, id: TenantId, mates: &[TenantId]) -> Option<Part> {
        let tenant = self.roster.get(id)?;
        let wish = tenant.own.bond?.wish;
        let others = self.roster.iter().filter(|(other, tenant)| {
            !mates.contains(other) && tenant.is_active() && tenant.is_pending(self.now)
        });
        let others: Vec<&Tenant> = others.map(|(_, other)| other).collect();
        let highest = others.iter().map(|other| other.class()).max();
        let least = self.rules.yield_at();
        let beside = others.iter().filter(|other| is_neighbour(other, tenant));
        let beside = beside.fold(Beside::default(), |all, one| Beside {
            many: all.many + 1,
            lag: all.lag + one.lag().clamp(-least, least),
            weight: all.weight + one.account.weight,
        });
        let others = highest.is_some();
        // One that is above it would have it closed too, if no mate came first.
        let outranked = highest.is_some_and(|class| class > tenant.class());
        let here = || mates.iter().filter_map(|mate| self.roster.get(*mate));
        // Where one tenant is active alone nothing is looked at, and `self.now` stands still.
        let uses = here().any(|mate| mate.is_recent(now.max(self.now)));
        let strangers = self.roster.iter().any(|(other, _)| !mates.contains(&other));
        let used = tenant.members.waits() || tenant.is_recent(now.max(self.now));
        let lag: i64 = here().map(Tenant::lag).sum();
        let for_others = others && (outranked || !self.steering.is_for(mates));
        let asks = here().any(|mate| mate.account.has_promise() && mate.is_pending(self.now));
        let counts = beside.many > 0 && asks && !outranked && mates.first() == Some(&id);
        let stuck = here().any(|mate| mate.is_recent(self.now) && !earns(mate));
        let works = here().any(|mate| mate.is_active() && mate.is_pending(self.now));
        let works = works && tenant.bond().is_some();
        // A debt where nothing is asked keeps no peer waiting.
        let wishes = |wish: &Wish| match wish {
            Wish::Throttled => used,
            Wish::Ahead | Wish::Rank => for_others,
        };
        Some(Part {
            works,
            class: tenant.class(),
            beside,
            // A lead on one device repays little of what is owed on another.
            lag: counts.then(|| (lag.max(-least), least)),
            apart: others && stuck,
            used,
            asks: tenant.account.is_capped() || strangers,
            wish: wish.filter(wishes),
            behind: others && uses && lag >= -self.rules.yield_at(),
        })
    }

    /// Records the gates that gangs' tenants would have, and sets those that their gangs have.
    pub(super) fn keep_gangs(&mut self, gates: &mut BTreeMap<TenantId, Aim>) {
        for (id, tenant) in self.roster.iter_mut() {
            if let Some(aim) = gates.get_mut(&id) {
                let outranked = self.steering.outranks(tenant.class());
                aim.gate = tenant.keep_bond(aim.gate, outranked);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::bond::Neighbours;
    use super::*;
    use crate::ids::ProcessId;
    use crate::lease::input::Report;
    use crate::lease::terms::{Compute, LeasePolicy};
    use gpushare_protocol::units::Permille;

    const ID: TenantId = TenantId(1);
    const PROCESS: ProcessId = ProcessId(1);
    const SHUT: Joint = Joint {
        shut: true,
        neighbours: Neighbours::Apart,
        loose: false,
        asked: false,
    };

    fn says(shared: &mut Shared, now: Nanos, report: Report) {
        shared.pass(now);
        shared.reported(PROCESS, 1, report);
        shared.settle();
    }

    /// For how long a cap of a tenth lasts after so long an idleness, which this ends.
    fn lasts(time: Nanos, ends: fn(&mut Shared, Nanos)) -> Option<Nanos> {
        let mut shared = Shared::new(LeasePolicy::default());
        let compute = Compute {
            request: None,
            limit: Permille::new(100),
        };
        shared.joined((ID, PROCESS, true), (500, compute));
        says(&mut shared, Nanos::ZERO, Report::Idle);
        ends(&mut shared, time);
        shared.roster.get(ID)?.account.cap_lasts()
    }

    #[test]
    fn a_cap_collects_its_part_until_the_gate_of_its_gang_moves() {
        let moves = |shared: &mut Shared, now| shared.bind(now, ID, Some(SHUT));
        let works = |shared: &mut Shared, now| says(shared, now, Report::Busy);
        let time = Nanos::millis(50);
        assert_eq!(lasts(time, moves), lasts(time, works));
        assert!(lasts(time, moves) > lasts(Nanos::ZERO, moves));
    }
}
