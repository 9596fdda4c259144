//! What commands ask: register, change, show.

use std::ffi::OsString;

use gpushare_core::{ContainerId, ContainerSpec, DeviceId, Event, Nanos, Quota};
use gpushare_protocol::limits::Limits;
use gpushare_protocol::paths::ContainerName;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::{Control, ControlReply, ErrorCode, WireError};

use super::container::{Container, Registration, container_id, index};
use super::{ConnId, Effect, Node};
use crate::devices::Device;

impl Node {
    /// One request of a command.
    pub fn command(&mut self, now: Nanos, from: ConnId, id: u32, request: &Control) {
        let answer = match request {
            Control::Create {
                name,
                environment,
                devices,
            } => self.create(now, (from, id), name.as_deref(), environment, devices),
            Control::List => Ok(Some(ControlReply::Containers(self.container_rows(now)))),
            Control::Devices => Ok(Some(ControlReply::Devices(self.device_rows()))),
            Control::Set { container, changes } => self.set(now, (from, id), container, changes),
            Control::Follow { past } => {
                self.follow(from, id, *past);
                Ok(None)
            }
            _ => Err(WireError::new(
                ErrorCode::UnknownRequest,
                "this daemon does not know that command",
            )),
        };
        let reply = match answer {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(error) => ControlReply::Error(error),
        };
        self.effects.push_back(Effect::Command {
            to: from,
            id,
            reply,
        });
    }

    /// A command's connection ended: what it kept may end.
    pub fn command_ended(&mut self, now: Nanos, connection: ConnId) {
        self.unfollow(connection);
        let kept = self
            .containers
            .iter()
            .filter(|(_, known)| known.owners.contains(&connection));
        let kept: Vec<ContainerId> = kept.map(|(id, _)| *id).collect();
        for container in kept {
            if let Some(known) = self.containers.get_mut(&container) {
                known.owners.remove(&connection);
                known.pending.retain(|(to, _)| *to != connection);
            }
            self.end_if_unused(now, container);
        }
    }

