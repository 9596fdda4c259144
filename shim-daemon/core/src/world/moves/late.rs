//! Tenants of a previous daemon. Their processes come in time, late or never, and each says where
//! its memory is. A tenant moves as a whole, so what they say decides where all of it goes.
//!
//! A tenant that this daemon found is sealed until all processes that have come have spoken. One
//! that was decided already goes on as it is while a late process says nothing: the memory of that
//! one counts as on the card, and may not come there before the books have room for it. A process
//! that has come and says nothing is waited for as long as a connection that broke. Then its tenant
//! is decided without it, and moves without it, until it speaks. Why: ADR 83.

use crate::decision::{Decision, Notice};
use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::residency::{Parts, Place, Shown};
use crate::timers::Timer;
use crate::world::World;
use gpushare_protocol::units::Bytes;

/// Less than this is not seen to be on the host: contexts are estimates.
const SEEN: Bytes = Bytes::mib(8);

impl World {
    /// A tenant of the previous daemon: its processes stay as they are until all have shown where
    /// their memory is. One that runs is sealed for that long.
    pub(in crate::world) fn find(&mut self, tenant: TenantId) {
        for device in self.devices_of(tenant) {
            let resident = self.residency.get_mut(device, tenant);
            if resident.map(|resident| resident.find()).is_some() {
                self.go(tenant, device, Place::Out, true);
            }
        }
    }

    /// A process of the previous daemon has come, with memory on a device.
    pub(in crate::world) fn awaits(&mut self, process: ProcessId, device: DeviceId) {
        self.is_member(process, device);
        let now = self.timers.now();
        let Some(known) = self.tenants.process(process) else {
            return;
        };
        let (tenant, can) = (known.tenant(), known.is_movable());
        let deficit = self.ledger.get(device).map(|books| books.deficit());
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        resident.awaits(now, process);
        if !can {
            // It says nothing: all of its memory is on the card.
            self.place_anew(tenant, device);
            return;
        }
        let may_enter = matches!(resident.place(), Place::In | Place::Entering);
        if may_enter && deficit > Some(Bytes::ZERO) {
            resident.held = true;
            self.tell_withheld(tenant, device);
        }
        self.set_silence_timer(tenant, device);
    }

    /// A process of the previous daemon shows where its memory is. Nothing counts as away before a
    /// look shows it.
    pub(in crate::world) fn shown(&mut self, process: ProcessId, device: DeviceId, shown: Shown) {
        let Some(known) = self.tenants.process(process) else {
            return;
        };
        let tenant = known.tenant();
        let (can, here, now) = (known.is_movable(), known.is_here(), self.timers.now());
        // The books begin with what it says, but not beyond what a daemon could have allowed it.
        let most = self.could_have(tenant).max(self.in_use(tenant, device));
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        if resident.place() == Place::Out {
            resident.join(now, process, can, here);
        }
        let (away, rests) = match shown {
            Shown::In | Shown::Sealed => (None, true),
            Shown::Out { away, rests } => (Some(away.min(most)), rests),
        };
        if !resident.shows(process, away, rests) {
            return;
        }
        resident.heard = Some(now);
        let (told, host) = (resident.told_away().min(most), resident.host());
        // Managed memory needs nothing of the budget.
        let account = self.ledger.account(device, tenant);
        let told = account.map_or(told, |account| account.host_for(told));
        self.residency.found(device, tenant, told.max(host));
        self.place_anew(tenant, device);
        if away.is_some() && !self.is_recovering() {
            self.decide(Decision::Resample { device });
        }
    }

    /// All processes of the previous daemon had time to come.
    pub(in crate::world) fn gather(&mut self) {
        for device in self.ledger.devices() {
            let rotation = self.residency.on(device).into_iter();
            let all = rotation.flat_map(|rotation| rotation.all());
            for tenant in all.map(|(tenant, _)| tenant).collect::<Vec<_>>() {
                self.place_anew(tenant, device);
                self.set_silence_timer(tenant, device);
            }
        }
    }

    /// When a tenant no longer waits for a process that says nothing.
    pub(super) fn set_silence_timer(&mut self, tenant: TenantId, device: DeviceId) {
        let resident = self.residency.get(device, tenant);
        let since = resident.and_then(|resident| resident.awaited_since());
        let timer = Timer::Silent(device, tenant);
        match since.filter(|_| !self.is_recovering()) {
            Some(since) => {
                let since = since.max(self.recovered);
                self.timers.set(timer, since + self.policy.limbo_grace);
            }
            None => self.timers.stop(timer),
        }
    }

