//! Serves the waiting asks of a device, whenever its state changed.
//!
//! Order: asks within a request before bursts, then priority. Of equals a tenant whose turn has
//! begun goes first, then the one that had the card for less, then age. An ask that does not fit
//! holds back only asks of strictly lower rank. Among equals any ask that fits is served, so that
//! one too large for the moment blocks no other, and cannot be used to.

use super::World;
use super::ask::covers;
use super::ladder::{Claim, Rung};
use super::pending::{Pending, Want};
use crate::decision::{Answer, Denial, Notice};
use crate::ids::{AskKey, DeviceId, TenantId};
use crate::residency::spill::Rank;
use crate::resolver::Candidate;
use crate::room::Room;
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::cmp::Reverse;

/// The rank of an ask, before age: whether it is within a request, then its priority.
pub(super) type Class = (bool, u16);

/// The rank of a waiter that has waited a whole round of the rotation.
pub(super) const OVERDUE: Class = (false, u16::MAX);

/// A waiter: an ask for memory, or a tenant that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiter {
    Ask(AskKey),
    Return(TenantId),
}

/// Memory on its way to a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coming {
    /// Unused grants being taken back: there in microseconds.
    pub(super) prompt: Room,
    /// Limbo, and the memory of tenants that end or leave.
    pub(super) lasting: Room,
}

/// One walk over the waiters of a device.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) device: DeviceId,
    pub(super) coming: Coming,
    /// The tenants that wait, the first to be served first.
    pub(super) order: Vec<TenantId>,
    /// The room that waiters of strictly higher rank still need.
    pub(super) above: Room,
    /// Asks of this walk for which tenants may be ended.
    pub(super) claims: Vec<Claim>,
    class: Class,
    /// The room that waiters of the current rank still need.
    equals: Room,
    /// The tenants that could be ended for an ask of credit, or for one that the driver refused
    /// (`true`), as last looked up: many asks need one look-up.
    pub(super) candidates: Option<(bool, Vec<Candidate>)>,
    /// Whether an ask waits for a look at the device.
    pub(super) looks: bool,
    /// For this asker all unused grants of other tenants are reclaimed already.
    pub(super) called_back: Option<TenantId>,
}

impl World {
    /// Serves the asks that fit and resolves the collisions of the others.
    pub(super) fn settle(&mut self, device: DeviceId) {
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        if books.mended() {
            self.notice(Notice::Balanced { device });
        }
        if self.is_recovering() {
            return;
        }
        self.feed(device);
        self.call_back_deficit(device);
        self.suspend_again(device);
        self.serve_all(device);
        self.leave_split(device);
        self.mind_looks(device);
    }

    fn serve_all(&mut self, device: DeviceId) {
        self.bound_owed(device);
        let turns = self.turns(device);
        if turns.is_empty() {
            self.guess_no_more(device);
            self.spare_unneeded(device, Bytes::ZERO, &[]);
            return;
        }
        let mut pass = Pass {
            device,
            coming: self.coming(device),
            order: self.order(&turns),
            claims: Vec::new(),
            above: Room::default(),
            class: (true, u16::MAX),
            equals: Room::default(),
            candidates: None,
            looks: false,
            called_back: None,
        };
        for (class, waiter) in turns {
            pass.enter(class);
            match waiter {
                Waiter::Ask(ask) => self.serve(&mut pass, ask),
                Waiter::Return(tenant) => self.serve_return(&mut pass, tenant),
            }
        }
        if !pass.looks {
            self.guess_no_more(device);
        }
        self.spare_unneeded(device, pass.coming.lasting.taken, &pass.claims);
    }

    /// Whose turns these are.
    fn order(&self, turns: &[(Class, Waiter)]) -> Vec<TenantId> {
        let tenant = |(_, waiter): &(Class, Waiter)| match waiter {
            Waiter::Ask(ask) => Some(self.asks.get(*ask)?.tenant),
            Waiter::Return(tenant) => Some(*tenant),
        };
        turns.iter().filter_map(tenant).collect()
    }

    fn turns(&self, device: DeviceId) -> Vec<(Class, Waiter)> {
        let Some(books) = self.ledger.get(device) else {
            return Vec::new();
        };
        let rank = |(ask, pending): (AskKey, &Pending)| {
            let tenant = self.tenants.get(pending.tenant)?;
            let account = books.account(pending.tenant)?;
            let mut class = (pending.want.guaranteed(account), tenant.spec().priority);
            if pending.turn && self.is_overdue(device, pending.since) {
                class = class.max(OVERDUE);
            }
            let used = self.used_so_far(pending.tenant, device);
            // A tenant whose turn has begun gets the rest of its memory first.
            let begins = !self.has_turn(pending.tenant, device);
            let waiter = Waiter::Ask(ask);
            tenant.ending().is_none().then_some((
                Reverse(class),
                begins,
                used,
                pending.since,
                waiter,
            ))
        };
        let returns = self.returning(device).map(|(tenant, since)| {
            let (class, used, since) = self.rank_of_return((tenant, since), device);
            (class, true, used, since, Waiter::Return(tenant))
        });
        let asks = self.asks.on(device).filter_map(rank);
        let mut ranked: Vec<_> = asks.chain(returns).collect();
        ranked.sort_unstable();
        ranked
            .into_iter()
            .map(|(Reverse(class), .., waiter)| (class, waiter))
            .collect()
    }

    /// The rank of a tenant that waits to return `since`, among those.
    pub(super) fn rank_of_return(
        &self,
        (tenant, since): (TenantId, Nanos),
        device: DeviceId,
    ) -> Rank {
        if self.is_stalled(tenant, device) {
            return (Reverse((false, 0)), u64::MAX, since);
        }
        let within = self.returns_within_request(tenant, device);
        let mut class = (within, self.tenants.priority(tenant));
        if self.is_overdue(device, since) {
            class = class.max(OVERDUE);
        }
        (Reverse(class), self.used_so_far(tenant, device), since)
    }

