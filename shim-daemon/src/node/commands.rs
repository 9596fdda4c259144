//! The requests of commands: register, change, show.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::atomic::Ordering;

use gpushare_core::{DeviceId, Event, Nanos, Signal, TenantId, TenantSpec};
use gpushare_protocol::limits::{self, Limits, Maxima};
use gpushare_protocol::paths::TenantName;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::{Control, ControlReply, Cursor, ErrorCode, Listing, WireError};

use super::events::word;
use super::host_memory::machine_holds;
use super::residency;
use super::specs::Whose;
use super::standing::Standing;
use super::tenant::{Registration, Tenant, Totals, tenant_id};
use super::users::or_another_name;
use super::{ConnId, Effect, Node, variables};
use crate::pages::UsagePage;

impl Node {
    /// One request of a command.
    pub fn command(&mut self, now: Nanos, from: ConnId, id: u32, request: &Control) {
        let answer = match request {
            Control::Create {
                name,
                environment,
                devices,
            } => self.create(now, (from, id), name.as_deref(), environment, devices),
            Control::Page { of, from: start } => {
                // Counts the running turns up to the last event that the brain received.
                if matches!(of, Listing::Shares | Listing::Sharing | Listing::Metrics) {
                    self.advance(now);
                }
                if *of == Listing::Metrics && *start == Cursor::default() {
                    self.note_all_measures();
                }
                match self.page(now, *of, *start) {
                    Some(page) => Ok(Some(page)),
                    None => Err(unknown_command()),
                }
            }
            Control::Suspend { tenant } => self.suspend(now, (from, id), tenant, true),
            Control::Resume { tenant } => self.suspend(now, (from, id), tenant, false),
            Control::Attach { tenant } => self.attach((from, id), tenant),
            Control::Set { .. } if self.is_recovering() => self.wait_to_change((from, id), request),
            Control::Set { tenant, changes } => self.set(now, from, tenant, changes),
            Control::End { tenant, kill } => self.end(from, tenant, *kill),
            Control::Follow { past } => {
                self.follow((from, id), *past);
                Ok(None)
            }
            Control::Ended { status } => {
                self.command_says(from, *status);
                Ok(None)
            }
            _ => Err(unknown_command()),
        };
        let reply = match answer {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(error) => ControlReply::Error(error),
        };
        self.effect(Effect::Command {
            to: from,
            id,
            reply,
        });
    }

