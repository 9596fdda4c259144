//! The pitch of `cuMemAllocPitch`: the driver's own, asked with one row of the same width. Each
//! answer is kept. The row is freed by the mover's thread once the devices are idle, because the
//! driver waits for all work before it frees.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::CUdeviceptr;

use super::managed;
use super::memory::unit_of;
use super::provide::is_idle;
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::contexts::{self, ContextId, Here, Life};
use crate::driver::device::DeviceKey;
use crate::driver::marking;
use crate::guest::fork::ForkLocal;

/// Rows longer than this are not asked for: they would take as much memory as an allocation.
const LONGEST: usize = 1 << 20;
/// Answers that are kept.
const KNOWN: usize = 4096;
/// Rows that may wait to be freed.
const ROWS: usize = 16;

/// A device's index, a width, and an element's size.
type Key = (usize, usize, u32);

#[derive(Debug, Default)]
struct Pitches {
    known: BTreeMap<Key, usize>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    at: CUdeviceptr,
    context: ContextId,
    /// The context's handle may be another one's once this one is over.
    life: Life,
}

static PITCHES: ForkLocal<Mutex<Pitches>> = ForkLocal::new();

fn pitches() -> MutexGuard<'static, Pitches> {
    PITCHES
        .get_or(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// The pitch of rows of `width` bytes. `None`: the allocation is made as plain memory.
pub(crate) fn of(here: Here, width: usize, element: u32) -> Option<usize> {
    let device: DeviceKey = here.device;
    let key = (device.index(), width, element);
    if managed::is_on() || unit_of(device).is_none() || width > LONGEST {
        return None;
    }
    {
        let pitches = pitches();
        if let Some(pitch) = pitches.known.get(&key) {
            return Some(*pitch);
        }
        if pitches.rows.len() >= ROWS || pitches.known.len() >= KNOWN {
            return None;
        }
    }
    let life = contexts::life_of(here.handle)?;
    let (at, pitch) = unnoticed(|| calls::allocate_pitch(width, 1, element)).ok()?;
    let mut pitches = pitches();
    pitches.known.insert(key, pitch);
    pitches.rows.push(Row {
        at,
        context: here.context,
        life,
    });
    Some(pitch)
}

/// A context has ended, and the rows in it.
pub(super) fn context_gone(context: ContextId) {
    pitches().rows.retain(|row| row.context != context);
}

/// Frees the rows, if nothing runs. For the mover's thread, while nothing is sealed.
pub(super) fn drop_rows() {
    if pitches().rows.is_empty() || !is_idle() {
        return;
    }
    let rows = core::mem::take(&mut pitches().rows);
    for row in rows {
        // Where the context is being destroyed the row goes with it.
        let _ = marking::keeping_life(row.life, || unnoticed(|| calls::free(row.at)));
    }
}
