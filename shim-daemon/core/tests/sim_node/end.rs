//! The end of a run: all programs stop asking, and everything drains.

use super::Sim;
use super::host::Ballast;
use crate::node::secs;
use crate::node::swap::Obeys;
use gpushare_core::{Bytes, DeviceId, Event, Nanos, Place, TenantId};

impl Sim {
    /// Programs obey from now on and ask for nothing more; strangers go. All waits end, all moves
    /// end; and once they have freed their memory and then gone, nothing is left of them.
    pub(super) fn ends(&mut self) {
        self.stop();
        self.rest_until("waits end", |sim| sim.waits().is_none());
        self.rest_until("all memory is freed", |sim| {
            sim.free_all();
            sim.holds().is_none()
        });
        for tenant in self.all() {
            self.node.finish(tenant);
        }
        self.rest_until("all is gone", |sim| sim.remains().is_none());
    }

    fn stop(&mut self) {
        self.ballast(Bytes::ZERO);
        self.host = Ballast::default();
        self.trust_none();
        for hardware in self.node.devices.values_mut() {
            (hardware.foreign, hardware.linger) = (Bytes::ZERO, Some(Nanos::ZERO));
        }
        for tenant in self.all() {
            self.node.obeys(tenant, Obeys::Honestly);
            let guest = self.node.guests.get_mut(&tenant);
            guest.expect("it runs").moves.works = false;
        }
        for tenant in self.all() {
            self.node.tell(Event::Resume { tenant });
        }
    }

    fn all(&self) -> Vec<TenantId> {
        self.node.guests.keys().copied().collect()
    }

    fn rest_until(&mut self, what: &str, done: impl Fn(&mut Self) -> bool) {
        for second in 0..900 {
            if done(self) {
                return;
            }
            self.node.pass(secs(1));
            self.look(second % 2 == 0);
        }
        let states = [self.waits(), self.holds(), self.remains()];
        panic!("{what}: it does not come to rest: {states:?}");
    }

    /// An ask, a tenant that waits to return, or one that moves.
    fn waits(&self) -> Option<String> {
        let asks = self.node.asks.iter().next();
        let ask = asks.map(|(ask, wanted)| format!("{ask:?} waits: {wanted:?}"));
        let returns = self.node.returns.waiting.keys().next();
        let returns = returns.map(|wait| format!("{wait:?} waits to return"));
        let moves = self.residences(|place| !matches!(place, Place::In | Place::Out));
        ask.or(returns).or(moves)
    }

    fn residences(&self, strange: impl Fn(Place) -> bool) -> Option<String> {
        let devices = self.devices.iter();
        let mut all = devices.flat_map(|device| {
            let movers = self.node.movers(*device);
            movers.map(move |tenant| (tenant, *device))
        });
        let found = all.find_map(|(tenant, device)| {
            let residence = self.node.world.residence(tenant, device)?;
            strange(residence.place).then_some((tenant, device, residence))
        })?;
        Some(format!("{found:?}"))
    }

    /// All free what they have. Those that are out do so too and come back with nothing.
    fn free_all(&mut self) {
        for tenant in self.all() {
            let devices: Vec<DeviceId> = self.node.guests[&tenant]
                .spec
                .quotas
                .iter()
                .map(|(device, _)| *device)
                .collect();
            for process in self.node.processes_of(tenant) {
                for device in &devices {
                    self.node.free(process, *device, Bytes::MAX);
                }
            }
            self.node.call_where_out(tenant);
        }
    }

    /// What is sealed, reserved, away or granted though no program has any memory.
    fn holds(&self) -> Option<String> {
        let moves = self.residences(|place| place != Place::In);
        let host = self.node.world.host();
        let reserved = (!host.reserved.is_zero()).then(|| format!("{host:?}"));
        let sealed = self.node.processes.iter().find(|(_, proc)| {
            let mut on = self.devices.iter();
            on.any(|device| proc.is_sealed(*device) || !proc.away(*device).is_zero())
        });
        let sealed = sealed.map(|sealed| format!("sealed: {sealed:?}"));
        let waiting = self.waits();
        moves.or(reserved).or(sealed).or(waiting)
    }

    /// What is taken on a device or of the host though there is no tenant.
    fn remains(&self) -> Option<String> {
        let mut devices = self.devices.iter();
        let taken = devices.find_map(|device| {
            let view = self.node.world.device(*device)?;
            let some = !view.taken.is_zero() || view.waiting > 0;
            some.then(|| format!("{view:?}"))
        });
        let host = self.node.world.host();
        let counted = (!host.counted.is_zero()).then(|| format!("{host:?}"));
        taken.or(counted)
    }
}
