//! Memory that the driver takes for contexts, unasked.

use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::spec::PAGE;
use crate::world::{Device, Kind, PageRun};

/// The memory of all contexts of this process on one device: the first context takes it, the last
/// one frees it.
#[derive(Debug, Default)]
struct ContextMemory {
    contexts: Mutex<(u32, Vec<PageRun>)>,
}

/// Adds a context; the first one takes the memory.
pub(super) fn hold(device: &Device) -> Result {
    let held = device.ext::<ContextMemory>();
    let mut held = held.contexts.lock().unwrap_or_else(PoisonError::into_inner);
    if held.0 == 0 {
        held.1 = device.take(Kind::Context, device.spec().ctx.div_ceil(PAGE))?;
    }
    held.0 += 1;
    Ok(())
}

/// Removes a context; the last one frees the memory.
pub(super) fn let_go(device: &Device) {
    let held = device.ext::<ContextMemory>();
    let mut held = held.contexts.lock().unwrap_or_else(PoisonError::into_inner);
    held.0 = held.0.saturating_sub(1);
    if held.0 == 0 {
        device.give(&std::mem::take(&mut held.1));
    }
}
