//! Containers that have a GPU and no limit of its memory ([ADR
//! 228](../../../docs/adr/0228-limits-can-be-mandatory.md)).

use gpushare_core::{DeviceId, Nanos};
use gpushare_protocol::injection::DEVICE_FILE;
use gpushare_protocol::limits::Limits;
use gpushare_protocol::wire::{ControlReply, ErrorCode, Injection, WireError};

use super::tenant::index;
use super::users::forbidden;
use super::{ConnId, Node};
use crate::containers::Unlimited;
use crate::foreign::Foreign;
use crate::groups::Groups;

/// What else a container may do that was given these devices and asks for nothing. No variable
/// takes from one the device files that its configuration has, and a privileged one has them all.
fn way_out(devices: &[String], labels: &[(String, String)]) -> String {
    if !devices.iter().all(|name| name.starts_with(DEVICE_FILE)) {
        return "give it no GPU (NVIDIA_VISIBLE_DEVICES=void)".to_owned();
    }
    let mut namespaces = labels.iter().filter(|(kind, _)| kind == "namespace");
    let whose = namespaces.next().map_or_else(
        || "that fits it".to_owned(),
        |(_, name)| format!("with namespace = {name:?}"),
    );
    format!(
        "give it no GPU's device file: a privileged container has them all, and runs by a rule {whose} and unlimited = \"allow\" ([[containers.rules]] of config.toml)"
    )
}

/// The kind of the label that has a scheduler's annotation.
const SCHEDULER: &str = "scheduler";

/// A container that is being created, has a GPU and asks for nothing, as its hook tells it
/// ([`gpushare_protocol::wire::Control::Unlimited`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silent {
    /// Its id.
    pub id: String,
    /// Its devices.
    pub devices: Vec<String>,
    /// Facts for the node's rules.
    pub labels: Vec<(String, String)>,
}

impl Node {
    /// A hook in these cgroups asks what becomes of a container that has a GPU and asks for
    /// nothing. With it comes the pidfd of the container's first process.
    ///
    /// Only root's hooks are believed about their container's namespace and image, and that it is
    /// one that a rule means: a user's says what that user likes.
    pub fn judge_container(
        &mut self,
        now: Nanos,
        command: (ConnId, u32),
        silent: Silent,
        (pidfd, asker): (Option<Foreign>, Groups),
    ) {
        let Silent {
            id,
            devices,
            mut labels,
        } = silent;
        self.believe(command.0, &mut labels);
        let reply = match self.may_be_unlimited((&id, &devices), &labels) {
            Ok(false) if self.users.of(command.0).is_none() && self.containers.exempts(&labels) => {
                if let Some(pidfd) = pidfd {
                    return self.name_allowed(now, command, id, (pidfd, asker));
                }
                ControlReply::Unlimited {
                    takes_maxima: false,
                }
            }
            Ok(takes_maxima) => ControlReply::Unlimited { takes_maxima },
            Err(error) => {
                self.tell_refused_silent(now, command.0, (&id, &labels), &error);
                ControlReply::Error(error)
            }
        };
        self.answer_command(command, reply);
    }

    /// Whether a container that has a GPU and asks for nothing takes the maxima, by the node's
    /// rules; else it may run as it is.
    fn may_be_unlimited(
        &self,
        (id, devices): (&str, &[String]),
        labels: &[(String, String)],
    ) -> Result<bool, WireError> {
        match self.containers.unlimited(labels) {
            Unlimited::Allow => Ok(false),
            Unlimited::Maxima => Ok(true),
            Unlimited::Deny => {
                let mut all = labels.iter();
                let beside = all.find(|(kind, _)| kind == SCHEDULER).map(|(_, text)| {
                    format!("; its annotation {text} is for a scheduler and limits nothing")
                });
                Err(forbidden(&format!(
                    "container {id} has a GPU ({}) and asks for no limit, which this node refuses ([containers] unlimited = \"deny\"){}; add gpushare.io/mem-limit (100% for all of it), or {}",
                    devices.join(","),
                    beside.unwrap_or_default(),
                    way_out(devices, labels),
                )))
            }
        }
    }

    /// Refuses a container for which nothing limits the memory of some device of its own, where
    /// limits are mandatory. One that asks for something may have said no limit, or only its image
    /// spoke: a priority would give it all of the device. One that takes the maxima may have a
    /// device that none of them is for.
    pub(super) fn may_lack_limits(
        &self,
        injection: &Injection,
        limits: &Limits,
        device_ids: &[DeviceId],
    ) -> Result<(), WireError> {
        let (word, by_the_node) = match self.containers.unlimited(&injection.labels) {
            Unlimited::Allow => return Ok(()),
            Unlimited::Deny => ("deny", ""),
            Unlimited::Maxima => (
                "maxima",
                ", or of the node a GPUSHARE_MEM_LIMIT in [maxima], [defaults] or its rule that is for this GPU too",
            ),
        };
        for (ordinal, device) in (0..).zip(device_ids) {
            let Some(known) = index(*device).and_then(|at| self.devices.get(at)) else {
                continue;
            };
            let capacity = known.capacity_under(self.capacity).0;
            let held = limits
                .for_device(ordinal, &known.uuid, capacity)
                .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))?;
            if held.limit.is_none() {
                return Err(forbidden(&format!(
                    "container {} has a GPU ({}) and nothing limits its memory there, which this node refuses ([containers] unlimited = \"{word}\"); accepted: the variable GPUSHARE_MEM_LIMIT or the annotation gpushare.io/mem-limit (100% for all of it){by_the_node}",
                    injection.id,
                    known.text(),
                )));
            }
        }
        Ok(())
    }
}
