//! A recording double of NVML's cgroup limits, as far as NVML documents them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gpushare_protocol::units::{Bytes, GIB};
use gpushared::devices::{Capabilities, Device, Devices, DriverLimit, FenceError, Look, LookError};

/// Two GPUs; the second has a driver without limits, or is a MIG instance.
pub(crate) const FIRST: [u8; 16] = *b"GPU with limits.";
pub(crate) const SECOND: [u8; 16] = *b"GPU without any.";

/// The mechanism that keeps the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The driver: a limit that was never set cannot be read; a limit below the memory in use is
    /// refused.
    #[default]
    Misc,
    /// The kernel: a limit below the memory in use is ignored.
    Dmem,
    /// None, though NVML has the functions.
    Off,
}

#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub backend: Backend,
    pub forbidden: bool,
    /// Cgroups that are gone.
    pub gone: Vec<PathBuf>,
    pub groups: BTreeMap<PathBuf, DriverLimit>,
    /// The limits that were set, in order.
    pub calls: Vec<(usize, PathBuf, Option<Bytes>)>,
    /// The processes that NVML lists, with their memory.
    pub processes: Vec<(u32, Bytes)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Driver(pub(crate) Arc<Mutex<Facts>>);

impl Driver {
    pub(crate) fn of(backend: Backend) -> Self {
        let driver = Self::default();
        driver.0.lock().unwrap().backend = backend;
        driver
    }

    /// A cgroup whose processes hold this much memory, under this limit.
    pub(crate) fn holds(&self, group: &str, used: u64, hard: Option<u64>) {
        let limit = DriverLimit {
            hard: hard.map(Bytes),
            used: Bytes(used),
        };
        self.0.lock().unwrap().groups.insert(group.into(), limit);
    }

    pub(crate) fn hard(&self, group: &str) -> Option<Bytes> {
        self.0.lock().unwrap().groups.get(Path::new(group))?.hard
    }

    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }
}

impl Devices for Driver {
    fn list(&mut self) -> Result<Vec<Device>, String> {
        let device = |uuid, driver_limits| Device {
            uuid,
            minor: None,
            name: "Fact 2".to_owned(),
            capacity: Bytes(64 * GIB),
            capabilities: Capabilities {
                process_memory: true,
                driver_limits,
                mig: false,
            },
        };
        Ok(vec![device(FIRST, true), device(SECOND, false)])
    }

    fn look(&mut self, index: usize) -> Result<Look, LookError> {
        let processes = match index {
            0 => self.0.lock().unwrap().processes.clone(),
            _ => vec![],
        };
        let used = processes.iter().map(|(_, bytes)| *bytes).sum();
        Ok(Look {
            used,
            free: Bytes(64 * GIB) - used,
            processes: Some(processes),
            drawing: BTreeSet::new(),
            busy: None,
            health: None,
        })
    }

    fn driver_limit(&mut self, index: usize, group: &Path) -> Result<DriverLimit, FenceError> {
        let facts = self.0.lock().unwrap();
        assert_eq!(index, 0, "asked of a device without limits");
        if facts.gone.iter().any(|gone| gone == group) {
            return Err(FenceError::NotFound);
        }
        match (facts.backend, facts.groups.get(group)) {
            (Backend::Off, _) | (Backend::Misc, None) => Err(FenceError::NotSupported),
            (_, Some(limit)) => Ok(*limit),
            (Backend::Dmem, None) => Ok(DriverLimit {
                hard: None,
                used: Bytes(0),
            }),
        }
    }

    fn limit_driver(
        &mut self,
        index: usize,
        group: &Path,
        hard: Option<Bytes>,
    ) -> Result<(), FenceError> {
        let mut facts = self.0.lock().unwrap();
        assert_eq!(index, 0, "set on a device without limits");
        facts.calls.push((index, group.to_owned(), hard));
        if facts.forbidden {
            return Err(FenceError::NotPermitted);
        }
        if facts.gone.iter().any(|gone| gone == group) {
            return Err(FenceError::NotFound);
        }
        let (backend, used) = (
            facts.backend,
            facts.groups.get(group).map(|limit| limit.used),
        );
        let used = used.unwrap_or_default();
        let below = hard.is_some_and(|hard| hard < used);
        match backend {
            Backend::Off => return Err(FenceError::NotSupported),
            Backend::Misc if below => return Err(FenceError::Failed("below use".to_owned())),
            Backend::Dmem if below => return Ok(()),
            _ => facts
                .groups
                .insert(group.to_owned(), DriverLimit { hard, used }),
        };
        Ok(())
    }
}
