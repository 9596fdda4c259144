//! Primary contexts: one per device and process, with a reference count. Its handle never changes.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gpushare_cuda_abi::cuda::CUresult;

use super::{CONTEXTS, Context};
use crate::error::Result;
use crate::world::Device;

/// The primary context of one device.
#[derive(Debug, Default)]
struct Primary {
    context: OnceLock<Arc<Context>>,
    retained: Mutex<u32>,
}

impl Primary {
    fn context(&self, device: &Arc<Device>) -> &Arc<Context> {
        self.context.get_or_init(|| {
            let context = Context::new(device, 0, true);
            CONTEXTS.insert_at(context.handle, Arc::clone(&context));
            context
        })
    }

    fn count(&self) -> std::sync::MutexGuard<'_, u32> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a reference; the first one begins the context.
///
/// # Errors
/// `OUT_OF_MEMORY` if the device lacks the memory for a context; the sticky error of earlier work,
/// for ever.
pub fn retain(device: &Arc<Device>) -> Result<Arc<Context>> {
    let primary = device.ext::<Primary>();
    let mut count = primary.count();
    let context = primary.context(device);
    if *count == 0 {
        context.begin()?;
    }
    *count += 1;
    Ok(Arc::clone(context))
}

/// Removes a reference; the last one ends the context.
///
/// # Errors
/// `INVALID_CONTEXT` if there is no reference.
pub fn release(device: &Arc<Device>) -> Result {
    let primary = device.ext::<Primary>();
    let mut count = primary.count();
    *count = count.checked_sub(1).ok_or(CUresult::INVALID_CONTEXT)?;
    if *count == 0 {
        primary.context(device).end();
    }
    Ok(())
}

/// Ends the context despite its references. Its sticky error stays: see [`retain`].
pub fn reset(device: &Arc<Device>) {
    let primary = device.ext::<Primary>();
    let mut count = primary.count();
    if *count > 0 {
        *count = 0;
        primary.context(device).end();
    }
}

/// Its flags, and whether it is retained.
pub fn state(device: &Arc<Device>) -> (u32, bool) {
    let primary = device.ext::<Primary>();
    let active = *primary.count() > 0;
    (primary.context(device).flags(), active)
}

/// Sets its flags. They apply now if it is active, else when it begins.
pub fn set_flags(device: &Arc<Device>, flags: u32) {
    device.ext::<Primary>().context(device).set_flags(flags);
}