    /// A command's connection ended. Its tenant may end.
    pub fn command_ended(&mut self, now: Nanos, connection: ConnId) {
        self.unfollow(connection);
        self.forget_mover(connection);
        self.inspecting.left(connection);
        self.command_left(connection);
        self.changes_no_more(connection);
        let kept = self
            .tenants
            .iter()
            .filter(|(_, known)| known.is_kept_by(connection));
        let kept: Vec<TenantId> = kept.map(|(id, _)| *id).collect();
        for tenant in kept {
            if let Some(known) = self.tenants.get_mut(&tenant) {
                known.forget_command(connection);
            }
            self.end_if_unused(now, tenant);
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
        self.may_say(environment)?;
        // A command that joins an existing tenant requests the tenant's limits, under the tenant's
        // defaults and maxima.
        let existing = name.and_then(|name| self.find(name));
        let own = existing.map(|(_, known)| known.terms());
        let (defaults, [maxima, node_maxima]) =
            own.unwrap_or_else(|| (self.defaults.clone(), [self.maxima.clone(), Vec::new()]));
        let limits = limits_under(environment, &defaults, [&maxima, &node_maxima])?;
        let device_ids = self.device_ids(devices)?;
        self.are_seen(&limits, &device_ids, |_| true)?;
        let whose = Whose::of(self.users.of(from), &[]);
        let spec = self.spec(&limits, &device_ids, &whose)?;
        let name = match name {
            Some(name) => TenantName::parse("--name", name)
                .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))?
                .to_string(),
            None => format!("c{:x}-{}", self.instance & 0xffff_ffff, self.fresh_id()),
        };
        if let Some((tenant, known)) = self.find(&name) {
            self.may_command(from, tenant).map_err(or_another_name)?;
            if known.limits() != limits.to_string() {
                let own = &known.registration().environment;
                let mut asked = variables::meant(environment);
                asked.retain(|pair| !own.contains(pair));
                let than = match asked.is_empty() {
                    true => String::new(),
                    false => format!(" than {}", limits::as_flags(&asked)),
                };
                let flags = limits::as_flags(own);
                let text = format!(
                    "tenant {name} exists with other limits{than}; to join it give its own, {flags}, or give another name"
                );
                return Err(WireError::new(ErrorCode::BadLimits, text));
            }
            if self.there(known.device_ids()) != self.there(&device_ids) {
                let uuids = self.uuids_of(known.device_ids()).into_iter();
                let uuids: Vec<_> = uuids.map(|uuid| Uuid(uuid).to_string()).collect();
                let text = format!(
                    "tenant {name} exists on other devices ({}); join it with those in the same order (CUDA_VISIBLE_DEVICES, --gpu), or give another name or none",
                    uuids.join(", ")
                );
                return Err(WireError::new(ErrorCode::BadLimits, text));
            }
            self.may_wait(from, tenant)?;
            return Ok(self.keep(tenant, (from, id)));
        }
        // A process that joins has what root may have given its tenant.
        self.may_ask(from, environment)?;
        machine_holds(&limits, &spec)?;
        self.may_have_another(from)?;
        self.may_replace_unrestored(from, &name)?;
        self.claim(&device_ids)?;
        let registration = Registration {
            name,
            environment: variables::meant(environment),
            devices: self.uuids_of(&device_ids),
            commands: Vec::new(),
            cgroup: None,
            owner: self.users.of(from),
            fences: Vec::new(),
            maxima,
            node_maxima,
            defaults: Some(defaults),
            began: None,
            dead: Vec::new(),
            members: Vec::new(),
            so_far: Totals::default(),
            standing: Standing::default(),
            container: None,
        };
        let replaced = registration.name.clone();
        let tenant = self.add(now, registration, &limits, device_ids, &spec)?;
        self.forget_unrestored(&replaced);
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.created((from, id), now);
        }
        self.note_owner(tenant, from);
        self.happened(
            now,
            Event::Register {
                tenant,
                spec,
                running: None,
            },
        );
        Ok(None)
    }

    /// Makes the tenant's pages and gives it an id. Where that fails, its devices are released.
    pub(super) fn add(
        &mut self,
        now: Nanos,
        mut registration: Registration,
        limits: &Limits,
        device_ids: Vec<DeviceId>,
        spec: &TenantSpec,
    ) -> Result<TenantId, WireError> {
        // Whether memory moves is chosen once: the next daemon's defaults do not change it.
        residency::choose(&mut registration.environment, spec.oversubscribe);
        let usage = self.spare.take().map_or_else(UsagePage::create, Ok);
        let (text, instance) = (limits.to_string(), self.instance);
        let made = usage
            .and_then(|usage| Tenant::new(registration, text, device_ids, usage, instance, now));
        let made = made.map_err(|error| {
            self.let_go();
            WireError::retry(ErrorCode::Full, error.to_string())
        })?;
        made.found(
            spec,
            (self.devices.as_slice(), self.capacity),
            limits,
            self.guarantee,
        );
        let heartbeat = &made.control().view().header.heartbeat;
        heartbeat.store(now.0, Ordering::Relaxed);
        let tenant = tenant_id(self.fresh_id());
        self.tenants.insert(tenant, made);
        self.set_shares(tenant, spec);
        Ok(tenant)
    }

    /// The brain admitted a tenant: opens its socket and answers the command.
    pub(super) fn admit(&mut self, now: Nanos, tenant: TenantId) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        if let Some(queued) = known.admit(now) {
            self.counted.admitted(queued);
        }
        let pending = known.take_pending();
        let registration = Box::new(known.registration().clone());
        let name = registration.name.clone();
        self.effect(Effect::Listen {
            tenant,
            registration,
        });
        for (to, id) in pending {
            let reply = created(name.clone());
            self.effect(Effect::Command { to, id, reply });
        }
        self.show_status(tenant);
        self.admitted(now, tenant);
        self.warn_of_managed();
    }

    pub(super) fn find(&self, name: &str) -> Option<(TenantId, &Tenant)> {
        let mut all = self.tenants.iter();
        let found = all.find(|(_, known)| known.name() == name);
        found.map(|(id, known)| (*id, known))
    }

    /// Attaches a command to an existing tenant.
    fn attach(
        &mut self,
        asker: (ConnId, u32),
        name: &str,
    ) -> Result<Option<ControlReply>, WireError> {
        let found = self.find(name).map(|(tenant, _)| tenant);
        let tenant = found.ok_or_else(|| no_tenant(name))?;
        self.may_command(asker.0, tenant)?;
        self.may_wait(asker.0, tenant)?;
        let text = "its command has come back after the daemon was replaced".to_owned();
        self.event("attached", Some(tenant), None, text);
        Ok(self.keep(tenant, asker))
    }

    /// Adds a command to a tenant's keepers. Returns the answer, unless it has to wait for the
    /// tenant's admission.
    fn keep(&mut self, tenant: TenantId, (from, id): (ConnId, u32)) -> Option<ControlReply> {
        let known = self.tenants.get_mut(&tenant)?;
        known.keep_for(from);
        let admitted = known.is_admitted().then(|| known.name().to_owned());
        if admitted.is_none() {
            known.answer_later((from, id));
        }
        self.note_owner(tenant, from);
        let name = admitted?;
        self.mind_fences();
        Some(created(name))
    }

    /// Ends a tenant without keepers and without processes.
    pub(super) fn end_if_unused(&mut self, now: Nanos, tenant: TenantId) {
        if !self.tenants.get(&tenant).is_some_and(Tenant::is_unused) {
            return;
        }
        self.left_tenant_ends(tenant);
        self.tell_gone(now, tenant);
        self.happened(now, Event::TenantGone { tenant });
        self.note_ended_leases(now, tenant);
        self.remove_fences(tenant);
        if let Some(known) = self.tenants.remove(&tenant) {
            self.counted.keep_refusals(&known);
            let name = known.name().to_owned();
            self.effect(Effect::Unlisten { tenant, name });
            self.let_go();
        }
    }

    /// Ends a tenant's processes because a command says so.
    fn end(
        &mut self,
        from: ConnId,
        name: &str,
        kill: bool,
    ) -> Result<Option<ControlReply>, WireError> {
        if let Some(forgotten) = self.end_unrestored(from, name) {
            return forgotten;
        }
        let (tenant, _) = self.find(name).ok_or_else(|| no_tenant(name))?;
        self.may_command(from, tenant)?;
        let by = match self.users.told(self.users.of(from)) {
            Some(user) => format!("user {user}"),
            None => "the machine's operator".to_owned(),
        };
        let signal = if kill {
            Signal::Kill
        } else {
            Signal::Terminate
        };
        let known = self.tenants.get_mut(&tenant);
        if known.is_some_and(|known| known.tally_mut().is_ended()) {
            self.counted.ended_by_command();
        }
        let facts = vec![word("reason", "command"), word("by", by.clone())];
        self.send_signal(tenant, signal, format!("{by} ended it"), facts);
        Ok(Some(ControlReply::Done))
    }

    fn set(
        &mut self,
        now: Nanos,
        from: ConnId,
        name: &str,
        changes: &[(String, String)],
    ) -> Result<Option<ControlReply>, WireError> {
        let (tenant, known) = self.find(name).ok_or_else(|| no_tenant(name))?;
        self.may_command(from, tenant)?;
        self.may_change(known, changes)?;
        let device_ids = known.device_ids().to_vec();
        let (defaults, [maxima, node_maxima]) = known.terms();
        let environment = limits::changed(
            &known.registration().environment,
            &defaults,
            &self.uuids_of(&device_ids),
            changes,
        )
        .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))?;
        self.may_say(&environment)?;
        let limits = limits_under(&environment, &defaults, [&maxima, &node_maxima])?;
        self.may_ask(from, changes)?;
        let changed: BTreeSet<&str> = changes.iter().map(|(name, _)| name.as_str()).collect();
        self.are_seen(&limits, &device_ids, |variable| changed.contains(variable))?;
        let whose = Whose::of(self.owner(tenant), known.pod());
        let spec = self.spec(&limits, &device_ids, &whose)?;
        self.host_holds_more(tenant, &limits, &spec)?;
        let before = self.ceilings(tenant, &device_ids);
        self.changing = Some(environment.clone());
        let changed = self.change(now, tenant, &spec);
        self.changing = None;
        changed?;
        let known = self.tenants.get_mut(&tenant);
        let known = known.ok_or_else(|| no_tenant(name))?;
        let spec = self.world.spec(tenant).cloned().unwrap_or(spec);
        known.change(environment, &limits);
        known.found(
            &spec,
            (self.devices.as_slice(), self.capacity),
            &limits,
            self.guarantee,
        );
        self.set_shares(tenant, &spec);
        self.warn_of_managed();
        self.note_standing(tenant);
        let known = self.tenants.get(&tenant);
        let known = known.ok_or_else(|| no_tenant(name))?;
        known.hold_to(&self.lowered(tenant, &device_ids, &before));
        // A next daemon lets all run that are stored. One that queues is stored at its admission.
        if known.is_admitted() {
            let registration = Box::new(known.registration().clone());
            self.effect(Effect::Listen {
                tenant,
                registration,
            });
        }
        self.tell_set(tenant, changes);
        self.mind_fences();
        Ok(Some(ControlReply::Done))
    }

    /// Has the brain change a tenant's limits. A try that is refused calls back what others were
    /// granted and do not use, by what their pages show now; the next one tells whether that is
    /// enough.
    fn change(&mut self, now: Nanos, tenant: TenantId, spec: &TenantSpec) -> Result<(), WireError> {
        for (device, _) in &spec.quotas {
            self.read_all(now, *device);
        }
        for _ in 0..2 {
            self.refused = None;
            let spec = spec.clone();
            self.world.handle(now, Event::Set { tenant, spec });
            self.carry_out(now);
            if self.refused.is_none() {
                return Ok(());
            }
        }
        let why = self.refused.take().unwrap_or_default();
        Err(WireError::new(ErrorCode::BadLimits, why))
    }

    /// The most a tenant's processes may hold, by device.
    pub(super) fn ceilings(&self, tenant: TenantId, device_ids: &[DeviceId]) -> Vec<Option<Bytes>> {
        let ceiling = |device: &DeviceId| Some(self.world.account(tenant, *device)?.ceiling);
        device_ids.iter().map(ceiling).collect()
    }

    /// Devices on which that is less than it was `before`.
    fn lowered(
        &self,
        tenant: TenantId,
        device_ids: &[DeviceId],
        before: &[Option<Bytes>],
    ) -> Vec<(usize, Bytes)> {
        let now = self.ceilings(tenant, device_ids).into_iter().enumerate();
        let lowered = now.zip(before).filter_map(|((device_index, now), before)| {
            let now = now.filter(|now| before.is_some_and(|before| *now < before))?;
            Some((device_index, now))
        });
        lowered.collect()
    }

    /// Parses the variables of a tenant that begins, with the node's defaults for unset ones, under
    /// these maxima.
    pub(super) fn parse(
        &self,
        environment: &[(String, String)],
        maxima: &[(String, String)],
    ) -> Result<Limits, WireError> {
        limits_under(environment, &self.defaults, [maxima, &self.maxima])
    }
}

