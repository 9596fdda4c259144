//! Waiters that wait on each other.
//!
//! A waiting ask has hope as long as a process runs that could free the missing memory: a process
//! of a tenant that does not wait, or waits with hope; a dead process; an unmanaged process. Asks
//! without hope for a whole grace period are a cycle. A single ask may be one: it waits for itself.
//! Then the best of them that fits is served out of order; else the lowest, youngest is refused,
//! because its program can then act on the error.

use super::World;
use super::ask::covers;
use super::pending::{Pending, Want};
use crate::decision::{Answer, Denial};
use crate::ids::{AskKey, DeviceId, TenantId};
use crate::ledger::Device;
use crate::time::Nanos;
use crate::timers::Timer;
use gpushare_protocol::units::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(super) fn check_cycles(&mut self) {
        let now = self.timers.now();
        let hopeless = self.hopeless();
        self.asks.stuck(&hopeless, now);
        if self.asks.short().next().is_some() {
            self.timers.set(Timer::Cycle, now + self.policy.cycle_grace);
        }
        let due = |ask: &&AskKey| {
            let stuck = self.asks.get(**ask).and_then(|pending| pending.stuck);
            stuck.is_some_and(|since| since + self.policy.cycle_grace <= now)
        };
        let due: Vec<AskKey> = hopeless.iter().filter(due).copied().collect();
        if !due.is_empty() {
            self.break_cycle(due);
        }
    }

    fn break_cycle(&mut self, mut stuck: Vec<AskKey>) {
        let now = self.timers.now();
        stuck.sort_by_key(|ask| self.cycle_rank(*ask));
        let fits = stuck
            .iter()
            .rev()
            .copied()
            .find(|ask| self.fits_out_of_turn(*ask));
        for ask in &stuck {
            self.asks.stuck_anew(*ask, now);
        }
        let Some(ask) = fits.or_else(|| stuck.first().copied()) else {
            return;
        };
        let Some(pending) = self.asks.get(ask).copied() else {
            return;
        };
        match (fits, pending.want) {
            (Some(_), Want::Credit { held, bytes }) => {
                self.grant(ask, &pending, held + bytes, held + bytes);
                self.raise_wants(&pending, held + bytes);
            }
            (Some(_), _) => self.grant(ask, &pending, Bytes::ZERO, Bytes::ZERO),
            (None, _) => self.answer(ask, Answer::Denied(Denial::Cycle)),
        }
        self.freed(pending.device);
    }

    /// Lowest, youngest first; asks within a request last.
    fn cycle_rank(&self, ask: AskKey) -> (bool, u16, Reverse<Nanos>, Reverse<AskKey>) {
        let Some(pending) = self.asks.get(ask) else {
            return (true, u16::MAX, Reverse(self.timers.now()), Reverse(ask));
        };
        (
            self.is_guaranteed(pending),
            self.tenants.priority(pending.tenant),
            Reverse(pending.since),
            Reverse(ask),
        )
    }

    pub(super) fn is_guaranteed(&self, pending: &Pending) -> bool {
        let account = self.ledger.account(pending.device, pending.tenant);
        account.is_some_and(|account| pending.want.guaranteed(account))
    }

    /// Whether only the order of waiters keeps it waiting.
    fn fits_out_of_turn(&self, ask: AskKey) -> bool {
        let Some(pending) = self.asks.get(ask) else {
            return false;
        };
        if self.is_beside_dead(pending) {
            return false;
        }
        let level = match pending.want {
            Want::Credit { held, bytes } => held + bytes,
            Want::Context { .. } => Bytes::ZERO,
            Want::Physical { .. } => return false,
        };
        let guaranteed = self.is_guaranteed(pending);
        covers(
            self.free_for(pending, guaranteed),
            self.need(ask, pending, level, guaranteed),
        )
    }

    /// The asks that no running process can end.
    fn hopeless(&self) -> BTreeSet<AskKey> {
        let waits = self.asks.short();
        let mut hopeless: BTreeSet<AskKey> = waits.map(|(ask, _)| ask).collect();
        loop {
            let halted = self.halted(&hopeless);
            let coming: BTreeMap<DeviceId, Bytes> = self
                .ledger
                .all()
                .map(|(device, books)| (device, may_come(books, &halted)))
                .collect();
            let has_hope = |ask: &AskKey| {
                let pending = self.asks.get(*ask)?;
                Some(*coming.get(&pending.device)? >= pending.short)
            };
            let hopeful: Vec<AskKey> = hopeless
                .iter()
                .copied()
                .filter(|ask| has_hope(ask).unwrap_or(true))
                .collect();
            if hopeful.is_empty() {
                return hopeless;
            }
            for ask in hopeful {
                hopeless.remove(&ask);
            }
        }
    }

    /// Tenants all of whose processes wait without hope.
    fn halted(&self, hopeless: &BTreeSet<AskKey>) -> BTreeSet<TenantId> {
        let waiting: BTreeSet<TenantId> = hopeless
            .iter()
            .filter_map(|ask| self.asks.get(*ask))
            .map(|pending| pending.tenant)
            .collect();
        let halts = |tenant: &TenantId| {
            let mut processes = self.tenants.members(*tenant);
            processes.all(|(process, _)| {
                let mut asks = self.asks.of(process);
                asks.any(|(ask, _)| hopeless.contains(&ask))
            })
        };
        waiting.into_iter().filter(halts).collect()
    }
}

/// The memory that may become free on a device: limbo, unmanaged memory, and the memory of tenants
/// that are not halted.
fn may_come(books: &Device, halted: &BTreeSet<TenantId>) -> Bytes {
    let running = books
        .accounts()
        .filter(|(tenant, _)| !halted.contains(tenant));
    let held: Bytes = running.map(|(_, account)| account.held()).sum();
    books.in_limbo() + books.unmanaged() + held
}
