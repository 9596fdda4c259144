//! A return that begins while its victims still leave.
//!
//! The tenant that returns is the *follower*. Of its memory so much is withheld as is not promised
//! room yet: that part is away in its account, and its control page says how much it is. As looks
//! show the victims' memory gone, the same bytes pass from their accounts to the follower's, so the
//! sum of all accounts never rises. The last byte is withheld until no victim can fail any more.
//!
//! If a victim fails, the follower gives back what it has, and the victim becomes a follower of
//! that. Why: ADR 148.

use crate::decision::{Decision, Notice};
use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::residency::{Place, Resident};
use crate::time::Nanos;
use crate::world::World;
use crate::world::ladder::Rung;
use crate::world::moves::movers::Asker;
use crate::world::tenants::Tenant;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// Of a victim's memory this part is looked at together, and so much at least: a look takes a
/// driver a few milliseconds at worst.
const STEPS: u64 = 16;
const STEP: Bytes = Bytes::mib(64);
/// How often a follower without a victim that moves is looked after.
const BEAT: Nanos = Nanos::millis(50);

impl World {
    /// The tenants that may be in such pairs on a device, with their accounts.
    fn pairs(&self, device: DeviceId) -> impl Iterator<Item = (TenantId, &Resident, &Account)> {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        all.filter_map(move |(tenant, resident)| {
            let account = self.ledger.account(device, tenant)?;
            (!account.loan.paged).then_some((tenant, resident, account))
        })
    }

    /// Followers, and what is withheld of each.
    fn followers(&self, device: DeviceId) -> impl Iterator<Item = (TenantId, Bytes)> {
        let all = self.pairs(device).filter(|(_, resident, account)| {
            resident.place() == Place::Entering && !account.away.is_zero()
        });
        all.map(|(tenant, _, account)| (tenant, account.away))
    }

    /// Whether a tenant returns of which a part is withheld.
    pub(super) fn is_follower(&self, tenant: TenantId, device: DeviceId) -> bool {
        self.followers(device).any(|(one, _)| one == tenant)
    }

    /// The followers that may have to give back what they have brought: one at most.
    pub(super) fn early_returns(&self, device: DeviceId) -> impl Iterator<Item = TenantId> {
        let all = self.followers(device).map(|(tenant, _)| tenant);
        all.filter(move |tenant| {
            let resident = self.residency.get(device, *tenant);
            resident.is_some_and(|resident| resident.early.is_some())
        })
    }

    fn early(&self, device: DeviceId) -> Option<TenantId> {
        self.early_returns(device).next()
    }

    /// The bytes withheld of all followers. The first bytes that become free are theirs.
    pub(in crate::world) fn withheld(&self, device: DeviceId) -> Bytes {
        self.followers(device).map(|(_, bytes)| bytes).sum()
    }

    /// The bytes that are withheld for followers that end: any tenant may have them then.
    pub(in crate::world) fn let_go(&self, device: DeviceId) -> Bytes {
        let ends = |tenant| {
            let ending = self.tenants.get(tenant).and_then(Tenant::ending);
            ending.is_some_and(|ending| matches!(ending.rung, Rung::Terminated | Rung::Killed))
        };
        let all = self.followers(device).filter(|(tenant, _)| ends(*tenant));
        all.map(|(_, bytes)| bytes).sum()
    }

    /// The part of what is withheld of a tenant that is on its way: its end gives that, too.
    pub(in crate::world) fn comes_for(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let own = self.followers(device).find(|(one, _)| *one == tenant);
        own.map_or(Bytes::ZERO, |(_, bytes)| {
            bytes.min(self.arriving(device).0.taken)
        })
    }

    /// Whether a tenant that is out may return by and by, as tenants leave that do so already and
    /// whose memory is enough with what is free. There is one such return at a time.
    pub(super) fn may_follow(&self, tenant: TenantId, device: DeviceId, short: Bytes) -> bool {
        let Some(own) = self.ledger.account(device, tenant) else {
            return false;
        };
        let moving = self.pairs(device).filter(|(_, one, _)| {
            let left = matches!(one.place(), Place::Leaving | Place::Confirming);
            left && !one.taken_back
        });
        let coming: Bytes = moving
            .map(|(_, _, account)| account.gives() - account.away)
            .sum();
        let mut members = self.tenants.members(tenant);
        self.policy.swap.duplex
            && !own.loan.paged
            && self.followers(device).next().is_none()
            && short <= coming
            && members.all(|(_, known)| known.is_movable() && known.is_here())
    }

