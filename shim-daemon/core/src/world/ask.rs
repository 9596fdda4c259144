//! Asks come in and are answered.
//!
//! The fast path: no ask waits on the device and the memory fits, so it is granted at once, rounded
//! up to a step while memory is plenty. Everything else waits its turn in `settle`.

use super::World;
use super::pending::{Pending, Said, Want};
use crate::decision::{Answer, Decision, Denial};
use crate::ids::{AskId, AskKey, DeviceId, ProcessId, TenantId};
use crate::ledger::{Account, Device};
use crate::room::Room;
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;

impl World {
    pub(super) fn open(&mut self, process: ProcessId, device: DeviceId, ask: AskId) {
        let want = Want::Context {
            cost: self.context_cost(device),
            more: false,
        };
        self.ask((process, ask), device, want, None);
    }

    pub(super) fn credit_asked(
        &mut self,
        process: ProcessId,
        device: DeviceId,
        ask: AskId,
        (held, bytes): (Bytes, Bytes),
        patience: Option<Nanos>,
    ) {
        self.ask(
            (process, ask),
            device,
            Want::Credit { held, bytes },
            patience,
        );
    }

    /// The driver can have refused granted memory only; beyond the grant it is an ordinary ask. A
    /// process that names no bytes was refused a context: only the daemon knows what that takes.
    pub(super) fn driver_refused(
        &mut self,
        process: ProcessId,
        device: DeviceId,
        ask: AskId,
        (held, bytes): (Bytes, Bytes),
        patience: Option<Nanos>,
    ) {
        let known = self.tenants.process(process);
        let tenant = known.map(|known| known.tenant());
        let account = tenant.and_then(|tenant| self.ledger.account(device, tenant));
        let opened = known.and_then(|known| known.on(device));
        let context = opened.filter(|_| bytes.is_zero());
        let context = context.map_or(Bytes::ZERO, |opened| opened.awaited_context());
        let want = match account {
            Some(account) if held <= account.grant => Want::Physical {
                held,
                bytes: bytes.min(held).max(context),
                context: !context.is_zero(),
            },
            _ => Want::Credit {
                held: held - bytes,
                bytes,
            },
        };
        self.ask((process, ask), device, want, patience);
        if matches!(want, Want::Physical { .. }) {
            self.look_soon(device);
        }
    }

    pub(super) fn ask(
        &mut self,
        key: AskKey,
        device: DeviceId,
        want: Want,
        patience: Option<Nanos>,
    ) {
        let Some(process) = self.tenants.process(key.0) else {
            return;
        };
        if self.asks.get(key).is_some() {
            return;
        }
        let is_known = match want {
            Want::Context { more: true, .. } => self.makes(key, device),
            Want::Context { more: false, .. } => self.has_opened(key.0, device),
            _ => false,
        };
        if is_known {
            let account = self.ledger.account(device, process.tenant());
            let grant = account.map_or(Bytes::ZERO, |account| account.page);
            self.joins_device(key.0, device);
            self.answer(key, Answer::Granted { grant });
            return;
        }
        match self.accept(key, device, want, patience) {
            Err(denial) => self.answer(key, Answer::Denied(denial)),
            Ok(pending) if self.granted_at_once(key, &pending) => (),
            Ok(pending) => {
                self.asks.add(key, pending);
                self.timers.set(Timer::Patience(key), pending.until);
                self.settle(device);
            }
        }
    }

    /// How many asks of a tenant wait.
    fn waiting_of(&self, tenant: TenantId) -> usize {
        let members = self.tenants.members(tenant);
        members
            .map(|(process, _)| self.asks.of(process).count())
            .sum()
    }

