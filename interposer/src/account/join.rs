//! Joining a tenant: which one, under which limits, and in which slot.
//!
//! `GPUSHARE_TENANT` names it. Without a name a process joins the tenant of its nearest ancestor
//! that is in one. If no ancestor is in a tenant, it founds one under a name made of its own pid,
//! start time and pid namespace.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use gpushare_protocol::limits::{LimitError, Limits, View};
use gpushare_protocol::page::{
    MAX_DEVICES, MAX_SLOTS, NO_LIMIT, PAGE_BYTES, Page, PageError, TEXT_MAX, Writer, slot_range,
};
use gpushare_protocol::paths::{Root, TENANT, TenantName};
use gpushare_protocol::uuid::Uuid;

use super::ancestors::{ancestors_tenant, founded_by};
use super::backend::Backend;
use super::file::UsageFile;
use super::killpoint;
use super::limbo;
use super::lock::{self, Unavailable};
use super::lock_file::LockFile;
use super::nvml::Watch;
use super::process::{self, Identity};
use super::slots::{self, Dead};
use crate::account::views::Shown;
use crate::driver::device::{Unknown, Visible};

/// How often to look again for a tenant that is deleted while we join.
const ATTEMPTS: usize = 16;

/// Why this process cannot have CUDA. `Display` is the one line the library ever prints.
#[derive(Debug)]
pub(crate) enum StartError {
    /// A limit that does not parse, or differs from the running tenant's.
    Limits(LimitError),
    /// The tenant's folder or file cannot be used.
    Folder(PathBuf, io::Error),
    /// The tenant's file is of another version.
    Page(PathBuf, PageError),
    /// The tenant lock was not to be had in time.
    Busy(PathBuf),
    /// All slots are taken by living processes.
    Full,
    /// More devices than a tenant has room for.
    Devices(usize),
    /// The daemon of this tenant.
    Daemon(crate::session::Unreachable),
    /// A device that the tenant was not given.
    Stranger(Uuid),
    /// The driver did not describe its devices.
    Driver(&'static str, u32),
}

impl StartError {
    /// Whether no daemon answered, as opposed to one that refuses.
    pub(crate) fn is_for_want_of_a_daemon(&self) -> bool {
        matches!(self, Self::Daemon(unreachable) if unreachable.is_away())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(error) => error.fmt(f),
            Self::Folder(path, error) => write!(
                f,
                "cannot use the tenant folder {}: {error}",
                path.display()
            ),
            Self::Page(path, error) => write!(
                f,
                "cannot use {}/usage: {error}; use another {TENANT}",
                path.display()
            ),
            Self::Busy(path) => write!(
                f,
                "the lock of {}/usage was held for {} s, by a stopped process perhaps; continue or end it",
                path.display(),
                lock::PATIENCE.as_secs()
            ),
            Self::Full => write!(
                f,
                "the tenant already has {MAX_SLOTS} processes on the GPU, the most it can have"
            ),
            Self::Devices(count) => write!(
                f,
                "the tenant would use {count} devices, the most it can have is {MAX_DEVICES}; set CUDA_VISIBLE_DEVICES"
            ),
            Self::Daemon(error) => error.fmt(f),
            Self::Stranger(device) => write!(
                f,
                "the tenant was not given device {device}; leave it out of CUDA_VISIBLE_DEVICES, or register the tenant with it"
            ),
            Self::Driver(function, code) => {
                write!(f, "the driver's {function} failed with error {code}")
            }
        }
    }
}

impl From<Unknown> for StartError {
    fn from(why: Unknown) -> Self {
        match why {
            Unknown::Many(count) => Self::Devices(count),
            Unknown::Driver(function, code) => Self::Driver(function, code),
        }
    }
}

/// Where and as what to join.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Folder of all this user's tenants.
    pub(crate) root: &'a Root,
    /// The effective user.
    pub(crate) uid: u32,
    /// The tenant's name, if it has been given one.
    pub(crate) name: Option<TenantName>,
    /// This process.
    pub(crate) me: Identity,
    /// The limits that its environment requests.
    pub(crate) limits: &'a Limits,
    /// The devices the program sees.
    pub(crate) devices: &'a [Visible],
}

pub(crate) use super::membership::{Membership, Own};

