//! Handles returned to the application: numbers that look like pointers and are never dereferenced.
//! With `reuse=lifo` in SPEC the handle of a destroyed object is the next one of its kind, as from
//! an allocator; otherwise no handle is given twice. Contexts, graphs and their nodes are numbers
//! that nothing else ever has, in both cases.
//!
//! A real driver returns pointers and crashes on a stale handle; softgpu detects it and returns the
//! documented error.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::spec::Reuse;
use crate::world::process;

/// The first handle value: in the lower half of user space, far from kernel mappings.
const FIRST: usize = 0x5105_0000_0000;
/// Distance between handles: the alignment of a pointer from an allocator.
const STEP: usize = 0x10;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A new handle value, unique in this process among all kinds of objects.
pub fn fresh() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// Whether handles and addresses are given again at once.
pub(crate) fn is_reused() -> bool {
    process().is_ok_and(|process| process.spec().reuse == Reuse::Lifo)
}

/// The number of a handle value: unique in this process, and small.
pub fn number(handle: usize) -> u32 {
    u32::try_from(handle.wrapping_sub(FIRST) / STEP).unwrap_or(u32::MAX)
}

/// The live objects of one kind, by handle value. Usable as a `static`.
#[derive(Debug)]
pub struct Handles<T> {
    live: RwLock<Option<HashMap<usize, Arc<T>>>>,
    /// Those of destroyed objects, the last one last.
    free: Mutex<Vec<usize>>,
}

impl<T> Handles<T> {
    /// An empty table.
    pub const fn new() -> Self {
        Self {
            live: RwLock::new(None),
            free: Mutex::new(Vec::new()),
        }
    }

    /// The handle value of a new object of this kind.
    pub fn fresh(&self) -> usize {
        self.free().pop().unwrap_or_else(fresh)
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The objects of these handles are gone: the handles may be given again.
    pub fn gone(&self, handles: impl IntoIterator<Item = usize>) {
        if is_reused() {
            self.free().extend(handles);
        }
    }

    /// Adds `object` and returns its handle value.
    pub fn insert(&self, object: Arc<T>) -> usize {
        let handle = self.fresh();
        self.insert_at(handle, object);
        handle
    }

    /// Adds `object` under a value from [`fresh`](Self::fresh), for objects that store their own
    /// handle.
    pub fn insert_at(&self, handle: usize, object: Arc<T>) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.get_or_insert_default().insert(handle, object);
    }

    /// The object of a handle; `None` if the handle was never returned or its object is gone.
    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref()?.get(&handle).cloned()
    }

    /// Removes and returns the object. If two callers race for one handle, one of them gets the
    /// object.
    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        let object = self.take(handle)?;
        self.gone([handle]);
        Some(object)
    }

    /// As [`remove`](Self::remove) for an object that keeps its handle until [`gone`](Self::gone).
    pub fn take(&self, handle: usize) -> Option<Arc<T>> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        live.as_mut()?.remove(&handle)
    }

    /// All live objects with their handles, in order of creation.
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

    /// Removes and returns all objects for which `gone` holds, in order of creation.
    pub fn remove_if(&self, gone: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let Some(map) = live.as_mut() else {
            return Vec::new();
        };
        let mut taken: Vec<_> = map.extract_if(|_, object| gone(object)).collect();
        taken.sort_unstable_by_key(|(handle, _)| *handle);
        self.gone(taken.iter().map(|(handle, _)| *handle));
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
    fn a_removed_handle_is_not_found_and_not_reused() {
        let table = Handles::new();
        let first = table.insert(Arc::new("first"));
        assert_eq!(table.get(first).as_deref(), Some(&"first"));
        assert!(table.remove(first).is_some());
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_ne!(table.insert(Arc::new("second")), first);
    }
}
