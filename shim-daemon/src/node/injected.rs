//! Tenants that are containers ([ADR
//! 90](../../../docs/adr/0090-a-container-is-its-init-and-its-cgroup.md)).
//!
//! A container's hook registers it before its first program runs. The tenant lives as long as the
//! container's first process (init), whatever connects. A client belongs to it if its cgroup is
//! that with which init came, or that of init now if init has left it, or below; no user, root
//! neither, joins from elsewhere.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use gpushare_core::{Event, Nanos, TenantId};
use gpushare_protocol::paths::{MAX_NAME, TenantName};
use gpushare_protocol::wire::{ControlReply, ErrorCode, Injection, WireError};
use serde::{Deserialize, Serialize};

use super::classes::container_of;
use super::pods::pod_of;
use super::specs::Whose;
use super::standing::Standing;
use super::tenant::{Registration, Totals};
use super::users::{self, forbidden};
use super::{ConnId, Effect, Node, variables};
use crate::cgroup;
use crate::containers::Containers;
use crate::groups::{Groups, Mounts};
use crate::init::{Identity, Init};
use crate::peer::Peer;

/// The labels that count from root's runtimes alone. A user's engine says what that user likes.
const OF_ROOT: [&str; 4] = ["namespace", "image", "pod", "pod_container"];

/// The container that a tenant is, as the next daemon needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its id, as its runtime named it.
    pub id: String,
    /// Its first process.
    pub init: Option<Identity>,
    /// The cgroups that are its own; empty for one known by its socket alone.
    pub groups: Groups,
    /// Their inodes, as far as they can be seen.
    #[serde(default)]
    pub inodes: BTreeMap<String, u64>,
    /// The lines of the image's own preload file.
    #[serde(default)]
    pub preload: Vec<String>,
    /// Its class, if it came by one.
    #[serde(default)]
    pub class: Option<String>,
    /// Its pod, as `(kind, value)`: `namespace`, `pod`, `pod_container`. Only shown.
    #[serde(default)]
    pub pod: Vec<(String, String)>,
}

/// The reason for which a container's tenant is kept.
#[derive(Debug)]
pub(super) enum Contained {
    /// Its first process runs.
    Init(Init),
    /// Its cgroup is there.
    Group,
}

impl Contained {
    /// Its first process, if that is known.
    pub(super) fn init(&self) -> Option<&Init> {
        match self {
            Self::Init(init) => Some(init),
            Self::Group => None,
        }
    }

    /// Whether its cgroup is all by which it is known.
    pub(super) fn is_group(&self) -> bool {
        matches!(self, Self::Group)
    }
}

impl Node {
    /// A hook registers a container whose first process is `init`. `asker` is the hook's place.
    pub fn inject(
        &mut self,
        now: Nanos,
        (from, id): (ConnId, u32),
        injection: &Injection,
        init: Init,
        asker: &Groups,
    ) {
        let injection = &self.believed(from, injection.clone());
        if let Err(error) = self.try_inject(now, (from, id), injection, init, asker) {
            self.tell_refused_injection(now, from, injection, &error);
            let reply = ControlReply::Error(error);
            self.effect(Effect::Command {
                to: from,
                id,
                reply,
            });
        }
    }

    /// An injection without the labels that no user's hook is believed: by what only root's runtime
    /// says a rule of the node is chosen, and a pod named to which the GPU's time is counted.
    pub(super) fn believed(&self, from: ConnId, mut injection: Injection) -> Injection {
        self.believe(from, &mut injection.labels);
        injection
    }

    /// Takes the labels away that no user's hook is believed.
    pub(super) fn believe(&self, from: ConnId, labels: &mut Vec<(String, String)>) {
        if self.users.of(from).is_some() {
            labels.retain(|(kind, _)| !OF_ROOT.contains(&&**kind));
        }
    }

