//! Tenants that are out come back: in the order of the device's waiting asks, by the same rules.

use crate::ids::{AskKey, DeviceId, ProcessId, TenantId};
use crate::ledger::{Account, Device};
use crate::residency::{Load, Place, Rotation};
use crate::resolver::{Burst, Case, Mover, Resolve, Resolver, Verdict, are_enough};
use crate::time::Nanos;
use crate::timers::Timer;
use crate::world::World;
use crate::world::ladder::Rung;
use crate::world::moves::movers::Asker;
use crate::world::pending::Pending;
use crate::world::settle::Pass;
use gpushare_protocol::units::Bytes;

impl World {
    /// A call of a process waits because its tenant is out.
    pub(in crate::world) fn wants_in(&mut self, process: ProcessId, device: DeviceId) {
        let now = self.timers.now();
        let Some(tenant) = self.tenants.process(process).map(|known| known.tenant()) else {
            return;
        };
        let new = self.want_in(tenant, device, now);
        self.has_called(tenant, device);
        if new {
            self.worked(tenant);
            self.settle(device);
        }
    }

    /// A call of a tenant waits, if the tenant waits for the device.
    fn has_called(&mut self, tenant: TenantId, device: DeviceId) {
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.called = resident.halted().is_some();
        }
    }

    /// Whether a call of a tenant waits for a device: it would be work, were the tenant in on all.
    pub(in crate::world) fn call_waits(&self, tenant: TenantId) -> bool {
        let devices = self.residency.devices();
        let mut own = devices.filter_map(|(_, rotation)| rotation.get(tenant));
        own.any(|one| one.called) && self.wait_of(tenant, None).is_some()
    }

    /// A tenant wants to return to a device. Whether that is new.
    fn want_in(&mut self, tenant: TenantId, device: DeviceId, now: Nanos) -> bool {
        let load = self.load(tenant, device);
        let rotation = self.residency.on(device);
        let cost = rotation.map(|rotation| rotation.round_trip(load, &self.policy.swap));
        let halted = self.wait_of(tenant, None);
        let resident = self.residency.get_mut(device, tenant);
        resident.zip(cost).is_some_and(|(resident, cost)| {
            resident.rest_mut().returns(now, cost);
            let new = resident.want_in(now);
            if let Some((_, since)) = halted.filter(|_| new) {
                resident.was_halted(since);
            }
            new
        })
    }

    /// An ask of a tenant is granted that was made at `since`.
    pub(in crate::world) fn let_on(
        &mut self,
        (process, tenant): (ProcessId, TenantId),
        device: DeviceId,
        since: Nanos,
    ) {
        let now = self.timers.now();
        if self.note_holding(tenant, device, None) || since >= now {
            return;
        }
        let waits = |other: ProcessId| other == process || self.asks.of(other).next().is_some();
        let mut members = self.tenants.members(tenant);
        let blocked = members.all(|(other, _)| waits(other));
        if let Some(resident) = self.residency.get_mut(device, tenant) {
            resident.stay_mut().waited(now, now - since, blocked);
        }
    }

    /// A tenant's memory in use changed; `freed`: it is less, and was so much. Returns whether it
    /// had none before.
    pub(in crate::world) fn note_holding(
        &mut self,
        tenant: TenantId,
        device: DeviceId,
        freed: Option<Bytes>,
    ) -> bool {
        if self.residency.is_empty() {
            return false;
        }
        let (now, bytes) = (self.timers.now(), self.in_use(tenant, device));
        let rest = self.policy.swap.rest;
        let Some(resident) = self.residency.get_mut(device, tenant) else {
            return false;
        };
        if let Some(had) = freed {
            resident.stay_mut().frees(now, had, rest);
        }
        resident.stay_mut().holds(now, bytes)
    }

    /// Whether an ask cannot be granted before others: a tenant waits to return, or the asker
    /// itself is not in.
    pub(in crate::world) fn must_wait(&self, pending: &Pending) -> bool {
        let device = pending.device;
        !self.residency.is_empty()
            && (self.residency.is_waited(device) || !self.residency.is_in(device, pending.tenant))
    }

    /// The tenants that wait to return to a device, each since when.
    pub(in crate::world) fn returning(
        &self,
        device: DeviceId,
    ) -> impl Iterator<Item = (TenantId, Nanos)> {
        let rotation = self.residency.on(device).into_iter();
        let all = rotation.flat_map(|rotation| rotation.all());
        all.filter_map(|(tenant, resident)| Some((tenant, resident.returns()?)))
    }

    /// The residency of a tenant so far; zero for tenants that do not swap.
    pub(in crate::world) fn used_so_far(&self, tenant: TenantId, device: DeviceId) -> u64 {
        let Some(resident) = self.residency.get(device, tenant) else {
            return 0;
        };
        let now = self.timers.now();
        let until = self.blocked(tenant).unwrap_or(now);
        resident.used(until, self.load(tenant, device).bytes)
    }

    /// Whether a tenant that may be moved is in, with memory, and its stay is not over.
    pub(in crate::world) fn has_turn(&self, tenant: TenantId, device: DeviceId) -> bool {
        let Some(rotation) = self.residency.on(device) else {
            return false;
        };
        let (resident, account) = (rotation.get(tenant), self.ledger.account(device, tenant));
        let Some((resident, account)) = resident.zip(account) else {
            return false;
        };
        let now = self.timers.now();
        let spare_time = |had| self.spare_time(rotation, account.load_of(had));
        let (until, bytes) = match resident.stay().emptied() {
            // It may be about to take memory again.
            Some((since, had)) if now < since + spare_time(had) => (since, had),
            _ => {
                let until = self.blocked(tenant).unwrap_or(now);
                (until, account.in_use)
            }
        };
        let stay = rotation.stay(account.load_of(bytes), false, &self.policy.swap);
        resident.place() == Place::In && !bytes.is_zero() && until < resident.stay().from() + stay
    }

    /// How long a tenant that has freed all of its memory keeps its turn: no longer than its moves
    /// would take.
    fn spare_time(&self, rotation: &Rotation, had: Load) -> Nanos {
        let terms = &self.policy.swap;
        rotation.round_trip(had, terms).min(terms.rest)
    }

    /// Until when the unused part of a tenant's grant is left to it, because it has its turn and
    /// has freed memory a moment ago: many programs free memory and take it again at once.
    pub(in crate::world) fn spared_until(
        &self,
        tenant: TenantId,
        device: DeviceId,
    ) -> Option<Nanos> {
        let rotation = self.residency.on(device)?;
        let stay = rotation.get(tenant)?.stay();
        let account = self.ledger.account(device, tenant)?;
        let until = match stay.emptied() {
            Some((since, had)) => since + self.spare_time(rotation, account.load_of(had)),
            None => stay.freed() + self.policy.swap.rest,
        };
        (until > self.timers.now() && self.has_turn(tenant, device)).then_some(until)
    }

    /// Since when none of a tenant's processes can work, because each waits for memory.
    pub(in crate::world) fn blocked(&self, tenant: TenantId) -> Option<Nanos> {
        let mut latest = None;
        for (process, _) in self.tenants.members(tenant) {
            let asks = self.asks.of(process).map(|(_, pending)| pending.since);
            latest = latest.max(Some(asks.min()?));
        }
        latest
    }

    /// An ask of a tenant that is not in waits until the tenant is back. The walk in which it is
    /// seen first does not have that return: another one follows at once. It is work, as any call,
    /// if it was made since the tenant was moved; one that waited before is none.
    pub(in crate::world) fn wait_to_return(&mut self, ask: AskKey, pending: &Pending) {
        let (device, now) = (pending.device, self.timers.now());
        if self.want_in(pending.tenant, device, now) {
            let resident = self.residency.get(device, pending.tenant);
            if resident.is_some_and(|resident| pending.since >= resident.begun()) {
                self.worked(pending.tenant);
                self.has_called(pending.tenant, device);
            }
            self.timers.set_no_later(Timer::Settle(device), now);
        }
        self.asks.set_turn(ask, true);
        self.tell_waiting(ask, Bytes::ZERO, Some(Resolver::Swap));
    }

    /// Orders a tenant to return if there is room for all of it; else makes room by the rules of
    /// its request, or by `swap`.
    pub(in crate::world) fn serve_return(&mut self, pass: &mut Pass, tenant: TenantId) {
        let device = pass.device;
        let Some(books) = self.ledger.get(device) else {
            return;
        };
        let Some(account) = books.account(tenant) else {
            return;
        };
        let guaranteed = is_within_request(account);
        let (away, need) = self.needed_back((tenant, device), books, account);
        let known = account.away;
        let short = need + pass.above.taken + books.deficit() - books.slack().taken;
        if short.is_zero() {
            pass.forget();
            self.enter(tenant, device);
            pass.equals_need(need - away);
            return;
        }
        let rest = away + books.deficit() - books.slack().taken;
        let is_first = pass.order.first() == Some(&tenant) && !rest.is_zero();
        // What no look has shown gone yet counts as on the card, and cannot be withheld.
        if is_first && rest <= known && self.may_follow(tenant, device, short) {
            pass.forget();
            self.follow(tenant, device, rest);
            pass.coming = self.coming(device);
            pass.equals_need(need - away);
            return;
        }
        let mut all = pass.coming.prompt;
        if !(short - all.taken).is_zero() && pass.called_back != Some(tenant) {
            let missing = crate::room::Room {
                taken: short - all.taken,
                firm: Bytes::ZERO,
            };
            all += match guaranteed {
                true => self.reclaim_unused(device, Some(tenant), missing),
                false => self.reclaim_spared(device, Some(tenant), missing),
            };
        }
        let rest = short - all.taken;
        // A tenant that is being ended may have free memory: nobody makes way for it.
        let known = self.tenants.get(tenant);
        let ending = known.and_then(|known| known.ending());
        let ends = ending.is_some_and(|ending| ending.rung != Rung::WillNotYield);
        let counts = if rest.is_zero() {
            // Unused grants are enough.
            self.note_turns(tenant, device, true);
            true
        } else {
            !ends && self.make_way(pass, tenant, rest, guaranteed)
        };
        let claims = counts || !ends && (guaranteed || !self.has_no_turns(tenant, device));
        if claims {
            pass.coming.prompt.taken = all.taken - short;
            pass.equals_need(if counts { need - short } else { need });
            self.wait_turn_until(device, self.no_turns_from(tenant, device));
        } else {
            // Others may use what is free meanwhile: what they borrow of it can be moved again.
            pass.coming.prompt.taken = all.taken;
        }
    }

    /// The room that a return takes, and the same with the tenant's waiting asks.
    pub(super) fn needed_back(
        &self,
        (tenant, device): (TenantId, DeviceId),
        books: &Device,
        account: &Account,
    ) -> (Bytes, Bytes) {
        let mut back = account.clone();
        (back.away, back.booked) = (Bytes::ZERO, books.bookable(tenant));
        let away = back.on_card() - account.on_card();
        back.grant += self.asked_beside(tenant, device, account);
        (away, back.on_card() - account.on_card())
    }

    /// Makes room for a return. Whether the bytes on their way are enough then.
    fn make_way(
        &mut self,
        pass: &mut Pass,
        tenant: TenantId,
        rest: Bytes,
        guaranteed: bool,
    ) -> bool {
        let device = pass.device;
        let lasting = pass.coming.lasting.taken.min(rest);
        let rest = rest - lasting;
        if rest.is_zero() {
            self.note_turns(tenant, device, true);
            pass.coming.lasting.taken -= lasting;
            if guaranteed {
                pass.claim(guaranteed, self.tenants.priority(tenant));
            }
            return true;
        }
        let since = self.residency.get(device, tenant);
        let since = since.and_then(|resident| resident.returns());
        let asker = Asker {
            tenant,
            guaranteed,
            since: since.unwrap_or_else(|| self.timers.now()),
            rotates: true,
        };
        let movers = self.movers(device, asker, pass.before(asker.tenant));
        let candidates = match guaranteed {
            true => self.candidates(device, tenant, false),
            false => Vec::new(),
        };
        let now = self.timers.now();
        let (host, soon) = self.host_for(Some((tenant, device)));
        let room = self.residency.host.free();
        let case = Case {
            priority: self.tenants.priority(tenant),
            short: rest,
            borrowed: true,
            patience: Nanos::MAX,
            ladder: self.policy.ladder(),
            candidates: &candidates,
            movers: &movers,
            guaranteed,
            now,
            host,
            room,
            alone: {
                let asker = (tenant, pass.before(tenant));
                self.fits_alone(device, asker, rest - pass.above.taken, || soon, &movers)
            },
        };
        let verdict = if guaranteed {
            Burst.resolve(&case)
        } else {
            Resolver::Swap.policy().resolve(&case)
        };
        let passes = !matches!(
            verdict,
            Verdict::Move(_) | Verdict::End(_) | Verdict::Turn { .. }
        );
        let is_full = passes && self.is_full_for(&case);
        let needed = is_full.then(|| self.host_needed(&case));
        // One that did not leave when it was asked may do so yet, and the host may have room again.
        let refuses = movers.iter().any(|mover| mover.backs_off.is_some());
        self.note_turns(tenant, device, !passes || is_full || refuses);
        if self.is_stalled(tenant, device) {
            self.claims_nothing(tenant, device);
            return false;
        }
        match verdict {
            Verdict::Move(victims) => {
                let given = self.move_all(device, &victims, tenant);
                pass.coming.lasting.taken = pass.coming.lasting.taken - lasting + given - rest;
                pass.forget();
                given >= rest
            }
            Verdict::End(victims) => {
                let given = self.end_all(device, &victims, tenant);
                pass.coming.lasting.taken = pass.coming.lasting.taken - lasting + given - rest;
                pass.claim(guaranteed, self.tenants.priority(tenant));
                pass.forget();
                true
            }
            Verdict::Turn { at, .. } => {
                self.wait_turn_until(device, at);
                false
            }
            Verdict::Wait | Verdict::Refuse | Verdict::Pass => {
                if let Some(needed) = needed {
                    self.tell_host_full(device, rest, needed);
                }
                false
            }
        }
    }

    /// Whether there is room for so much more than is free, if all that may be moved were, and
    /// `host` memory for what has to be out then: asked for only where it may be enough. `before`
    /// are the tenants that are served first.
    pub(in crate::world) fn fits_alone(
        &self,
        device: DeviceId,
        (asker, before): (TenantId, &[TenantId]),
        short: Bytes,
        host: impl FnOnce() -> Bytes,
        movers: &[Mover],
    ) -> bool {
        let later = self.moves_later(device, asker, before);
        let other = later.all;
        // Where all that is missing is kept for tenants that come back, its turn is after theirs.
        let after = self.returning(device).any(|(tenant, _)| tenant != asker);
        let most = other + movers.iter().map(|mover| mover.gives).sum();
        if short > most || (!after && most.is_zero()) {
            return false;
        }
        let host = host();
        let room = self.residency.host.free();
        // Each mover needs the host for all of its memory, however little of it is wanted.
        let fitting = movers
            .iter()
            .filter(|mover| mover.more <= room && mover.host <= host);
        let fitting: Vec<Mover> = fitting.copied().collect();
        let gives = fitting.iter().any(|mover| !mover.gives.is_zero());
        // Tenants that take nothing of the budget.
        let own = movers.iter().filter(|mover| mover.host.is_zero());
        let own: Bytes = own.map(|mover| mover.gives).sum();
        let own = own + later.managed;
        (after || gives || !other.is_zero())
            && short <= host + own
            && are_enough(fitting, short - other, host)
    }

    /// Looks again when a stay is over.
    pub(in crate::world) fn wait_turn_until(&mut self, device: DeviceId, at: Option<Nanos>) {
        if let Some(at) = at {
            self.timers.set_no_later(Timer::Settle(device), at);
        }
    }

    /// Whether moves would help if the host had more room.
    pub(in crate::world) fn is_full_for(&self, case: &Case<'_>) -> bool {
        let roomy = Case {
            host: Bytes::MAX,
            room: Bytes::MAX,
            alone: false,
            ..*case
        };
        let policy = Resolver::Swap.policy();
        let helps = |case: &Case<'_>| {
            let verdict = policy.resolve(case);
            matches!(
                verdict,
                Verdict::Move(_) | Verdict::Turn { at: Some(_), .. }
            )
        };
        !case.movers.is_empty() && !helps(case) && helps(&roomy)
    }

    /// Whether an ask or a return that waits `since` has waited a whole round of the rotation.
    pub(in crate::world) fn is_overdue(&self, device: DeviceId, since: Nanos) -> bool {
        self.timers.now() - since > self.round(device)
    }

    /// Whether a tenant is out and its whole memory is within its request.
    pub(in crate::world) fn returns_within_request(
        &self,
        tenant: TenantId,
        device: DeviceId,
    ) -> bool {
        let account = self.ledger.account(device, tenant);
        account.is_some_and(is_within_request)
    }

    /// Whether a tenant is in on a device as far as asks are concerned.
    pub(in crate::world) fn may_be_granted(&self, tenant: TenantId, device: DeviceId) -> bool {
        self.place(tenant, device)
            .is_none_or(|place| place == Place::In)
    }
}

fn is_within_request(account: &Account) -> bool {
    account.in_use <= account.request
}
