//! The words that hold the turns of each engine of a device. All processes of the machine share
//! them ([`turns`](super::turns)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::op::EngineKind;
use super::turns::{Pace, Turns, WORDS};
use crate::world::Device;

/// The words of one engine of a device.
#[derive(Debug)]
pub(super) struct Words {
    device: Arc<Device>,
    /// Private words if the device has no free seat: the context then runs as if on a device of its
    /// own.
    own: Option<Box<[AtomicU64]>>,
}

impl Words {
    /// The words of `device`.
    pub(super) fn of_device(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            own: None,
        }
    }

    /// Calls `work` with the turns of the engine.
    pub(super) fn with<T>(&self, engine: EngineKind, work: impl FnOnce(&Turns<'_>) -> T) -> T {
        let lives = |owner: u64| {
            let slot = usize::try_from(owner).unwrap_or(0).checked_sub(1);
            slot.is_some_and(|slot| self.device.process_lives(slot))
        };
        let words = match &self.own {
            Some(own) => own,
            None => self.device.turns(engine as usize),
        };
        let pace = Pace::of(self.device.spec(), engine);
        work(&Turns::new(words, &lives, pace))
    }

    /// Takes a seat.
    pub(super) fn sit(&mut self, engine: EngineKind) -> usize {
        let owner = self.device.owner().unwrap_or(1);
        if let Some(seat) = self.with(engine, |turns| turns.sit(owner)) {
            return seat;
        }
        self.own = Some((0..WORDS).map(|_| AtomicU64::new(0)).collect());
        0
    }

    /// Gives a seat back.
    pub(super) fn rise(&self, engine: EngineKind, seat: usize) {
        self.with(engine, |turns| turns.rise(seat));
    }

    /// Adds `ns` to this process's engine time. Shares and NVML's utilisation are computed from it.
    pub(super) fn had(&self, engine: EngineKind, ns: u64) {
        if let Ok(served) = self.device.served(engine as usize) {
            served.fetch_add(ns, Ordering::Relaxed);
        }
    }
}
