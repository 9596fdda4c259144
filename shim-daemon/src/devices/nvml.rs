//! The real devices, through NVML.

use std::ffi::OsStr;

use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError as Wrapped;

use super::{Capabilities, Device, Devices, Look, LookError};

/// NVML, initialised for as long as this value lives.
#[derive(Debug)]
pub struct Nvml {
    nvml: nvml_wrapper::Nvml,
    uuids: Vec<String>,
}

/// NVML cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use NVML (libnvidia-ml.so.1): {0}; is the NVIDIA driver installed?")]
pub struct NvmlError(#[from] Wrapped);

impl Nvml {
    /// Loads and initialises the library the dynamic linker finds under its SONAME.
    ///
    /// # Errors
    /// [`NvmlError`] without a driver.
    pub fn load() -> Result<Self, NvmlError> {
        let nvml = nvml_wrapper::Nvml::builder()
            .lib_path(OsStr::new("libnvidia-ml.so.1"))
            .init()?;
        Ok(Self {
            nvml,
            uuids: Vec::new(),
        })
    }

    fn describe(&self, index: u32) -> Result<(String, Device), Wrapped> {
        let device = self.nvml.device_by_index(index)?;
        let text = device.uuid()?;
        let uuid = Uuid::parse(&text, '-').ok_or(Wrapped::Unknown)?;
        let memory = device.memory_info()?;
        let process_memory = device
            .running_compute_processes()
            .is_ok_and(|list| list.iter().all(|p| known(&p.used_gpu_memory).is_some()));
        let described = Device {
            uuid: uuid.0,
            name: device.name()?,
            capacity: Bytes(memory.total),
            capabilities: Capabilities {
                process_memory,
                driver_limits: false,
                mig: text.starts_with("MIG-"),
            },
        };
        Ok((text, described))
    }

    fn observe(&self, uuid: &str) -> Result<Look, Wrapped> {
        let device = self.nvml.device_by_uuid(uuid)?;
        let memory = device.memory_info()?;
        let mut processes = Some(Vec::new());
        for list in [
            device.running_compute_processes(),
            device.running_graphics_processes(),
        ] {
            match list {
                Ok(list) => {
                    for process in list {
                        match (&mut processes, known(&process.used_gpu_memory)) {
                            (Some(all), Some(bytes)) => all.push((process.pid, bytes)),
                            _ => processes = None,
                        }
                    }
                }
                Err(Wrapped::NotSupported) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Look {
            used: Bytes(memory.used),
            free: Bytes(memory.free),
            processes,
        })
    }
}

fn known(used: &UsedGpuMemory) -> Option<Bytes> {
    match used {
        UsedGpuMemory::Used(bytes) => Some(Bytes(*bytes)),
        UsedGpuMemory::Unavailable => None,
    }
}

impl Devices for Nvml {
    fn list(&mut self) -> Result<Vec<Device>, String> {
        let count = self
            .nvml
            .device_count()
            .map_err(|error| format!("NVML does not count the devices: {error}"))?;
        let mut devices = Vec::new();
        self.uuids.clear();
        for index in 0..count {
            let (uuid, device) = self
                .describe(index)
                .map_err(|error| format!("NVML does not describe device {index}: {error}"))?;
            self.uuids.push(uuid);
            devices.push(device);
        }
        Ok(devices)
    }

    fn look(&mut self, index: usize) -> Result<Look, LookError> {
        let uuid = self.uuids.get(index).ok_or(LookError::Lost)?;
        self.observe(uuid).map_err(|error| match error {
            Wrapped::GpuLost => LookError::Lost,
            other => LookError::Failed(other.to_string()),
        })
    }
}
