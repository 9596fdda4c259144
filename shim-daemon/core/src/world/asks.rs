//! The asks of a node that are not answered yet, by their key, their device and their process.

use super::pending::{Pending, Want};
use crate::ids::{AskId, AskKey, DeviceId, ProcessId, TenantId};
use crate::resolver::Resolver;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// See the module's page. An ask is on the list of its device for as long as it is known.
#[derive(Debug, Default)]
pub(super) struct Asks {
    all: BTreeMap<AskKey, Pending>,
    on: BTreeMap<DeviceId, BTreeSet<AskKey>>,
}

impl Asks {
    pub(super) fn get(&self, ask: AskKey) -> Option<&Pending> {
        self.all.get(&ask)
    }

    pub(super) fn add(&mut self, ask: AskKey, pending: Pending) {
        self.on.entry(pending.device).or_default().insert(ask);
        self.all.insert(ask, pending);
    }

    /// Takes an ask off all lists. Says whether it was on them.
    pub(super) fn remove(&mut self, ask: AskKey) -> bool {
        let Some(pending) = self.all.remove(&ask) else {
            return false;
        };
        if let Some(on) = self.on.get_mut(&pending.device) {
            on.remove(&ask);
        }
        true
    }

    /// Those on a device.
    pub(super) fn on(&self, device: DeviceId) -> impl Iterator<Item = (AskKey, &Pending)> {
        let on = self.on.get(&device).into_iter().flatten();
        on.filter_map(|ask| Some((*ask, self.all.get(ask)?)))
    }

    pub(super) fn count_on(&self, device: DeviceId) -> usize {
        self.on.get(&device).map_or(0, BTreeSet::len)
    }

    /// Those of a process.
    pub(super) fn of(&self, process: ProcessId) -> impl Iterator<Item = (AskKey, &Pending)> {
        let keys = (process, AskId(0))..=(process, AskId(u64::MAX));
        self.all.range(keys).map(|(ask, pending)| (*ask, pending))
    }

    /// Asks that miss memory that other tenants would have to free.
    pub(super) fn short(&self) -> impl Iterator<Item = (AskKey, &Pending)> {
        let all = self.all.iter().map(|(ask, pending)| (*ask, pending));
        all.filter(|(_, pending)| !pending.short.is_zero())
    }

    /// Lets an ask wait until then, but no longer than its asker can. Returns until when it waits.
    pub(super) fn extend(&mut self, ask: AskKey, until: Nanos) -> Option<Nanos> {
        let pending = self.all.get_mut(&ask)?;
        pending.until = pending.until.max(until.min(pending.latest));
        Some(pending.until)
    }

    /// Notes whether the turn of an ask in the rotation is certain.
    pub(super) fn set_turn(&mut self, ask: AskKey, certain: bool) {
        if let Some(pending) = self.all.get_mut(&ask) {
            pending.turn = certain;
        }
    }

    /// Lets an ask whose turn is certain wait until then, past its own time.
    pub(super) fn wait_turn(&mut self, ask: AskKey, until: Nanos) {
        if let Some(pending) = self.all.get_mut(&ask) {
            pending.until = pending.until.max(until);
        }
    }

    /// Notes what an ask waits for. Returns it if that was not said of it before.
    pub(super) fn waits_for(
        &mut self,
        ask: AskKey,
        short: Bytes,
        by: Option<Resolver>,
    ) -> Option<Pending> {
        let pending = self.all.get_mut(&ask)?;
        pending.short = if by == Some(Resolver::Wait) {
            short
        } else {
            Bytes::ZERO
        };
        if pending.short.is_zero() {
            pending.stuck = None;
        }
        pending.told = Some(by);
        pending.said.add(by).then_some(*pending)
    }

    /// Marks as stuck exactly the asks that no running process can end: since `now` if they were
    /// not before.
    pub(super) fn stuck(&mut self, hopeless: &BTreeSet<AskKey>, now: Nanos) {
        for (ask, pending) in &mut self.all {
            let stuck = hopeless.contains(ask);
            pending.stuck = stuck.then(|| pending.stuck.unwrap_or(now));
        }
    }

    /// An ask is stuck since `now`, whatever was before.
    pub(super) fn stuck_anew(&mut self, ask: AskKey, now: Nanos) {
        if let Some(pending) = self.all.get_mut(&ask) {
            pending.stuck = Some(now);
        }
    }

    /// A context on a device is expected to take so much.
    pub(super) fn expect(&mut self, device: DeviceId, context: Bytes) {
        for ask in self.on.get(&device).into_iter().flatten() {
            let pending = self.all.get_mut(ask);
            if let Some(Want::Context { cost, .. }) = pending.map(|pending| &mut pending.want) {
                *cost = context;
            }
        }
    }

    /// A tenant has no more than this charged on a device: its asks there need not wait for memory
    /// that it freed.
    pub(super) fn lower(&mut self, device: DeviceId, tenant: TenantId, in_use: Bytes) {
        for ask in self.on.get(&device).into_iter().flatten() {
            let pending = self.all.get_mut(ask);
            let pending = pending.filter(|pending| pending.tenant == tenant);
            if let Some(Want::Credit { held, .. }) = pending.map(|pending| &mut pending.want) {
                *held = in_use.min(*held);
            }
        }
    }

    /// The opposite: it has as much charged. Returns the asks that exceed one of these bounds by
    /// that, and did not before.
    pub(super) fn raise(
        &mut self,
        device: DeviceId,
        tenant: TenantId,
        in_use: Bytes,
        bounds: [Bytes; 2],
    ) -> Vec<AskKey> {
        let mut beyond = Vec::new();
        for ask in self.on.get(&device).into_iter().flatten() {
            let pending = self.all.get_mut(ask);
            let pending = pending.filter(|pending| pending.tenant == tenant);
            if let Some(Want::Credit { held, bytes }) = pending.map(|pending| &mut pending.want) {
                let before = *held + *bytes;
                *held = in_use.max(*held);
                let after = *held + *bytes;
                if bounds.iter().any(|most| before <= *most && after > *most) {
                    beyond.push(*ask);
                }
            }
        }
        beyond
    }

    /// Whether the lists of the devices agree with the asks.
    ///
    /// # Errors
    /// The first ask that is on one of them only.
    pub(super) fn check(&self) -> Result<(), String> {
        self.on
            .keys()
            .try_for_each(|device| self.check_on(*device))?;
        let listed: usize = self.on.values().map(BTreeSet::len).sum();
        if listed == self.all.len() {
            Ok(())
        } else {
            Err(format!("{} asks, {listed} of them listed", self.all.len()))
        }
    }

    /// Whether the list of a device is of asks that wait there.
    ///
    /// # Errors
    /// The first that does not.
    pub(super) fn check_on(&self, device: DeviceId) -> Result<(), String> {
        let mut listed = self.on.get(&device).into_iter().flatten();
        let strange = listed.find(|ask| {
            let known = self.all.get(ask);
            known.is_none_or(|pending| pending.device != device)
        });
        strange.map_or(Ok(()), |ask| {
            Err(format!("{device:?}: {ask:?} waits and is not known"))
        })
    }
}
