//! Tenants that may be moved, on the simulated node: what they are, and what they do.

use super::Sim;
use crate::node::Manners;
use crate::node::secs;
use crate::node::swap::Obeys;
use gpushare_core::{
    Bytes, DeviceId, Event, Nanos, Oversubscribe, Place, Preemptible, ProcessId, Quota, Resolver,
    TenantId, TenantSpec,
};

/// The tenants of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crowd {
    /// None may be moved.
    Plain,
    /// Some may, among many that may not.
    Mixed,
    /// All swap.
    Swap,
    /// All have managed memory.
    Uvm,
    /// Few tenants of all kinds, which obey.
    Few,
    /// Few that may be moved, of which many do not obey.
    Liars,
}

impl Crowd {
    /// The crowd of each of 20 devices.
    pub(super) fn of(device: usize) -> Self {
        match device {
            0..14 => Self::Plain,
            14 | 15 => Self::Mixed,
            16 => Self::Swap,
            17 => Self::Uvm,
            18 => Self::Few,
            _ => Self::Liars,
        }
    }

    /// How many tenants it has. Those of the first 16 devices are 1,000 together.
    pub(super) fn size(self) -> u64 {
        match self {
            Self::Plain => 63,
            Self::Mixed => 59,
            _ => 12,
        }
    }

    /// Whether all of it obeys and no stranger comes: then each wait for the rotation is bounded.
    pub(super) fn is_trusted(self) -> bool {
        matches!(self, Self::Swap | Self::Uvm | Self::Few)
    }
}

impl Sim {
    /// Whether the next tenant of a crowd may be moved, and how.
    pub(super) fn draw_oversubscribe(&mut self, crowd: Crowd) -> Oversubscribe {
        let either = [Oversubscribe::Swap, Oversubscribe::Uvm];
        match crowd {
            Crowd::Plain => Oversubscribe::Off,
            Crowd::Swap => Oversubscribe::Swap,
            Crowd::Uvm => Oversubscribe::Uvm,
            Crowd::Mixed if !self.rng.one_in(4) => Oversubscribe::Off,
            Crowd::Few if self.rng.one_in(3) => Oversubscribe::Off,
            _ => *self.rng.pick(&either),
        }
    }

    /// The terms of a tenant that may be moved. The limits on a device add up to 1.5 to 4 times
    /// the card.
    pub(super) fn mover(
        &mut self,
        device: DeviceId,
        crowd: Crowd,
        oversubscribe: Oversubscribe,
    ) -> TenantSpec {
        let factor = 15 + 5 * (device.0 % 6);
        let card = 80 << 10;
        let mean = card * factor / 10 / crowd.size();
        let most = if oversubscribe == Oversubscribe::Uvm {
            2 * card
        } else {
            card / 2
        };
        let limit = (mean / 2 + self.rng.below(mean)).min(most);
        let limit = match crowd == Crowd::Uvm && self.rng.one_in(8) {
            // Managed memory may be more than the card.
            true => card + card / 4,
            false => limit,
        };
        let request = match self.rng.below(4) {
            0 => self.rng.below(limit / 3),
            _ => 0,
        };
        let quota = Quota {
            request: Bytes::mib(request),
            limit: Bytes::mib(limit),
        };
        let mut quotas = vec![(device, quota)];
        if crowd != Crowd::Mixed && self.rng.one_in(8) {
            let others = self.few.iter().filter(|other| **other != device);
            let others: Vec<DeviceId> = others.copied().collect();
            quotas.push((*self.rng.pick(&others), quota));
        }
        let mut on_collision = vec![Resolver::Swap];
        match self.rng.below(5) {
            0 => on_collision.push(Resolver::Priority),
            1 => (),
            2 => on_collision = vec![Resolver::Wait],
            _ => on_collision.push(Resolver::Wait),
        }
        TenantSpec {
            quotas,
            implied: Vec::new(),
            compute: Vec::new(),
            priority: 100 * u16::try_from(self.rng.below(10)).expect("small"),
            on_collision,
            wait_timeout: secs(1 + self.rng.below(30)),
            idle_after: secs(5),
            preemptible: match self.rng.below(12) {
                0 => Preemptible::Never,
                1 => Preemptible::Kill,
                _ => Preemptible::Swap,
            },
            oversubscribe,
            idle_end: self.draw_time_limit(),
            run_limit: self.draw_time_limit(),
            gang: None,
        }
    }