/// Joins the tenant of `request`.
///
/// # Errors
/// [`StartError`]; nothing is left behind that another process would notice.
pub(crate) fn join(request: &Request<'_>) -> Result<Membership, StartError> {
    let name = match &request.name {
        Some(name) => name.clone(),
        None => ancestors_tenant(request.root, request.me).unwrap_or_else(|| {
            super::stale::remove(request.root);
            founded_by(request.me, process::namespace())
        }),
    };
    let folder = request.root.folder(&name);
    let mut gone = Vec::new();
    for _ in 0..ATTEMPTS {
        let fault = |error| StartError::Folder(folder.clone(), error);
        let folder = request.root.create(&name, request.uid).map_err(fault)?;
        let file = match UsageFile::open(&folder, true) {
            // The folder went between the two calls: its last process left.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(fault)?,
        };
        match enter(request, &name, file, &gone) {
            Err(StartError::Folder(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(StartError::Full) if gone.is_empty() => {
                gone = match rows_of_the_gone(&folder) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    rows => rows.map_err(fault)?,
                };
                if gone.is_empty() {
                    return Err(StartError::Full);
                }
            }
            entered => return entered,
        }
    }
    Err(StartError::Folder(folder, io::ErrorKind::NotFound.into()))
}

/// The rows of the dead whose memory the driver has freed, in a tenant that is full: nobody who
/// lives in it has needed that memory. NVML is asked here, in the middle of a step, because there
/// is no account yet.
fn rows_of_the_gone(folder: &Path) -> io::Result<Vec<Dead>> {
    let file = UsageFile::open(folder, false)?;
    let page = file.map()?;
    let is_alive = |slot| file.is_alive(slot);
    Ok(limbo::gone(page, is_alive, Watch::start))
}

/// Takes the tenant lock and, under it, a slot: one of the `gone` where no other is to be had.
fn enter(
    request: &Request<'_>,
    name: &TenantName,
    file: UsageFile,
    gone: &[Dead],
) -> Result<Membership, StartError> {
    let folder = request.root.folder(name);
    let fault = |error| StartError::Folder(folder.clone(), error);
    let threads = Mutex::new(LockFile::kept());
    let held = lock::take(&file, &threads).map_err(|unavailable| match unavailable {
        Unavailable::Busy => StartError::Busy(folder.clone()),
        Unavailable::Lost(error) => fault(error),
    })?;
    let status = file.status().map_err(fault)?;
    if !status.linked {
        return Err(fault(io::ErrorKind::NotFound.into()));
    }
    let alone = !file.has_company();
    let page = open_page(request.me, &file, alone).map_err(fault)?;
    page.check()
        .map_err(|error| StartError::Page(folder.clone(), error))?;
    agree(request, name, page, alone)?;
    let device_indices = claim_devices(request, name, page, alone)?;
    let slot = claim_slot(request, &file, page, gone)?.ok_or(StartError::Full)?;
    let row = page.row(slot).ok_or(StartError::Full)?;
    drop(held);
    Ok(Membership {
        name: name.clone(),
        backend: Backend::File(file),
        page,
        slot,
        writer: Writer::of_slot(slot),
        row,
        threads,
        device_indices,
        own: [Own::NONE; MAX_DEVICES],
        shown: [const { Shown::new() }; MAX_DEVICES],
    })
}

/// Maps the page. A page that this version cannot read (an empty file, or another version's) is
/// made anew if no process lives in it: the locks that say so are where they are in all versions.
///
/// The first process allocates what all read, whatever the file's length: that is set before, so
/// one that found no room, or was killed in between, leaves a file of holes. Where memory is short
/// a hole in it kills the process that only reads it.
fn open_page(me: Identity, file: &UsageFile, alone: bool) -> io::Result<&'static Page> {
    let whole = |file: &UsageFile| {
        if file.status()?.bytes < PAGE_BYTES as u64 {
            file.set_length(PAGE_BYTES as u64)?;
        }
        file.allocate(0..slot_range(0).start)
    };
    if alone || file.status()?.bytes < PAGE_BYTES as u64 {
        whole(file)?;
    }
    let page = file.map()?;
    if page.check().is_err() && alone {
        file.set_length(0)?;
        whole(file)?;
        page.found(me.pid, me.start);
        killpoint::hit();
    }
    Ok(page)
}

