//! Memory on the host that cannot be stored in files: a command that wants it there is refused, or
//! told of it.

use gpushare_core::{Event, Nanos, ProcessId, TenantId};
use gpushare_protocol::page::residency::Movability;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::{ConnId, Node};

impl Node {
    /// A tenant that a command may suspend to a file.
    pub(super) fn storable_by_name(&self, from: ConnId, name: &str) -> Result<TenantId, WireError> {
        let tenant = self.suspendable(from, name)?;
        match self.why_not_stored(tenant) {
            None => Ok(tenant),
            Some(why) => {
                let text =
                    format!("{name} cannot be suspended to a file: {why}; suspend it without --to");
                Err(WireError::new(ErrorCode::OutOfOrder, text))
            }
        }
    }

    /// Why not all of a tenant's memory could be stored in a file.
    fn why_not_stored(&self, tenant: TenantId) -> Option<String> {
        let known = self.tenants.get(&tenant)?;
        if known.control().view().movability() == Movability::Managed {
            let text =
                "under GPUSHARE_OVERSUBSCRIBE=uvm its memory on the host is its programs' own";
            return Some(text.to_owned());
        }
        let keeps = |process: &ProcessId| !self.residency.host.unstorable(*process).is_zero();
        let stays = known.members().find(keeps);
        stays.map(|process| self.why_it_stays(process))
    }

    fn why_it_stays(&self, process: ProcessId) -> String {
        let known = self.processes.get(process);
        let pid = known.map_or(0, |known| known.peer().pid);
        format!(
            "process {pid} has {} on the host from before the daemon was started, and has not \
             shown the file that they are in",
            self.residency.host.unstorable(process).human()
        )
    }

    /// A command's tenant is out, and nothing more of its memory can be stored, though some is on
    /// the host: the command ends with the reason.
    pub(super) fn give_up_unstorable(&mut self) {
        let all = self.residency.storing.elsewhere.iter();
        let waited = all.filter(|(tenant, one)| {
            !one.told && self.storable(**tenant).is_zero() && self.world.has_left(**tenant)
        });
        let stay: Vec<_> = waited
            .filter_map(|(tenant, _)| Some((*tenant, self.stays(*tenant)?)))
            .collect();
        for (tenant, why) in stay {
            self.residency.storing.elsewhere.remove(&tenant);
            self.not_suspended_to(tenant, &why);
            self.event("spill-failed", Some(tenant), None, why);
        }
    }

    /// What of a tenant's memory stays on the host whatever it is asked, and why.
    fn stays(&self, tenant: TenantId) -> Option<String> {
        let known = self.tenants.get(&tenant)?;
        let host = &self.residency.host;
        let process = known
            .members()
            .find(|process| !host.unstorable(*process).is_zero())?;
        let all: Bytes = known.members().map(|one| host.unstorable(one)).sum();
        let why = self.why_it_stays(process);
        Some(format!("{} of it cannot be stored: {why}", all.human()))
    }

    /// Tells the brain of tenants that are out, all of whose memory is found in files that are not
    /// the node's, as after a restart: nothing on the host is to be reserved for them.
    pub(super) fn tell_found_elsewhere(&mut self, now: Nanos) {
        let all = self.tenants.keys().copied();
        let found: Vec<TenantId> = all.filter(|one| self.is_found_elsewhere(*one)).collect();
        for tenant in found {
            self.happened(now, Event::Elsewhere { tenant });
        }
    }

    fn is_found_elsewhere(&self, tenant: TenantId) -> bool {
        let Some(known) = self.tenants.get(&tenant) else {
            return false;
        };
        let places = known.device_ids().iter();
        let places = places.filter_map(|device| self.world.residence(tenant, *device));
        let reserved: Bytes = places.map(|place| place.host).sum();
        let has_some = |process| {
            let (stored, before) = self.residency.storing.of_nodes(process);
            let on_host = self.residency.host.given(process);
            !(stored + before + on_host).is_zero()
        };
        !reserved.is_zero()
            && self.stored_of(tenant) >= reserved
            && !known.members().any(has_some)
            && self.world.is_out_everywhere(tenant)
    }
}
