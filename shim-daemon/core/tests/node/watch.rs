//! The invariants of a node that is too large for all of it to be checked after each event: those
//! of the devices that the event concerned. And what was seen there.

use super::Node;
use super::swap::Obeys;
use gpushare_core::{
    Bytes, Decision, DeviceId, Event, Nanos, Notice, Order, Oversubscribe, Place, ProcessId,
    Signal, TenantId, Why,
};
use std::collections::{BTreeMap, BTreeSet};

/// Beyond what its own work and its copies take, so long may an honest tenant take to leave: looks
/// confirm it, and a return may have to be given up first.
const SPARE: Nanos = Nanos::secs(2);

/// What is watched.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether it is.
    pub on: bool,
    /// The devices that the event concerns.
    touched: BTreeSet<DeviceId>,
    /// The tenants that may be moved, by device.
    movers: BTreeMap<DeviceId, BTreeSet<TenantId>>,
    /// Tenants that were ordered to leave, since when, and the latest end of that.
    leaving: BTreeMap<(TenantId, DeviceId), (Nanos, Nanos)>,
    pub seen: Seen,
}

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub left: u64,
    pub returned: u64,
    pub did_not_leave: u64,
    pub left_less: u64,
    pub slow_returns: u64,
    pub no_returns: u64,
    pub host_full: u64,
    pub thrashed: u64,
    pub suspended: u64,
    pub resumed: u64,
    pub terminated: u64,
    pub killed: u64,
    pub ended_idle: u64,
    pub ended_by_run_limit: u64,
    pub extended: u64,
    pub died_moving: u64,
    pub checks: u64,
}

impl Watch {
    /// The event concerns a device. Those on which nothing moves are checked after each operation.
    pub fn touch(&mut self, device: DeviceId) {
        if self.on && self.movers.get(&device).is_some_and(|all| !all.is_empty()) {
            self.touched.insert(device);
        }
    }

    /// A tenant reacts to orders in another way from now on: not to those that it has.
    pub(super) fn forgets_orders(&mut self, tenant: TenantId) {
        self.leaving.retain(|(of, _), _| *of != tenant);
    }

    /// A decision concerns a device.
    pub(super) fn notes(&mut self, decision: &Decision) {
        if !self.on {
            return;
        }
        match decision {
            Decision::SetGrant { device, .. }
            | Decision::Reclaim { device, .. }
            | Decision::Reside { device, .. }
            | Decision::Withhold { device, .. } => self.touch(*device),
            Decision::Extend { .. } => self.seen.extended += 1,
            Decision::Signal { signal, why, .. } => {
                match signal {
                    Signal::Terminate => self.seen.terminated += 1,
                    Signal::Kill => self.seen.killed += 1,
                }
                match why {
                    Why::Idle => self.seen.ended_idle += 1,
                    Why::RunLimit => self.seen.ended_by_run_limit += 1,
                    Why::Collision { .. } => {}
                }
            }
            Decision::Notice(notice) => self.seen.notes(notice),
            _ => {}
        }
    }
}

impl Seen {
    fn notes(&mut self, notice: &Notice) {
        let count = match notice {
            Notice::Left { .. } => &mut self.left,
            Notice::Returned { .. } => &mut self.returned,
            Notice::DidNotLeave { .. } => &mut self.did_not_leave,
            Notice::LeftLess { .. } => &mut self.left_less,
            Notice::SlowReturn { .. } => &mut self.slow_returns,
            Notice::NoReturn { .. } => &mut self.no_returns,
            Notice::HostFull { .. } => &mut self.host_full,
            Notice::Thrashing { .. } => &mut self.thrashed,
            Notice::Suspended { .. } => &mut self.suspended,
            Notice::Resumed { .. } => &mut self.resumed,
            _ => return,
        };
        *count += 1;
    }
}

/// The device that an event names.
fn named(event: &Event) -> Option<DeviceId> {
    match event {
        Event::Open { device, .. }
        | Event::OpenMore { device, .. }
        | Event::OpenAgain { device, .. }
        | Event::Ask { device, .. }
        | Event::Usage { device, .. }
        | Event::Reclaimed { device, .. }
        | Event::Moved { device, .. }
        | Event::WantsIn { device, .. }
        | Event::Sampled { device, .. } => Some(*device),
        _ => None,
    }
}

impl Node {
    /// A tenant that may be moved is watched from now on.
    pub fn watches(&mut self, tenant: TenantId) {
        for (device, _) in &self.guests[&tenant].spec.quotas {
            let movers = self.watch.movers.entry(*device).or_default();
            movers.insert(tenant);
        }
    }

    pub(super) fn watches_no_more(&mut self, tenant: TenantId) {
        for movers in self.watch.movers.values_mut() {
            movers.remove(&tenant);
        }
        self.watch.forgets_orders(tenant);
    }

    pub fn movers(&self, device: DeviceId) -> impl Iterator<Item = TenantId> {
        let movers = self.watch.movers.get(&device).into_iter().flatten();
        movers.copied()
    }

