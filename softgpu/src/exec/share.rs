//! Where contexts agree whose turn it is on an engine: one word per engine of a device, shared by all processes of the machine
//! ([`lane`](super::lane)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::op::EngineKind;
use crate::world::Device;

/// The words of one device.
#[derive(Debug)]
pub(super) struct Words(Arc<Device>);

impl Words {
    /// Those of `device`.
    pub(super) fn of_device(device: &Arc<Device>) -> Self {
        Self(Arc::clone(device))
    }

    /// The word of one engine: busy until this moment of the monotonic clock (ns).
    pub(super) fn of(&self, engine: EngineKind) -> &AtomicU64 {
        self.0.lane(engine as usize)
    }

    /// Notes that this process took the engine for `ns`: the truth about shares, and what NVML's utilisation is made of.
    pub(super) fn had(&self, engine: EngineKind, ns: u64) {
        if let Ok(served) = self.0.served(engine as usize) {
            served.fetch_add(ns, Ordering::Relaxed);
        }
    }
}
