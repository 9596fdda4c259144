//! Where contexts agree whose turn it is on an engine: one word per engine of a device ([`lane`](super::lane)).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::op::EngineKind;
use crate::world::Device;

/// The words of one device.
#[derive(Debug, Default)]
pub(super) struct Words([AtomicU64; 3]);

impl Words {
    /// Those of `device`.
    pub(super) fn of_device(device: &Device) -> Arc<Self> {
        device.ext()
    }

    /// The word of one engine: busy until this moment of the monotonic clock (ns).
    pub(super) const fn of(&self, engine: EngineKind) -> &AtomicU64 {
        &self.0[engine as usize]
    }
}
