//! The state for `ps`, `devices`, `doctor` and for the free memory that programs see.

use super::World;
use super::pending::Want;
use crate::decision::Why;
use crate::ids::{AskKey, DeviceId, ProcessId, TenantId};
use crate::residency::Place;
use crate::spec::{Quota, TenantSpec};
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// A tenant's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for admission.
    Queued {
        /// Since when.
        since: Nanos,
    },
    /// It may run.
    Running,
    /// It may run and has done no GPU work for its `idle_after`.
    Idle {
        /// Since when.
        since: Nanos,
    },
    /// It is being ended.
    Ending,
}

/// An account as shown. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// Where.
    pub device: DeviceId,
    /// Request and limit.
    pub quota: Quota,
    /// The credit that its processes may hold.
    pub grant: Bytes,
    /// The part of its charges that is on the host and not on the card.
    pub away: Bytes,
    /// The part of the grant that is booked on the card.
    pub booked: Bytes,
    /// Where its movable memory is. `None`: it cannot be moved.
    pub place: Option<Place>,
    /// The part of the grant that is known or assumed to be charged.
    pub in_use: Bytes,
    /// The driver's memory beside it.
    pub overhead: Bytes,
    /// Memory that the device shows beyond all that.
    pub excess: Bytes,
    /// Memory that its dead processes still hold.
    pub limbo: Bytes,
    /// The most that its living processes may hold as credit together: the limit less the charged
    /// memory that its dead processes still hold.
    pub ceiling: Bytes,
}

/// A dead process that still holds memory. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadView {
    /// Which.
    pub process: ProcessId,
    /// Its tenant, as long as that is registered.
    pub tenant: Option<TenantId>,
    /// Where.
    pub device: DeviceId,
    /// The bytes it holds.
    pub bytes: Bytes,
    /// The part of that which was charged.
    pub charged: Bytes,
}

/// An ask that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitView {
    /// The ask.
    pub ask: AskKey,
    /// Where.
    pub device: DeviceId,
    /// For how much.
    pub bytes: Bytes,
    /// Since when.
    pub since: Nanos,
    /// The latest end.
    pub until: Nanos,
}

/// A tenant as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantView {
    /// Which.
    pub tenant: TenantId,
    /// Its state.
    pub state: State,
    /// Its accounts; none while it is queued.
    pub accounts: Vec<AccountView>,
    /// Its waiting asks.
    pub waiting: Vec<WaitView>,
    /// When it will be ended, by the current state.
    pub ends: Option<EndView>,
}

/// When a tenant will be ended, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndView {
    /// When it is told to end. Of one that was told: when its processes are killed; now, once that
    /// was done.
    pub at: Nanos,
    /// Why.
    pub why: Why,
    /// It was told to end.
    pub told: bool,
}

/// A device as shown. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Which.
    pub device: DeviceId,
    /// Capacity less reserve.
    pub usable: Bytes,
    /// Grants, overhead, excess, limbo and unmanaged together: I1 says at most `usable`.
    pub taken: Bytes,
    /// The part of `taken` and of requests not used yet that may not be taken back.
    pub firm: Bytes,
    /// Bytes of dead processes.
    pub limbo: Bytes,
    /// Bytes of processes that belong to no tenant.
    pub unmanaged: Bytes,
    /// Whether each tenant that swaps could come back, one at a time: then its turn is certain.
    pub rotates: bool,
    /// Asks that wait.
    pub waiting: usize,
}

/// Where a tenant's movable memory is on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidenceView {
    /// Where.
    pub place: Place,
    /// For how long.
    pub since: Nanos,
    /// Whether a command moved it out, and it has not called since.
    pub suspended: bool,
    /// The part of its charges that is on the host, as looks showed. Bytes.
    pub away: Bytes,
    /// Host memory reserved for it. Bytes.
    pub host: Bytes,
    /// How often it has left.
    pub left: u64,
    /// The memory that was moved so far, both ways. Bytes.
    pub moved: Bytes,
}

