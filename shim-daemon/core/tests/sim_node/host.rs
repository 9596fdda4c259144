//! The host budget of the simulated node. A tenant that is never moved takes more of it or less, so
//! that it suffices, is short, or is full.

use super::Sim;
use super::movers::Crowd;
use crate::node::secs;
use crate::node::swap::swapping;
use gpushare_core::{Bytes, DeviceId, Nanos, ProcessId, SwapPolicy, TenantId};

/// More than all limits of tenants that may be moved.
const BUDGET: Bytes = Bytes::gib(2048);
/// A cycle, the first one shorter: the budget suffices, then it is short, then it is full. A little
/// after the beginning turns are certain. Seconds.
const FIRST: u64 = 180;
const CYCLE: u64 = 600;
const SETTLES: u64 = 10;
const SHORT: u64 = 30;
const FULL: u64 = 30;

/// The tenant that takes the rest of the budget.
#[derive(Debug, Default)]
pub(super) struct Ballast(Option<(TenantId, ProcessId)>);

/// Patience of a fraction of the usual, so that bounds are short.
pub(super) fn policy(seed: u64) -> SwapPolicy {
    let spill = if seed.is_multiple_of(3) { 64 } else { 0 };
    SwapPolicy {
        host: BUDGET,
        spill: Bytes::gib(spill),
        stays: (Nanos::millis(50), secs(120)),
        seal: Nanos::millis(500),
        progress: Nanos::millis(500),
        look_grace: Nanos::millis(200),
        backoff: (Nanos::millis(100), secs(6)),
        first_rate: 400 << 30,
        ..SwapPolicy::default()
    }
}

impl Sim {
    pub(super) fn lay_ballast(&mut self) {
        let (tenant, process) = self.node.run(swapping(self.devices[0], 1));
        self.node.store.hoards.insert(process);
        self.host = Ballast(Some((tenant, process)));
    }

    /// So much of the host is the ballast's from now on.
    pub(super) fn ballast(&mut self, bytes: Bytes) {
        let Some((tenant, process)) = self.host.0 else {
            return;
        };
        let proc = self.node.processes.get_mut(&process).expect("it stays");
        proc.host = bytes;
        self.node.tell_held(tenant);
        self.node.pass(Nanos(1));
    }

    /// The budget suffices, then it is short, then it is full, and so on.
    pub(super) fn set_budget(&mut self, second: u64) {
        let (into, short) = match second.checked_sub(FIRST) {
            None => (second, FIRST - SHORT - FULL),
            Some(later) => (later % CYCLE, CYCLE - SHORT - FULL),
        };
        let left = match into {
            0 => BUDGET,
            SETTLES => return self.trust(),
            _ if into == short => Bytes::gib(48),
            _ if into == short + SHORT => Bytes::ZERO,
            _ => return,
        };
        let free = self.node.world.host().free();
        let (_, process) = self.host.0.expect("it was laid");
        let had = self.node.processes[&process].host;
        self.trust_none();
        self.ballast((had + free) - left);
    }

    /// Turns are certain where all obey.
    fn trust(&mut self) {
        for device in self.trusted() {
            self.node.trusts(device);
        }
    }

    pub(super) fn trust_none(&mut self) {
        self.node.returns.trusted.clear();
    }

    fn trusted(&self) -> Vec<DeviceId> {
        let all = (0..).zip(&self.devices);
        let trusted = all.filter(|(at, _)| Crowd::of(*at).is_trusted());
        trusted.map(|(_, device)| *device).collect()
    }
}
