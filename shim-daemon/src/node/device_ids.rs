//! Devices by UUID and by the brain's number.

use std::collections::BTreeMap;

use gpushare_core::DeviceId;
use gpushare_protocol::injection::DEVICE_FILE;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use super::tenant::index;
use crate::devices::Device;

/// Digits of a short UUID at least: Docker's example of a resource of Swarm has seven. `MIG-2` may
/// mean an index.
const FEWEST: usize = 6;

/// Whether a device's UUID begins with this name: `GPU-` or `MIG-` and [`FEWEST`] digits at least.
fn begins(device: &Device, name: &str) -> bool {
    let text = device.text();
    let digits = name.get("GPU-".len()..).unwrap_or_default();
    digits.len() >= FEWEST
        && text.get(..name.len()).is_some_and(|start| {
            let (kind, rest) = start.split_at("GPU-".len());
            name.starts_with(kind) && digits.eq_ignore_ascii_case(rest)
        })
}

/// The beginning of the refusal of a container that names no device where there are several.
fn nameless(labels: &[(String, String)]) -> String {
    let of_pod = labels.iter().find(|(kind, _)| kind == "pod_container");
    match of_pod {
        Some((_, name)) => format!(
            "container {name} names no device and this node has several; if it is to have no part of a GPU, leave it out: annotation gpushare.io/containers with the names of the pod's other containers; else "
        ),
        None => "the container names no device and this node has several; ".to_owned(),
    }
}

impl Node {
    /// The devices a registration names, or all.
    pub(super) fn device_ids(&self, uuids: &[[u8; 16]]) -> Result<Vec<DeviceId>, WireError> {
        let id = |at: usize| DeviceId(at as u64);
        if uuids.is_empty() {
            let there = (0..self.devices.len()).filter(|at| !self.looks.is_lost(*at));
            return Ok(there.map(id).collect());
        }
        let find = |uuid: &[u8; 16]| {
            let at = self.devices.iter().position(|device| device.uuid == *uuid);
            let text = match at {
                Some(at) if self.looks.is_lost(at) => format!(
                    "device {} is lost: it does not answer any more; use another, or restart the daemon once it is back",
                    self.devices[at].text()
                ),
                Some(at) => return Ok(id(at)),
                None => format!("this node has no device {}", Uuid(*uuid)),
            };
            Err(WireError::new(ErrorCode::NotFound, text))
        };
        uuids.iter().map(find).collect()
    }

    /// Whether any device is there for a new container.
    ///
    /// # Errors
    /// Why none is.
    fn has_devices(&self) -> Result<(), String> {
        let all = self.devices.len();
        match (0..all).any(|at| !self.looks.is_lost(at)) {
            true => Ok(()),
            false if all == 0 => Err("this node has no device".to_owned()),
            false => Err(
                "each device of this node is lost: it does not answer any more; restart the daemon once one is back"
                    .to_owned(),
            ),
        }
    }

    /// The devices that a container with these labels, or a class, names, or the node's only one.
    /// Names are a set, as for the tools that bring the devices: one may be there twice, for each
    /// of its replicas, and the programs count their devices in the node's order, whatever the
    /// order of the names. A UUID may be short, as for NVIDIA's tools, if one device alone begins
    /// so.
    pub(super) fn devices_named(
        &self,
        names: &[String],
        labels: &[(String, String)],
    ) -> Result<Vec<DeviceId>, WireError> {
        let refuse = |text: String| WireError::new(ErrorCode::NotFound, text);
        self.has_devices().map_err(refuse)?;
        let listed = || {
            let rows = self.devices.iter().enumerate();
            let rows = rows.map(|(at, device)| format!("{at} ({})", device.text()));
            rows.collect::<Vec<_>>().join(", ")
        };
        if names.iter().any(|name| name == "all") && names.len() == 1 {
            return self.device_ids(&[]);
        }
        if names.is_empty() {
            return match self.devices.len() {
                1 => self.device_ids(&[]),
                _ => Err(refuse(format!(
                    "{}name its devices (annotation gpushare.io/devices): all, or some of {}",
                    nameless(labels),
                    listed()
                ))),
            };
        }
        let mut wanted = BTreeMap::new();
        for name in names {
            let mut all = self.known_as(name);
            let known = all.next();
            if all.next().is_some() {
                let what = match name.strip_prefix(DEVICE_FILE) {
                    Some(_) => "the file of several MIG instances",
                    None => "the beginning of several UUIDs",
                };
                return Err(refuse(format!(
                    "the container has {name}, {what}, which does not say which; name it (annotation gpushare.io/devices): some of {}",
                    listed()
                )));
            }
            let (at, device) = known.ok_or_else(|| {
                refuse(format!(
                    "this node has no device {name:?}; accepted: all, or some of {}",
                    listed()
                ))
            })?;
            wanted.insert(at, device.uuid);
        }
        self.device_ids(&wanted.into_values().collect::<Vec<_>>())
    }

    /// The devices of this name, by their places. A GPU's file is that of all its MIG instances.
    pub(super) fn known_as(&self, name: &str) -> impl Iterator<Item = (usize, &Device)> {
        let uuid = Uuid::parse(name, '-');
        let of_file = move |device: &Device| {
            let minor = device.minor.map(|minor| minor.to_string());
            minor.is_some() && name.strip_prefix(DEVICE_FILE) == minor.as_deref()
        };
        self.devices.iter().enumerate().filter(move |(at, device)| {
            at.to_string() == name
                || uuid == Some(Uuid(device.uuid))
                || of_file(device)
                || begins(device, name)
        })
    }

    /// The devices that the values of a tenant may be for, where its registration names these and
    /// it gets those: a lost one, too, where it gets all. What was right before a loss stays so.
    pub(super) fn may_limit(&self, names: &[String], gets: &[DeviceId]) -> Vec<DeviceId> {
        let are_all = names.is_empty() || names == ["all"];
        match are_all {
            true => (0..self.devices.len() as u64).map(DeviceId).collect(),
            false => gets.to_vec(),
        }
    }

    /// The UUIDs of devices.
    pub(super) fn uuids_of(&self, device_ids: &[DeviceId]) -> Vec<[u8; 16]> {
        let device = |id: &DeviceId| index(*id).and_then(|at| self.devices.get(at));
        device_ids
            .iter()
            .filter_map(device)
            .map(|device| device.uuid)
            .collect()
    }
}