impl Node {
    /// The tenant of this name, if this command may change it.
    pub(super) fn named_for(&self, from: ConnId, name: &str) -> Result<TenantId, WireError> {
        let (tenant, _) = self.find(name).ok_or_else(|| no_tenant(name))?;
        self.may_command(from, tenant)?;
        Ok(tenant)
    }
}

/// Parses a tenant's variables, with these defaults for unset ones, under these maxima, all of
/// which hold.
pub(super) fn limits_under(
    environment: &[(String, String)],
    defaults: &[(String, String)],
    maxima: [&[(String, String)]; 2],
) -> Result<Limits, WireError> {
    let pairs = |set: &[(String, String)]| -> Vec<(OsString, OsString)> {
        let pair = |(name, value): &(String, String)| (name.into(), value.into());
        set.iter().map(pair).collect()
    };
    let [own, nodes] = maxima.map(|maxima| Maxima::read(pairs(maxima)));
    own.and_then(|own| Ok(own.and(nodes?)))
        .and_then(|maxima| Limits::from_env_under(pairs(environment), pairs(defaults), maxima))
        .map_err(|error| WireError::new(ErrorCode::BadLimits, error.to_string()))
}

fn created(name: String) -> ControlReply {
    // The server fills the folder in: where sockets lie is its business.
    ControlReply::Created {
        name,
        folder: String::new(),
    }
}

fn unknown_command() -> WireError {
    WireError::new(
        ErrorCode::UnknownRequest,
        "this daemon does not know that command",
    )
}

fn no_tenant(name: &str) -> WireError {
    let text = format!("no tenant is named {name}; `gpushare ps` lists them");
    WireError::new(ErrorCode::NotFound, text)
}