    /// The checks that do not depend on other tenants.
    fn accept(
        &self,
        key: AskKey,
        device: DeviceId,
        want: Want,
        patience: Option<Nanos>,
    ) -> Result<Pending, Denial> {
        let process = self.tenants.process(key.0).ok_or(Denial::Ending)?;
        let of = process.tenant();
        let tenant = self.tenants.get(of).ok_or(Denial::Ending)?;
        let quota = tenant.spec().quota(device).ok_or(Denial::NoQuota)?;
        let books = self.ledger.get(device).ok_or(Denial::DeviceLost)?;
        let account = books.account(of);
        if account.is_none() && tenant.admitted().is_some() {
            return Err(Denial::DeviceLost);
        }
        let limit = account.map_or(quota.limit, |account| account.limit);
        if matches!(want, Want::Credit { held, bytes } if held + bytes > limit) {
            return Err(Denial::OverLimit { limit });
        }
        if tenant.ending().is_some() {
            return Err(Denial::Ending);
        }
        let own = self.asks.of(key.0).count();
        let together = || self.waiting_of(of) >= self.policy.most_waiting_together;
        if own >= self.policy.most_waiting || (own > 0 && together()) {
            return Err(Denial::TooMany);
        }
        let making = process
            .on(device)
            .map_or(0, |opened| opened.making().count());
        if want.is_more() && making >= self.policy.most_waiting {
            return Err(Denial::TooMany);
        }
        let most = tenant.spec().wait_timeout;
        let mut until = self.timers.now() + patience.map_or(most, |left| left.min(most));
        // A process that has waited before states its remaining time in all. Zero means that it
        // cannot wait, and it gives up by itself.
        let left = patience.filter(|left| *left > Nanos::ZERO);
        let twice = self.policy.guarantee() + self.policy.guarantee();
        let latest = self.timers.now() + left.unwrap_or(twice).min(twice.max(most));
        // Time to end a victim does not help an ask that waits for its tenant's own dead processes.
        let guaranteed = |account: &Account| want.guaranteed(account) && !want.beside_dead(account);
        if account.is_some_and(guaranteed) {
            let least = self.timers.now() + self.policy.least_guarantee();
            until = until.max(least.min(latest));
        }
        Ok(Pending {
            tenant: of,
            device,
            want,
            since: self.timers.now(),
            until,
            own: until,
            latest,
            told: None,
            said: Said::default(),
            short: Bytes::ZERO,
            stuck: None,
            turn: false,
        })
    }

    /// The quick way.
    fn granted_at_once(&mut self, key: AskKey, pending: &Pending) -> bool {
        let Some(books) = self.ledger.get(pending.device) else {
            return false;
        };
        let Some(account) = books.account(pending.tenant) else {
            return false;
        };
        let waits = self.asks.count_on(pending.device) > 0 || self.must_wait(pending);
        if matches!(pending.want, Want::Physical { .. }) || waits {
            return false;
        }
        let guaranteed = pending.want.guaranteed(account);
        let exact = match pending.want {
            Want::Credit { held, bytes } => held + bytes,
            _ => Bytes::ZERO,
        };
        let ceiling = account.ceiling();
        if exact > ceiling {
            return false;
        }
        let most = if guaranteed {
            account.request.min(ceiling)
        } else {
            ceiling
        };
        let stepped = exact.round_up(self.policy.step).min(most).max(exact);
        let free = self.free_for(pending, guaranteed);
        let level = [stepped, exact].into_iter().find(|level| {
            let need = self.need(key, pending, *level, guaranteed);
            need.is_zero() || (!self.is_recovering() && covers(free, need))
        });
        match level {
            Some(level) => {
                self.grant(key, pending, level, exact);
                true
            }
            None => false,
        }
    }

    /// The bytes that the sums must still hold for this ask. A request's firm part was counted at
    /// admission.
    pub(super) fn need(
        &self,
        key: AskKey,
        pending: &Pending,
        level: Bytes,
        guaranteed: bool,
    ) -> Room {
        let Some(books) = self.ledger.get(pending.device) else {
            return Room::both(Bytes::MAX);
        };
        let Some(account) = books.account(pending.tenant) else {
            return Room::both(Bytes::MAX);
        };
        let grown = |level, overhead| books.growth(pending.tenant, level, overhead);
        let mut need = match pending.want {
            Want::Context { more: false, .. } if self.has_opened(key.0, pending.device) => {
                Room::default()
            }
            Want::Context { cost, .. } => {
                let request = self.request_beside(pending.tenant, pending.device, cost);
                books.growth_to(pending.tenant, Bytes::ZERO, cost, request)
            }
            Want::Credit { .. } => grown(level, Bytes::ZERO),
            Want::Physical { .. } => Room::default(),
        };
        // Memory that its dead processes still hold is not available to its live ones.
        if guaranteed && account.limbo.is_zero() {
            need.firm = Bytes::ZERO;
        }
        need
    }

    /// The free memory for this ask.
    pub(super) fn free_for(&self, pending: &Pending, guaranteed: bool) -> Room {
        let books = self.ledger.get(pending.device);
        let free = books.map_or_else(Room::default, Device::slack);
        free - self.kept_from(pending, guaranteed)
    }

    /// The free memory that this ask leaves alone. A burst leaves what better tenants queue for,
    /// which may be more than is free.
    pub(super) fn kept_from(&self, pending: &Pending, guaranteed: bool) -> Room {
        let mut kept = Room::default();
        if !guaranteed {
            let priority = self.tenants.priority(pending.tenant);
            kept.firm = self.kept_for_admission(pending.device, priority);
        }
        kept
    }

