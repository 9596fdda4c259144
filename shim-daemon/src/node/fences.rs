//! Fences: which cgroups the driver itself shall hold to how much ([ADR
//! 15](../../../docs/adr/0015-the-drivers-limit-is-above-the-tenants.md)).
//!
//! A fence is the driver's memory limit of a cgroup that belongs to one tenant alone. A container
//! runtime made such a cgroup, it holds processes of one tenant of ours, and no registering command
//! came from it. The fence is set when the tenant's first process arrives, moved when its limit or
//! overhead changes, and removed with the tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gpushare_core::{DeviceId, TenantId};
use gpushare_protocol::units::{Bytes, GIB, MIB};
use serde::{Deserialize, Serialize};

use super::tenant::index;
use super::{ConnId, Effect, Node};
use crate::cgroup;
use crate::devices::{FenceError, Order, Outcome};

/// Above limit, overhead and one more context: what contexts may grow by between two looks.
/// Generous, because a fence that is hit by a program within its limit is the failure this project
/// exists to prevent.
const SLACK: Bytes = Bytes(GIB);
/// Fences are multiples of this, and lowered only by twice as much at once.
const STEP: u64 = 256 * MIB;

/// Which fence: of a tenant, on a device, around a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FenceKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The device's index in the node.
    pub device: usize,
    /// The cgroup, as `/proc/<pid>/cgroup` has it.
    pub group: String,
}

/// A fence that the next daemon must recognise as its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// The cgroup.
    pub group: String,
    /// The device's UUID.
    pub device: [u8; 16],
}

#[derive(Debug, Default)]
struct Fence {
    /// The driver's limit of the cgroup, as far as this daemon knows.
    stands: Option<Bytes>,
    /// Whether a limit that is found there is ours.
    ours: bool,
    under_way: bool,
    /// Nothing more is tried: another's limit, or no such cgroup.
    given_up: bool,
    /// Whether the last failure was reported.
    told: bool,
}

/// All fences of the node.
#[derive(Debug, Default)]
pub(super) struct Fences {
    /// The unified hierarchy, where fences are wanted and possible.
    mount: Option<PathBuf>,
    /// Tenants that have, or had, a process in a tenant's cgroup.
    groups: BTreeMap<String, BTreeSet<TenantId>>,
    placed: BTreeMap<FenceKey, Fence>,
    /// The runtime's cgroups that commands came from.
    commands: BTreeMap<ConnId, String>,
}

impl Fences {
    /// Fences below this mount of the unified hierarchy, or none.
    pub(super) fn new(mount: Option<PathBuf>) -> Self {
        Self {
            mount,
            ..Self::default()
        }
    }
}

impl Node {
    /// A command sent hello from this cgroup, so a tenant it registers is not alone there. `user`
    /// is `None` for users without restrictions.
    pub fn command_came(&mut self, connection: ConnId, cgroup: &str, user: Option<u32>) {
        self.users.came(connection, user);
        let group = cgroup::of_container(cgroup).or_else(|| cgroup::of_machine(cgroup));
        if let Some(group) = group {
            self.fences.commands.insert(connection, group.to_owned());
        }
    }

    pub(super) fn command_left(&mut self, connection: ConnId) {
        self.users.left(connection);
        self.fences.commands.remove(&connection);
        self.watch.commands.remove(&connection);
    }

    /// A command made the tenant or joined it.
    pub(super) fn note_owner(&mut self, tenant: TenantId, command: ConnId) {
        let group = self.fences.commands.get(&command).cloned();
        if let (Some(group), Some(known)) = (group, self.tenants.get_mut(&tenant))
            && known.note_command(group)
            && known.is_admitted()
        {
            self.write_down(tenant);
        }
    }

