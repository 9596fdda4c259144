//! Joining a tenant of the node's daemon: the socket says which, and under which limits.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use gpushare_protocol::limits::{DeviceLimits, Limits, View};
use gpushare_protocol::page::{MAX_DEVICES, NO_LIMIT, Writer};
use gpushare_protocol::paths::{TENANT, TenantName};
use gpushare_protocol::uuid::Uuid;
use gpushare_protocol::wire::Hello;

use super::backend::Backend;
use super::grow;
use super::join::{Membership, Own, StartError};
use super::lock_file::LockFile;
use super::process;
use crate::account::views::Shown;
use crate::driver::{device, mps};
use crate::session::{self, Callbacks};

/// The capabilities that this process reports to the daemon: it takes turns, and moves its memory,
/// unless it is a client of MPS, which shares its compute itself.
pub(super) fn capabilities() -> u64 {
    if mps::is_client() {
        Hello::MPS
    } else {
        Hello::GATED | Hello::MOVABLE
    }
}

/// The total by which this process's own limits lower what it sees. The device's size is none: the
/// tenant's limit may be above it.
fn own_total(own: &DeviceLimits) -> u64 {
    match own.view {
        View::Request if own.request != 0 => own.view_total,
        _ => own.limit.unwrap_or(u64::MAX),
    }
}

/// Registers with the daemon whose socket lies in `folder`. `limits` are this process's own, which
/// may lower the tenant's; for `turns_change` see [`start`](super::start).
///
/// # Errors
/// [`StartError`], one line for the user who started the tenant.
pub(super) fn join(
    folder: &Path,
    limits: &Limits,
    turns_change: fn(),
) -> Result<Membership, StartError> {
    let devices = device::enumerate()?;
    let callbacks = Callbacks {
        capabilities,
        locked: super::locked,
        turns_change,
    };
    let session = session::start(folder, callbacks).map_err(StartError::Daemon)?;
    let mut device_indices = Vec::with_capacity(devices.len());
    let mut own = [Own::NONE; MAX_DEVICES];
    for (ordinal, device) in (0..).zip(&devices) {
        let known = session
            .device_uuids
            .iter()
            .position(|uuid| *uuid == device.uuid);
        let device_index = known
            .filter(|device_index| *device_index < MAX_DEVICES)
            .ok_or(StartError::Stranger(Uuid(device.uuid)))?;
        let lowered = limits
            .for_device(ordinal, &device.uuid, device.capacity)
            .map_err(StartError::Limits)?;
        own[device_index] = Own {
            limit: lowered.limit.unwrap_or(NO_LIMIT),
            view_total: own_total(&lowered),
            by_request: lowered.view == View::Request,
        };
        device_indices.push(device_index);
    }
    grow::tell_releases();
    if let Some(slot) = session.page.slots.get(session.slot) {
        let namespace = process::namespace();
        slot.pid_namespace.store(namespace, Ordering::Relaxed);
    }
    let backend = Backend::Daemon(session);
    let mut lock = LockFile::kept();
    if let Err(error) = lock.prepare(&backend) {
        tracing::warn!(%error, "the tenant lock cannot be had yet");
    }
    Ok(Membership {
        name: TenantName::parse(TENANT, &session.tenant).map_err(StartError::Limits)?,
        backend,
        page: session.page,
        slot: session.slot,
        writer: Writer::of_slot(session.slot),
        row: session.page.row(session.slot).ok_or(StartError::Full)?,
        threads: Mutex::new(lock),
        device_indices,
        own,
        shown: [const { Shown::new() }; MAX_DEVICES],
    })
}
