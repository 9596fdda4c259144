//! Processes end.

use gpushare_core::{Event, Nanos, ProcessId};
use gpushare_protocol::units::Bytes;

use super::Node;
use super::processes::Process;

impl Node {
    /// A process ended, by its pidfd.
    pub fn process_ended(&mut self, now: Nanos, process: ProcessId) {
        self.sample_last(now, process);
        let Some(known) = self.processes.reap(now, process) else {
            return match self.gives_up(process) {
                true => (),
                false => self.awaited_ended(now, process),
            };
        };
        self.asks.forget(process);
        self.away.ended(process);
        self.forget_moves(process, known.tenant());
        let charged = self.charged_by(&known);
        self.note_measures(known.tenant());
        self.happened(now, Event::ProcessGone { process, charged });
        self.leave(now, process, &known);
        self.end_if_unused(now, known.tenant());
    }

    /// The charges in a process's row, device by device.
    pub(super) fn charged_by(&self, known: &Process) -> Vec<(gpushare_core::DeviceId, Bytes)> {
        let mut charged = Vec::new();
        if let Some(tenant) = self.tenants.get(&known.tenant()) {
            let page = tenant.usage().view();
            for (device_index, device) in tenant.device_ids().iter().enumerate() {
                if let Some(line) = page.line(known.slot(), device_index) {
                    let units = u64::from(line.word.load().charged);
                    charged.push((*device, Bytes(units * gpushare_protocol::page::UNIT)));
                }
            }
        }
        charged
    }

    /// Frees the row of a process that is over, and that the brain does not have any more. Its
    /// tenant goes on, whether or not anything keeps it.
    pub(super) fn leave(&mut self, now: Nanos, process: ProcessId, known: &Process) {
        self.note_measures(known.tenant());
        self.note_ended_leases(now, known.tenant());
        let of = (known.tenant(), known.slot(), known.peer().pid);
        self.read_line(process, of);
        self.tell_refused(now, known.tenant(), false);
        if let Some(tenant) = self.tenants.get_mut(&known.tenant()) {
            tenant.tally_mut().left(process);
            tenant.unseat(known.slot(), process);
        }
    }
}
