//! The account of a tenant: its processes' charges, and whether they may charge more.
//!
//! [`start`] joins the tenant once. After that [`charge()`] books bytes before the driver is called
//! and [`release`] gives them back after the driver freed them: one compare-and-swap each on a word
//! of this process's own, as long as its credit lasts. More credit comes from [`grow`], under the
//! tenant lock. The word of a dead process shows its charges; other processes take them back once
//! the driver has freed the memory ([`limbo`]).
//!
//! If the lock cannot be had in time or the file is lost, growth is refused and nothing else
//! changes: charges stay, frees continue, and no call blocks for longer than the bounds in [`lock`]
//! and [`limbo`].

mod ancestors;
mod backend;
mod charge;
mod compute;
mod contexts;
mod daemon;
mod file;
mod grow;
mod join;
pub(crate) mod killpoint;
pub(crate) mod law;
mod limbo;
mod lock;
mod lock_file;
pub(crate) mod members;
mod membership;
pub(crate) mod nvml;
pub(crate) mod ordinal;
mod others;
pub(crate) mod peek;
mod pinned;
mod process;
mod room;
mod slots;
mod stale;
#[cfg(test)]
mod tests;
pub(crate) mod views;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use gpushare_protocol::limits::Limits;
use gpushare_protocol::page::refused::RefusedWord;
use gpushare_protocol::page::{MAX_SLOTS, NO_LIMIT, UNIT, units_within};
use gpushare_protocol::paths::{IN_FILES, Root, TENANT, TenantName};

use crate::account::views::Shown;
use crate::driver::device::{self, DeviceKey};
use crate::guest::fork::ForkLocal;
use crate::session::{Bound, Session};
use backend::Backend;

pub(crate) use crate::session::{Deadline, Opening, Waiting};
pub(crate) use charge::{
    Charge, Units, charge, charge_nothing, charge_of_credit, charge_unasked, charge_waiting,
    release,
};
pub(crate) use compute::{Compute, compute};
pub(crate) use contexts::{is_open, no_context, open};
pub(crate) use join::{Membership, StartError};

/// The tenant has no room for a charge: `CUDA_ERROR_OUT_OF_MEMORY` to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl From<Refused> for gpushare_cuda_abi::cuda::CUresult {
    fn from(_: Refused) -> Self {
        Self::OUT_OF_MEMORY
    }
}

/// A tenant's limits and charges on one device. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaStatus {
    /// Ceiling of the charges, `None` without a limit.
    pub(crate) limit: Option<u64>,
    /// The total that the program sees.
    pub(crate) view_total: u64,
    /// Physical size of the device.
    pub(crate) capacity: u64,
    /// Charged by all processes together.
    pub(crate) charged: u64,
    /// The bytes that the charges could reach if the daemon were asked now; `None` without a
    /// daemon.
    pub(crate) reach: Option<u64>,
    /// The bytes that the charges may come to whatever the device has free: a daemon makes room for
    /// them. 0 without one.
    pub(crate) assured: u64,
}

/// The additional facts where programs see the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByRequest {
    /// The values that this process was shown before.
    pub(crate) shown: &'static Shown,
    /// The bytes of [`QuotaStatus::charged`] that this process has charged itself, at the same
    /// moment.
    pub(crate) own: u64,
    /// A daemon makes room for memory within the request.
    pub(crate) is_guaranteed: bool,
}

static MEMBER: ForkLocal<Membership> = ForkLocal::new();
/// The tenant of a forked child's parent: the child belongs to it, whichever parent it has by then.
static PARENTS_TENANT: std::sync::Mutex<Option<TenantName>> = std::sync::Mutex::new(None);

#[inline]
fn member() -> Option<&'static Membership> {
    MEMBER.get()
}

/// From now on this is the process's place.
fn member_now(member: Membership) -> &'static Membership {
    device::know(&member.device_indices);
    MEMBER.set(member)
}

/// Joins the tenant that this process's environment names. Once, after the driver's own `cuInit`.
/// `turns_change` is called, by a thread of the library, when the daemon that gives turns exits or
/// another one connects.
///
/// # Errors
/// [`StartError`], whose text is one line for the user who set the limits.
pub(crate) fn start(turns_change: fn()) -> Result<(), StartError> {
    let limits = limits()?;
    match limits.socket() {
        Some(folder) => start_under_daemon(folder, &limits, turns_change),
        None => start_in_files(&limits),
    }
}

// A thread with a small stack may start the library: each of these has a frame of its own, and none
// holds what only another one needs.