impl World {
    /// The time so far in which memory of tenants was on its way to or from a device: moves at the
    /// same time count once. It never falls.
    pub fn moving(&self, device: DeviceId) -> Nanos {
        self.residency.moving(self.timers.now(), device)
    }

    /// Where a tenant's movable memory is on a device. `None`: it cannot be moved.
    pub fn residence(&self, tenant: TenantId, device: DeviceId) -> Option<ResidenceView> {
        let resident = self.residency.get(device, tenant)?;
        let account = self.ledger.account(device, tenant)?;
        // Until a process of it comes its place is as it was at its admission.
        let admitted = self.tenants.get(tenant)?.admitted();
        let since = resident.since().max(admitted.unwrap_or_default());
        let (left, moved) = resident.moves();
        Some(ResidenceView {
            place: resident.place(),
            since: self.timers.now() - since,
            suspended: resident.is_suspended(),
            away: account.away,
            host: resident.host(),
            left,
            moved,
        })
    }

    /// All tenants, by id.
    pub fn tenants(&self) -> impl Iterator<Item = TenantView> {
        let all = self.tenants.all();
        all.filter_map(|(tenant, _)| self.tenant(tenant))
    }

    /// All devices, by id.
    pub fn devices(&self) -> impl Iterator<Item = DeviceView> {
        let all = self.ledger.all();
        all.filter_map(|(device, _)| self.device(device))
    }

    /// One tenant.
    pub fn tenant(&self, tenant: TenantId) -> Option<TenantView> {
        let known = self.tenants.get(tenant)?;
        let state = match known.admitted() {
            None => State::Queued {
                since: known.registered(),
            },
            Some(_) if known.ending().is_some() => State::Ending,
            Some(_) if known.is_idle() => State::Idle {
                since: known.worked(),
            },
            Some(_) => State::Running,
        };
        let accounts = known
            .spec()
            .quotas
            .iter()
            .filter_map(|(device, _)| self.account(tenant, *device));
        let members = self.tenants.members(tenant);
        let asks = members.flat_map(|(process, _)| self.asks.of(process));
        let waiting = asks.map(|(ask, pending)| {
            let bytes = match pending.want {
                Want::Context { cost, .. } => cost,
                Want::Credit { bytes, .. } | Want::Physical { bytes, .. } => bytes,
            };
            WaitView {
                ask,
                device: pending.device,
                bytes,
                since: pending.since,
                until: pending.until,
            }
        });
        Some(TenantView {
            tenant,
            state,
            accounts: accounts.collect(),
            waiting: waiting.collect(),
            ends: self.end_view(tenant),
        })
    }

    /// A tenant's grant on a device, in bytes, where that is above its limit or was under the
    /// previous daemon: the limit was lowered below what it holds. Else 0.
    pub fn above(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let account = self.ledger.account(device, tenant);
        let most = account.map(|account| (account.grant.max(account.above), account.limit));
        most.filter(|(most, limit)| most > limit)
            .map_or(Bytes::ZERO, |(most, _)| most)
    }

    /// One tenant's account on one device.
    pub fn account(&self, tenant: TenantId, device: DeviceId) -> Option<AccountView> {
        let account = self.ledger.account(device, tenant)?;
        Some(AccountView {
            device,
            quota: Quota {
                request: account.request,
                limit: account.limit,
            },
            grant: account.grant,
            away: account.away,
            booked: account.on_card(),
            place: self.place(tenant, device),
            in_use: account.in_use,
            overhead: account.overhead,
            excess: account.excess,
            limbo: account.limbo,
            ceiling: account.ceiling(),
        })
    }

    /// A tenant's limits as they are now, admitted or not.
    pub fn spec(&self, tenant: TenantId) -> Option<&TenantSpec> {
        self.tenants.get(tenant).map(|known| known.spec())
    }

