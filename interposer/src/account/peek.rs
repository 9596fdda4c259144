//! A look at the tenant from a process that may never start CUDA: `nvidia-smi`, `nvtop` and
//! their like.
//!
//! No tenant is joined and no slot is taken. The tenant is the one this process is in, is
//! configured for, or inherits from an ancestor; its page is copied and read as numbers. Without a
//! page the limits come from the environment alone, and nothing is charged yet. That is so
//! too for a tenant whose daemon has not given its page: no other tenant's processes are shown.
//!
//! Rows of dead processes stay in a page of files until a process of the tenant joins or finds no
//! room. Here they count for nothing: what the driver still holds of such a process NVML itself
//! says, as long as nothing else has its pid. In a tenant nobody lives in, the limits are those
//! that the next process would bring.

use std::path::Path;
use std::sync::atomic::Ordering;

use gpushare_protocol::limits::Limits;
use gpushare_protocol::page::residency::Movability;
use gpushare_protocol::page::{
    Device, Line, MAX_SLOTS, Page, ProcessUse, Snapshot, UNIT, measured,
};
use gpushare_protocol::paths::{Root, USAGE};

use super::backend::Backend;
use super::join::Own;
use super::members::{Known, Members};
use super::ordinal::{self, Described, ordinal};
use super::process::{Identity, Now};
use super::{QuotaStatus, ancestors, daemon, file, law, member, process};
use crate::driver::device::DeviceKey;
use crate::guest::background::Uncancelled;
use crate::session;

/// Whether a tenant's memory is managed, and so may be more than a device has free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Managed {
    /// As the daemon says. Whether the device can do that is not known here.
    Told(bool),
    /// As this process, which has joined the tenant, makes it on this device.
    Here(DeviceKey),
}

/// A tenant's state on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glance {
    /// Limits and charges.
    pub(crate) status: QuotaStatus,
    /// Bytes of contexts and modules, as far as they were measured.
    pub(crate) overhead: u64,
    /// Its memory may be on the host.
    pub(crate) managed: Managed,
    /// The tenant's processes.
    pub(crate) members: Members,
}

/// Looks at a device of `capacity` bytes. Before CUDA has started its ordinal is what
/// `CUDA_VISIBLE_DEVICES` will make it.
///
/// `None` where there is neither a tenant nor a limit: the device's own answers stand.
pub(crate) fn glance(device: &Described, capacity: u64) -> Option<Glance> {
    let _uncancelled = Uncancelled::begin();
    look(daemons_page(), device, capacity)
}

/// The tenant's processes, also for a list of a device that the tenant was not given, and where its
/// limits do not fit the device or cannot be read.
///
/// `None` where there is neither a tenant nor a limit.
pub(crate) fn members() -> Option<Members> {
    let _uncancelled = Uncancelled::begin();
    match daemons_page() {
        Daemons::Page(page, _) => Some(members_of(page)),
        Daemons::Away(_) => (!law::allows_without_daemon()).then(Members::default),
        Daemons::NoTenant => books().map(|books| books.members).or_else(|| {
            let kept = law::kept();
            let is_limited = kept.limits.as_ref().map_or(true, Limits::any);
            (kept.tenant.is_some() || is_limited).then(Members::default)
        }),
    }
}

fn look(daemons: Daemons, device: &Described, capacity: u64) -> Option<Glance> {
    let uuid = &device.uuid.0;
    match daemons {
        Daemons::Page(page, movability) => return by_daemon(page, movability, uuid),
        Daemons::Away(limits) => return while_away(limits, device, capacity),
        Daemons::NoTenant => {}
    }
    let (page, members) = match books() {
        Some(Books { page, members }) => (Some(page), members),
        None => (None, Members::default()),
    };
    match &page {
        Some(page) if page.devices.iter().any(|device| device.uuid == *uuid) => {
            in_page(page, uuid, members)
        }
        _ => {
            let known = page.is_some();
            let kept = law::kept();
            let limits = kept.limits.as_ref().ok()?;
            (known || limits.any() || kept.tenant.is_some())
                .then(|| from_environment(limits, device, capacity, members))?
        }
    }
}

