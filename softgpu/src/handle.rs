//! Handles given to the application: numbers that look like pointers, are never reused and are
//! never dereferenced.
//!
//! A real driver hands out pointers and crashes on a stale one; this one can tell, and says so with
//! the documented error.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Where handle values start: in the lower half of user space, far from anything the kernel maps by
/// itself.
const FIRST: usize = 0x5105_0000_0000;
/// Distance between handles: the alignment a pointer from an allocator would have.
const STEP: usize = 0x10;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A new handle value, unique in this process whatever it stands for.
pub fn fresh() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// The live objects of one kind, by handle value. Usable as a `static`.
#[derive(Debug)]
pub struct Handles<T> {
    live: RwLock<Option<HashMap<usize, Arc<T>>>>,
}

impl<T> Handles<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self {
            live: RwLock::new(None),
        }
    }

    /// Enters `object` and returns its handle value.
    pub fn insert(&self, object: Arc<T>) -> usize {
        let handle = fresh();
        self.insert_at(handle, object);
        handle
    }

    /// Enters `object` under a value made by [`fresh`], for objects that must know their own
    /// handle.
    pub fn insert_at(&self, handle: usize, object: Arc<T>) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.get_or_insert_default().insert(handle, object);
    }

    /// The object behind a handle, `None` if it was never given out or is gone.
    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref()?.get(&handle).cloned()
    }

    /// Takes the object out; of two callers racing for one handle, one gets it.
    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.as_mut()?.remove(&handle)
    }

    /// Every live object with its handle, in the order they were made.
    pub fn all(&self) -> Vec<(usize, Arc<T>)> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = live
            .iter()
            .flatten()
            .map(|(handle, object)| (*handle, Arc::clone(object)))
            .collect();
        all.sort_unstable_by_key(|(handle, _)| *handle);
        all
    }

    /// Takes out every object for which `gone` holds, in the order they were made.
    pub fn remove_if(&self, gone: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let Some(map) = live.as_mut() else {
            return Vec::new();
        };
        let mut taken: Vec<_> = map.extract_if(|_, object| gone(object)).collect();
        taken.sort_unstable_by_key(|(handle, _)| *handle);
        taken.into_iter().map(|(_, object)| object).collect()
    }
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_is_not_found_and_not_given_out_again() {
        let table = Handles::new();
        let first = table.insert(Arc::new("first"));
        assert_eq!(table.get(first).as_deref(), Some(&"first"));
        assert!(table.remove(first).is_some());
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_ne!(table.insert(Arc::new("second")), first);
    }
}
