//! The tenants that could be moved off a device, and moving them.

use crate::decision::Notice;
use crate::ids::{DeviceId, TenantId};
use crate::residency::{Place, Resident, Rotation};
use crate::resolver::{Case, Mover};
use crate::time::Nanos;
use crate::world::World;
use crate::world::tenants::Tenant;
use gpushare_protocol::units::Bytes;

/// A full host is reported at most this often for each device.
const SAID: Nanos = Nanos::secs(60);

/// The tenant for which others may be moved, and its wait.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Asker {
    pub(in crate::world) tenant: TenantId,
    /// It is within its request.
    pub(in crate::world) guaranteed: bool,
    /// Since when it waits.
    pub(in crate::world) since: Nanos,
    /// It waits in the rotation, where it is overdue after a round.
    pub(in crate::world) rotates: bool,
}

/// When a tenant may have to leave, by the rules for tenants of one device.
pub(super) struct Ends {
    /// It is above its request.
    pub(super) loan: bool,
    /// Of two that wait for memory it is the first.
    pub(super) first: bool,
    /// When it counts as idle, if it does no work until then.
    pub(super) rests: Nanos,
    /// When its stay is over, towards equals and towards better askers.
    pub(super) over: [Nanos; 2],
}

impl World {
    /// Tenants on the card that may be moved for `asker`, now or later. `before` are those that are
    /// served first.
    pub(in crate::world) fn movers(
        &self,
        device: DeviceId,
        asker: Asker,
        before: &[TenantId],
    ) -> Vec<Mover> {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| {
            let others = rotation.all();
            let others = others.filter(move |(tenant, _)| *tenant != asker.tenant);
            others.filter_map(move |(tenant, one)| {
                self.mover((device, asker), (tenant, before), (rotation, one))
            })
        });
        all.collect()
    }

    fn mover(
        &self,
        (device, asker): (DeviceId, Asker),
        (tenant, before): (TenantId, &[TenantId]),
        (rotation, resident): (&Rotation, &Resident),
    ) -> Option<Mover> {
        let (now, terms) = (self.timers.now(), &self.policy.swap);
        let account = self.ledger.account(device, tenant)?;
        let known = self.tenants.get(tenant)?;
        let loan = account.in_use > account.request;
        let cost = rotation.round_trip(account.load(), terms);
        let gives = account.gives();
        let asked = resident.place() == Place::In
            && resident.can_when_connected()
            && account.loan.moves
            && account.loan.revocable
            && known.ending().is_none()
            && !gives.is_zero();
        if !asked {
            return None;
        }
        let spread = self.is_on_others(tenant, device);
        let fixed = !loan || spread;
        let first = cost.max(terms.rest);
        let soon = (!fixed).then(|| resident.rest().after(first, terms.least_rest));
        let (since, rested) = (resident.stay().from(), rested(known, resident, soon));
        let stay = |urgent| since + rotation.stay(account.load(), urgent, terms);
        let ends = Ends {
            loan,
            // Of two that wait for memory the later one makes way, else neither ever had enough.
            first: loan && before.contains(&tenant) && self.blocked(tenant).is_some(),
            rests: rested.max(since + soon.unwrap_or(cost).min(cost)),
            over: [stay(false), stay(true)],
        };
        let stays = match (spread, loan) {
            (true, _) => self.stays_of_spread((device, asker), (tenant, resident), &ends)?,
            (_, true) if ends.first => [Nanos::MAX; 2],
            (_, true) if self.comes_later((device, asker), tenant) => {
                let [equal, urgent] = ends.over;
                let equal = equal.max(asker.since + self.round(device));
                [equal, urgent].map(|over| ends.rests.min(over))
            }
            (_, true) => ends.over.map(|over| ends.rests.min(over)),
            // Within its request a tenant stays while it is at work.
            (_, false) if known.is_idle() => [ends.rests; 2],
            (_, false) => return None,
        };
        // A connection ends a moment before its process does, or for a moment: until then its
        // memory is waited for. After that other resolvers are asked first.
        let lost = resident.disconnected();
        let lost = lost.map(|since| since + self.policy.limbo_grace);
        let stays = stays.map(|over| over.max(lost.unwrap_or_default()));
        let stuck = lost.filter(|until| *until <= now);
        let stuck = stuck.map_or(Nanos::ZERO, |_| now + terms.backoff.0);
        let host = self.all_on_host(tenant, device);
        let since = known.worked().max(resident.stay().let_on());
        let waits = spread && self.wait_of(tenant, Some(device)).is_some();
        let waits = waits && !self.is_stalled(tenant, device);
        let idle = Some(since).filter(|_| ends.rests <= now && !ends.first && !waits);
        Some(Mover {
            tenant,
            priority: known.spec().priority,
            loan,
            idle,
            gives,
            host,
            more: self.residency.more(device, tenant, host),
            used: self.used_so_far(tenant, device),
            stays: (stays[0], stays[1]),
            backs_off: Some(resident.backs_off().max(stuck)).filter(|until| *until > now),
        })
    }

    /// The memory that leaving tenants will still give back.
    pub(in crate::world) fn leaving(&self, device: DeviceId) -> Bytes {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        all.map(|(tenant, _)| self.leaving_of(tenant, device)).sum()
    }

    /// The part of that of one tenant. Its end does not give it a second time.
    pub(in crate::world) fn leaving_of(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let resident = self.residency.get(device, tenant);
        let account = self.ledger.account(device, tenant);
        let leaves = account.filter(|_| resident.is_some_and(Resident::gives_soon));
        leaves.map_or(Bytes::ZERO, |account| account.gives() - account.away)
    }

    /// Whether a tenant does nothing for as long as counts as idle where it is above its request.
    fn is_at_rest(&self, tenant: TenantId, device: DeviceId) -> bool {
        let (now, terms) = (self.timers.now(), &self.policy.swap);
        let rotation = self.residency.on(device);
        let resident = rotation.and_then(|rotation| Some((rotation, rotation.get(tenant)?)));
        let known = resident.zip(self.tenants.get(tenant));
        let known = known.filter(|_| self.wait_of(tenant, Some(device)).is_none());
        known.is_some_and(|((rotation, resident), known)| {
            let cost = rotation.round_trip(self.load(tenant, device), terms);
            let soon = resident
                .rest()
                .after(cost.max(terms.rest), terms.least_rest);
            rested(known, resident, Some(soon)) <= now
        })
    }

    /// A tenant is asked to leave for another: what comes of it teaches when it counts as idle.
    pub(super) fn note_rest(&mut self, tenant: TenantId, device: DeviceId) {
        let (now, idle) = (self.timers.now(), self.is_at_rest(tenant, device));
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.rest_mut().leaves(now, idle);
        }
    }

    /// Whether a tenant has waited for a whole round of the rotation, to return or for memory.
    pub(super) fn is_overdue_there(&self, tenant: TenantId, device: DeviceId) -> bool {
        let resident = self.residency.get(device, tenant);
        let returns = resident.and_then(Resident::returns);
        let asks = self.asks.on(device).map(|(_, pending)| pending);
        let asks = asks.filter(|pending| pending.tenant == tenant && pending.turn);
        let mut since = asks.map(|pending| pending.since).chain(returns);
        since.any(|since| self.is_overdue(device, since))
    }

    /// How long the work of a tenant that is asked to leave for `asker` may take to end at least:
    /// the longest time where that one has waited for a whole round, and twice the time of an ask
    /// that would end before a next attempt, as the tenant runs on for as long as it was sealed.
    pub(super) fn drain_for(&self, asker: TenantId, tenant: TenantId, device: DeviceId) -> Nanos {
        let terms = &self.policy.swap;
        if self.is_overdue_there(asker, device) {
            return terms.drain.1;
        }
        let resident = self.residency.get(device, tenant);
        let given = resident.map(|one| one.drain.next(terms));
        let given = given.unwrap_or_default();
        let again = self.timers.now() + given + given;
        let asks = self.asks.on(device).map(|(_, pending)| pending);
        let ends = asks.filter(|pending| pending.tenant == asker && pending.own < again);
        let time = ends.map(|pending| pending.own - pending.since).max();
        let time = time.unwrap_or_default();
        time + time
    }

    /// Begins to move the victims. Returns the memory that the device gets back.
    pub(in crate::world) fn move_all(
        &mut self,
        device: DeviceId,
        victims: &[TenantId],
        wanted_by: TenantId,
    ) -> Bytes {
        let mut given = Bytes::ZERO;
        for victim in victims {
            let account = self.ledger.account(device, *victim);
            let gives = account.map(|account| account.gives());
            if self.begin_leave(*victim, device, Some(wanted_by)) {
                given += gives.unwrap_or_default();
            }
        }
        given
    }

    /// How much of the host budget moves for this case need at least, with what is kept for one
    /// more move, and how much is free for them: the two that do not fit.
    pub(in crate::world) fn host_needed(&self, case: &Case<'_>) -> (Bytes, Bytes) {
        let movers = case.movers.iter();
        let enough = movers.clone().filter(|mover| mover.gives >= case.short);
        let (host, more) = match enough.min_by_key(|mover| mover.host) {
            Some(least) => (least.host, least.more),
            None => movers.fold((Bytes::ZERO, Bytes::ZERO), |(host, more), mover| {
                (host + mover.host, more + mover.more)
            }),
        };
        let unreserved = self.residency.host.unreserved();
        let kept = unreserved - case.host;
        match host > case.host {
            true => (host + kept, unreserved),
            false => (more, case.room),
        }
    }

    /// No tenant was moved because the host is full: moves need so much of it, and so much is free.
    pub(in crate::world) fn tell_host_full(
        &mut self,
        device: DeviceId,
        wanted: Bytes,
        (needed, free): (Bytes, Bytes),
    ) {
        let now = self.timers.now();
        let Some(rotation) = self.residency.on_mut(device) else {
            return;
        };
        if rotation.full_said.is_some_and(|at| now < at + SAID) {
            return;
        }
        rotation.full_said = Some(now);
        self.notice(Notice::HostFull {
            device,
            wanted,
            needed,
            free,
        });
    }
}

/// When a tenant counts as idle if it does no work until then: after its own time for that, `soon`
/// if that is earlier. While it waited for its turn it could not work.
fn rested(known: &Tenant, resident: &Resident, soon: Option<Nanos>) -> Nanos {
    let own = known.spec().idle_after;
    let after = soon.map_or(own, |soon| soon.min(own));
    known.worked().max(resident.stay().let_on()) + after
}
