//! Storage on a device or a context for other modules' state, by type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One value of each type, created at first use.
#[derive(Debug, Default)]
pub struct Ext {
    values: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Ext {
    /// The value of type `T`, created by `Default` at first use.
    pub fn get<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let value = Arc::clone(
            values
                .entry(TypeId::of::<T>())
                .or_insert_with(|| Arc::new(T::default())),
        );
        drop(values);
        value.downcast().expect("the entry is keyed by its type")
    }

    /// Drops every value (when a context is destroyed or reset).
    pub fn clear(&self) {
        self.values
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