    fn create(
        &mut self,
        now: Nanos,
        (from, id): (ConnId, u32),
        name: Option<&str>,
        environment: &[(String, String)],
        devices: &[[u8; 16]],
    ) -> Result<Option<ControlReply>, WireError> {
        let limits = self.parse(environment)?;
        let columns = self.columns(devices)?;
        let spec = self.spec(&limits, &columns)?;
        let name = match name {
            Some(name) => ContainerName::parse("--name", name)
                .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))?
                .to_string(),
            None => format!("c{:x}-{}", self.instance & 0xffff_ffff, self.fresh_id()),
        };
        if let Some(known) = self
            .containers
            .values_mut()
            .find(|known| known.registration.name == name)
        {
            if known.limits != limits.to_string() || known.columns != columns {
                let text = format!(
                    "container {name} exists with other limits ({}); give equal ones to join it, or another name",
                    known.limits
                );
                return Err(WireError::new(ErrorCode::BadLimits, text));
            }
            known.owners.insert(from);
            if !known.admitted {
                known.pending.push((from, id));
                return Ok(None);
            }
            return Ok(Some(self.created(name)));
        }
        let registration = Registration {
            name,
            environment: environment.to_vec(),
            devices: self.uuids_of(&columns),
        };
        let container = self.add(registration, &limits, columns, &spec)?;
        if let Some(known) = self.containers.get_mut(&container) {
            known.owners.insert(from);
            known.pending.push((from, id));
        }
        self.happened(
            now,
            Event::Register {
                container,
                spec,
                running: false,
            },
        );
        Ok(None)
    }

    /// Makes the container's pages and gives it an id.
    pub(super) fn add(
        &mut self,
        registration: Registration,
        limits: &Limits,
        columns: Vec<DeviceId>,
        spec: &ContainerSpec,
    ) -> Result<ContainerId, WireError> {
        let made = Container::new(registration, limits.to_string(), columns, self.instance);
        let made = made.map_err(|error| WireError::retry(ErrorCode::Full, error.to_string()))?;
        made.found(spec, &self.devices, limits, self.guarantee);
        let container = container_id(self.fresh_id());
        self.containers.insert(container, made);
        Ok(container)
    }

    /// The brain admitted a container: it gets its socket, and who asked is told.
    pub(super) fn admit(&mut self, _now: Nanos, container: ContainerId) {
        let Some(known) = self.containers.get_mut(&container) else {
            return;
        };
        known.admitted = true;
        let pending = std::mem::take(&mut known.pending);
        let registration = known.registration.clone();
        let name = registration.name.clone();
        self.effects.push_back(Effect::Listen {
            container,
            registration,
        });
        for (to, id) in pending {
            let reply = self.created(name.clone());
            self.effects.push_back(Effect::Command { to, id, reply });
        }
        self.show_standing(container);
        self.event("admitted", Some(container), None, "may run".to_owned());
    }

    fn created(&self, name: String) -> ControlReply {
        // The server fills the folder in: where sockets lie is its business.
        ControlReply::Created {
            name,
            folder: String::new(),
        }
    }

    /// Ends a container that nobody keeps and nobody is in.
    pub(super) fn end_if_unused(&mut self, now: Nanos, container: ContainerId) {
        let unused = |known: &Container| known.owners.is_empty() && known.members.is_empty();
        if !self.containers.get(&container).is_some_and(unused) {
            return;
        }
        self.event(
            "gone",
            Some(container),
            None,
            "has no process any more".to_owned(),
        );
        self.happened(now, Event::ContainerGone { container });
        if let Some(known) = self.containers.remove(&container) {
            let name = known.registration.name;
            self.effects.push_back(Effect::Unlisten { container, name });
        }
    }

    fn set(
        &mut self,
        now: Nanos,
        (from, id): (ConnId, u32),
        name: &str,
        changes: &[(String, String)],
    ) -> Result<Option<ControlReply>, WireError> {
        let found = self
            .containers
            .iter()
            .find(|(_, known)| known.registration.name == name);
        let Some((container, known)) = found else {
            let text = format!("no container is named {name}; `gpushare ps` lists them");
            return Err(WireError::new(ErrorCode::NotFound, text));
        };
        let (container, columns) = (*container, known.columns.clone());
        let mut environment = known.registration.environment.clone();
        for (variable, value) in changes {
            environment.retain(|(known, _)| known != variable);
            environment.push((variable.clone(), value.clone()));
        }
        let limits = self.parse(&environment)?;
        let spec = self.spec(&limits, &columns)?;
        if let Some(known) = self.containers.get_mut(&container) {
            known.pending.push((from, id));
        }
        self.world.handle(
            now,
            Event::Set {
                container,
                spec: spec.clone(),
            },
        );
        self.carry_out(now);
        let Some(known) = self.containers.get_mut(&container) else {
            return Ok(None);
        };
        let refused = known.pending.len();
        known.pending.retain(|waiting| *waiting != (from, id));
        if known.pending.len() == refused {
            // A refusal was sent to all that waited.
            return Ok(None);
        }
        known.registration.environment = environment;
        known.limits = limits.to_string();
        known.found(&spec, &self.devices, &limits, self.guarantee);
        let registration = known.registration.clone();
        self.effects.push_back(Effect::Listen {
            container,
            registration,
        });
        self.event(
            "set",
            Some(container),
            None,
            format!("limits are now {limits}"),
        );
        Ok(Some(ControlReply::Done))
    }

    /// The devices a registration names, or all.
    pub(super) fn columns(&self, uuids: &[[u8; 16]]) -> Result<Vec<DeviceId>, WireError> {
        let id = |at: usize| DeviceId(at as u64);
        if uuids.is_empty() {
            return Ok((0..self.devices.len()).map(id).collect());
        }
        let find = |uuid: &[u8; 16]| {
            let at = self.devices.iter().position(|device| device.uuid == *uuid);
            at.map(id).ok_or_else(|| {
                let text = format!(
                    "this node has no device {}",
                    gpushare_protocol::uuid::Uuid(*uuid)
                );
                WireError::new(ErrorCode::NotFound, text)
            })
        };
        uuids.iter().map(find).collect()
    }

    fn uuids_of(&self, columns: &[DeviceId]) -> Vec<[u8; 16]> {
        let device = |id: &DeviceId| index(*id).and_then(|at| self.devices.get(at));
        columns
            .iter()
            .filter_map(device)
            .map(|device| device.uuid)
            .collect()
    }

    /// A container's variables, with the node's defaults for what they do not say.
    pub(super) fn parse(&self, environment: &[(String, String)]) -> Result<Limits, WireError> {
        let said = |name: &str| environment.iter().any(|(own, _)| own == name);
        let defaults = self.defaults.iter().filter(|(name, _)| !said(name));
        let pairs = environment
            .iter()
            .chain(defaults)
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Limits::from_env(pairs)
            .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))
    }

    /// What the brain is told of a container's limits.
    pub(super) fn spec(
        &self,
        limits: &Limits,
        columns: &[DeviceId],
    ) -> Result<ContainerSpec, WireError> {
        let mut quotas = Vec::new();
        for (ordinal, device) in (0..).zip(columns) {
            let Some(known) = index(*device).and_then(|at| self.devices.get(at)) else {
                continue;
            };
            quotas.push((*device, quota(limits, ordinal, known)?));
        }
        Ok(crate::config::spec_of(limits, quotas))
    }
}

fn quota(limits: &Limits, ordinal: u32, device: &Device) -> Result<Quota, WireError> {
    let held = limits
        .for_device(ordinal, &device.uuid, device.capacity.0)
        .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))?;
    Ok(Quota {
        request: Bytes(held.request),
        limit: Bytes(
            held.limit
                .unwrap_or(device.capacity.0)
                .min(device.capacity.0),
        ),
    })
}