    fn try_inject(
        &mut self,
        now: Nanos,
        (from, id): (ConnId, u32),
        injection: &Injection,
        init: Init,
        asker: &Groups,
    ) -> Result<(), WireError> {
        self.may_inject(from, injection, &init)?;
        if let Some(tenant) = self.same_init(init.identity) {
            return self.inject_again(tenant, (from, id), injection);
        }
        let groups = self.groups_of(&init, asker)?;
        let maxima = self.containers.maxima(&self.maxima, &injection.labels);
        let limits = self.parse(&injection.environment, &maxima)?;
        self.may_ask(from, &injection.environment)?;
        users::may_outrank(&injection.environment, &maxima)?;
        let device_ids = self.devices_named(&injection.devices, &injection.labels)?;
        self.are_given(injection, &device_ids)?;
        let limited = self.may_limit(&injection.devices, &device_ids);
        self.are_seen(&limits, &limited, |_| true)?;
        let owner = self.users.of(from);
        let pod = pod_of(&injection.labels);
        let spec = self.spec(&limits, &device_ids, &Whose::of(owner, &pod))?;
        self.may_lack_limits(injection, &limits, &device_ids)?;
        self.host_holds(&limits, &spec, &groups)?;
        if self.is_recovering() {
            let text = "programs of the previous daemon are being counted; try again in a moment";
            return Err(WireError::retry(ErrorCode::Full, text));
        }
        self.may_have_another(from)?;
        let why = Containers::unenforceable(injection);
        if let Some(why) = why.filter(|_| self.containers.deny_unenforceable) {
            let text = format!(
                "container {}: {why}; its limits might not be enforced, and this node refuses that ([containers] unenforceable = \"deny\")",
                injection.id
            );
            return Err(forbidden(&text));
        }
        self.claim(&device_ids)?;
        let container = Container {
            id: injection.id.clone(),
            init: Some(init.identity),
            inodes: self.known_mounts.inodes(&groups),
            groups,
            preload: injection.preload.clone(),
            class: None,
            pod,
        };
        let registration = Registration {
            name: self.name_of(&injection.id, init.identity),
            environment: variables::meant(&injection.environment),
            devices: self.uuids_of(&device_ids),
            commands: Vec::new(),
            cgroup: None,
            owner,
            fences: Vec::new(),
            maxima,
            node_maxima: self.maxima.clone(),
            defaults: Some(self.defaults.clone()),
            began: None,
            dead: Vec::new(),
            members: Vec::new(),
            so_far: Totals::default(),
            standing: Standing::default(),
            container: Some(container),
        };
        self.expects_containers = true;
        let tenant = self.add(now, registration, &limits, device_ids, &spec)?;
        // Not among those that wait: it is told at once what came of it.
        let event = Event::Register {
            tenant,
            spec,
            running: None,
        };
        self.refused = None;
        self.happened(now, event);
        if !self
            .tenants
            .get(&tenant)
            .is_some_and(|known| known.is_admitted())
        {
            return Err(self.turned_away(now, tenant));
        }
        // The runtime waits for the hook: nothing but the folder is made before the answer.
        let (name, folder) = (self.name(tenant), String::new());
        let reply = ControlReply::Created { name, folder };
        let to = from;
        self.effect_after_listening(tenant, Effect::Command { to, id, reply });
        self.keep_container(tenant, Contained::Init(init));
        if let Some(why) = why {
            let text = format!("its limits may not be enforced: {why}");
            self.event("unenforced", Some(tenant), None, text);
        }
        Ok(())
    }

    /// Refuses what no hook of ours says, and containers of other users. An image chooses the
    /// number of its user: in a container that root's runtime made it is nobody of the host's.
    fn may_inject(
        &self,
        from: ConnId,
        injection: &Injection,
        init: &Init,
    ) -> Result<(), WireError> {
        self.may_be_said(injection)?;
        let Some(user) = self.users.of(from) else {
            return Ok(());
        };
        let groups = init.groups().unwrap_or_default();
        let is_roots = !container_of(&groups, cgroup::unified().as_deref()).is_empty();
        match init.owner() {
            Ok(owner) if owner == user && !is_roots => Ok(()),
            // A user namespace in that user's own has a subuid's root, and may not be looked at.
            _ if groups.are_of_user(user) => Ok(()),
            Ok(_) => Err(forbidden("the container is another user's")),
            Err(error) => Err(WireError::new(ErrorCode::NotFound, error.to_string())),
        }
    }

