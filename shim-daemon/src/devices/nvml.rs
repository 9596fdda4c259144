//! The real devices, through NVML.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use gpushare_protocol::units::Bytes;
use gpushare_protocol::uuid::Uuid;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError as Wrapped;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use super::activity::Activity;
use super::health::Asked;
use super::instances::{Instances, Kept, shares};
use super::memory_limits::MemoryLimits;
use super::older;
use super::{Capabilities, Device, Devices, DriverLimit, FenceError, Look, LookError};

/// Why a compute instance is refused that is not the only one of its GPU instance.
const SHARED: &str = "shares its memory with other compute instances of its GPU instance, and each would be given all of it; make one compute instance of the whole (nvidia-smi mig -dci, -cci)";

/// Why a GPU in MIG mode is not served that has no instance yet.
const BARE: &str = "is in MIG mode and has no instance; make its instances (nvidia-smi mig -cgi, -C) before this daemon starts, or end that mode";

/// Why there is no device.
const NONE: &str = "NVML counts no GPU that the driver serves; does nvidia-smi list one, or has another driver it?";

/// Why a device is refused whose memory NVML does not tell.
const UNIFIED: &str = "has no memory of its own: it shares the host's (as GB10 and Jetson do), and a daemon cannot divide it. Where there is no other GPU, disable gpushared.service: `gpushare run --daemon off` keeps limits without it";

/// A device as NVML knows it.
#[derive(Debug)]
struct Known {
    /// Its UUID, as NVML spells it.
    uuid: String,
    handle: Kept,
}

/// A device, or why it is not served.
type Described = Result<(Known, Device), Unserved>;

/// How often NVML is asked for a list that grows meanwhile: it is asked for the length and then for
/// the rows, with room for five more.
const GROWS: u32 = 3;

/// Why a device is not served.
#[derive(Debug)]
enum Unserved {
    /// It is of a kind that cannot be.
    Refused(String),
    /// It does not answer: it may have fallen off the bus.
    Silent(String),
}

impl Unserved {
    /// NVML's error about a device that it counts.
    fn silent(error: Wrapped) -> Self {
        Self::Silent(error.to_string())
    }

    /// Of the device at this index of NVML's.
    fn of(self, index: u32) -> Self {
        let text = |why| format!("NVML does not describe device {index}: {why}");
        match self {
            Self::Refused(why) => Self::Refused(text(why)),
            Self::Silent(why) => Self::Silent(text(why)),
        }
    }
}

/// NVML, initialised for as long as this value lives.
#[derive(Debug)]
pub struct Nvml {
    nvml: nvml_wrapper::Nvml,
    known: Vec<Known>,
    /// Why devices were not listed that do not answer.
    silent: Vec<String>,
    /// Whether its newest lists of processes cannot be read.
    wide_rows: bool,
    /// `None` before r615.
    limits: Option<MemoryLimits>,
    /// `None` before R450.
    instances: Option<Instances>,
    activity: Activity,
    asked: Asked,
}

/// NVML cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot use NVML (libnvidia-ml.so.1): {error}; {}",
    advice(error, Path::new("/proc"), Path::new("/dev"))
)]
pub struct NvmlError {
    #[from]
    error: Wrapped,
}

/// What to do where NVML cannot be used, by its error and the folders of the kernel and of the
/// devices.
fn advice(error: &Wrapped, proc: &Path, dev: &Path) -> &'static str {
    if matches!(error, Wrapped::LibRmVersionMismatch) {
        return "the driver was upgraded, and the kernel still has the module of the one before: \
                reboot, or end all that uses the GPUs and load the module anew (rmmod, modprobe)";
    }
    let is_loaded = proc.join("driver/nvidia/version").exists();
    match is_loaded && !dev.join("nvidiactl").exists() {
        true => {
            "the driver is loaded, and its device files (/dev/nvidiactl) are not there, which this daemon may not make: \
             run nvidia-smi as root once, and for each boot enable nvidia-persistenced"
        }
        false => {
            "is the NVIDIA driver installed? If it is in a container, as the GPU Operator puts it, \
             name a folder of links to its libraries in this daemon's LD_LIBRARY_PATH"
        }
    }
}

