//! Processes connect, are adopted after a restart, and die.

use super::World;
use super::tenants::Opened;
use crate::ids::{DeviceId, ProcessId, TenantId};
use crate::lease::Input;
use crate::limbo::Limbo;
use gpushare_protocol::units::Bytes;

impl World {
    pub(super) fn process_started(
        &mut self,
        process: ProcessId,
        tenant: TenantId,
        adopted: bool,
        gated: bool,
    ) {
        let is_first = self.tenants.members(tenant).next().is_none();
        if !adopted && is_first && !self.is_recovering() {
            // It comes late: its tenant was taken for one that runs.
            self.find(tenant);
        }
        if adopted && is_first {
            // The programs that a command moved out are gone: what starts later runs.
            let devices = self.devices_of(tenant);
            self.set_suspended(tenant, &devices, false);
        }
        let known = self.tenants.process_mut(process);
        match known.filter(|known| known.tenant() == tenant && !known.is_adopted()) {
            // It was counted without a connection, and has come.
            Some(known) => known.comes(gated),
            None => self.tenants.join(process, tenant, (adopted, gated)),
        }
        self.has_a_process(tenant);
        self.forget_above(tenant);
    }

    /// A process of the previous daemon presents its holdings. The old grant stays outstanding. No
    /// claim is believed beyond the registered limit, or what the previous daemon wrote down that
    /// was held above it, and the next sample and reclaim correct a lie. A process that was counted
    /// without a connection presents them again when it comes: it may have got more meanwhile, by
    /// the old page.
    pub(super) fn presented(
        &mut self,
        process: ProcessId,
        device: DeviceId,
        charged: Bytes,
        credit: Bytes,
        grant: Bytes,
    ) {
        let (cost, now) = (self.context_cost(device), self.timers.now());
        let Some(known) = self
            .tenants
            .process_mut(process)
            .filter(|known| !known.is_adopted())
        else {
            return;
        };
        let tenant = known.tenant();
        if self.ledger.account(device, tenant).is_none() {
            return;
        }
        let fresh = known.on(device).is_none();
        let opened = known.open(device, cost, now);
        let first = opened.present(credit, charged);
        let charged = if first { charged } else { Bytes::ZERO };
        let overhead = if fresh {
            opened.overhead()
        } else {
            Bytes::ZERO
        };
        let credits = self.presented_credit(tenant, device);
        let raised = self.ledger.change(device, tenant, |account| {
            let before = account.grant;
            account.overhead += overhead;
            account.grant = before.max(grant.max(credits).min(account.most_presented()));
            account.in_use = (account.in_use + charged).min(account.grant);
            if account.grant > before {
                account.lowering = None;
            }
        });
        if raised.is_some() {
            self.show_grant(tenant, device);
        }
        if first {
            self.awaits(process, device);
        }
        self.facts_changed(device);
    }

    /// The credit all its processes presented so far.
    fn presented_credit(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let members = self.tenants.members(tenant);
        let presented = members.filter_map(|(_, known)| known.on(device)?.presented());
        presented.sum()
    }

    pub(super) fn adopted(&mut self, process: ProcessId) {
        let Some(known) = self.tenants.process_mut(process) else {
            return;
        };
        known.adopt();
        let tenant = known.tenant();
        for device in known.devices() {
            self.joins_device(process, device);
        }
        self.forget_above(tenant);
        for device in self.devices_of(tenant) {
            self.trim(tenant, device);
            self.freed(device);
        }
    }

    /// Forgets what a tenant held above its limit under the previous daemon, once all processes
    /// that could still present a part of it have come: its grants are counted.
    pub(super) fn forget_above(&mut self, tenant: TenantId) {
        let has_come = self.tenants.members(tenant).next().is_some() && self.all_adopted(tenant);
        if self.is_recovering() || !has_come {
            return;
        }
        for device in self.devices_of(tenant) {
            self.ledger
                .change(device, tenant, |account| account.above = Bytes::ZERO);
        }
    }

    /// A process that is counted has not come.
    pub(super) fn is_late(&mut self, process: ProcessId) {
        if let Some(known) = self.tenants.process_mut(process) {
            known.set_late();
        }
        self.away(process, true);
    }

    /// A process's connection ended, or came again.
    pub(super) fn away(&mut self, process: ProcessId, away: bool) {
        self.is_here(process, !away);
        let known = self.tenants.process(process);
        let (tenant, devices) = match known {
            Some(known) => (known.tenant(), known.devices()),
            None => return,
        };
        for device in devices {
            let sealed = self.residency.is_still(device, tenant);
            self.tell_device(device, Input::Away { process, away });
            self.tell_device(device, Input::Sealed { process, sealed });
        }
    }