    /// The cgroups that are the container's own.
    pub(super) fn groups_of(&self, init: &Init, asker: &Groups) -> Result<Groups, WireError> {
        let ended = |error: std::io::Error| {
            let text = format!("the container's first process cannot be looked at: {error}");
            WireError::new(ErrorCode::NotFound, text)
        };
        let now = init.groups().map_err(ended)?;
        let home = Groups::parse(self.watch.home_table());
        let own = now.apart_from(&[asker, &home]);
        if own.is_empty() && !self.containers.without_cgroup {
            let text = format!(
                "the container has no cgroup of its own (it is in {now}), so its processes cannot be told from others; have its runtime make one, or set [containers] no_cgroup = \"socket\" to know it by its socket alone"
            );
            return Err(forbidden(&text));
        }
        let mut others = self.tenants.values().filter_map(|other| {
            let container = other.registration().container.as_ref()?;
            other.contained()?;
            Some((other.name(), container))
        });
        match others.find(|(_, other)| other.groups.meet(&own)) {
            Some((name, other)) => {
                let text = format!(
                    "the container's cgroup {own} is that of container {} (tenant {name}); give each a cgroup of its own",
                    other.id
                );
                Err(forbidden(&text))
            }
            None => Ok(own),
        }
    }

    fn same_init(&self, identity: Identity) -> Option<TenantId> {
        let mut all = self.tenants.iter();
        let same = all.find(|(_, known)| {
            let container = known.registration().container.as_ref();
            container.is_some_and(|container| container.init == Some(identity))
        });
        same.map(|(tenant, _)| *tenant)
    }

    /// A tenant's name for a container: its id, or where that is no name or is taken, what begins
    /// like it.
    fn name_of(&self, id: &str, init: Identity) -> String {
        let taken = |name: &str| self.find(name).is_some() || self.is_unrestored(name);
        let free = |name: &str| TenantName::parse("id", name).is_ok() && !taken(name);
        if free(id) {
            return id.to_owned();
        }
        let plain = |letter: char| if letter == '+' { '_' } else { letter };
        let suffix = format!("-{}-{:x}", init.pid, init.start);
        let room = MAX_NAME - suffix.len();
        let start: String = id.chars().map(plain).take(room).collect();
        start + &suffix
    }

    /// A container that does not fit now ends before it began. Why, with the numbers.
    fn turned_away(&mut self, now: Nanos, tenant: TenantId) -> WireError {
        let why = match self.refused.take() {
            Some(error) => error,
            None => self.waits_for(tenant),
        };
        if self.tenants.contains_key(&tenant) {
            self.happened(now, Event::TenantGone { tenant });
            self.tenants.remove(&tenant);
        }
        self.let_go();
        let why = why
            .strip_prefix("waits until its request fits")
            .map_or_else(
                || why.clone(),
                |rest| format!("a container does not wait, and its request does not fit{rest}"),
            );
        WireError::new(ErrorCode::Full, why)
    }

