//! A pod's container has to have been given the devices that it names ([ADR
//! 252](../../../docs/adr/0252-a-pod-names-devices-that-it-was-given.md)).

use std::collections::BTreeSet;

use gpushare_core::DeviceId;
use gpushare_inject::request::GIVEN;
use gpushare_protocol::wire::{Injection, WireError};

use super::Node;
use super::tenant::index;
use super::users::forbidden;

impl Node {
    /// Refuses a pod's container that names a device which nothing gave it: its request would take
    /// room there from those that have the device. A container of an older hook, or of no pod, says
    /// nothing of what it was given; one that was given what is no name of a device here, such as
    /// an index of a MIG instance, says nothing that can be compared.
    pub(super) fn are_given(
        &self,
        injection: &Injection,
        device_ids: &[DeviceId],
    ) -> Result<(), WireError> {
        let labels = injection.labels.iter();
        let given = labels.filter(|(kind, _)| kind == GIVEN);
        let given: BTreeSet<&str> = given.map(|(_, name)| name.as_str()).collect();
        let is_told = !given.is_empty();
        if injection.devices.is_empty() || !is_told || given.contains("all") {
            return Ok(());
        }
        let mut places = BTreeSet::new();
        for name in given.iter().filter(|name| !name.is_empty()) {
            let known: Vec<usize> = self.known_as(name).map(|(at, _)| at).collect();
            if known.is_empty() {
                return Ok(());
            }
            places.extend(known);
        }
        let mut own = device_ids.iter().filter_map(|id| index(*id));
        let Some(other) = own.find(|at| !places.contains(at)) else {
            return Ok(());
        };
        let has: Vec<&str> = given.into_iter().filter(|name| !name.is_empty()).collect();
        let has = match has.is_empty() {
            true => "no GPU".to_owned(),
            false => has.join(","),
        };
        let name = self.devices.get(other).map(|device| device.text());
        Err(forbidden(&format!(
            "container {} names a GPU that it was not given ({}): the engine's configuration gives it {has}; accepted: some of those in gpushare.io/devices, or in the pod's variable that names it (NVIDIA_VISIBLE_DEVICES, DOCKER_RESOURCE_GPU), or neither",
            injection.id,
            name.unwrap_or_default(),
        )))
    }
}