    /// A process became another program. Its charges are believed as those of a process with
    /// siblings are: hidden memory stays in the tenant's grant.
    pub(super) fn vacated(&mut self, process: ProcessId, device: DeviceId, charged: Bytes) {
        let Some(known) = self.tenants.process_mut(process) else {
            return;
        };
        let tenant = known.tenant();
        let opened = known.close(device);
        let away = self.away_of(process, tenant, device);
        self.tell_device(device, Input::Left { process });
        let ended = self
            .tenants
            .get(tenant)
            .is_some_and(|known| known.ending().is_some());
        self.reap(
            process,
            (tenant, ended),
            device,
            opened,
            (charged, away, false),
        );
        self.is_no_member(process, tenant, device);
        self.lower_wants(tenant, device);
        self.freed(device);
    }

    /// Whether all its processes that came obey this daemon's control page: only then a lowered
    /// grant is a lowered grant. One that has not come asks for nothing.
    pub(super) fn all_adopted(&self, tenant: TenantId) -> bool {
        let mut members = self.tenants.members(tenant);
        members.all(|(_, known)| known.is_adopted() || known.is_late())
    }

    /// The unused credit of its processes that have not come: they may charge it at any time.
    pub(super) fn late_credit(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let members = self.tenants.members(tenant);
        let late = members.filter(|(_, known)| known.is_late());
        let unused = late.filter_map(|(_, known)| known.on(device)?.unused());
        unused.sum()
    }

    /// A process is dead: its memory is limbo until a sample no longer shows it. With live siblings
    /// its charges are believed, because a lie frees nothing for others: hidden memory stays in the
    /// tenant's grant, and the next sample books it as limbo too. Without siblings the whole grant
    /// is limbo, whatever the page shows.
    pub(super) fn process_gone(&mut self, process: ProcessId, charged: &[(DeviceId, Bytes)]) {
        let Some(dead) = self.tenants.leave(process) else {
            return;
        };
        for ask in self
            .asks
            .of(process)
            .map(|(ask, _)| ask)
            .collect::<Vec<_>>()
        {
            self.forget(ask);
        }
        for device in dead.devices() {
            self.tell_device(device, Input::Left { process });
        }
        let tenant = dead.tenant();
        let Some(known) = self.tenants.get(tenant) else {
            return;
        };
        let (last, ended) = (!known.has_processes(), known.ending().is_some());
        for device in self.devices_of(tenant) {
            let opened = dead.on(device).cloned();
            let told = charged.iter().find(|(on, _)| *on == device);
            let told = told.map_or(Bytes::ZERO, |(_, bytes)| *bytes);
            let away = self.away_of(process, tenant, device);
            self.reap(process, (tenant, ended), device, opened, (told, away, last));
            self.is_no_member(process, tenant, device);
        }
        if last {
            self.has_no_process(tenant);
        }
        for device in self.devices_of(tenant) {
            self.follow_parts_of(tenant, device);
            self.lower_wants(tenant, device);
            self.freed(device);
        }
    }

    /// Books the memory of one dead process on one device as limbo: the amount `told` by its page,
    /// or all its tenant held if it was the `last`.
    fn reap(
        &mut self,
        process: ProcessId,
        (tenant, ended): (TenantId, bool),
        device: DeviceId,
        opened: Option<Opened>,
        (told, away, last): (Bytes, Bytes, bool),
    ) {
        let since = self.timers.now();
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        let overhead = opened.map_or(Bytes::ZERO, |opened| opened.overhead());
        let reaped = books.change(tenant, |account| {
            let before = account.on_card();
            let held = if last {
                account.grant
            } else {
                told.min(account.grant)
            };
            let excess = if last {
                std::mem::take(&mut account.excess)
            } else {
                Bytes::ZERO
            };
            let (page, was_away) = (account.used_by_page(), account.away);
            // The dead process's memory on the host is gone with it.
            let away = if last { account.away } else { away.min(told) };
            let away = away.min(account.away).min(held);
            let held = held - away;
            let there = account.booked_of(held);
            account.away -= away;
            account.grant = account.grant - held - away;
            account.overhead -= overhead;
            account.in_use = (account.in_use - held - away).min(account.grant);
            account.away = account.away.min(account.in_use);
            account.late = account.late.min(account.in_use);
            account.lower_residue(page, was_away);
            account.lowering = account
                .lowering
                .filter(|lowering| lowering.to < account.grant);
            // Of managed memory no more was on the card than was booked there for this process.
            // And what it had sent to the host may still be kept there.
            let kept = if account.loan.paged {
                away
            } else {
                Bytes::ZERO
            };
            let (held, evictable) = (there, held - there + kept);
            if account.loan.paged {
                account.booked = account.booked.min(before - held);
            }
            let bytes = held + overhead + excess;
            let most = if account.loan.paged {
                bytes
            } else {
                Bytes::MAX
            };
            (bytes, held, (most, evictable))
        });
        let Some((bytes, held, (most, evictable))) = reaped else {
            return;
        };
        if !bytes.is_zero() {
            books.reap(
                process,
                Limbo {
                    tenant: Some(tenant),
                    bytes,
                    charged: held,
                    told: told.min(held),
                    overhead,
                    most,
                    evictable,
                    since,
                    ended,
                },
            );
        }
        // Before the dead slot is cleared: its memory must not become its siblings' credit.
        self.show_grant(tenant, device);
        if !bytes.is_zero() {
            self.look_soon(device);
        }
    }
}