    /// A tenant got an order: until when it has to have left, if it is honest.
    pub(super) fn watches_order(&mut self, tenant: TenantId, device: DeviceId, order: Order) {
        if !self.watch.on {
            return;
        }
        let key = (tenant, device);
        match order {
            Order::Seal | Order::Leave => {
                let now = self.now;
                let moves = &self.guests[&tenant].moves;
                let copies = moves.time(self.charged(tenant, device));
                let until = now + moves.drain + copies + SPARE;
                self.watch.leaving.entry(key).or_insert((now, until));
            }
            Order::In | Order::Out | Order::Return | Order::Lost => {
                self.watch.leaving.remove(&key);
            }
        }
    }

    /// All that must hold on the devices that the event concerned.
    pub(super) fn check_concerned(&mut self, event: &Event) {
        named(event)
            .into_iter()
            .for_each(|device| self.watch.touch(device));
        for device in std::mem::take(&mut self.watch.touched) {
            self.watch.seen.checks += 1;
            self.world
                .check_device(device)
                .unwrap_or_else(|broken| panic!("{broken}, after {event:?}"));
            self.check_card(device);
            for tenant in self.movers(device) {
                self.check_copies(tenant, device);
                self.check_seals(tenant, device);
            }
            self.check_returns_to(device);
        }
        let host = self.world.host();
        assert!(host.counted <= host.budget, "{host:?}, after {event:?}");
    }

    /// I1 over bytes: what is on the card fits, and would if all tenants took what their pages
    /// allow and all that return did at once.
    fn check_card(&self, device: DeviceId) {
        let hardware = &self.devices[&device];
        if !hardware.foreign.is_zero() {
            return;
        }
        let held = self.physical(device);
        assert!(
            held <= hardware.capacity,
            "I1: {device:?} holds {held} of {}",
            hardware.capacity
        );
        let tenants: BTreeSet<TenantId> = self.on(device).map(|(_, proc)| proc.tenant).collect();
        let each = tenants.into_iter().filter(|tenant| !self.is_paged(*tenant));
        let more: Bytes = each.map(|tenant| self.may_take(tenant, device)).sum();
        let most = self.fixed(device) + more;
        assert!(
            most <= hardware.capacity,
            "I1: {device:?} of {} may come to hold {most}",
            hardware.capacity
        );
    }

    /// What a tenant may take of a device beside what it has there, without asking.
    fn may_take(&self, tenant: TenantId, device: DeviceId) -> Bytes {
        let guest = &self.guests[&tenant];
        let charged = self.charged(tenant, device);
        let processes = self.processes_of(tenant).into_iter();
        let away: Bytes = processes
            .map(|process| self.processes[&process].away(device))
            .sum();
        match self.world.place(tenant, device) {
            None | Some(Place::In | Place::Sealing) => {
                guest.page.get(&device).copied().unwrap_or_default() - charged
            }
            Some(Place::Entering) => {
                let withheld = guest.moves.withheld.get(&device).copied();
                away - withheld.unwrap_or_default()
            }
            Some(_) => Bytes::ZERO,
        }
    }

    /// I5 and I7 in the model's terms: each byte has one valid copy, no process works while one of
    /// its bytes is away, and the accounts count no byte as away that is on the card.
    fn check_copies(&self, tenant: TenantId, device: DeviceId) {
        let mut away = Bytes::ZERO;
        for process in self.processes_of(tenant) {
            let proc = &self.processes[&process];
            let (charged, home, gone) =
                (proc.charged(device), proc.home(device), proc.away(device));
            away += gone;
            assert!(
                gone <= home && home <= charged,
                "I5: of {charged} of {process:?} {home} are valid on the host and {gone} away"
            );
            assert!(
                home.is_zero() || proc.is_sealed(device),
                "I6: {process:?} of {tenant:?} works on {device:?} with {home} on the host"
            );
        }
        let Some(account) = self.world.account(tenant, device) else {
            return;
        };
        let here = self.charged(tenant, device) - away;
        assert!(
            self.is_paged(tenant) || here <= account.booked + account.excess,
            "I1: {here} of {tenant:?} are on {device:?}: {account:?}"
        );
    }

    fn is_paged(&self, tenant: TenantId) -> bool {
        let guest = self.guests.get(&tenant);
        guest.is_some_and(|guest| guest.spec.oversubscribe == Oversubscribe::Uvm)
    }

    /// A tenant that is in has no sealed process, and none is sealed for longer than a step takes.
    fn check_seals(&self, tenant: TenantId, device: DeviceId) {
        let Some(residence) = self.world.residence(tenant, device) else {
            return;
        };
        let processes = self.processes_of(tenant);
        let is_sealed = |process: &ProcessId| self.processes[process].is_sealed(device);
        let sealed = processes.iter().filter(|one| is_sealed(one)).count();
        assert!(
            residence.place != Place::In || sealed == 0,
            "{tenant:?} is in on {device:?} with {sealed} processes sealed"
        );
        let given = self.guests[&tenant].moves.given.get(&device).copied();
        let sealed = given.unwrap_or_default() + self.policy.swap.seal;
        assert!(
            residence.place != Place::Sealing || residence.since <= sealed,
            "{tenant:?} is being sealed on {device:?}: {residence:?}"
        );
        let honest = self.guests[&tenant].moves.obeys == Obeys::Honestly;
        let leaving = self.watch.leaving.get(&(tenant, device));
        assert!(
            leaving.is_none_or(|(_, until)| !honest || self.now <= *until),
            "{tenant:?} leaves {device:?} for too long: {leaving:?}, {residence:?}"
        );
    }
}