impl Nvml {
    /// Loads and initialises the library the dynamic linker finds under its SONAME.
    ///
    /// # Errors
    /// [`NvmlError`] without a driver.
    pub fn load() -> Result<Self, NvmlError> {
        let nvml = nvml_wrapper::Nvml::builder()
            .lib_path(OsStr::new("libnvidia-ml.so.1"))
            .init()?;
        let version = nvml.sys_driver_version().unwrap_or_default();
        let limits = has_limits(&version).then(MemoryLimits::find).flatten();
        Ok(Self {
            nvml,
            known: Vec::new(),
            silent: Vec::new(),
            wide_rows: older::has_wide_rows(&version),
            limits,
            instances: Instances::find(),
            activity: Activity::default(),
            asked: Asked::default(),
        })
    }

    /// The device at `index`. A device in MIG mode cannot be computed on directly; its instances
    /// are returned instead. Instances that share their memory are refused: each would have books
    /// of its own of it.
    fn describe(&self, index: u32) -> Vec<Described> {
        let undescribed = |why: Unserved| why.of(index);
        let device = match self.nvml.device_by_index(index) {
            Ok(device) => device,
            Err(error) => return vec![Err(undescribed(Unserved::silent(error)))],
        };
        let minor = device.minor_number().ok();
        let one = |device: &_| self.describe_one(device, minor).map_err(undescribed);
        let instances = self.instances.as_ref();
        let Some(instances) = instances.and_then(|all| all.of(&self.nvml, &device)) else {
            return vec![one(&device)];
        };
        if instances.is_empty() {
            let named = device.uuid().unwrap_or_else(|_| format!("device {index}"));
            return vec![Err(Unserved::Refused(format!("{named} {BARE}")))];
        }
        let each = instances.iter().map(|instance| {
            let described = one(&instance.device)?;
            match shares(instance, &instances) {
                false => Ok(described),
                true => Err(Unserved::Refused(format!("{} {SHARED}", described.0.uuid))),
            }
        });
        each.collect()
    }

    fn describe_one(&self, device: &nvml_wrapper::Device<'_>, minor: Option<u32>) -> Described {
        let text = device.uuid().map_err(Unserved::silent)?;
        let uuid = Uuid::parse(&text, '-').ok_or_else(|| {
            Unserved::Refused(format!(
                "it calls itself {text}, not by a UUID; MIG instances need driver R470 or later"
            ))
        })?;
        let memory = older::memory(device).map_err(|error| match error {
            Wrapped::NotSupported => Unserved::Refused(format!("{text} {UNIFIED}")),
            other => Unserved::silent(other),
        })?;
        self.facts(device, text, (uuid, minor, memory.usable))
            .map_err(Unserved::silent)
    }

    fn facts(
        &self,
        device: &nvml_wrapper::Device<'_>,
        text: String,
        (uuid, minor, capacity): (Uuid, Option<u32>, Bytes),
    ) -> Result<(Known, Device), Wrapped> {
        let process_memory = all_of(|| older::compute(device, self.wide_rows))
            .is_ok_and(|list| list.iter().all(|p| known(&p.used_gpu_memory).is_some()));
        let mig = text.starts_with("MIG-");
        let described = Device {
            uuid: uuid.0,
            minor,
            name: device.name()?,
            capacity,
            capabilities: Capabilities {
                process_memory,
                // The first order shows whether the kernel and the module's settings allow it.
                driver_limits: self.limits.is_some() && !mig,
                mig,
            },
        };
        let known = Known {
            uuid: text,
            handle: Kept::of(device),
        };
        Ok((known, described))
    }

    fn at(&self, index: usize) -> Result<nvml_wrapper::Device<'_>, FenceError> {
        let gone = || FenceError::Failed("the device is lost".to_owned());
        let known = self.known.get(index).ok_or_else(gone)?;
        let failed = |error: LookError| FenceError::Failed(error.to_string());
        self.again(known).map_err(failed)
    }

    /// A device of the list, by the handle that it had there.
    ///
    /// A search by the UUID alone would fail for all devices where one is lost (`nvml.h`:
    /// `NVML_ERROR_GPU_IS_LOST` "if any GPU has fallen off the bus"), so that it never shows which.
    /// It is made where another device has the handle by now, as of an instance that was made anew.
    fn again(&self, known: &Known) -> Result<nvml_wrapper::Device<'_>, LookError> {
        let device = known.handle.device(&self.nvml);
        match device.uuid() {
            Ok(uuid) if uuid == known.uuid => return Ok(device),
            Err(Wrapped::GpuLost) => return Err(LookError::Lost),
            Ok(_) | Err(_) => {}
        }
        let found = self.nvml.device_by_uuid(known.uuid.as_str());
        found.map_err(|error| LookError::Failed(error.to_string()))
    }

    fn observe(
        &self,
        (index, device): (usize, nvml_wrapper::Device<'_>),
        activity: &mut Activity,
        asked: &mut Asked,
    ) -> Result<Look, Wrapped> {
        let memory = older::memory(&device)?;
        let computing = listed(all_of(|| older::compute(&device, self.wide_rows)))?;
        let drawing = listed(all_of(|| older::graphics(&device, self.wide_rows)))?;
        let (processes, drawing) = together(computing, drawing);
        Ok(Look {
            used: memory.used,
            free: memory.free,
            processes,
            drawing,
            busy: activity.since_last(index, &device),
            health: asked.look(index, &device),
        })
    }
}