#[inline(never)]
fn limits() -> Result<Box<Limits>, StartError> {
    law::limits().map(Box::new).map_err(StartError::Limits)
}

#[inline(never)]
fn start_under_daemon(
    folder: &Path,
    limits: &Limits,
    turns_change: fn(),
) -> Result<(), StartError> {
    let member = member_now(daemon::join(folder, limits, turns_change)?);
    tracing::info!(tenant = %member.name, slot = member.slot, "joined by the daemon");
    Ok(())
}

#[inline(never)]
fn start_in_files(limits: &Limits) -> Result<(), StartError> {
    let uid = file::effective_user();
    let named = match std::env::var_os(TENANT).filter(|name| !name.is_empty()) {
        Some(name) => {
            Some(TenantName::parse(TENANT, &name.to_string_lossy()).map_err(StartError::Limits)?)
        }
        None => PARENTS_TENANT
            .try_lock()
            .ok()
            .and_then(|parents| parents.clone()),
    };
    let root = root_of(named.as_ref(), uid)?;
    let devices = device::enumerate()?;
    let request = join::Request {
        root: &root,
        uid,
        name: named,
        me: process::this(),
        limits,
        devices: &devices,
    };
    let member = member_now(join::join(&request)?);
    if let Ok(mut parents) = PARENTS_TENANT.try_lock() {
        *parents = Some(member.name.clone());
    }
    tracing::info!(tenant = %member.name, slot = member.slot, %limits, "joined");
    Ok(())
}

#[inline(never)]
fn root_of(named: Option<&TenantName>, uid: u32) -> Result<Root, StartError> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let found = match named {
        Some(name) => {
            let mark = std::env::var_os(IN_FILES);
            Root::of(name, mark.as_deref(), runtime_dir.as_deref(), uid)
        }
        None => Root::open(runtime_dir.as_deref(), uid),
    };
    let folder = || runtime_dir.unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let root = found.map_err(|error| StartError::Folder(folder(), error))?;
    if let Some(passed_over) = root.passed_over() {
        tracing::warn!(passed_over, "the place of the books");
    }
    Ok(root)
}

/// After [`start`], once other threads no longer wait for that: gives back what processes have left
/// that died in the tenant. NVML is loaded for it, where there is any.
pub(crate) fn started() {
    if let Some(member) = member()
        && matches!(member.backend, Backend::File(_))
    {
        limbo::settle_all(member);
    }
}

/// Whether a daemon may still make room for a request that does not fit now.
pub(crate) fn can_wait() -> bool {
    member().is_some_and(|member| matches!(member.backend, Backend::Daemon(_)))
}

/// Forgets the parent's place, tables and objects, in a forked child. Stores, and system calls that
/// close descriptors.
pub(crate) fn after_fork_in_child() {
    crate::guest::fork::forget_parent();
    lock_file::close_parents();
    crate::session::after_fork_in_child();
}

/// Calls `body` while no process's credit grows, for a thread that may have descriptors of its own.
/// Does nothing if the tenant lock cannot be had.
fn locked(body: &mut dyn FnMut()) {
    if let Some(member) = member()
        && let Ok(_held) = lock::take_apart(&member.backend, &member.threads)
    {
        body();
    }
}

/// The driver had no memory for `bytes` that are charged: has the daemon see why, and make room if
/// that is it.
#[derive(Debug)]
pub(crate) struct OomRetry<'a> {
    session: &'static Session,
    bound: Bound,
    call: &'a Deadline,
    device: DeviceKey,
    bytes: u64,
}

impl<'a> OomRetry<'a> {
    /// `None` without a daemon: the driver's answer stands.
    pub(crate) fn new(device: DeviceKey, bytes: u64, call: &'a Deadline) -> Option<Self> {
        let member = member()?;
        let Backend::Daemon(session) = member.backend else {
            return None;
        };
        let device_index = device.index();
        // Memory within the tenant's request may wait that long, as where it was asked for.
        let guaranteed = member.charged(device_index) <= units_within(member.request(device_index));
        let waiting = if guaranteed {
            Waiting::Guaranteed
        } else {
            Waiting::AsLimitsSay
        };
        Some(Self {
            session,
            bound: session.bound(room::here(waiting), call.began()),
            call,
            device,
            bytes,
        })
    }

    /// Whether the driver may be asked once more.
    pub(crate) fn again(&mut self) -> bool {
        let Some(member) = member() else { return false };
        let held = member.charged(self.device.index()) * UNIT;
        let wanted = (held, self.bytes);
        self.session
            .driver_refused(self.device.index(), wanted, &mut self.bound, self.call)
    }
}