    /// Orders a tenant to return of which so much stays withheld, and sets room aside for the rest.
    pub(super) fn follow(&mut self, tenant: TenantId, device: DeviceId, withheld: Bytes) {
        self.ledger.change(device, tenant, |account| {
            account.away = withheld.min(account.away);
        });
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.early = resident.returns();
        }
        self.return_by_parts(tenant, device);
    }

    /// Orders a tenant to return, all but what is away in its account.
    pub(super) fn return_by_parts(&mut self, tenant: TenantId, device: DeviceId) {
        self.tell_withheld(tenant, device);
        self.go(tenant, device, Place::Entering, true);
    }

    /// Says in a tenant's control page how much of its return is withheld.
    pub(super) fn tell_withheld(&mut self, tenant: TenantId, device: DeviceId) {
        let account = self.ledger.account(device, tenant);
        let bytes = account.map_or(Bytes::ZERO, |account| account.away);
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        let bytes = if resident.held { Bytes::MAX } else { bytes };
        if resident.withheld != bytes {
            resident.withheld = bytes;
            self.decide(Decision::Withhold {
                tenant,
                device,
                bytes,
            });
        }
    }

    /// So much less of a follower's return is withheld.
    fn let_in(&mut self, tenant: TenantId, device: DeviceId, bytes: Bytes) {
        if bytes.is_zero() {
            return;
        }
        let now = self.timers.now();
        self.ledger.change(device, tenant, |account| {
            account.away -= bytes;
        });
        self.tell_withheld(tenant, device);
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.progress(now);
        }
        self.set_move_timer(tenant, device);
    }

    /// A victim has made progress: it is looked at once that is a step.
    pub(super) fn look_at_step(&mut self, tenant: TenantId, device: DeviceId) {
        let moving = self.residency.get(device, tenant);
        let account = moving.zip(self.ledger.account(device, tenant));
        let due = account.is_some_and(|(resident, account)| {
            let step = Bytes(account.in_use.0 / STEPS).max(STEP);
            resident.place() == Place::Leaving && resident.told_away() >= account.away + step
        });
        let early = self.early(device);
        let account = early.and_then(|early| self.ledger.account(device, early));
        if due && account.is_some_and(|account| account.away > Bytes(1)) {
            self.decide(Decision::Resample { device });
        }
    }

    /// A look that was `taken` then shows what the processes of victims hold: what is gone of it
    /// passes to the follower.
    pub(super) fn hand_over(
        &mut self,
        device: DeviceId,
        taken: Nanos,
        living: &BTreeMap<TenantId, Bytes>,
    ) {
        let Some(follower) = self.early(device) else {
            return;
        };
        let gone = self
            .pairs(device)
            .filter_map(|(tenant, resident, account)| {
                let leaves = resident.place() == Place::Leaving && taken > resident.leaves();
                let used = living.get(&tenant).copied().unwrap_or_default();
                let seen = account.in_use - (used - account.overhead);
                let more = seen.min(resident.told_away()) - account.away;
                (leaves && !more.is_zero()).then_some((tenant, more))
            });
        for (tenant, more) in gone.collect::<Vec<_>>() {
            let left = self.ledger.account(device, follower);
            let left = left.map_or(Bytes::ZERO, |account| account.away);
            // Complete, it could no longer give anything back.
            let more = more.min(left - Bytes(1));
            self.ledger.change(device, tenant, |account| {
                account.away += more;
            });
            self.let_in(follower, device, more);
        }
    }

    /// Free memory of a device goes to followers first, then to victims whose room is with nobody
    /// any more.
    pub(in crate::world) fn feed(&mut self, device: DeviceId) {
        if self.residency.on(device).is_none() {
            return;
        }
        let early = self.early(device);
        let free = |world: &Self| {
            let books = world.ledger.get(device);
            books.map_or(Bytes::ZERO, |books| books.slack().taken)
        };
        let failing = self.handed_over(device).next().is_some();
        for (tenant, left) in self.followers(device).collect::<Vec<_>>() {
            let most = match early == Some(tenant) && failing {
                true => left - Bytes(1),
                false => left,
            };
            let more = most.min(free(self));
            self.let_in(tenant, device, more);
        }
        if early.is_none() {
            for (tenant, left) in self.handed_over(device).collect::<Vec<_>>() {
                let more = left.min(free(self));
                self.ledger.change(device, tenant, |account| {
                    account.away -= more;
                });
            }
        }
        let entering = self.pairs(device);
        let entering = entering.filter(|(_, one, _)| one.place() == Place::Entering);
        let entering: Vec<TenantId> = entering.map(|(tenant, ..)| tenant).collect();
        for tenant in entering {
            // Processes that end, or free memory, leave less of it.
            self.tell_withheld(tenant, device);
        }
    }

    /// Victims that may still fail, and what they have handed over.
    fn handed_over(&self, device: DeviceId) -> impl Iterator<Item = (TenantId, Bytes)> {
        let all = self.pairs(device);
        let all = all.filter(|(_, one, _)| one.place() == Place::Leaving && !one.taken_back);
        all.filter(|(_, _, account)| !account.away.is_zero())
            .map(|(tenant, _, account)| (tenant, account.away))
    }

    /// Whether all that is withheld of followers is on its way.
    fn promise_holds(&self, device: DeviceId) -> bool {
        self.withheld(device) <= self.arriving(device).0.taken
    }

    /// A victim does not leave that has handed memory over: the follower gives it back.
    pub(super) fn take_back(&mut self, device: DeviceId) {
        if let Some(tenant) = self.early(device) {
            self.give_up_return(tenant, device);
        }
    }

    /// A victim does not leave: too little may be on its way now.
    pub(super) fn keep_promise(&mut self, device: DeviceId) {
        if !self.promise_holds(device) {
            self.take_back(device);
        }
    }

    pub(super) fn give_up_return(&mut self, tenant: TenantId, device: DeviceId) {
        let account = self.ledger.account(device, tenant);
        let bytes = account.map_or(Bytes::ZERO, |account| account.away);
        self.notice(Notice::NoReturn {
            tenant,
            device,
            bytes,
        });
        self.drop_return(tenant, device);
    }

    /// What a return has brought has to go again.
    pub(super) fn drop_return(&mut self, tenant: TenantId, device: DeviceId) {
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.take_back();
        }
        self.go(tenant, device, Place::Leaving, true);
    }

    /// A return that found no room, as the device has lost memory since it began: it is taken back
    /// where another tenant can make way, for which it waits in the line. `false`: it goes on. So
    /// does one of which a process is back: that works, and need not come to an end.
    pub(super) fn waits_anew(&mut self, tenant: TenantId, device: DeviceId) -> bool {
        let bytes = self.in_use(tenant, device);
        let books = self.ledger.get(device);
        let lacks = books.is_some_and(|books| !books.deficit().is_zero());
        let own = self.ledger.account(device, tenant);
        let paged = own.is_none_or(|account| account.loan.paged);
        let Some(resident) = self.residency.get(device, tenant) else {
            return false;
        };
        let since = resident.begun();
        let asker = Asker {
            tenant,
            guaranteed: self.returns_within_request(tenant, device),
            since,
            rotates: true,
        };
        let sealed = resident.can_when_connected() && !resident.is_partly_back();
        let rested = self.timers.now() >= resident.backs_off();
        let may = resident.refused && !paged && lacks && sealed && rested;
        if !may || self.movers(device, asker, &[]).is_empty() {
            return false;
        }
        if !self.reserve(device, tenant, bytes) {
            return false;
        }
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.early = Some(since);
        }
        self.give_up_return(tenant, device);
        true
    }

    /// When a follower is looked after next.
    pub(super) fn follower_due(&self) -> Nanos {
        self.timers.now() + BEAT
    }

    /// Looks after a follower. It gives up where the memory that it waits for no longer comes.
    pub(super) fn look_after(&mut self, tenant: TenantId, device: DeviceId) {
        let now = self.timers.now();
        let Some(resident) = self.residency.get(device, tenant) else {
            return;
        };
        if resident.refused && now >= resident.since() + self.policy.swap.backoff.0 {
            self.go(tenant, device, Place::Entering, false);
            return;
        }
        let over = now >= resident.since() + self.policy.swap.look_grace;
        self.decide(Decision::Resample { device });
        self.settle(device);
        if over && self.is_follower(tenant, device) && !self.promise_holds(device) {
            self.give_up_return(tenant, device);
        } else {
            self.set_move_timer(tenant, device);
        }
    }
}
