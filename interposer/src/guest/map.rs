//! A map by the numbers of handles.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::guest::fork::ForkLocal;

const SHARDS: usize = 16;

/// Spreads handles over a table: addresses, whose low bits are nearly constant.
#[derive(Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, handle: u64) {
        // The table takes its place from the low bits and its tag from the high ones.
        let spread = (self.0 ^ handle).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    fn write_usize(&mut self, handle: usize) {
        self.write_u64(handle as u64);
    }
}

/// A table keyed by handles of one type. The standard library's own would ask the system for random
/// numbers, in a call at which a thread of the program may be cancelled.
pub(crate) type ByHandle<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// A set of handles.
pub(crate) type Handles<K> = HashSet<K, BuildHasherDefault<Spread>>;

type Shard<V> = ByHandle<u64, V>;

/// A map keyed by a driver's handle, empty again in a forked child. Handles of one kind, one map.
#[derive(Debug)]
pub(crate) struct Map<V: Send + 'static>(ForkLocal<[Mutex<Shard<V>>; SHARDS]>);

impl<V: Send + 'static> Map<V> {
    /// Empty.
    pub(crate) const fn new() -> Self {
        Self(ForkLocal::new())
    }

    fn shards(&self) -> &'static [Mutex<Shard<V>>; SHARDS] {
        self.0.get_or(|| std::array::from_fn(|_| Mutex::default()))
    }

    fn shard(&self, handle: u64) -> MutexGuard<'static, Shard<V>> {
        // Handles are mostly addresses of structures: the low bits are nearly constant, and one
        // multiplication spreads the others.
        let spread = (handle >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        self.shards()[spread as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Inserts a handle; returns the earlier value.
    pub(crate) fn insert(&self, handle: u64, value: V) -> Option<V> {
        self.shard(handle).insert(handle, value)
    }

    /// Inserts a handle that is not there; returns the value that found no place.
    pub(crate) fn fill(&self, handle: u64, value: V) -> Option<V> {
        match self.shard(handle).entry(handle) {
            Entry::Occupied(_) => Some(value),
            Entry::Vacant(place) => {
                place.insert(value);
                None
            }
        }
    }

    /// Takes a handle out if its value is `wanted`.
    pub(crate) fn take_if(&self, handle: u64, wanted: impl FnOnce(&V) -> bool) -> Option<V> {
        let mut shard = self.shard(handle);
        wanted(shard.get(&handle)?).then(|| shard.remove(&handle))?
    }

    /// Takes a handle out.
    pub(crate) fn take(&self, handle: u64) -> Option<V> {
        self.shard(handle).remove(&handle)
    }

    /// Looks at a handle's value, or changes it. The map is locked meanwhile: call no driver.
    pub(crate) fn with<T>(&self, handle: u64, look: impl FnOnce(&mut V) -> T) -> Option<T> {
        self.shard(handle).get_mut(&handle).map(look)
    }

    /// Everything that is in it.
    pub(crate) fn all(&self) -> Vec<V>
    where
        V: Copy,
    {
        let mut all = Vec::new();
        for shard in self.shards() {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.values().copied());
        }
        all
    }

    /// The handles of everything that `wanted` accepts.
    pub(crate) fn handles_if(&self, wanted: impl Fn(&V) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        for shard in self.shards() {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let accepted = shard.iter().filter(|(_, value)| wanted(value));
            found.extend(accepted.map(|(handle, _)| *handle));
        }
        found
    }

    /// Takes out everything that `wanted` accepts.
    pub(crate) fn drain_if(&self, wanted: impl Fn(u64, &V) -> bool) -> Vec<(u64, V)> {
        let mut taken = Vec::new();
        for shard in self.shards() {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            taken.extend(shard.extract_if(|handle, value| wanted(*handle, value)));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_found_changed_and_taken_once() {
        static MAP: Map<u32> = Map::new();
        assert_eq!(MAP.insert(0x1000, 1), None);
        assert_eq!(MAP.insert(0x1010, 2), None);
        assert_eq!(
            MAP.with(0x1000, |value| std::mem::replace(value, 5)),
            Some(1)
        );
        assert_eq!(MAP.with(0x2000, |value| *value), None);
        assert_eq!(MAP.fill(0x1000, 6), Some(6), "there is one");
        assert_eq!(MAP.take_if(0x1000, |value| *value == 6), None);
        assert_eq!((MAP.take(0x1000), MAP.take(0x1000)), (Some(5), None));
        assert_eq!(MAP.fill(0x1000, 6), None);
        assert_eq!(MAP.take_if(0x1000, |value| *value == 6), Some(6));
        assert_eq!(MAP.handles_if(|value| *value == 2), [0x1010]);
        assert_eq!(MAP.drain_if(|_, value| *value == 2), [(0x1010, 2)]);
        assert_eq!(MAP.take(0x1010), None);
    }
}