/// The page that a daemon keeps for this process, if any.
enum Daemons {
    /// Its tenant's page, and whether and how its memory may be moved.
    Page(&'static Page, Movability),
    /// A page that no daemon has given yet, in place of these limits.
    Away(&'static Limits),
    /// Nothing: the process is in no daemon's tenant.
    NoTenant,
}

/// The page of the tenant that a daemon keeps for this process. A process that never starts CUDA is
/// registered for it, holds no memory, and is forgotten when it ends.
fn daemons_page() -> Daemons {
    if let Some(member) = member() {
        return match member.backend {
            Backend::Daemon(session) => Daemons::Page(member.page, session.movability()),
            _ => Daemons::NoTenant,
        };
    }
    let Ok(limits) = &law::kept().limits else {
        return Daemons::NoTenant;
    };
    let Some(socket) = limits.socket() else {
        return Daemons::NoTenant;
    };
    match session::look(socket, daemon::capabilities()) {
        Some((page, movability)) => Daemons::Page(page, movability),
        None => Daemons::Away(limits),
    }
}

/// The device of a tenant whose daemon is away. Where the operator lets programs start without
/// limits meanwhile, the device's own answers stand.
fn while_away(limits: &Limits, device: &Described, capacity: u64) -> Option<Glance> {
    if law::allows_without_daemon() {
        return None;
    }
    let mut glance = from_environment(limits, device, capacity, Members::default())?;
    // Without a limit the use would be the whole device's.
    glance.status.limit.get_or_insert(capacity);
    Some(glance)
}

fn by_daemon(page: &Page, movability: Movability, uuid: &[u8; 16]) -> Option<Glance> {
    let is = |device: &Device| device.uuid().as_ref() == Some(uuid);
    let device_index = page.devices.iter().position(is)?;
    let device = &page.devices[device_index];
    let lines = || taken(page).filter_map(|slot| page.line(slot, device_index));
    let charged = |line: &Line| u64::from(line.word.load().charged) * UNIT;
    let own = member().and_then(|member| member.own.get(device_index).copied());
    let own = own.unwrap_or(Own::NONE);
    let here = member().and_then(|_| DeviceKey::of_index(device_index));
    Some(Glance {
        managed: match here {
            Some(device) => Managed::Here(device),
            None => Managed::Told(movability == Movability::Managed),
        },
        status: QuotaStatus {
            limit: Some(device.limit.load(Ordering::Relaxed).min(own.limit)),
            view_total: device
                .view_total
                .load(Ordering::Relaxed)
                .min(own.view_total),
            capacity: device.capacity.load(Ordering::Relaxed),
            charged: lines().map(charged).sum(),
            reach: member().and_then(|member| member.backend.reach(device_index)),
            assured: device.assured.load(Ordering::Relaxed),
        },
        overhead: lines()
            .map(|line| measured(line.overhead.load(Ordering::Relaxed)))
            .sum(),
        members: members_of(page),
    })
}

/// The slots of the tenant's processes.
fn taken(page: &Page) -> impl Iterator<Item = usize> {
    let taken = |slot: &usize| page.slots[*slot].taken.load(Ordering::Acquire) != 0;
    (0..MAX_SLOTS).filter(taken)
}

fn members_of(page: &Page) -> Members {
    Members::of(taken(page).map(|slot| {
        let slot = &page.slots[slot];
        // The daemon says here which process of the machine it is.
        let outer = slot.generation.load(Ordering::Relaxed);
        Known {
            pid: slot.pid.load(Ordering::Relaxed),
            namespace: slot.pid_namespace.load(Ordering::Relaxed),
            outer: u32::try_from(outer).unwrap_or(0),
        }
    }))
}

fn in_page(page: &Snapshot, uuid: &[u8; 16], members: Members) -> Option<Glance> {
    let device = page.devices.iter().find(|device| device.uuid == *uuid)?;
    let uses = page.processes.iter().flat_map(|process| &process.uses);
    Some(Glance {
        managed: Managed::Told(false),
        status: QuotaStatus {
            limit: device.limit,
            view_total: device.view_total,
            capacity: device.capacity,
            charged: page.charged(device.device_index),
            reach: None,
            assured: 0,
        },
        overhead: uses
            .filter(|usage| usage.device_index == device.device_index)
            .map(|usage| measured(usage.overhead))
            .sum(),
        members,
    })
}

/// A tenant's limits and processes, as its files have them.
#[derive(Debug)]
struct Books {
    /// Its page with the rows of living processes; where none lives, without devices too, because
    /// the next process brings limits of its own.
    page: Snapshot,
    /// Its processes, and dead ones whose pids are no other's yet.
    members: Members,
}

/// The books in a tenant's folder. The file is opened anew, because a process does not see its own
/// lock. Where it cannot be opened, every process is taken for living.
fn books_in(folder: &Path) -> Option<Books> {
    let mut page = Snapshot::parse(&std::fs::read(folder.join(USAGE)).ok()?).ok()?;
    let file = file::UsageFile::open(folder, false).ok();
    let lives = |process: &ProcessUse| {
        let file = file.as_ref();
        file.is_none_or(|file| file.is_alive(process.slot))
    };
    let (living, dead): (Vec<_>, Vec<_>) = page.processes.into_iter().partition(lives);
    let here = process::namespace();
    let members = Members::of(
        (living
            .iter()
            .filter(|process| is_still(process, here, true)))
        .chain(dead.iter().filter(|process| is_still(process, here, false)))
        .map(|process| Known {
            pid: process.pid,
            namespace: process.pid_namespace,
            outer: process.outer_pid,
        }),
    );
    if living.is_empty() {
        page.devices.clear();
    }
    page.processes = living;
    Some(Books { page, members })
}

/// Whether the pid in a row means the row's process still, so that NVML's entry of that pid is its
/// memory. A process that is there but has lost its row has executed another program, which may be
/// in no tenant. Of another pid namespace nothing can be seen, and the row decides.
fn is_still(process: &ProcessUse, here: u64, lives: bool) -> bool {
    // A process without `/proc` did not know its start.
    if process.start == 0 || ![0, here].contains(&process.pid_namespace) {
        return lives;
    }
    let identity = Identity {
        pid: process.pid,
        start: process.start,
    };
    match process::now(identity) {
        Now::Ended => true,
        Now::Another => false,
        Now::Same => lives,
    }
}

fn from_environment(
    limits: &Limits,
    device: &Described,
    capacity: u64,
    members: Members,
) -> Option<Glance> {
    let ordinal = match law::kept().name_devices {
        true => expected_ordinal(device),
        false => ordinal::NONE,
    };
    let limits = limits.for_device(ordinal, &device.uuid.0, capacity).ok()?;
    let status = QuotaStatus {
        limit: limits.limit,
        view_total: limits.view_total,
        capacity,
        charged: 0,
        reach: None,
        assured: 0,
    };
    Some(Glance {
        status,
        overhead: 0,
        managed: Managed::Told(false),
        members,
    })
}

/// The ordinal that CUDA will give the device. A program may choose its devices up to when that
/// starts, so this variable is read at each look.
fn expected_ordinal(device: &Described) -> u32 {
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    let visible = visible.as_ref().map(|list| list.to_string_lossy());
    ordinal(device, visible.as_deref()).unwrap_or(ordinal::NONE)
}

/// The books of the tenant that this process is in, is configured for, or inherits.
fn books() -> Option<Books> {
    let kept = law::kept();
    let (runtime, user) = (kept.runtime_folder.as_deref(), file::effective_user());
    let root = match &kept.tenant {
        Some(name) => Root::of(name, kept.mark.as_deref(), runtime, user),
        None => Root::open(runtime, user),
    };
    let root = root.ok()?;
    let name = match member() {
        Some(member) => member.name.clone(),
        None => {
            let named = kept.tenant.clone();
            named.or_else(|| ancestors::ancestors_tenant(&root, process::this()))?
        }
    };
    books_in(&root.folder(&name))
}

#[cfg(test)]
mod tests;