    /// How a new tenant's processes move.
    pub(super) fn draw_moves(&mut self, tenant: TenantId, crowd: Crowd) {
        let rng = &mut self.rng;
        let obeys = match crowd.is_trusted() || rng.one_in(3) {
            true => Obeys::Honestly,
            false => *rng.pick(&[
                Obeys::Busy,
                Obeys::Silently,
                Obeys::Lying,
                Obeys::Halting,
                Obeys::Failing,
                Obeys::Stopping,
            ]),
        };
        let Some(guest) = self.node.guests.get_mut(&tenant) else {
            return;
        };
        guest.manners = Manners::Stubborn;
        let moves = &mut guest.moves;
        moves.parts = 4;
        moves.works = !rng.one_in(5);
        moves.drain = Nanos::millis(rng.below(380));
        moves.rate = (200 + rng.below(300)) << 30;
        moves.residue = Bytes::mib(if rng.one_in(2) { rng.below(64) } else { 0 });
        self.node.obeys(tenant, obeys);
        self.node.watches(tenant);
    }

    /// A random step of one that may be moved, or of a neighbour of theirs.
    pub(super) fn operate_mover(&mut self, at: usize) {
        let (tenant, _) = self.tenants[at];
        let processes = self.node.processes_of(tenant);
        let Some(process) = (!processes.is_empty()).then(|| *self.rng.pick(&processes)) else {
            return self.node.finish(tenant);
        };
        let quotas = &self.node.guests[&tenant].spec.quotas;
        let (device, quota) = *self.rng.pick(quotas);
        let ready = self.node.processes[&process].contexts.contains_key(&device);
        match self.rng.below(100) {
            0..40 if ready && !self.node.is_asking(process) => {
                let most = (quota.limit.0 >> 20) / 2 + 1;
                let bytes = Bytes::mib(1 + self.rng.below(most));
                self.node.want(process, device, bytes);
            }
            40..48 if ready => {
                let bytes = Bytes::mib(1 + self.rng.below(400));
                self.node.charge(process, device, bytes);
            }
            48..60 => {
                let charged = self.node.processes[&process].charged(device);
                let part = Bytes(self.rng.below(charged.0 + 1));
                self.node.free(process, device, part);
            }
            60..84 => {
                self.node.tell(Event::Worked { tenant });
                self.node.call_where_out(tenant);
            }
            84..87 if processes.len() < 3 => {
                self.node.start(tenant);
            }
            87 => self.node.exit(process),
            88 => self.node.finish(tenant),
            89..92 => self.node.tell(Event::Suspend { tenant }),
            92..95 => self.node.tell(Event::Resume { tenant }),
            95..97 => self.dies_moving(device),
            97 => self.has_other_manners(tenant, device),
            _ => {}
        }
    }

    /// A process dies whose tenant moves.
    fn dies_moving(&mut self, device: DeviceId) {
        let node = &self.node;
        let moving = node.movers(device).filter(|tenant| {
            let place = node.world.place(*tenant, device);
            place.is_some_and(|place| !matches!(place, Place::In | Place::Out))
        });
        let processes = moving.flat_map(|tenant| node.processes_of(tenant));
        let processes: Vec<ProcessId> = processes.collect();
        if !processes.is_empty() {
            let process = *self.rng.pick(&processes);
            self.node.watch.seen.died_moving += 1;
            self.node.exit(process);
        }
    }

    /// One that does not obey does, and the other way round.
    fn has_other_manners(&mut self, tenant: TenantId, device: DeviceId) {
        if !self.crowd(device).is_trusted() {
            self.draw_moves(tenant, Crowd::Liars);
        }
    }
}