    pub(super) fn keep_container(&mut self, tenant: TenantId, contained: Contained) {
        let watch = contained
            .init()
            .map(|init| init.pidfd.as_fd().try_clone_to_owned());
        match watch {
            Some(Ok(pidfd)) => self.effect(Effect::WatchContainer { tenant, pidfd }),
            // The next tick looks.
            Some(Err(error)) => {
                tracing::error!(%error, "the first process of a container cannot be watched; it is looked at once a second")
            }
            None => {}
        }
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.contain(contained);
        }
    }

    /// A previous daemon's container, if it still lives.
    pub(super) fn find_container(&mut self, tenant: TenantId) {
        let known = self.tenants.get(&tenant);
        let Some(container) = known.and_then(|known| known.registration().container.clone()) else {
            return;
        };
        let contained = match container.init {
            Some(identity) => Init::again(identity).map(Contained::Init),
            None => {
                let now = self.known_mounts.inodes(&container.groups);
                is_there(&now, &container).then_some(Contained::Group)
            }
        };
        if let Some(contained) = contained {
            self.keep_container(tenant, contained);
        }
    }

    /// A container's first process has ended, by its pidfd.
    pub fn container_ended(&mut self, now: Nanos, tenant: TenantId) {
        let Some(known) = self.tenants.get_mut(&tenant) else {
            return;
        };
        if known.contained_no_longer() {
            self.end_if_unused(now, tenant);
        }
    }

    /// Once a second: containers whose end was not told.
    pub(super) fn tend_containers(&mut self, now: Nanos) {
        self.tend_allowed();
        let mut ended = Vec::new();
        // The table of mounts is read once for all that have ended.
        let mut mounts = None;
        for (tenant, known) in &self.tenants {
            let gone = match (known.contained(), &known.registration().container) {
                (Some(Contained::Init(init)), _) => {
                    crate::peer::is_dead(&init.pidfd).unwrap_or(false)
                }
                (Some(Contained::Group), Some(container)) => {
                    let groups = &container.groups;
                    !is_there(&self.known_mounts.seen(groups), container) && {
                        let mounts = mounts.get_or_insert_with(Mounts::here);
                        !is_there(&mounts.inodes(groups), container)
                    }
                }
                _ => false,
            };
            if gone {
                ended.push(*tenant);
            }
        }
        for tenant in ended {
            self.container_ended(now, tenant);
        }
    }

    /// The container's own cgroups as its init is in them now. Init may have been moved, by systemd
    /// in the container for one, or by its runtime. `None` where it is among others: the
    /// container's own cgroups are still those that it came with.
    pub(super) fn moved_to(&self, init: Option<&Init>, container: &Container) -> Option<Groups> {
        let now = init?.groups().ok()?;
        let home = Groups::parse(self.watch.home_table());
        let now = now.in_those_of(&container.groups).apart_from(&[&home]);
        now.are_in_all_of(&container.groups).then_some(now)
    }

    /// The cgroups of all containers that are tenants: those that they came with, and those in
    /// which their first processes are now. None of them has the daemon in it.
    pub(super) fn containers_groups(&self) -> Vec<Groups> {
        let all = self.containers_own_groups().into_iter();
        all.map(|(_, groups)| groups).collect()
    }

    /// The same with the tenant of each.
    pub(super) fn containers_own_groups(&self) -> Vec<(TenantId, Groups)> {
        let home = Groups::parse(self.watch.home_table());
        let mut all = Vec::new();
        for (id, known) in &self.tenants {
            if let Some(container) = &known.registration().container {
                // This daemon may be elsewhere than the one that wrote them down.
                all.push((*id, container.groups.apart_from(&[&home])));
                let init = known.contained().and_then(Contained::init);
                let moved = self.moved_to(init, container).into_iter();
                all.extend(moved.map(|groups| (*id, groups)));
            }
        }
        all
    }

    /// Whether a process may join a tenant that is a container; `None` for any other tenant.
    pub(super) fn may_join_container(
        &self,
        tenant: TenantId,
        peer: &Peer,
    ) -> Option<Result<(), WireError>> {
        let known = self.tenants.get(&tenant)?;
        let container = known.registration().container.as_ref()?;
        if container.groups.is_empty() {
            return Some(Ok(()));
        }
        // An init that is below has left its place to its other children, as systemd does.
        let init = known.contained().and_then(Contained::init);
        let now = self.moved_to(init, container);
        let elsewhere = now.filter(|now| !now.are_within(&container.groups));
        let own = elsewhere.as_ref().unwrap_or(&container.groups);
        if !peer.groups.are_within(own) {
            let text = format!(
                "process {} is not of container {}: it is in cgroup {}, and the container in {own}",
                peer.pid, container.id, peer.groups
            );
            return Some(Err(forbidden(&text)));
        }
        // A container in this one that is a tenant itself.
        let mut inner = self.tenants.iter().filter(|(other, _)| **other != tenant);
        let inner = inner.find_map(|(_, other)| {
            let inner = other.registration().container.as_ref()?;
            other.contained()?;
            let is_its = peer.groups.are_within(&inner.groups);
            let is_inner = inner.groups.depth() > own.depth();
            let is_inner = is_its && (is_inner || !peer.groups.are_within(&container.groups));
            is_inner.then_some(inner)
        });
        Some(match inner {
            Some(inner) => Err(forbidden(&format!(
                "process {} is of container {}, which is a tenant of its own",
                peer.pid, inner.id
            ))),
            None => Ok(()),
        })
    }
}

/// Whether a container's cgroup is still the one that it was, by the inodes that its places have
/// now.
pub(super) fn is_there(now: &BTreeMap<String, u64>, container: &Container) -> bool {
    let mut was = container.inodes.iter();
    !container.inodes.is_empty() && was.all(|(hierarchy, inode)| now.get(hierarchy) == Some(inode))
}
