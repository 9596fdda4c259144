//! Containers of a class ([ADR 91](../../../docs/adr/0091-a-class-has-one-socket.md)).
//!
//! A class has one socket, which every container of the class mounts. Which container a process is
//! of, its cgroup says. The container's tenant is made at its first process, whose start waits for
//! room: it is told to try again, and the tenant keeps its place in the queue.

use std::collections::BTreeSet;
use std::path::Path;

use gpushare_core::{Event, Nanos, TenantId};
use gpushare_protocol::wire::{ErrorCode, WireError};

use super::Node;
use super::injected::{Contained, Container, is_there};
use super::specs::Whose;
use super::standing::Standing;
use super::tenant::{Registration, Tenant, Totals};
use super::users::forbidden;
use crate::cgroup;
use crate::containers::Class;
use crate::groups::Groups;
use crate::peer::Peer;

/// Digits of a container's id in its tenant's name.
const DIGITS: usize = 12;

impl Node {
    /// The tenant of a process that came through the door of a class. Made if it is the first of
    /// its container. One that presents a page was there under the previous daemon.
    ///
    /// # Errors
    /// If the process is in no container, its container has to wait for room, or the class is none
    /// any more and the process is new.
    pub fn enter_class(
        &mut self,
        now: Nanos,
        (class, presents): (&str, bool),
        peer: &Peer,
    ) -> Result<TenantId, WireError> {
        let groups = container_of(&peer.groups, cgroup::unified().as_deref());
        if groups.is_empty() {
            let mut paths = peer.groups.paths();
            let why = match paths.any(|(_, path)| cgroup::is_below_a_users(path)) {
                true => format!(
                    "its container is below a user's own cgroup, as a rootless engine makes it, where that user could make any; limit it by the hook, with an annotation such as gpushare.io/mem-limit (cgroup {})",
                    peer.groups
                ),
                false => format!(
                    "it is in no container that a runtime made (cgroup {})",
                    peer.groups
                ),
            };
            let text = format!("class {class} is not for process {}: {why}", peer.pid);
            return Err(forbidden(&text));
        }
        if groups.paths().any(|(_, path)| path.starts_with("/../")) {
            // When such a container ends cannot be seen.
            let text = "this daemon is in a cgroup namespace of its own and does not see the container's cgroup, by which a class knows it; start the daemon in the machine's (--cgroupns=host), with its /sys/fs/cgroup";
            return Err(forbidden(text));
        }
        let mut found = self.contained_in(&groups);
        if let Some(tenant) = found
            && self.is_started_again(tenant)
        {
            self.container_ended(now, tenant);
            found = None;
        }
        let known = found.and_then(|tenant| Some((tenant, self.tenants.get(&tenant)?)));
        let tenant = match known {
            Some((tenant, known)) => {
                let container = known.registration().container.as_ref();
                let of = container.and_then(|container| container.class.as_deref());
                if of != Some(class) {
                    let text = format!(
                        "the container is tenant {} already, {}; give it one class",
                        known.registration().name,
                        of.map_or_else(|| "by its hook".to_owned(), |of| format!("of class {of}"))
                    );
                    return Err(forbidden(&text));
                }
                if !presents {
                    self.class_named(class)?;
                }
                tenant
            }
            None => {
                let id = id_of(&groups);
                let found = self.found_in_class(now, class, groups);
                let found = found.and_then(|tenant| self.is_taken(tenant));
                found.inspect_err(|error| self.tell_refused_in_class(now, (class, &id), error))?
            }
        };
        match self.tenants.get(&tenant) {
            Some(known) if known.is_admitted() => Ok(tenant),
            _ => Err(WireError::retry(ErrorCode::Full, self.waits_for(tenant))),
        }
    }

    /// A tenant that was registered, unless the brain has refused it.
    fn is_taken(&mut self, tenant: TenantId) -> Result<TenantId, WireError> {
        if self.tenants.contains_key(&tenant) {
            return Ok(tenant);
        }
        let why = self.refused.take().unwrap_or_default();
        Err(WireError::new(ErrorCode::BadLimits, why))
    }

    fn class_named(&self, name: &str) -> Result<&Class, WireError> {
        let mut all = self.containers.classes.iter();
        all.find(|known| known.name == name).ok_or_else(|| {
            let text = format!("class {name} is none of this node's any more");
            WireError::new(ErrorCode::NotFound, text)
        })
    }

    /// The classes by which the containers came that are tenants, whether or not the node has them
    /// still: their programs come back by the same door.
    #[must_use]
    pub fn classes_in_use(&self) -> BTreeSet<&str> {
        let all = self.tenants.values();
        let containers = all.filter_map(|known| known.registration().container.as_ref());
        let classes = containers.filter_map(|container| container.class.as_deref());
        classes.collect()
    }

