//! Processes that have nothing on a device from which their tenant leaves. They are sealed with the
//! others, as the library does it, and answer that order alone.

use super::Node;
use super::swap::{Obeys, busy};
use gpushare_core::{DeviceId, Event, Order, ProcessId, TenantId, Told};

impl Node {
    /// Whether the process has no context on the device. One that has contexts elsewhere then says
    /// whether it is sealed.
    pub(super) fn obeys_beside(
        &mut self,
        (tenant, process): (TenantId, ProcessId),
        device: DeviceId,
        epoch: u32,
        order: Order,
    ) -> bool {
        let (proc, moves) = (&self.processes[&process], &self.guests[&tenant].moves);
        if proc.contexts.contains_key(&device) {
            return false;
        }
        let answers = !proc.contexts.is_empty() && !proc.deaf && moves.obeys != Obeys::Silently;
        if order == Order::Seal && answers {
            let given = moves.given[&device];
            let (after, told) = match moves.obeys {
                Obeys::Busy => (moves.drain, busy(false)),
                _ if proc.spins || moves.drain > given => (given, busy(true)),
                _ => (moves.drain, Told::Sealed),
            };
            let event = Event::Moved {
                process,
                device,
                epoch,
                told,
            };
            self.post(self.now + after, event);
        }
        true
    }
}
