//! Charges of objects that have a handle instead of an address: arrays, mipmapped arrays, and the
//! objects that a family of hooks keeps in a [`Map`] of its own.

pub(crate) mod physical;

use crate::account::{self, Units};
use crate::driver::contexts::ContextId;
use crate::driver::device::DeviceKey;
pub(crate) use crate::guest::map::Map;

/// An array's charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Where it lies.
    pub(crate) device: DeviceKey,
    /// In which context it was made.
    pub(crate) context: ContextId,
    /// Its charge.
    pub(crate) units: Units,
}

/// Arrays by handle.
pub(crate) static ARRAYS: Map<Object> = Map::new();
/// Mipmapped arrays by handle.
pub(crate) static MIPMAPS: Map<Object> = Map::new();

/// Takes out and credits every array made in a context that is gone.
pub(crate) fn drain_context(context: ContextId) {
    for map in [&ARRAYS, &MIPMAPS] {
        for (_, object) in map.drain_if(|_, object| object.context == context) {
            account::release(object.device, object.units);
        }
    }
}
