//! Containers that have a GPU and ask for nothing ([ADR
//! 228](../../../docs/adr/0228-limits-can-be-mandatory.md)).

use gpushare_protocol::wire::{ControlReply, WireError};

use super::Node;
use super::users::forbidden;
use crate::containers::Unlimited;

/// The kind of the label that has a scheduler's annotation.
const SCHEDULER: &str = "scheduler";

impl Node {
    /// What becomes of a container that has a GPU and asks for nothing, by the node's rules.
    pub(super) fn may_be_unlimited(
        &self,
        (id, devices): (&str, &[String]),
        labels: &[(String, String)],
    ) -> Result<ControlReply, WireError> {
        let takes_maxima = match self.containers.unlimited(labels) {
            Unlimited::Allow => false,
            Unlimited::Maxima => true,
            Unlimited::Deny => {
                let mut all = labels.iter();
                let beside = all.find(|(kind, _)| kind == SCHEDULER).map(|(_, text)| {
                    format!("; its annotation {text} is for a scheduler and limits nothing")
                });
                return Err(forbidden(&format!(
                    "container {id} has a GPU ({}) and asks for no limit, which this node refuses ([containers] unlimited = \"deny\"){}; add gpushare.io/mem-limit (100% for all of it), or give it no GPU (NVIDIA_VISIBLE_DEVICES=void)",
                    devices.join(","),
                    beside.unwrap_or_default(),
                )));
            }
        };
        Ok(ControlReply::Unlimited { takes_maxima })
    }
}