    /// Books it and answers. `used` is the part assumed to be charged from now on.
    pub(super) fn grant(&mut self, key: AskKey, pending: &Pending, level: Bytes, used: Bytes) {
        let (tenant, device) = (pending.tenant, pending.device);
        let fresh = !self.has_opened(key.0, device);
        let Some(books) = self.ledger.get_mut(device) else {
            return;
        };
        if let Want::Physical { bytes, .. } = pending.want {
            books.spend(bytes);
        }
        let overhead = match pending.want {
            Want::Context { cost, more } if fresh || more => cost,
            _ => Bytes::ZERO,
        };
        let booked = books.bookable(tenant);
        let changed = books.change(tenant, |account| {
            let raised = level > account.grant;
            let lowered = account.lowering.is_some_and(|lowering| lowering.to < level);
            if raised || lowered {
                account.lowering = None;
            }
            *account = account.grown(level, booked, Bytes::ZERO);
            let shown = account.used_by_page().max(used.min(account.grant));
            account.in_use = account.in_use.max(shown);
            account.late = account.in_use - shown;
            account.overhead += overhead;
            account.page_due()
        });
        let Some(grant) = changed else {
            return;
        };
        self.let_on((key.0, tenant), device, pending.since);
        match pending.want {
            Want::Context { more: true, .. } => self.begins_more(key, device, overhead),
            Want::Context { .. } if fresh => {
                let now = self.timers.now();
                if let Some(process) = self.tenants.process_mut(key.0) {
                    process.open_first(device, overhead, now);
                }
            }
            _ => (),
        }
        if !overhead.is_zero() {
            self.follow_parts_of(tenant, device);
        }
        self.show_grant(tenant, device);
        if matches!(pending.want, Want::Context { .. }) {
            self.joins_device(key.0, device);
        }
        self.answer(key, Answer::Granted { grant });
    }

    pub(in crate::world) fn has_opened(&self, process: ProcessId, device: DeviceId) -> bool {
        let known = self.tenants.process(process);
        let opened = known.and_then(|known| known.on(device));
        opened.is_some_and(|opened| !opened.is_bare())
    }

    /// Ends an ask, in one answer.
    pub(super) fn answer(&mut self, ask: AskKey, answer: Answer) {
        self.decide(Decision::Answer { ask, answer });
        self.forget(ask);
    }

    pub(super) fn cancel(&mut self, ask: AskKey) {
        if let Some(device) = self.asks.get(ask).map(|pending| pending.device) {
            self.forget(ask);
            self.freed(device);
        }
    }

    /// Takes an ask off every list.
    pub(super) fn forget(&mut self, ask: AskKey) {
        if self.asks.remove(ask) {
            self.timers.stop(Timer::Patience(ask));
        }
    }

    /// Gives an ask within its request the time to have a victim ended.
    pub(super) fn extend(&mut self, ask: AskKey) {
        self.extend_to(ask, self.timers.now() + self.policy.least_guarantee());
    }

    /// Extends the wait of an ask within its request until then. The wait is bounded by its asker's
    /// remaining time, and by the time to end two victims, each of which gives nothing back.
    fn extend_to(&mut self, ask: AskKey, until: Nanos) {
        if let Some(until) = self.asks.extend(ask, until) {
            self.timers.set(Timer::Patience(ask), until);
        }
    }

    pub(super) fn patience_over(&mut self, ask: AskKey) {
        let Some(pending) = self.asks.get(ask).copied() else {
            return;
        };
        if self.is_guaranteed(&pending) && !self.is_beside_dead(&pending) {
            // It may have been a burst when it asked, and the request was raised or siblings freed
            // since.
            let mut until = pending.since + self.policy.least_guarantee();
            if pending.counts_on_coming() {
                until = until.max(self.timers.now() + self.policy.limbo_grace);
            }
            self.extend_to(ask, until);
        }
        self.extend_turn(ask);
        let over = |pending: &Pending| pending.until <= self.timers.now();
        if let Some(pending) = self.asks.get(ask).copied().filter(over)
            && !self.is_kept_for_look(ask, &pending)
        {
            let waited = self.timers.now() - pending.since;
            self.answer(ask, Answer::Denied(Denial::TimedOut { waited }));
        }
        self.freed(pending.device);
    }
}

/// Whether `need` fits into `free`. A sum without a need is not checked, because facts may have
/// overdrawn it.
pub(super) fn covers(free: Room, need: Room) -> bool {
    (need.taken.is_zero() || need.taken <= free.taken)
        && (need.firm.is_zero() || need.firm <= free.firm)
}
