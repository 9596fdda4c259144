//! Device memory and addresses that are given up. What the driver does not take back at once is
//! kept in a list, and the mover's thread tries again: no memory stays taken for a call that failed
//! once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUmemGenericAllocationHandle, CUresult};

use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::vmm;
use crate::gate::marks::is_over;
use crate::guest::fork::ForkLocal;

/// How often a call that fails is made at once.
const ATTEMPTS: usize = 2;

/// Mappings, then physical memory, then reserved addresses: given up in this order.
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// By address and length.
    pub(super) mapped: Vec<(u64, u64)>,
    /// Physical memory.
    pub(super) handles: Vec<CUmemGenericAllocationHandle>,
    /// A reservation, free once nothing is mapped there.
    pub(super) addresses: Option<(u64, u64)>,
}

static LEFT: ForkLocal<Mutex<Vec<Spent>>> = ForkLocal::new();

fn left() -> MutexGuard<'static, Vec<Spent>> {
    LEFT.get_or(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Whether nothing is left to do about it: done, or the device or its context has gone.
fn settled(answer: Result<(), CUresult>) -> bool {
    answer.is_ok() || answer.is_err_and(is_over)
}

impl Spent {
    /// One mapping of one piece of physical memory.
    pub(super) fn chunk(mapped: Option<(u64, u64)>, handle: CUmemGenericAllocationHandle) -> Self {
        Self {
            mapped: mapped.into_iter().collect(),
            handles: vec![handle],
            addresses: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.mapped.is_empty() && self.handles.is_empty() && self.addresses.is_none()
    }

    fn attempt(&mut self) {
        unnoticed(|| {
            self.mapped
                .retain(|(at, bytes)| !settled(vmm::unmap(*at, length(*bytes))));
            self.handles
                .retain(|handle| !settled(calls::release_physical(*handle).ok()));
            if let Some((at, bytes)) = self.addresses
                && self.mapped.is_empty()
                && settled(vmm::free_addresses(at, length(bytes)))
            {
                self.addresses = None;
            }
        });
    }

    /// Gives it up, now or later.
    pub(super) fn give_up(mut self) {
        for _ in 0..ATTEMPTS {
            self.attempt();
            if self.is_empty() {
                return;
            }
        }
        tracing::warn!("the driver does not take memory back yet");
        left().push(self);
    }
}

/// Tries again what the driver did not take back. For the mover's thread.
pub(super) fn again() {
    let list = core::mem::take(&mut *left());
    for mut spent in list {
        spent.attempt();
        if !spent.is_empty() {
            left().push(spent);
        }
    }
}