/// The UUID of a device.
pub(crate) fn uuid(device: DeviceKey) -> Option<[u8; 16]> {
    member()?.page.devices.get(device.index())?.uuid()
}

/// The tenant's limits and charges on `device`.
pub(crate) fn quota_status(device: DeviceKey) -> Option<QuotaStatus> {
    Some(quota_status_in(member()?, device)?.0)
}

/// As [`quota_status`], and this process's own part of it. `None` where programs see the limit.
pub(crate) fn quota_status_by_request(
    device: DeviceKey,
) -> Option<(QuotaStatus, Option<ByRequest>)> {
    quota_status_by_request_in(member()?, device)
}

fn quota_status_by_request_in(
    member: &'static Membership,
    device: DeviceKey,
) -> Option<(QuotaStatus, Option<ByRequest>)> {
    let index = device.index();
    let device_index = member.page.devices.get(index)?;
    let by_request =
        member.own[index].by_request || device_index.by_request.load(Ordering::Relaxed) != 0;
    let (status, own) = quota_status_in(member, device)?;
    let by_request = by_request.then(|| ByRequest {
        shown: &member.shown[index],
        own,
        is_guaranteed: matches!(member.backend, Backend::Daemon(_)),
    });
    Some((status, by_request))
}

/// The status, and the bytes of its charges that are this process's own.
fn quota_status_in(member: &Membership, device: DeviceKey) -> Option<(QuotaStatus, u64)> {
    let device_index = member.page.devices.get(device.index())?;
    let limit = member.limit(device.index());
    let view_total = device_index.view_total.load(Ordering::Relaxed);
    let charges = others::charged_by_all(member, device.index());
    let status = QuotaStatus {
        limit: (limit != NO_LIMIT).then_some(limit),
        view_total: view_total.min(member.own[device.index()].view_total),
        capacity: device_index.capacity.load(Ordering::Relaxed),
        charged: (charges.own + charges.others) * UNIT,
        reach: member.backend.reach(device.index()),
        assured: device_index.assured.load(Ordering::Relaxed),
    };
    Some((status, charges.own * UNIT))
}

/// Bytes that this process is charged with on `device`.
pub(crate) fn holds(device: DeviceKey) -> u64 {
    let line = member().and_then(|member| member.line(device.index()));
    line.map_or(0, |line| u64::from(line.word.load().charged) * UNIT)
}

/// How many of the tenant's processes are charged with memory on a device, and with how much
/// together.
pub(crate) fn users(device_index: usize) -> (u64, u64) {
    let Some(member) = member() else {
        return (0, 0);
    };
    let rows = (0..MAX_SLOTS).filter(|slot| {
        let slot = &member.page.slots[*slot];
        slot.taken.load(Ordering::Acquire) != 0
    });
    let lines = rows.filter_map(|slot| member.page.line(slot, device_index));
    let charges = lines.map(|line| u64::from(line.word.load().charged) * UNIT);
    let charges = charges.filter(|bytes| *bytes > 0);
    charges.fold((0, 0), |(processes, sum), bytes| {
        (processes + 1, sum + bytes)
    })
}

/// Records that the program uses its devices: a process whose count does not change is idle for the
/// daemon. Threads may lose each other's increments; the values only have to differ.
#[inline]
pub(crate) fn worked() {
    if let Some(member) = member() {
        let submitted = &member.row[0].submitted;
        submitted.store(
            submitted.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }
}

/// Counts an allocation of the program that is refused: once, however often a charge was tried. It
/// would have been charged `bytes`.
#[cold]
pub(crate) fn count_refusal(device: DeviceKey, bytes: u64) {
    let Some(member) = member() else { return };
    let Some(line) = member.line(device.index()) else {
        return;
    };
    // The size first: the daemon tells it with the count.
    if let Some(slot) = member.page.slots.get(member.slot) {
        let word = RefusedWord::new(device.index(), bytes).bits();
        slot.largest_refused.fetch_max(word, Ordering::Relaxed);
    }
    line.refused.fetch_add(1, Ordering::Release);
}

/// Notes that contexts, modules and the like took (or gave back) about `bytes`. Shown, not held
/// against the limit.
pub(crate) fn overhead_add(device: DeviceKey, bytes: i64) {
    if let Some(line) = member().and_then(|member| member.line(device.index())) {
        let add = |now: u64| Some(now.saturating_add_signed(bytes));
        let _ = line
            .overhead
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}
