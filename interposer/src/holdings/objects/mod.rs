//! Charges of objects that have a handle instead of an address: arrays, mipmapped arrays, and the
//! objects that a family of hooks keeps in a [`Map`] of its own.

pub(crate) mod physical;

use crate::account::{self, Units};
use crate::driver::contexts::{self, ContextId};
use crate::driver::device::DeviceKey;
pub(crate) use crate::guest::map::Map;

/// An array's charge. That of one whose memory is mapped into it is nothing.
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

/// Puts back an array that was taken out of its map, because the driver refused to destroy it.
/// Where another thread has ended its context meanwhile, it is credited instead: nobody would look
/// for it any more. So is that of a handle which has another one by now, which stays.
#[cold]
pub(crate) fn put_back(map: &Map<Object>, handle: u64, object: Object) {
    let over = match map.fill(handle, object) {
        None if contexts::is_alive(object.context) || object.context == ContextId::NONE => None,
        None => map.take_if(handle, |found| *found == object),
        Some(over) => Some(over),
    };
    if let Some(over) = over {
        account::release(over.device, over.units);
    }
}

/// The arrays of a context whose memory is mapped into them.
pub(crate) fn mapped_into(context: ContextId) -> Vec<u64> {
    let is_one = |object: &Object| object.context == context && object.units == Units(0);
    let maps = [&ARRAYS, &MIPMAPS].into_iter();
    maps.flat_map(|map| map.handles_if(is_one)).collect()
}

/// Takes out and credits every array made in a context that is gone.
pub(crate) fn drain_context(context: ContextId) {
    for map in [&ARRAYS, &MIPMAPS] {
        for (_, object) in map.drain_if(|_, object| object.context == context) {
            account::release(object.device, object.units);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_goes_back_only_into_a_context_and_a_place_of_its_own() {
        static MAP: Map<Object> = Map::new();
        let object = |context: u16, units: u32| Object {
            device: DeviceKey::of_index(3).expect("a device"),
            context: ContextId(context),
            units: Units(units),
        };
        put_back(&MAP, 1, object(ContextId::MAX, 1));
        assert_eq!(MAP.take(1), None, "no such context lives");
        put_back(&MAP, 1, object(0, 1));
        assert_eq!(MAP.take(1), Some(object(0, 1)), "of an unknown one");
        assert_eq!(MAP.insert(1, object(0, 2)), None);
        put_back(&MAP, 1, object(0, 1));
        assert_eq!(MAP.take(1), Some(object(0, 2)), "the next one's stays");
    }
}
