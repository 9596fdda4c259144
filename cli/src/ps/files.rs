//! Tenants without a daemon: their books are files of this user.

use super::known::measured;
use super::row::{Process, Row, SCHEMA};
use crate::tenant;
use gpushare_protocol::page::{DeviceUse, ProcessUse, Snapshot, SnapshotDevice, lock_byte};
use gpushare_protocol::paths::{Root, USAGE};
use gpushare_protocol::uuid::Uuid;
use nix::unistd::geteuid;
use std::fs;
use std::path::{Path, PathBuf};

/// A row for each of them and each of its devices. A folder that cannot be read is no tenant.
pub(super) fn rows() -> Vec<Row> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let uid = geteuid().as_raw();
    let Ok(root) = Root::open(runtime_dir.as_deref(), uid) else {
        return Vec::new();
    };
    let folders = fs::read_dir(root.path()).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = folders.map(|folder| folder.path()).collect();
    folders.sort();
    folders.iter().flat_map(|folder| of(folder, uid)).collect()
}

fn of(folder: &Path, uid: u32) -> Vec<Row> {
    let usage = folder.join(USAGE);
    let Some(name) = folder.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let page = fs::read(&usage).ok();
    let Some(mut page) = page.and_then(|bytes| Snapshot::parse(&bytes).ok()) else {
        return Vec::new();
    };
    page.processes
        .retain(|process| tenant::is_locked_at(&usage, lock_byte(process.slot)));
    if page.processes.is_empty() {
        return Vec::new();
    }
    let devices = page.devices.iter();
    devices
        .map(|device| row(name, uid, device, &page.processes))
        .collect()
}

fn row(name: &str, uid: u32, device: &SnapshotDevice, processes: &[ProcessUse]) -> Row {
    let on_it = |process: &ProcessUse| -> Option<(u32, DeviceUse)> {
        let mut uses = process.uses.iter();
        let found = uses.find(|found| found.device_index == device.device_index)?;
        let pid = match process.outer_pid {
            0 => process.pid,
            outer => outer,
        };
        Some((pid, *found))
    };
    let uses: Vec<(u32, DeviceUse)> = processes.iter().filter_map(on_it).collect();
    let sum = |part: fn(&DeviceUse) -> u64| uses.iter().map(|(_, found)| part(found)).sum();
    let processes = uses.iter().map(|(pid, found)| Process {
        pid: *pid,
        charged: found.charged,
        overhead: measured(found.overhead),
        state: "running",
        waits_for: None,
        for_ms: None,
    });
    Row {
        schema: SCHEMA,
        name: name.to_owned(),
        device: Uuid(device.uuid).to_string(),
        gpu: None,
        owner: Some(uid),
        daemon: false,
        queued: None,
        age_ms: None,
        request: device.request,
        limit: device.limit,
        grant: sum(|found| found.credit),
        charged: sum(|found| found.charged),
        overhead: sum(|found| measured(found.overhead).unwrap_or(0)),
        limbo: 0,
        time: None,
        sharing: None,
        gang: None,
        pod: None,
        residency: None,
        residency_text: Vec::new(),
        ends: None,
        used: true,
        more: 0,
        processes: processes.collect(),
        time_text: "-".to_owned(),
    }
}
