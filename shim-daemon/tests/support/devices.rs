//! Fake devices, and what they show.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpushare_core::Nanos;
use gpushare_protocol::units::{Bytes, GIB};
use gpushared::devices::{Busy, Capabilities, Device, Devices, Health, Look, LookError};
use gpushared::server;

use super::PATIENCE;

/// Tests that wait for looks at devices would wait a second for each.
pub const TICK: Nanos = Nanos::millis(20);

pub const GPU: [u8; 16] = *b"one GPU, 16 GiB.";

pub const SECOND: [u8; 16] = *b"another, as big.";

/// The state that the fake device shows.
#[derive(Debug, Default)]
pub struct Facts {
    pub processes: Vec<(u32, Bytes)>,
    /// Those of them that only draw.
    pub drawing: Vec<u32>,
    /// Nanoseconds in which kernels ran, of the next look at the first device.
    pub busy: Vec<(u32, u64)>,
    /// NVML has no samples of any, as of some virtual GPUs.
    pub without_samples: bool,
    /// Whether the devices are MIG instances.
    pub mig: bool,
    /// Whether there is a second device like the first, and whether the first is lost.
    pub second: bool,
    /// Further devices, as big.
    pub more: Vec<[u8; 16]>,
    pub lost: bool,
    /// The number of looks so far.
    pub looks: u64,
    /// How long the driver takes to describe its devices.
    pub start: Duration,
    /// How often its daemon looks, if not every [`TICK`].
    pub tick: Option<Nanos>,
}

#[derive(Debug, Clone, Default)]
pub struct FakeDevices(pub Arc<Mutex<Facts>>);

impl FakeDevices {
    /// Two devices.
    pub fn two() -> Self {
        let devices = Self::default();
        devices.0.lock().unwrap().second = true;
        devices
    }

    /// With a daemon that has no tick after that at its start: what it does at once is seen, and
    /// nothing is mended by the next tick.
    pub fn without_ticks() -> Self {
        Self::looked_at_every(Nanos::secs(3600))
    }

    /// With a daemon that looks once a second, as others do.
    pub fn seldom() -> Self {
        Self::looked_at_every(server::TICK)
    }

    fn looked_at_every(tick: Nanos) -> Self {
        let devices = Self::default();
        devices.0.lock().unwrap().tick = Some(tick);
        devices
    }

    pub(super) fn tick(&self) -> Nanos {
        self.0.lock().unwrap().tick.unwrap_or(TICK)
    }

    /// Waits until a look that began after this call has been taken in: looks follow each other.
    pub fn until_looked_at(&self) {
        let looks = || self.0.lock().unwrap().looks;
        let (before, end) = (looks(), Instant::now() + PATIENCE);
        while looks() < before + 3 {
            assert!(Instant::now() < end, "no look at the device came");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A device's memory; `scripts/bench_observe.sh` needs room for 200 tenants' contexts.
fn capacity() -> Bytes {
    let gib = std::env::var("GPUTEST_DEVICE_GIB").ok();
    Bytes(gib.and_then(|text| text.parse().ok()).unwrap_or(16) * GIB)
}

impl Devices for FakeDevices {
    fn list(&mut self) -> Result<Vec<Device>, String> {
        let mig = self.0.lock().unwrap().mig;
        let device = |uuid| Device {
            uuid,
            minor: None,
            name: "Fact 1".to_owned(),
            capacity: capacity(),
            capabilities: Capabilities {
                process_memory: true,
                mig,
                ..Capabilities::default()
            },
        };
        let (second, more, start) = {
            let facts = self.0.lock().unwrap();
            (facts.second, facts.more.clone(), facts.start)
        };
        std::thread::sleep(start);
        let count = if second { 2 } else { 1 };
        let all = [GPU, SECOND].into_iter().take(count).chain(more);
        Ok(all.map(device).collect())
    }

    fn look(&mut self, index: usize) -> Result<Look, LookError> {
        let mut facts = self.0.lock().unwrap();
        facts.looks += 1;
        if index == 0 && facts.lost {
            return Err(LookError::Lost);
        }
        let processes = match index {
            0 => facts.processes.clone(),
            _ => vec![],
        };
        let busy = match index {
            0 => std::mem::take(&mut facts.busy),
            _ => vec![],
        };
        let busy = (!facts.without_samples).then(|| Busy {
            span: Nanos::secs(1),
            ran: busy.into_iter().map(|(pid, ns)| (pid, Nanos(ns))).collect(),
        });
        let drawing = facts.drawing.iter().copied().collect();
        let used: u64 = processes.iter().map(|(_, bytes)| bytes.0).sum();
        Ok(Look {
            used: Bytes(used),
            free: Bytes(capacity().0 - used),
            processes: Some(processes),
            drawing,
            busy,
            health: Some(Health::default()),
        })
    }
}
