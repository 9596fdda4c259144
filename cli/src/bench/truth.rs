//! The software GPU's own counters, if the GPU is a software GPU and `softgpu-inspect` is next to
//! this executable: the time each process was served, independent of its own log.

use super::crew::Backend;
use crate::artefacts;
use gpushare_protocol::uuid::Uuid;
use serde::Deserialize;
use std::collections::HashMap;
use std::process::Command;

/// One reading: the time, and the engine time that each device had given each process by then (ns).
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) at: u64,
    /// By the device's UUID and the process.
    served: HashMap<(String, u32), u64>,
}

#[cfg(test)]
impl Look {
    /// A look at a device that had given these processes so much by then.
    pub(crate) fn of(at: u64, device: [u8; 16], had: &[(u32, u64)]) -> Self {
        let key = |pid: u32| (Uuid(device).to_string(), pid);
        let served = had.iter().map(|(pid, ns)| (key(*pid), *ns));
        Self {
            at,
            served: served.collect(),
        }
    }
}

#[derive(Deserialize)]
struct Snapshot {
    at_ns: u64,
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    uuid: String,
    processes: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    pid: u32,
    served_ns: [u64; 3],
}

/// Reads the counters now; `None` on a real GPU or if the tool is not installed.
pub(crate) fn look(backend: &Backend) -> Option<Look> {
    let name = backend.soft_name()?;
    let tool = artefacts::find("softgpu-inspect").ok()?;
    let output = Command::new(tool)
        .arg(name)
        .env_clear()
        .envs(backend.environment())
        .output()
        .ok()?;
    let snapshot: Snapshot = serde_json::from_slice(&output.stdout).ok()?;
    let served = snapshot.devices.iter().flat_map(|device| {
        let processes = device.processes.iter();
        processes.map(|process| ((device.uuid.clone(), process.pid), process.served_ns[0]))
    });
    Some(Look {
        at: snapshot.at_ns,
        served: served.collect(),
    })
}

/// The fraction of a device's time that these processes were served between two readings.
pub(crate) fn served(before: &Look, after: &Look, device: [u8; 16], pids: &[u32]) -> f64 {
    let device = Uuid(device).to_string();
    let at = |look: &Look, pid: &u32| {
        let key = (device.clone(), *pid);
        look.served.get(&key).copied().unwrap_or(0)
    };
    let ns: u64 = pids
        .iter()
        .map(|pid| at(after, pid).saturating_sub(at(before, pid)))
        .sum();
    ns as f64 / (after.at.saturating_sub(before.at)).max(1) as f64
}
