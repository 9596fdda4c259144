//! Tenants of the previous daemon that this one cannot register again, because a device is missing
//! or their limits do not hold here ([ADR
//! 180](../../../docs/adr/0180-a-tenant-keeps-the-defaults-it-began-with.md)).
//!
//! Their programs may run and hold memory. What is stored of them stays for a daemon that can
//! register them. It is forgotten once its container has ended, or on an operator's word: an `End`,
//! the deletion of the file, or a new tenant of that name when none of its processes lives.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use gpushare_core::ProcessId;
use gpushare_core::lanes::{Owner, Part};
use gpushare_protocol::wire::{ControlReply, ErrorCode, WireError};

use super::awaited::Member;
use super::injected::is_there;
use super::tenant::{Registration, tenant_id};
use super::users::or_another_name;
use super::{ConnId, Effect, Node, Seen};
use crate::groups::{Groups, Mounts};
use crate::init::Init;
use crate::peer::{is_dead, open};

/// See the module's page.
#[derive(Debug)]
pub(super) struct Unrestored {
    registration: Registration,
    why: String,
    /// The container's first process.
    init: Option<Init>,
    /// Its processes that live, as far as they were written down. Before one was looked at, it may
    /// be another that has its pid.
    living: BTreeMap<ProcessId, Living>,
}

/// A process of such a tenant.
#[derive(Debug)]
struct Living {
    member: Member,
    pidfd: OwnedFd,
}

impl Living {
    fn is_dead(&self) -> bool {
        is_dead(&self.pidfd).unwrap_or(false)
    }
}

impl Unrestored {
    fn of(registration: &Registration, error: &WireError) -> Self {
        let container = registration.container.as_ref();
        Self {
            init: container.and_then(|container| Init::again(container.init?)),
            living: BTreeMap::new(),
            why: error.message.clone(),
            registration: registration.clone(),
        }
    }

    /// Whether it is a container that has ended.
    fn has_ended(&self) -> bool {
        let Some(container) = &self.registration.container else {
            return false;
        };
        match (&self.init, container.init) {
            (Some(init), _) => is_dead(&init.pidfd).unwrap_or(false),
            (None, Some(_)) => true,
            (None, None) => !is_there(&Mounts::here().inodes(&container.groups), container),
        }
    }

    /// Whether a container that runs has its folder. One of a class has that of its class.
    fn has_folder(&self) -> bool {
        let container = self.registration.container.as_ref();
        container.is_some_and(|container| container.class.is_none()) && !self.has_ended()
    }

    fn tend(&mut self) {
        self.living.retain(|_, one| !one.is_dead());
    }
}

/// The name under which the folder stays of a container that runs and is forgotten: no tenant's.
pub(crate) fn aside(name: &str) -> String {
    format!(".{name}")
}

fn is_aside(name: &str) -> bool {
    name.starts_with('.')
}

impl Node {
    /// A tenant of the previous daemon was not restored.
    pub(super) fn keep_unrestored(&mut self, registration: &Registration, error: &WireError) {
        let name = registration.name.clone();
        let kept = Unrestored::of(registration, error);
        if kept.has_ended() {
            return self.effect(Effect::Forget { name });
        }
        let text = format!(
            "tenant {name} of the previous daemon is not restored: {}; its programs keep what they hold and get no more. Its registration is kept for the next daemon; delete registered/{name}.json in the runtime folder to forget it",
            kept.why
        );
        self.event("not-restored", None, None, text);
        self.unrestored.insert(name, kept);
        self.look_at_unrestored(registration);
    }

    /// Has the processes that were written down looked at: whether they still are what they were.
    fn look_at_unrestored(&mut self, registration: &Registration) {
        let part = Part::Shared(tenant_id(self.fresh_id()));
        let lane = self.lanes.lane(Owner {
            user: registration.owner.unwrap_or(0),
            part,
        });
        for member in &registration.members {
            let opened = i32::try_from(member.pid).ok();
            let opened = opened.and_then(|pid| Some((pid, open(pid).ok()?)));
            let Some((pid, pidfd)) = opened else { continue };
            let process = ProcessId(self.fresh_id());
            let living = Living {
                member: *member,
                pidfd,
            };
            if let Some(kept) = self.unrestored.get_mut(&registration.name) {
                kept.living.insert(process, living);
            }
            let lane = lane.clone();
            self.effect(Effect::Identify { process, pid, lane });
        }
    }

    /// One of them was looked at: another that has the pid is not the tenant's. `false`: it is
    /// none.
    pub(super) fn unrestored_seen(&mut self, process: ProcessId, seen: Option<&Seen>) -> bool {
        let mut all = self.unrestored.values_mut();
        let Some(kept) = all.find(|kept| kept.living.contains_key(&process)) else {
            return false;
        };
        kept.living
            .retain(|id, one| *id != process || one.member.is(seen));
        true
    }

    /// Files of registrations that cannot be read: what the tenants are is not known.
    pub fn tell_unreadable(&mut self, files: &[(String, String)]) {
        for (file, why) in files {
            let text = format!(
                "registered/{file} of the previous daemon cannot be read ({why}): its tenant is not restored, and its programs count as processes of no tenant. The file stays for a daemon that can read it; delete it to forget the tenant"
            );
            self.event("not-restored", None, None, text);
        }
    }

