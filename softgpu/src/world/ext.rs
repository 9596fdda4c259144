//! Room on a device or a context for what other parts keep about it, by type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One value of each type, made on first use.
#[derive(Debug, Default)]
pub struct Ext {
    values: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Ext {
    /// The value of type `T`, made by `Default` when asked for the first time.
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

    /// Forgets every value (a destroyed or reset context).
    pub fn clear(&self) {
        self.values
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