/// Compares the limits asked for with the tenant's, which the first process decides.
fn agree(
    request: &Request<'_>,
    name: &TenantName,
    page: &Page,
    alone: bool,
) -> Result<(), StartError> {
    let (ours, theirs) = (request.limits.to_string(), page.header.text());
    if ours.len() > TEXT_MAX {
        return Err(differing(
            name,
            &format!("at most {TEXT_MAX} bytes of limits"),
        ));
    }
    if ours == theirs {
        return Ok(());
    }
    if !alone {
        return Err(differing(
            name,
            &format!("the limits it runs with ({theirs}), or another name"),
        ));
    }
    page.header.set_text(&ours);
    killpoint::hit();
    Ok(())
}

fn differing(name: &TenantName, accepted: &str) -> StartError {
    StartError::Limits(LimitError {
        variable: TENANT.to_owned(),
        value: name.to_string(),
        problem: "this tenant runs with other limits".to_owned(),
        accepted: accepted.to_owned(),
    })
}

/// Finds or claims an index for each visible device, and sets or compares its limits.
fn claim_devices(
    request: &Request<'_>,
    name: &TenantName,
    page: &Page,
    alone: bool,
) -> Result<Vec<usize>, StartError> {
    if alone {
        vacate_devices(page);
    }
    let mut device_indices = Vec::with_capacity(request.devices.len());
    for (ordinal, device) in (0..).zip(request.devices) {
        let limits = request
            .limits
            .for_device(ordinal, &device.uuid, device.capacity)
            .map_err(StartError::Limits)?;
        let limit = limits.limit.unwrap_or(NO_LIMIT);
        let known = page
            .devices
            .iter()
            .position(|device_index| device_index.uuid() == Some(device.uuid));
        let index = match known {
            Some(index) => index,
            None => page
                .devices
                .iter()
                .position(|device_index| device_index.uuid().is_none())
                .ok_or(StartError::Devices(MAX_DEVICES + 1))?,
        };
        let device_index = &page.devices[index];
        let fresh = known.is_none() || alone;
        if !fresh && device_index.limit.load(Ordering::Relaxed) != limit {
            let uuid = Uuid(device.uuid);
            return Err(differing(
                name,
                &format!("the limit it has for {uuid}; CUDA_VISIBLE_DEVICES may differ"),
            ));
        }
        if fresh {
            device_index.limit.store(limit, Ordering::Relaxed);
            device_index
                .request
                .store(limits.request, Ordering::Relaxed);
            device_index
                .view_total
                .store(limits.view_total, Ordering::Relaxed);
            let by_request = u32::from(limits.view == View::Request);
            device_index.by_request.store(by_request, Ordering::Relaxed);
            device_index
                .capacity
                .store(device.capacity, Ordering::Relaxed);
            let cap = limits.compute.limit.map_or(0, |cap| u32::from(cap.get()));
            device_index.cap.store(cap, Ordering::Relaxed);
            device_index.claim(&device.uuid);
            killpoint::hit();
        }
        device_indices.push(index);
    }
    Ok(device_indices)
}

/// Frees the indices of devices without charges of any process, dead or live.
fn vacate_devices(page: &Page) {
    for (index, device_index) in page.devices.iter().enumerate() {
        if !slots::taken(page).any(|slot| slots::is_charged(page, slot, index)) {
            device_index.vacate();
        }
    }
}

/// Takes a free slot, or one whose process is dead and holds no memory, or is one of the `gone`.
fn claim_slot(
    request: &Request<'_>,
    file: &UsageFile,
    page: &Page,
    gone: &[Dead],
) -> Result<Option<usize>, StartError> {
    let fault = |error| StartError::Folder(request.root.path().to_owned(), error);
    let empty = |slot: usize| !(0..MAX_DEVICES).any(|index| slots::is_charged(page, slot, index));
    let usable = |slot: &usize| {
        let taken = page.slots[*slot].taken.load(Ordering::Acquire) != 0;
        let holds_nothing = || empty(*slot) || gone.contains(&slots::owner(page, *slot));
        !taken || (!file.is_alive(*slot) && holds_nothing())
    };
    for slot in (0..MAX_SLOTS).filter(usable) {
        if file.hold_slot(slot).is_err() {
            continue;
        }
        if let Err(error) = file.allocate(slot_range(slot)) {
            file.drop_slot(slot);
            return Err(fault(error));
        }
        slots::occupy(page, slot, request.me, process::namespace());
        if !gone.is_empty() {
            // Its former owner's charges may be in sums that others remember.
            for device in &page.devices {
                device.watch.changed_by_another();
            }
        }
        return Ok(Some(slot));
    }
    Ok(None)
}