    fn serve(&mut self, pass: &mut Pass, ask: AskKey) {
        let Some(pending) = self.asks.get(ask).copied() else {
            return;
        };
        if !self.may_be_granted(pending.tenant, pass.device) {
            self.wait_to_return(ask, &pending);
            return;
        }
        if let Want::Physical { bytes, .. } = pending.want {
            self.serve_refused(pass, ask, &pending, bytes);
            return;
        }
        if self.awaits_look(pending.want, pass.device, pending.since) {
            return;
        }
        let account = self.ledger.account(pass.device, pending.tenant);
        let Some(account) = account else {
            return;
        };
        let (limit, request, ceiling) = (account.limit, account.request, account.ceiling());
        let level = match pending.want {
            Want::Credit { held, bytes } if held + bytes > limit => {
                self.answer(ask, Answer::Denied(Denial::OverLimit { limit }));
                return;
            }
            Want::Credit { held, bytes } if held + bytes > ceiling => {
                self.wait_for_dead(pass, ask, &pending, held + bytes - ceiling);
                return;
            }
            Want::Credit { held, bytes } => held + bytes,
            _ => Bytes::ZERO,
        };
        // A sibling's grant of a moment ago may push this ask beyond the request.
        let guaranteed = self.is_guaranteed(&pending) && level <= request;
        let need = self.need(ask, &pending, level, guaranteed);
        let free = self.free_for(&pending, guaranteed);
        if need.is_zero() || covers(free - pass.above, need) {
            pass.forget();
            self.grant(ask, &pending, level, level);
            self.raise_wants(&pending, level);
            return;
        }
        let kept = self.collide(pass, ask, &pending, need, guaranteed);
        if self.asks.get(ask).is_some() {
            pass.equals += kept;
        }
    }

    /// The driver refused granted memory: the ask is served when a sample taken since shows enough
    /// free.
    fn serve_refused(&mut self, pass: &mut Pass, ask: AskKey, pending: &Pending, bytes: Bytes) {
        let sampled = self
            .ledger
            .get(pass.device)
            .and_then(|books| books.sampled());
        match sampled.filter(|(taken, _)| *taken >= pending.since) {
            None => (),
            Some((_, free)) if free >= bytes => {
                pass.forget();
                self.grant(ask, pending, Bytes::ZERO, Bytes::ZERO);
            }
            // A tenant would count with what it does not use, which the driver has already.
            Some(_) if !self.lowering(pass.device).taken.is_zero() => {
                self.tell_waiting(ask, Bytes::ZERO, None);
            }
            Some((_, free)) => {
                let short = Room {
                    taken: bytes - free,
                    firm: Bytes::ZERO,
                };
                let guaranteed = pass.class.0;
                self.resolve(pass, ask, pending, short, guaranteed);
            }
        }
    }

    /// The bytes on their way to the device, and a timer for when some of them no longer count as
    /// that.
    pub(super) fn coming(&mut self, device: DeviceId) -> Coming {
        let (lasting, stale) = self.lasting(device);
        if let Some(stale) = stale {
            self.timers.set_no_later(Timer::Settle(device), stale);
        }
        Coming {
            prompt: self.lowering(device),
            lasting,
        }
    }

    /// Bytes of tenants that end or leave, and when the first of them no longer counts. Bytes
    /// withheld of returns come first, where the tenants do not end.
    pub(super) fn lasting(&self, device: DeviceId) -> (Room, Option<Nanos>) {
        let (mut lasting, stale) = self.arriving(device);
        lasting.taken -= self.withheld(device) - self.let_go(device);
        (lasting, stale)
    }

    /// The same with what is withheld of returns.
    pub(super) fn arriving(&self, device: DeviceId) -> (Room, Option<Nanos>) {
        let mut lasting = Room::default();
        let mut stale: Option<Nanos> = None;
        let Some(books) = self.ledger.get(device) else {
            return (lasting, stale);
        };
        for (_, entry) in books.limbo() {
            let old = entry.since + self.policy.limbo_grace(entry);
            if old > self.timers.now() {
                lasting += Room::both(entry.bytes);
                stale = Some(stale.map_or(old, |first| first.min(old)));
            }
        }
        for (tenant, _, ending) in self.tenants.ending() {
            if let (Rung::Terminated | Rung::Killed, Some(account)) =
                (ending.rung, books.account(tenant))
            {
                lasting.taken += account.held() - self.leaving_of(tenant, device);
            }
        }
        lasting.taken += self.leaving(device);
        (lasting, stale)
    }
}

impl Pass {
    /// A grant was made or a tenant is to end: cached look-ups are void.
    pub(super) fn forget(&mut self) {
        self.candidates = None;
        self.called_back = None;
    }

    /// The tenants that are served before this one.
    pub(super) fn before(&self, tenant: TenantId) -> &[TenantId] {
        let at = self.order.iter().position(|one| *one == tenant);
        at.map_or(&[], |at| &self.order[..at])
    }

    /// The current waiter still needs `taken` bytes: asks of lower classes leave them alone.
    pub(super) fn equals_need(&mut self, taken: Bytes) {
        self.equals.taken += taken;
    }

    /// Tenants may be ended for the current waiter.
    pub(super) fn claim(&mut self, guaranteed: bool, priority: u16) {
        self.claims.push(Claim {
            guaranteed,
            priority,
        });
    }

    /// The next ask is of this class: once it is lower, all before it are above it.
    fn enter(&mut self, class: Class) {
        if class != self.class {
            self.above += std::mem::take(&mut self.equals);
            self.class = class;
        }
    }
}