    /// The tenant that is the container with these cgroups.
    fn contained_in(&self, groups: &Groups) -> Option<TenantId> {
        let is_it = |known: &Tenant| {
            let container = known.registration().container.as_ref();
            container.is_some_and(|container| {
                known.contained().is_some() && container.groups.meet(groups)
            })
        };
        let found = self.tenants.iter().find(|(_, known)| is_it(known));
        found.map(|(tenant, _)| *tenant)
    }

    /// Whether the cgroups of a container of a class are others than they were: its engine started
    /// it again, which keeps its id and so their paths, before a tick has seen that it ended.
    fn is_started_again(&mut self, tenant: TenantId) -> bool {
        let known = self.tenants.get(&tenant);
        let is_kept_by_group =
            known.is_some_and(|known| known.contained().is_some_and(Contained::is_group));
        let container = known.and_then(|known| known.registration().container.as_ref());
        container.is_some_and(|container| {
            let is_known = is_kept_by_group && !container.inodes.is_empty();
            is_known && !is_there(&self.known_mounts.inodes(&container.groups), container)
        })
    }

    fn found_in_class(
        &mut self,
        now: Nanos,
        class: &str,
        groups: Groups,
    ) -> Result<TenantId, WireError> {
        let class = self.class_named(class)?.clone();
        if self.is_recovering() {
            let text = "programs of the previous daemon are being counted; try again in a moment";
            return Err(WireError::retry(ErrorCode::Full, text));
        }
        self.may_begin(&groups)?;
        let maxima = self.maxima.clone();
        let limits = self.parse(&class.environment, &maxima)?;
        let device_ids = self.devices_named(&class.devices, &[])?;
        let limited = self.may_limit(&class.devices, &device_ids);
        self.are_seen(&limits, &limited, |_| true)?;
        let spec = self.spec(&limits, &device_ids, &Whose::of(None, &[]))?;
        self.host_holds(&limits, &spec, &groups)?;
        self.claim(&device_ids)?;
        let id = id_of(&groups);
        let short: String = id.chars().take(DIGITS).collect();
        let mut name = format!("{}-{short}", class.name);
        if self.find(&name).is_some() || self.is_unrestored(&name) {
            name = format!("{name}-{}", self.fresh_id());
        }
        let registration = Registration {
            name,
            environment: class.environment,
            devices: self.uuids_of(&device_ids),
            commands: Vec::new(),
            cgroup: None,
            owner: None,
            fences: Vec::new(),
            maxima,
            node_maxima: Vec::new(),
            defaults: Some(self.defaults.clone()),
            began: None,
            dead: Vec::new(),
            members: Vec::new(),
            so_far: Totals::default(),
            standing: Standing::default(),
            container: Some(Container {
                id,
                init: None,
                inodes: self.known_mounts.inodes(&groups),
                groups,
                preload: Vec::new(),
                class: Some(class.name),
                pod: Vec::new(),
            }),
        };
        let tenant = self.add(now, registration, &limits, device_ids, &spec)?;
        self.keep_container(tenant, Contained::Group);
        self.refused = None;
        let event = Event::Register {
            tenant,
            spec,
            running: None,
        };
        self.happened(now, event);
        Ok(tenant)
    }
}

/// The part of each path that a container runtime made. `mount`: where the only hierarchy is. There
/// the folder above has to be root's: a service may have a part of it to make cgroups in.
pub(super) fn container_of(groups: &Groups, mount: Option<&Path>) -> Groups {
    groups.parts(|path| {
        let group = cgroup::of_machine(path)?;
        let is_roots = mount.is_none_or(|mount| cgroup::is_roots(mount, group));
        is_roots.then_some(group)
    })
}

/// The container's id: the 64 digits at the end of a path.
fn id_of(groups: &Groups) -> String {
    let path = groups.paths().next().map_or("", |(_, path)| path);
    let last = path.rsplit('/').next().unwrap_or("");
    let bare = last.strip_suffix(".scope").unwrap_or(last);
    let id = bare.rsplit(['-', ':']).next().unwrap_or(bare);
    id.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_containers_name_in_a_cgroup_that_a_user_was_given_is_no_container() {
        let mount = tempfile::tempdir().unwrap();
        let id = "a1".repeat(32);
        let groups = Groups::parse(&format!("0::/batch.service/{id}\n"));
        let found = |mount: Option<&Path>| !container_of(&groups, mount).is_empty();
        let service = mount.path().join("batch.service");
        std::fs::create_dir(&service).unwrap();
        let own = nix::unistd::geteuid();
        assert_eq!(found(Some(mount.path())), own.is_root());
        if own.is_root() {
            let user = nix::unistd::Uid::from_raw(65_534);
            nix::unistd::chown(&service, Some(user), None).unwrap();
            assert!(!found(Some(mount.path())));
        }
        assert!(found(None), "its path may be another hierarchy's");
    }
}
