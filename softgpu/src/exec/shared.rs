//! Events between processes: their handles, and what records them and waits for them.

use std::sync::Arc;
use std::time::Duration;

use gpushare_cuda_abi::cuda::{CUevent, CUresult};

use super::event::{self, Event};
use super::op::Effect;
use super::value::ValueWait;
use crate::context::Context;
use crate::error::Result;
use crate::world::{SharedEvent, process};

/// The first bytes of every handle.
const MAGIC: &[u8; 8] = b"softevt1";
/// How often another process's recording is looked at by a thread that waits.
const LOOK: Duration = Duration::from_micros(100);

/// A handle for an event that was made for several processes.
///
/// # Errors
/// `INVALID_HANDLE` for another event, and for one of another process; `OPERATING_SYSTEM` if the
/// machine's lock is lost.
pub fn export(event: &Event) -> Result<[u8; 64]> {
    let shared = event.shared().filter(|_| event.is_exported());
    let shared = shared.ok_or(CUresult::INVALID_HANDLE)?;
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&process()?.number()?.to_le_bytes());
    for (place, part) in bytes[12..20].chunks_exact_mut(4).zip(shared.name()) {
        place.copy_from_slice(&part.to_le_bytes());
    }
    Ok(bytes)
}

/// Opens another process's event.
///
/// # Errors
/// `MAP_FAILED` if the bytes are no handle, `INVALID_CONTEXT` for a handle of this process,
/// `INVALID_HANDLE` if the event is gone.
pub fn open(context: &Arc<Context>, bytes: &[u8; 64]) -> Result<CUevent> {
    let number = |at: usize| {
        let part = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(part)
    };
    if !bytes.starts_with(MAGIC) {
        return Err(CUresult::MAP_FAILED);
    }
    if number(8) == process()?.number()? {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let shared = process()?.open_event([number(12), number(16)])?;
    Ok(event::opened(context, shared))
}

/// The effect of a recording's end: the other processes see it.
///
/// # Errors
/// `OPERATING_SYSTEM` if the event cannot be written.
pub(crate) fn publish(shared: &Arc<SharedEvent>) -> Result<Effect> {
    let number = shared.record()?;
    let shared = Arc::clone(shared);
    Ok(Arc::new(move || shared.complete(number)))
}

/// A wait for the last recording of any process; `None` if there is none.
pub(crate) fn passed(shared: &Arc<SharedEvent>) -> Option<ValueWait> {
    let number = shared.recorded();
    let shared = Arc::clone(shared);
    (number > 0).then(|| ValueWait::new(move || shared.is_complete(number)))
}

/// Waits for the last recording of any process.
pub(super) fn wait(shared: &SharedEvent) {
    let number = shared.recorded();
    while !shared.is_complete(number) {
        std::thread::sleep(LOOK);
    }
}