    /// One device.
    pub fn device(&self, device: DeviceId) -> Option<DeviceView> {
        let books = self.ledger.get(device)?;
        let total = books.total();
        Some(DeviceView {
            device,
            usable: books.usable(),
            taken: total.taken,
            firm: total.firm,
            limbo: books.in_limbo(),
            unmanaged: books.unmanaged(),
            rotates: books.rotates_in() <= books.usable(),
            waiting: self.asks.count_on(device),
        })
    }

    /// All dead processes that still hold memory.
    pub fn dead(&self) -> impl Iterator<Item = DeadView> {
        self.ledger.all().flat_map(|(device, books)| {
            books.limbo().map(move |(process, entry)| DeadView {
                process,
                tenant: entry.tenant,
                device,
                bytes: entry.bytes,
                charged: entry.charged,
            })
        })
    }

    /// The time of the last event.
    pub fn now(&self) -> Nanos {
        self.timers.now()
    }

    /// How many wait for memory of a device: asks, and tenants that wait to return.
    pub fn waiting_on(&self, device: DeviceId) -> usize {
        self.asks.count_on(device) + self.returning(device).count()
    }

    /// The tenants that may have to leave a device for whose memory one waits: which of them are at
    /// work decides which one does.
    pub fn rotating(&self) -> impl Iterator<Item = TenantId> {
        let devices = self.ledger.devices().into_iter();
        devices.flat_map(|device| self.rotating_on(device))
    }

    /// The same on one device.
    pub fn rotating_on(&self, device: DeviceId) -> impl Iterator<Item = TenantId> {
        let waited = self.waiting_on(device) > 0;
        waited.then(|| self.judged_on(device)).into_iter().flatten()
    }

    /// The free memory that the tenant's programs see: what it could charge now, without waiting
    /// and without ending another, and at least the rest of its request. That is guaranteed: an ask
    /// within it takes back what others borrow.
    pub fn grantable(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let Some(account) = self.ledger.account(device, tenant) else {
            return Bytes::ZERO;
        };
        let guaranteed = account.request - account.limbo_charged - account.in_use;
        let left = account.ceiling() - account.in_use;
        self.chargeable(tenant, device).max(guaranteed.min(left))
    }

    /// The bytes that the tenant's charges may come to in any case: its request, less what its dead
    /// processes hold of it. Where facts have made the device lack a part of what is promised, any
    /// tenant may be the one that misses it.
    pub fn assured(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let Some(books) = self.ledger.get(device) else {
            return Bytes::ZERO;
        };
        books.account(tenant).map_or(Bytes::ZERO, |account| {
            account.request - account.limbo_charged - books.over_promised()
        })
    }

    /// The memory that the tenant could still charge now, without waiting and without ending
    /// another.
    fn chargeable(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let Some(books) = self.ledger.get(device) else {
            return Bytes::ZERO;
        };
        let Some(account) = books.account(tenant) else {
            return Bytes::ZERO;
        };
        let left = account.ceiling() - account.in_use;
        if account.loan.paged {
            // Bytes that the card has no room for are on the host.
            return left;
        }
        let others = books.unused() - account.unused();
        // Memory on the host has to come back before more is granted.
        let more = books.slack().taken + others - books.deficit() - account.away;
        let within = account.request - account.grant;
        let beyond = if account.loan.revocable {
            more
        } else {
            let priority = self.tenants.priority(tenant);
            within + (books.slack().firm - self.kept_for_admission(device, priority))
        };
        let most = (account.unused() + more.min(beyond)).min(left);
        books.beside_returns(tenant, account.in_use, most)
    }

    /// Whether a tenant that holds so much may charge so much more, and nobody has to make room on
    /// the device for that, not even by giving back what it does not use. What programs with
    /// managed memory see as free says nothing of this: of that only what is booked needs room.
    pub fn fits(&self, tenant: TenantId, device: DeviceId, (held, bytes): (Bytes, Bytes)) -> bool {
        let Some(books) = self.ledger.get(device) else {
            return false;
        };
        let growth = books.growth(tenant, held + bytes, Bytes::ZERO).taken;
        growth <= books.slack().taken && self.chargeable(tenant, device) >= bytes
    }
}