    /// Has the server store all registrations again, because the stored ones are gone.
    pub fn write_down_all(&mut self) {
        let admitted = self.tenants.iter().filter(|(_, known)| known.is_admitted());
        for tenant in admitted.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.write_down(tenant);
        }
    }

    /// The server could not write a tenant's registration; it tries again.
    pub fn not_remembered(&mut self, tenant: TenantId, error: &std::io::Error) {
        let text = format!(
            "its limits could not be written down ({error}): a daemon that is started now would not know them as they are"
        );
        self.event("unsaved", Some(tenant), None, text);
    }

    /// Has the server remember the tenant's registration as it is now.
    pub fn write_down(&mut self, tenant: TenantId) {
        if let Some(known) = self.tenants.get_mut(&tenant) {
            known.note_totals();
            let registration = Box::new(known.registration().clone());
            self.effect(Effect::Listen {
                tenant,
                registration,
            });
        }
    }

    /// A process of the tenant is in this cgroup.
    pub(super) fn entered(&mut self, tenant: TenantId, cgroup: &str) {
        if self.fences.mount.is_none() {
            return;
        }
        let Some(group) = cgroup::of_container(cgroup) else {
            return;
        };
        let inside = self.fences.groups.entry(group.to_owned()).or_default();
        if inside.insert(tenant) {
            self.mind_fences();
        }
    }

    /// The previous daemon's fences are this one's.
    pub(super) fn inherit_fences(&mut self, tenant: TenantId) {
        let Some(known) = self.tenants.get(&tenant) else {
            return;
        };
        for Remembered { group, device } in known.registration().fences.clone() {
            let Some(device) = self.devices.iter().position(|own| own.uuid == device) else {
                continue;
            };
            let inside = self.fences.groups.entry(group.clone()).or_default();
            inside.insert(tenant);
            let key = FenceKey {
                tenant,
                device,
                group,
            };
            let fence = Fence {
                ours: true,
                ..Fence::default()
            };
            self.fences.placed.insert(key, fence);
        }
    }

    /// Sets, moves and removes fences as needed.
    pub(super) fn mind_fences(&mut self) {
        if self.fences.mount.is_none() {
            return;
        }
        let mut wanted = Vec::new();
        for (group, inside) in &self.fences.groups {
            for tenant in inside {
                let Some(known) = self.tenants.get(tenant) else {
                    continue;
                };
                let alone = inside.len() == 1 && !known.registration().commands.contains(group);
                for device in known
                    .device_ids()
                    .iter()
                    .filter_map(|device| index(*device))
                {
                    let height = alone.then(|| self.height(*tenant, device)).flatten();
                    let key = FenceKey {
                        tenant: *tenant,
                        device,
                        group: group.clone(),
                    };
                    wanted.push((key, height));
                }
            }
        }
        for (key, height) in wanted {
            self.mind_fence(key, height);
        }
    }

    /// The driver's limit for a tenant's cgroup: the tenant's limit, the driver's own overhead, and
    /// room for that overhead to grow. It is never less than the memory held. `None` where no fence
    /// is needed or possible.
    fn height(&self, tenant: TenantId, device: usize) -> Option<Bytes> {
        let described = self.devices.get(device)?;
        let id = DeviceId(device as u64);
        let account = self.world.account(tenant, id)?;
        if !described.capabilities.driver_limits || account.quota.limit >= described.capacity {
            return None;
        }
        let own = account.quota.limit + account.overhead;
        let due = own + account.limbo + self.world.context_cost(id) + SLACK;
        let held = self.used_by(tenant, id).unwrap_or_default() + account.limbo;
        let height = Bytes(due.max(held).0.checked_next_multiple_of(STEP)?);
        (height < described.capacity).then_some(height)
    }

    fn mind_fence(&mut self, key: FenceKey, height: Option<Bytes>) {
        let fence = self.fences.placed.entry(key.clone()).or_default();
        if fence.under_way || fence.given_up {
            return;
        }
        let stays = match (height, fence.stands) {
            (None, None) => !fence.ours,
            (Some(height), Some(stands)) => stands >= height && stands.0 - height.0 < 2 * STEP,
            _ => false,
        };
        if stays {
            return;
        }
        fence.under_way = true;
        let order = Order {
            hard: height,
            ours: fence.ours,
        };
        if !order.ours {
            self.remember_fence(&key, true);
        }
        self.order(key, order);
    }

    /// Stores for the next daemon that there is, or is not, a fence. This happens before the fence
    /// is set, so that the next daemon never takes it for another program's.
    fn remember_fence(&mut self, key: &FenceKey, stands: bool) {
        let Some(device) = self.devices.get(key.device).map(|device| device.uuid) else {
            return;
        };
        let Some(known) = self.tenants.get_mut(&key.tenant) else {
            return;
        };
        let fence = Remembered {
            group: key.group.clone(),
            device,
        };
        known.note_fence(fence, stands);
        self.write_down(key.tenant);
    }

    fn order(&mut self, key: FenceKey, order: Order) {
        let Some(mount) = &self.fences.mount else {
            return;
        };
        let path = mount.join(key.group.trim_start_matches('/'));
        self.effect(Effect::Fence { key, path, order });
    }

    /// Takes the outcome of an [`Effect::Fence`].
    pub fn fenced(&mut self, key: &FenceKey, outcome: Outcome) {
        let Some(fence) = self.fences.placed.get_mut(key) else {
            // The tenant has ended; its cgroup has ended or will soon.
            return;
        };
        fence.under_way = false;
        let device = Some(DeviceId(key.device as u64));
        let tenant = Some(key.tenant);
        match outcome {
            Outcome::Stands(hard) => {
                let first = fence.stands.is_none();
                (fence.stands, fence.ours, fence.told) = (hard, hard.is_some(), false);
                match hard {
                    Some(hard) if first => {
                        let text = format!("the driver holds {} to {}", key.group, hard.human());
                        self.event("fence", tenant, device, text);
                    }
                    None => self.remember_fence(key, false),
                    Some(_) => {}
                }
            }
            Outcome::Foreign(hard) => {
                fence.given_up = true;
                let text = format!(
                    "another program has set the driver's limit of {}, or of a cgroup above it, to {}: left unchanged",
                    key.group,
                    hard.human()
                );
                self.remember_fence(key, false);
                self.event("fence-foreign", tenant, device, text);
            }
            Outcome::Failed(error) => self.fence_failed(key, &error),
        }
    }

    fn fence_failed(&mut self, key: &FenceKey, error: &FenceError) {
        let Some(fence) = self.fences.placed.get_mut(key) else {
            return;
        };
        let told = std::mem::replace(&mut fence.told, true);
        let device = Some(DeviceId(key.device as u64));
        match error {
            FenceError::NotPermitted => {
                self.fences = Fences::default();
                let text = format!("no fences: {error}");
                tracing::warn!("{text}");
                return self.event("fence-off", None, None, text);
            }
            FenceError::NotSupported => {
                fence.given_up = true;
                if let Some(described) = self.devices.get_mut(key.device)
                    && std::mem::take(&mut described.capabilities.driver_limits)
                {
                    self.event("fence-off", None, device, format!("no fences: {error}"));
                }
                return;
            }
            FenceError::NotFound => fence.given_up = true,
            FenceError::Failed(_) => {}
        }
        if !told {
            let text = format!("no fence around {}: {error}", key.group);
            self.event("fence-failed", Some(key.tenant), device, text);
        }
    }

    /// The tenant has ended: removes its fences, so that none remains where its cgroup outlives it.
    pub(super) fn remove_fences(&mut self, tenant: TenantId) {
        self.fences.groups.retain(|_, inside| {
            inside.remove(&tenant);
            !inside.is_empty()
        });
        let keys = self.fences.placed.keys();
        let own: Vec<FenceKey> = keys.filter(|key| key.tenant == tenant).cloned().collect();
        for key in own {
            let fence = self.fences.placed.remove(&key);
            // A fence that is being set is ours by the time this order is carried out.
            if fence.is_some_and(|fence| fence.ours || (fence.under_way && !fence.given_up)) {
                let order = Order {
                    hard: None,
                    ours: true,
                };
                self.order(key, order);
            }
        }
    }
}
