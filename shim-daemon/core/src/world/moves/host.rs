//! The host budget: what moves may take of it, and what the store may give.

use crate::ids::{DeviceId, TenantId};
use crate::ledger::Account;
use crate::residency::{Held, HostView, Place, Resident, Rotation, STORED, Turned};
use crate::world::World;
use gpushare_protocol::units::Bytes;
use std::collections::BTreeMap;

/// Each process keeps up to a quarter more than it needs, and asks in steps of this.
const STEP: Bytes = Bytes::mib(64);

impl World {
    /// The host budget and its use.
    pub fn host(&self) -> HostView {
        self.residency.host.view()
    }

    /// How many of `bytes` of new memory the store may give a tenant, once others' memory is in
    /// files if need be: what a move of it needs, and in advance only what leaves room for a move
    /// of any other. Never much more than the tenant could have on its devices.
    ///
    /// After a restart nothing is given in advance until all had time to come: what a process has
    /// from the previous daemon counts once it has said so.
    pub fn may_give(&self, tenant: TenantId, bytes: Bytes) -> Bytes {
        let most = self.most_given(tenant, |account| account.grant);
        let host = &self.residency.host;
        let bytes = bytes.min(most - host.held(tenant).total());
        let kept = match self.is_recovering() {
            true => Bytes::MAX,
            false => self.one_more_move(tenant),
        };
        host.may_give(tenant, bytes, kept)
    }

    /// The most host memory that a daemon could have given a tenant, whatever it was granted. Also
    /// what it holds above a limit that was lowered since.
    pub fn could_have(&self, tenant: TenantId) -> Bytes {
        self.most_given(tenant, |account| account.limit.max(account.grant))
    }

    /// The most that the store gives a tenant of which so much may be on a device. Nothing where
    /// its memory stays.
    fn most_given(&self, tenant: TenantId, bytes: impl Fn(&Account) -> Bytes) -> Bytes {
        let mut devices = self.devices_of(tenant);
        devices.retain(|device| self.residency.get(*device, tenant).is_some());
        if devices.is_empty() {
            return Bytes::ZERO;
        }
        let accounts = devices.iter();
        let accounts = accounts.filter_map(|device| self.ledger.account(*device, tenant));
        let all: Bytes = accounts
            .map(|account| account.host_for(bytes(account)))
            .sum();
        let members = self.tenants.members(tenant).count() as u64;
        all + Bytes(all.0 / 4) + Bytes(STEP.0.saturating_mul(members))
    }

    /// Whether another tenant could not leave because too little of the host is free. A tenant that
    /// returns then gives back what it was given.
    pub fn is_tight_for_others(&self, tenant: TenantId) -> bool {
        self.one_more_move(tenant) > self.residency.host.free()
    }

    /// Host memory that is not given.
    pub fn free_memory(&self) -> Bytes {
        self.residency.host.free_memory()
    }

    /// Whether the files of the node may take so much more.
    pub fn may_store(&self, bytes: Bytes) -> bool {
        self.residency.host.may_store(bytes)
    }

    /// What the store has given a tenant is this now.
    pub(in crate::world) fn holds(&mut self, tenant: TenantId, held: Held) {
        if self.tenants.get(tenant).is_none() {
            return;
        }
        let before = self.residency.host.held(tenant);
        let has_room = self.residency.host.holds(tenant, held);
        if held.memory > before.memory {
            self.was_served(tenant);
        }
        if has_room {
            self.settle_waited();
        }
    }

    /// The store has given a tenant memory: a move that waits for that goes on, out of the card or
    /// back from files. Its processes say nothing meanwhile.
    fn was_served(&mut self, tenant: TenantId) {
        for device in self.devices_of(tenant) {
            self.follow_move(tenant, device, Turned::Progress);
        }
    }