/// Whether a driver of this version (`615.71.09`) has limits for cgroups.
fn has_limits(version: &str) -> bool {
    let branch = version
        .split('.')
        .next()
        .and_then(|branch| branch.parse().ok());
    branch.is_some_and(|branch: u32| branch >= 615)
}

/// A list, asked for again where it has become longer than NVML was given room for.
fn all_of<T>(ask: impl Fn() -> Result<T, Wrapped>) -> Result<T, Wrapped> {
    let mut asked = ask();
    for _ in 1..GROWS {
        match asked {
            Err(Wrapped::InsufficientSize(_)) => asked = ask(),
            answer => return answer,
        }
    }
    asked
}

/// A process of a list, and its memory where NVML tells that.
type Listed = (u32, Option<Bytes>);

/// The processes of a list; none where the device has no such list.
fn listed(list: Result<Vec<ProcessInfo>, Wrapped>) -> Result<Vec<Listed>, Wrapped> {
    let row = |process: ProcessInfo| (process.pid, known(&process.used_gpu_memory));
    match list {
        Ok(list) => Ok(list.into_iter().map(row).collect()),
        Err(Wrapped::NotSupported) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// All processes with their memory, or `None` if it is not told of each; and those that only draw.
/// A process that computes and draws is in both lists, each time with all its memory.
fn together(
    computing: Vec<Listed>,
    drawing: Vec<Listed>,
) -> (Option<Vec<(u32, Bytes)>>, BTreeSet<u32>) {
    let mut only_draw: BTreeSet<u32> = drawing.iter().map(|(pid, _)| *pid).collect();
    for (pid, _) in &computing {
        only_draw.remove(pid);
    }
    let mut most: BTreeMap<u32, Option<Bytes>> = BTreeMap::new();
    for (pid, bytes) in computing.into_iter().chain(drawing) {
        let known = most.entry(pid).or_default();
        *known = (*known).max(bytes);
    }
    let all = most.into_iter().map(|(pid, bytes)| Some((pid, bytes?)));
    (all.collect(), only_draw)
}

fn known(used: &UsedGpuMemory) -> Option<Bytes> {
    match used {
        UsedGpuMemory::Used(bytes) => Some(Bytes(*bytes)),
        UsedGpuMemory::Unavailable => None,
    }
}

impl Devices for Nvml {
    fn driver_version(&mut self) -> String {
        self.nvml.sys_driver_version().unwrap_or_default()
    }

    fn list(&mut self) -> Result<Vec<Device>, String> {
        let count = self
            .nvml
            .device_count()
            .map_err(|error| format!("NVML does not count the devices: {error}"))?;
        let (mut devices, mut missing) = (Vec::new(), None);
        self.known.clear();
        self.silent.clear();
        for index in 0..count {
            // A device that fell off the bus does not hide the other devices.
            for one in self.describe(index) {
                match one {
                    Ok((known, device)) => {
                        self.known.push(known);
                        devices.push(device);
                    }
                    Err(why) => {
                        let (Unserved::Refused(text) | Unserved::Silent(text)) = &why;
                        tracing::error!("{text}; it is not served");
                        missing = Some(text.clone());
                        if let Unserved::Silent(text) = why {
                            self.silent.push(text);
                        }
                    }
                }
            }
        }
        match devices.is_empty() {
            true => Err(missing.unwrap_or_else(|| NONE.to_owned())),
            false => Ok(devices),
        }
    }

    fn silent(&mut self) -> Vec<String> {
        std::mem::take(&mut self.silent)
    }

    fn driver_limit(&mut self, index: usize, cgroup: &Path) -> Result<DriverLimit, FenceError> {
        let limits = self.limits.as_ref().ok_or(FenceError::NotSupported)?;
        limits.get(&self.at(index)?, cgroup)
    }

    fn limit_driver(
        &mut self,
        index: usize,
        cgroup: &Path,
        hard: Option<Bytes>,
    ) -> Result<(), FenceError> {
        let limits = self.limits.as_ref().ok_or(FenceError::NotSupported)?;
        limits.set(&self.at(index)?, cgroup, hard)
    }

    fn look(&mut self, index: usize) -> Result<Look, LookError> {
        let mut activity = std::mem::take(&mut self.activity);
        let mut asked = std::mem::take(&mut self.asked);
        let known = self.known.get(index).ok_or(LookError::Lost);
        let look = known.and_then(|known| {
            let device = self.again(known)?;
            let look = self.observe((index, device), &mut activity, &mut asked);
            look.map_err(|error| match error {
                Wrapped::GpuLost => LookError::Lost,
                other => LookError::Failed(other.to_string()),
            })
        });
        (self.activity, self.asked) = (activity, asked);
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_driver_without_device_files_is_told_from_none() {
        let machine = tempfile::tempdir().unwrap();
        let (proc, dev) = (machine.path().join("proc"), machine.path().join("dev"));
        let advice = || advice(&Wrapped::DriverNotLoaded, &proc, &dev);
        let says_files = || advice().contains("nvidia-persistenced");
        for folder in [proc.join("driver/nvidia"), dev.clone()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        assert!(!says_files(), "no driver");
        assert!(advice().contains("is the NVIDIA driver installed?"));
        std::fs::write(proc.join("driver/nvidia/version"), "").unwrap();
        assert!(says_files());
        std::fs::write(dev.join("nvidiactl"), "").unwrap();
        assert!(!says_files(), "it is something else");
    }

    #[test]
    fn an_upgraded_driver_under_the_old_module_is_told_from_none() {
        let nowhere = Path::new("/nowhere");
        let says = |error| {
            let error = NvmlError { error };
            error.to_string()
        };
        let upgraded = says(Wrapped::LibRmVersionMismatch);
        assert!(upgraded.contains("reboot"), "{upgraded}");
        assert!(!upgraded.contains("installed?"), "{upgraded}");
        let none = advice(&Wrapped::LibraryNotFound, nowhere, nowhere);
        assert!(none.contains("installed?"), "{none}");
        assert!(!none.contains("reboot"), "{none}");
    }

    #[test]
    fn a_process_that_computes_and_draws_does_not_only_draw() {
        let row = |pid: u32| (pid, Some(Bytes(u64::from(pid))));
        let (all, only_draw) = together(vec![row(1), row(2)], vec![row(2), row(3)]);
        let all: Vec<u32> = all.unwrap().iter().map(|(pid, _)| *pid).collect();
        assert_eq!(all, [1, 2, 3]);
        assert_eq!(only_draw, BTreeSet::from([3]));
        let (all, only_draw) = together(vec![row(1)], vec![(3, None)]);
        assert_eq!((all, only_draw), (None, BTreeSet::from([3])));
    }

    #[test]
    fn a_process_that_computes_and_draws_is_counted_once() {
        let row = |pid: u32, bytes: u64| (pid, Some(Bytes(bytes)));
        // The lists are read one after the other: it may hold more by then, or less.
        for (first, second) in [(40, 40), (40, 50), (50, 40)] {
            let (all, _) = together(vec![row(2, first)], vec![row(2, second), row(3, 7)]);
            assert_eq!(all.unwrap(), [(2, Bytes(first.max(second))), (3, Bytes(7))]);
        }
        let (all, _) = together(vec![row(2, 40)], vec![(2, None)]);
        assert_eq!(all.unwrap(), [(2, Bytes(40))], "one list tells of it");
    }

    #[test]
    fn a_list_that_grows_is_asked_for_again_but_not_for_ever() {
        for (times, works, asks) in [(0, true, 1), (2, true, 3), (9, false, 3)] {
            let asked = std::cell::Cell::new(0);
            let list = all_of(|| {
                asked.set(asked.get() + 1);
                match asked.get() > times {
                    true => Ok(()),
                    false => Err(Wrapped::InsufficientSize(Some(6))),
                }
            });
            assert_eq!((list.is_ok(), asked.get()), (works, asks));
        }
        let lost = all_of(|| Err::<(), _>(Wrapped::GpuLost));
        assert!(matches!(lost, Err(Wrapped::GpuLost)));
    }

    #[test]
    fn only_drivers_from_r615_on_have_limits_for_cgroups() {
        assert!(has_limits("615.71.09") && has_limits("620.1"));
        assert!(!has_limits("610.57.04") && !has_limits("") && !has_limits("R615"));
    }
}
