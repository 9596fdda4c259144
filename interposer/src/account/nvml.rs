//! Asks NVML which processes have memory on a device.

use std::ffi::CString;

use gpushare_cuda_abi::nvml::{nvmlDevice_t, nvmlProcessInfo_v2_t, nvmlReturn_t};
use gpushare_protocol::uuid::Uuid;

use crate::driver::nvml::{self, Use};

/// A process in NVML's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    /// As NVML gives it: the machine's pid, or ours where they are the same.
    pub(crate) pid: u32,
    /// Bytes it holds; all ones where NVML does not know.
    pub(crate) bytes: u64,
}

/// Entries asked for at first.
const ROOM: usize = 64;

/// NVML, started. Its start takes tens of milliseconds on a node with several devices. So it is
/// started when a process died with charges, once for all looks at that, and never to start CUDA.
#[derive(Debug)]
pub(crate) struct Watch(());

impl Watch {
    /// Starts NVML, `None` if it cannot be asked.
    pub(crate) fn start() -> Option<Self> {
        // Not `then_some`: what that drops would end a start of the program's.
        (nvml::load() && nvml::start()).then(|| Self(()))
    }

    /// The processes with a context on a device, `None` if NVML cannot say.
    pub(crate) fn processes(&self, uuid: &[u8; 16]) -> Option<Vec<Listed>> {
        let device = device(uuid)?;
        let mut all = list(device, Use::Compute)?;
        all.extend(list(device, Use::Graphics).unwrap_or_default());
        Some(all)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        nvml::end();
    }
}

/// A device whose free memory can be read, as long as the program keeps NVML started.
#[derive(Debug)]
pub(crate) struct Gauge(nvmlDevice_t);

impl Gauge {
    /// For a program that has started NVML itself; `None` otherwise.
    pub(crate) fn open(uuid: &[u8; 16]) -> Option<Self> {
        device(uuid).map(Self)
    }

    /// Free memory in bytes; `None` where the program has ended NVML meanwhile.
    pub(crate) fn free(&self) -> Option<u64> {
        nvml::memory(self.0).map(|memory| memory.free)
    }
}

/// The device of a UUID. The driver does not say whether it is a MIG instance's, so both spellings
/// are tried.
fn device(uuid: &[u8; 16]) -> Option<nvmlDevice_t> {
    let gpu = Uuid(*uuid).to_string();
    let bare = gpu.trim_start_matches("GPU-");
    [gpu.clone(), format!("MIG-{bare}")]
        .into_iter()
        .find_map(|name| nvml::by_uuid(&CString::new(name).ok()?))
}

fn list(device: nvmlDevice_t, by: Use) -> Option<Vec<Listed>> {
    let none = nvmlProcessInfo_v2_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let mut room = ROOM;
    for _ in 0..4 {
        let mut infos = vec![none; room];
        match nvml::processes(device, by, &mut infos) {
            Ok(count) => {
                let known = infos.iter().take(count);
                let listed = known.map(|info| Listed {
                    pid: info.pid,
                    bytes: info.usedGpuMemory,
                });
                return Some(listed.collect());
            }
            Err((nvmlReturn_t::INSUFFICIENT_SIZE, count)) => room = room.max(count) * 2,
            Err(_) => return None,
        }
    }
    None
}
