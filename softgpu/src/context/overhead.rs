//! Memory the driver takes for contexts, behind the application's back.

use std::sync::{Mutex, PoisonError};

use crate::error::Result;
use crate::spec::PAGE;
use crate::world::{Device, Kind, PageRun};

/// What the contexts of this process hold together on one device: taken by the first, returned by
/// the last.
#[derive(Debug, Default)]
struct Held {
    contexts: Mutex<(u32, Vec<PageRun>)>,
}

/// A context begins.
pub(super) fn hold(device: &Device) -> Result {
    let held = device.ext::<Held>();
    let mut held = held.contexts.lock().unwrap_or_else(PoisonError::into_inner);
    if held.0 == 0 {
        held.1 = device.take(Kind::Context, device.spec().ctx.div_ceil(PAGE))?;
    }
    held.0 += 1;
    Ok(())
}

/// A context ends.
pub(super) fn let_go(device: &Device) {
    let held = device.ext::<Held>();
    let mut held = held.contexts.lock().unwrap_or_else(PoisonError::into_inner);
    held.0 = held.0.saturating_sub(1);
    if held.0 == 0 {
        device.give(&std::mem::take(&mut held.1));
    }
}