    /// Less of a tenant is out than was, as a process of it has ended, or less is in use than was
    /// reserved: it gives up what is reserved for more than it has.
    pub(in crate::world) fn trim_host(&mut self, tenant: TenantId, device: DeviceId) {
        let most = self.all_on_host(tenant, device);
        let resident = self.residency.get(device, tenant);
        let out = resident.filter(|one| {
            let place = one.place();
            matches!(place, Place::Confirming | Place::Out | Place::Entering)
        });
        let Some((host, stored)) = out.map(|one| (one.host(), one.elsewhere())) else {
            return;
        };
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.set_elsewhere(stored.min(most));
        }
        if host > most {
            self.residency.reserve(device, tenant, most);
            self.settle_waited();
        }
    }

    /// The host has more room: others may leave, on any device.
    fn settle_waited(&mut self) {
        let waited = self.residency.devices().map(|(device, _)| device);
        for device in waited.collect::<Vec<_>>() {
            if self.waiting_on(device) > 0 {
                self.settle(device);
            }
        }
    }

    /// A tenant has ended, and all that the store gave it.
    pub(in crate::world) fn holds_nothing(&mut self, tenant: TenantId) {
        self.residency.host.holds(tenant, Held::default());
    }

    /// The host memory that a tenant needs when so much of its memory leaves a device. The store
    /// gives each process whole steps.
    pub(in crate::world) fn needed_on_host(
        &self,
        tenant: TenantId,
        device: DeviceId,
        bytes: Bytes,
    ) -> Bytes {
        let account = self.ledger.account(device, tenant);
        let resident = self.residency.get(device, tenant);
        in_whole_steps(account, resident, bytes)
    }

    /// The same for all of its memory there.
    pub(in crate::world) fn all_on_host(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        self.needed_on_host(tenant, device, self.in_use(tenant, device))
    }

    /// The host memory that any one tenant but this one lacks for a move, of each device, and that
    /// any one lacks for moves off all of its devices: what the store has given it serves these
    /// once. A tenant that is out has what it needs, or lies in a file of its own.
    fn one_more_move(&self, except: TenantId) -> Bytes {
        let mut all: BTreeMap<TenantId, (Bytes, Bytes)> = BTreeMap::new();
        let mut apart = Bytes::ZERO;
        for (device, rotation) in self.residency.devices() {
            let mut most = Bytes::ZERO;
            for (tenant, one) in rotation.all() {
                if tenant == except || one.place() == Place::Out {
                    continue;
                }
                let host = self.all_on_host(tenant, device);
                most = most.max(self.residency.more(device, tenant, host));
                let (before, needed) = all.entry(tenant).or_default();
                *before += one.host();
                *needed += host.max(one.host());
            }
            apart += most;
        }
        let together = all
            .into_iter()
            .map(|(tenant, (before, needed))| self.residency.more_in_all(tenant, before, needed));
        together.fold(apart, Bytes::max)
    }

    /// Host memory that moves may take now: all that is not reserved, but for the largest tenant of
    /// each device, so that one more can always be moved. `returns`: for the return of this tenant,
    /// whose own part becomes free. Also what it is once all moves under way are over, each of
    /// which ends with another tenant on the host in place of the one that came back.
    pub(in crate::world) fn host_for(
        &self,
        returns: Option<(TenantId, DeviceId)>,
    ) -> (Bytes, Bytes) {
        if self.residency.is_empty() {
            return (Bytes::ZERO, Bytes::ZERO);
        }
        let free = self.residency.host.unreserved();
        let largest = self.residency.devices().map(|(device, rotation)| {
            let books = self.ledger.get(device);
            let sizes = rotation.all().map(|(tenant, resident)| {
                let account = books.and_then(|books| books.account(tenant));
                let all = account.map_or(Bytes::ZERO, |account| account.in_use);
                in_whole_steps(account, Some(resident), all)
            });
            sizes.max().unwrap_or_default()
        });
        let kept: Bytes = largest.sum();
        let own = returns.and_then(|(tenant, device)| self.residency.get(device, tenant));
        let own = own.map_or(Bytes::ZERO, |resident| resident.host());
        let away: Bytes = self.residency.devices().map(|on| self.away_from(on)).sum();
        let lasting = self.residency.host.budget() - away;
        (free.min(free + own - kept), lasting + own - kept)
    }

    /// The host memory for all that is away from a device: only tenants that move have any.
    fn away_from(&self, (device, rotation): (DeviceId, &Rotation)) -> Bytes {
        let tenants = rotation.all().map(|(tenant, _)| tenant);
        let books = self.ledger.get(device);
        let accounts = tenants.filter_map(|tenant| books?.account(tenant));
        accounts.map(|account| account.host_for(account.away)).sum()
    }
}

/// The host memory for `bytes` of a tenant's memory.
fn in_whole_steps(account: Option<&Account>, resident: Option<&Resident>, bytes: Bytes) -> Bytes {
    let host = account.map_or(bytes, |account| account.host_for(bytes));
    let members = resident.map_or(0, |resident| resident.members()) as u64;
    match host.is_zero() {
        true => host,
        false => host + Bytes(STORED.0.saturating_mul(members.saturating_sub(1))),
    }
}
