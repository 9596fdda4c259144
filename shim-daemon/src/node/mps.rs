//! Processes that are MPS clients: MPS shares their compute, and keeps their part of it as it was
//! when they started.

use gpushare_core::ProcessId;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use super::processes::Process;
use super::tenant::Tenant;

/// How the variables begin that say a part of a device's time.
const PARTS: &str = "GPUSHARE_SM_";

impl Node {
    /// A registered process says that it is an MPS client.
    pub fn is_mps_client(&mut self, process: ProcessId) {
        if let Some(known) = self.processes.get_mut(process) {
            known.set_mps_client();
        }
    }

    /// Whether any of its processes is one.
    pub(super) fn has_mps_clients(&self, tenant: &Tenant) -> bool {
        let mut members = tenant.members();
        members.any(|member| {
            let known = self.processes.get(member);
            known.is_some_and(Process::is_mps_client)
        })
    }

    /// Refuses a change of a part that MPS would not see.
    pub(super) fn may_change_part(
        &self,
        tenant: &Tenant,
        changes: &[(String, String)],
    ) -> Result<(), WireError> {
        let part = changes.iter().find(|(name, _)| name.starts_with(PARTS));
        let Some((name, value)) = part.filter(|_| self.has_mps_clients(tenant)) else {
            return Ok(());
        };
        let text = format!(
            "{name}={value:?} is refused: {} has MPS clients, whose part of the device MPS keeps as it was at their start; start them \
             again with another --sm-limit",
            tenant.registration().name
        );
        Err(WireError::new(ErrorCode::BadLimits, text))
    }
}