    /// A tenant has waited long enough for a process that says nothing.
    pub(in crate::world) fn silence_due(&mut self, device: DeviceId, tenant: TenantId) {
        let now = self.timers.now();
        let then = now - self.policy.limbo_grace;
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        let silent = match then >= self.recovered {
            true => resident.give_up_on(then),
            false => Vec::new(),
        };
        if !silent.is_empty() {
            resident.heard = Some(now);
        }
        let complete = resident.complete();
        for process in silent {
            self.notice(Notice::Silent {
                process,
                tenant,
                device,
            });
        }
        // What the others have reported may be all now.
        if let Some(turned) = complete {
            self.follow_move(tenant, device, turned);
        }
        self.place_anew(tenant, device);
        self.set_silence_timer(tenant, device);
        self.waits_beside(tenant);
    }

    /// Decides where a tenant of the previous daemon is to be, once all of its processes that have
    /// come have shown where their memory is, or are waited for no more.
    pub(super) fn place_anew(&mut self, tenant: TenantId, device: DeviceId) {
        if self.is_recovering() {
            return;
        }
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return;
        };
        if !resident.is_due() {
            return;
        }
        if resident.is_empty() {
            self.has_nothing(tenant, device);
            return;
        }
        let (place, parts, complete) = (resident.place(), resident.parts(), resident.complete());
        let held = std::mem::take(&mut resident.held);
        match place {
            Place::Out => self.place_sealed(tenant, device, parts),
            Place::In if parts.out || self.is_seen_out(tenant, device, parts) => {
                self.unite(tenant, device);
            }
            Place::Entering if !self.missing_for(tenant, device).is_zero() => {
                self.unite(tenant, device);
            }
            Place::Sealing => {
                if let Some(turned) = complete {
                    self.follow_move(tenant, device, turned);
                }
            }
            Place::Leaving => {
                let bytes = self.in_use(tenant, device);
                self.reserve(device, tenant, bytes);
            }
            // The late one has yet to leave.
            Place::Confirming if parts.here => {
                self.leave_whole(tenant, device, false);
            }
            Place::In | Place::Entering | Place::Confirming => (),
        }
        if held {
            self.tell_withheld(tenant, device);
        }
    }

    /// Where a sealed tenant goes. One of which nothing is out runs on.
    fn place_sealed(&mut self, tenant: TenantId, device: DeviceId, parts: Parts) {
        let bytes = self.in_use(tenant, device);
        let resident = self.residency.get(device, tenant);
        let told = resident.map_or(Bytes::ZERO, |resident| resident.told_away());
        match (parts.out, parts.here) {
            (false, true) if self.is_seen_out(tenant, device, parts) => {
                self.unite(tenant, device);
            }
            (false, true) => {
                self.ledger.change(device, tenant, |account| {
                    account.away = Bytes::ZERO;
                });
                self.residency.reserve(device, tenant, Bytes::ZERO);
                self.go(tenant, device, Place::In, false);
                self.facts_changed(device);
            }
            (true, true) => self.unite(tenant, device),
            // All are sealed, and some were on their way. What rests has nothing left that could
            // leave: an order would be obeyed at once, and be taken for a move.
            (true, false) if told < bytes && parts.moving && !parts.silent => {
                self.leave_whole(tenant, device, false);
            }
            // It is out, or none has spoken.
            _ => (),
        }
    }

    /// Brings together a tenant that is partly out. Nothing is copied but what is out, if the card
    /// has room for that and the tenant works, or less is out than is not, or the rest cannot
    /// leave. Else the rest leaves too. If that cannot leave, or the host has no room for it, its
    /// processes stay as they are, sealed, until the rotation has made room on the card.
    fn unite(&mut self, tenant: TenantId, device: DeviceId) {
        let (all, missing) = (
            self.in_use(tenant, device),
            self.missing_for(tenant, device),
        );
        let idle = self.tenants.get(tenant).is_none_or(|known| known.is_idle());
        let Some(resident) = self.residency.get(device, tenant) else {
            return;
        };
        let (place, out) = (resident.place(), resident.told_away());
        let fixed = !resident.can_when_connected();
        let works = match place {
            Place::Out => resident.returns().is_some(),
            // It enters because it waited to return: it would lose that wish.
            Place::Entering => true,
            _ => !idle,
        };
        let stays = out <= all - out && !resident.is_suspended();
        if missing.is_zero() && (works || fixed || stays) {
            self.enter(tenant, device);
        } else if resident.early.is_some() {
            self.give_up_return(tenant, device);
        } else if missing.is_zero() || missing > self.unused_of_others(tenant, device) {
            if !self.leave_whole(tenant, device, works) {
                self.stay_split(tenant, device, works);
            }
        } else {
            // What others do not use is enough, and is taken back at once.
            self.stay_split(tenant, device, true);
        }
        self.facts_changed(device);
    }

    /// All of a tenant leaves. A process whose memory is out answers no order to be sealed, so the
    /// order is to leave at once. `returns`: it waits to come back. `false`: the host has no room,
    /// or one of its processes cannot move.
    fn leave_whole(&mut self, tenant: TenantId, device: DeviceId, returns: bool) -> bool {
        let now = self.timers.now();
        let bytes = self.in_use(tenant, device);
        let resident = self.residency.get(device, tenant);
        let can = resident.is_some_and(|resident| resident.can_when_connected());
        if !can || !self.reserve(device, tenant, bytes) {
            return false;
        }
        self.ledger.change(device, tenant, |account| {
            if account.loan.paged {
                account.away = Bytes::ZERO;
            }
        });
        self.go(tenant, device, Place::Leaving, true);
        self.tell_gates(tenant, device);
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.split = true;
            // A part of it has left before: how long the rest takes says nothing of the link.
            resident.heard = Some(now);
            if returns {
                resident.comes_back(now);
            }
        }
        true
    }

    /// A tenant stays partly out, and all of it is sealed. `returns`: it waits to come back.
    pub(super) fn stay_split(&mut self, tenant: TenantId, device: DeviceId, returns: bool) {
        let now = self.timers.now();
        if self.place(tenant, device) != Some(Place::Out) {
            self.go(tenant, device, Place::Out, true);
            self.tell_gates(tenant, device);
        }
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.split = true;
            if returns {
                resident.comes_back(now);
            }
        }
        self.decide(Decision::Resample { device });
    }

    /// Tenants that are partly out leave as a whole once the host has room, while others wait.
    pub(in crate::world) fn leave_split(&mut self, device: DeviceId) {
        let now = self.timers.now();
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        let split = all.filter(|(tenant, one)| {
            let due = one.split && one.place() == Place::Out && one.backs_off() <= now;
            due && self.is_waited_by_others(*tenant, device)
        });
        for (tenant, returns) in split
            .map(|(tenant, one)| (tenant, one.waits()))
            .collect::<Vec<_>>()
        {
            self.leave_whole(tenant, device, returns);
        }
    }

    fn is_waited_by_others(&self, tenant: TenantId, device: DeviceId) -> bool {
        let mut asks = self.asks.on(device).map(|(_, pending)| pending.tenant);
        let mut returns = self.returning(device).map(|(other, _)| other);
        asks.any(|other| other != tenant) || returns.any(|other| other != tenant)
    }

    /// The room that a device lacks for all of a tenant's memory.
    fn missing_for(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let books = self.ledger.get(device);
        let books = books.and_then(|books| Some((books, books.account(tenant)?)));
        books.map_or(Bytes::ZERO, |(books, account)| {
            let (away, _) = self.needed_back((tenant, device), books, account);
            away + books.deficit() - books.slack().taken
        })
    }

    /// What other tenants were granted and do not use.
    fn unused_of_others(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let Some(books) = self.ledger.get(device) else {
            return Bytes::ZERO;
        };
        let own = books.account(tenant).map(|account| account.unused());
        books.unused() - own.unwrap_or_default()
    }

    /// Whether a tenant with a silent process has memory on the host that nobody told of: a look
    /// shows that, or the books lack as much.
    fn is_seen_out(&self, tenant: TenantId, device: DeviceId, parts: Parts) -> bool {
        let account = self.ledger.account(device, tenant);
        let away = account.map_or(Bytes::ZERO, |account| account.away);
        parts.silent && (away > SEEN || !self.missing_for(tenant, device).is_zero())
    }
}