    /// Once a second: those whose containers have ended are forgotten.
    pub(super) fn tend_unrestored(&mut self) {
        self.unrestored.values_mut().for_each(Unrestored::tend);
        let over = self.unrestored.extract_if(.., |_, kept| kept.has_ended());
        for (name, _) in over.collect::<Vec<_>>() {
            self.effect(Effect::Forget { name });
        }
    }

    /// The names of tenants that were not restored.
    pub fn unrestored(&self) -> impl Iterator<Item = &str> {
        let all = self.unrestored.keys().map(String::as_str);
        all.filter(|name| !is_aside(name))
    }

    /// An operator says that this one is to be forgotten. `false` if there is none of that name.
    /// The folder of a container that runs stays for as long: its programs would take themselves
    /// for a host's, without limits, if it lost its mark. One of a class may begin anew.
    pub fn forget_unrestored(&mut self, name: &str) -> bool {
        if is_aside(name) {
            return false;
        }
        let Some(mut kept) = self.unrestored.remove(name) else {
            return false;
        };
        let name = name.to_owned();
        if kept.has_folder() {
            kept.living.clear();
            self.unrestored.insert(aside(&name), kept);
            self.effect(Effect::SetAside { name });
        } else {
            self.effect(Effect::Forget { name });
        }
        true
    }

    /// A command ends one that was not restored, if there is one of that name.
    pub(super) fn end_unrestored(
        &mut self,
        from: ConnId,
        name: &str,
    ) -> Option<Result<Option<ControlReply>, WireError>> {
        let kept = self.unrestored.get(name).filter(|_| !is_aside(name))?;
        if let Err(error) = self.may_forget(from, kept) {
            return Some(Err(error));
        }
        self.forget_unrestored(name);
        Some(Ok(Some(ControlReply::Done)))
    }

    /// A command registers a tenant of this name, which may take the place of one that was not
    /// restored and of which no process is known to live.
    pub(super) fn may_replace_unrestored(
        &mut self,
        from: ConnId,
        name: &str,
    ) -> Result<(), WireError> {
        let Some(kept) = self.unrestored.get_mut(name) else {
            return Ok(());
        };
        kept.tend();
        let is_container = kept.registration.container.is_some();
        if is_container || !kept.living.is_empty() {
            let pids = kept.living.values().map(|one| one.member.pid.to_string());
            let pids: Vec<String> = pids.collect();
            let text = format!(
                "tenant {name} of the previous daemon could not be restored ({}) and its programs run (processes {}); end them, or take another name",
                kept.why,
                pids.join(", ")
            );
            return Err(WireError::new(ErrorCode::Full, text));
        }
        let kept = &self.unrestored[name];
        self.may_forget(from, kept).map_err(or_another_name)
    }

    fn may_forget(&self, from: ConnId, kept: &Unrestored) -> Result<(), WireError> {
        let registration = &kept.registration;
        self.may_command_that(from, &registration.name, registration.owner)
    }

    /// Whether a new tenant must not have this name.
    pub(super) fn is_unrestored(&self, name: &str) -> bool {
        self.unrestored.contains_key(name)
    }

    /// Refuses a container that is a tenant which was not restored: as a new tenant it could have
    /// its limit twice.
    pub(super) fn may_begin(&self, groups: &Groups) -> Result<(), WireError> {
        let mut all = self.unrestored.values();
        let same = all.find(|kept| {
            let container = kept.registration.container.as_ref();
            container.is_some_and(|container| container.groups.meet(groups))
        });
        match same {
            None => Ok(()),
            Some(kept) => {
                let text = format!(
                    "the container is tenant {} of the previous daemon, which could not be restored: {}; restart the container",
                    kept.registration.name, kept.why
                );
                Err(WireError::new(ErrorCode::Full, text))
            }
        }
    }

    /// Those that no operator has forgotten.
    fn unforgotten(&self) -> impl Iterator<Item = &Unrestored> {
        let all = self.unrestored.iter();
        all.filter(|(name, _)| !is_aside(name))
            .map(|(_, kept)| kept)
    }

    /// What is stored of them.
    pub(super) fn unrestored_registrations(&self) -> impl Iterator<Item = &Registration> {
        self.unforgotten().map(|kept| &kept.registration)
    }

    /// The cgroups of those that are containers: those that they came with, and those in which
    /// their first processes are now. None of them has the daemon in it.
    pub(super) fn unrestored_groups(&self) -> Vec<Groups> {
        let home = Groups::parse(self.watch.home_table());
        let mut all = Vec::new();
        for kept in self.unforgotten() {
            if let Some(container) = &kept.registration.container {
                all.push(container.groups.apart_from(&[&home]));
                all.extend(self.moved_to(kept.init.as_ref(), container));
            }
        }
        all
    }

    /// The cgroups in which their processes are that live and were written down.
    pub(super) fn unrestored_cgroups(&self) -> Vec<String> {
        let living = self.unforgotten().flat_map(|kept| kept.living.values());
        let living = living.filter(|one| !one.is_dead());
        let seen = living
            .filter_map(|one| crate::peer::inspect_by(self.watch.proc(), one.member.pid).ok());
        seen.map(|peer| peer.cgroup).collect()
    }

    /// Whether a process that a device lists is a tenant's of the previous daemon that has not come
    /// back.
    pub(super) fn is_remembered(&self, pid: u32) -> bool {
        let living = self
            .unrestored
            .values()
            .flat_map(|kept| kept.living.values());
        let mut kept = living.filter(|one| one.member.pid == pid && !one.is_dead());
        kept.next().is_some() || self.is_awaited(pid)
    }
}
