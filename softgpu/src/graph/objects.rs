//! User objects: reference-counted objects of the application that graphs keep alive. A destructor
//! is called when the last reference is released.
//!
//! The `unsafe` is the destructor's call: the application guarantees that the function accepts the
//! argument.
//! exactly that.
#![allow(unsafe_code, reason = "destructors are C function pointers")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use gpushare_cuda_abi::cuda::{CUresult, CUuserObject};

use crate::error::Result;
use crate::handle::Handles;

/// The destructor of a user object.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

static OBJECTS: Handles<UserObject> = Handles::new();

/// A user object with its reference count.
#[derive(Debug)]
pub struct UserObject {
    argument: usize,
    destructor: Destructor,
    references: Mutex<u64>,
}

impl UserObject {
    fn retain(&self, count: u64) {
        *self
            .references
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += count;
    }

    /// Releases references; calls the destructor when none is left. False if the object has fewer
    /// references.
    fn release(&self, count: u64) -> bool {
        let mut references = self
            .references
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(left) = references.checked_sub(count) else {
            return false;
        };
        *references = left;
        drop(references);
        if left == 0 {
            // SAFETY: the application passed destructor and argument for this one call, and only
            // the last release makes it.
            unsafe { (self.destructor)(std::ptr::with_exposed_provenance_mut(self.argument)) };
        }
        true
    }
}

/// The references that a graph holds; released when the graph is dropped.
#[derive(Debug, Default)]
pub struct GraphReferences(HashMap<usize, (Arc<UserObject>, u64)>);

impl Drop for GraphReferences {
    fn drop(&mut self) {
        for (handle, (object, count)) in self.0.drain() {
            forget_if_last(handle, &object, count);
        }
    }
}

fn forget_if_last(handle: usize, object: &UserObject, count: u64) -> bool {
    let released = object.release(count);
    if *object
        .references
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        == 0
    {
        OBJECTS.remove(handle);
    }
    released
}

/// Creates an object with `count` references.
///
/// # Errors
/// `INVALID_VALUE` if `count` is 0.
pub fn create(argument: *mut c_void, destructor: Destructor, count: u32) -> Result<CUuserObject> {
    if count == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let object = UserObject {
        argument: argument.expose_provenance(),
        destructor,
        references: Mutex::new(count.into()),
    };
    Ok(CUuserObject(std::ptr::without_provenance_mut(
        OBJECTS.insert(Arc::new(object)),
    )))
}

fn lookup(object: CUuserObject) -> Result<Arc<UserObject>> {
    OBJECTS.get(object.0.addr()).ok_or(CUresult::INVALID_VALUE)
}

/// Adds references.
///
/// # Errors
/// `INVALID_VALUE` if `object` names no user object.
pub fn retain(object: CUuserObject, count: u32) -> Result {
    lookup(object)?.retain(count.into());
    Ok(())
}

/// Releases references; releasing the last one destroys the object.
///
/// # Errors
/// `INVALID_VALUE` if `object` names no user object or has fewer references.
pub fn release(object: CUuserObject, count: u32) -> Result {
    let held = lookup(object)?;
    if forget_if_last(object.0.addr(), &held, count.into()) {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

/// Makes a graph hold references: new ones, or the caller's if `moved`.
///
/// # Errors
/// `INVALID_VALUE` if `object` or `graph` does not exist.
pub fn retain_in_graph(graph: usize, object: CUuserObject, count: u32, moved: bool) -> Result {
    let held = lookup(object)?;
    let mut store = super::store::store();
    let objects = &mut store.graph_mut(graph)?.objects;
    if !moved {
        held.retain(count.into());
    }
    objects
        .0
        .entry(object.0.addr())
        .or_insert_with(|| (held, 0))
        .1 += u64::from(count);
    Ok(())
}

/// Releases references that a graph holds.
///
/// # Errors
/// `INVALID_VALUE` if the graph holds fewer references.
pub fn release_from_graph(graph: usize, object: CUuserObject, count: u32) -> Result {
    let mut store = super::store::store();
    let entry = store
        .graph_mut(graph)?
        .objects
        .0
        .get_mut(&object.0.addr())
        .ok_or(CUresult::INVALID_VALUE)?;
    entry.1 = entry
        .1
        .checked_sub(count.into())
        .ok_or(CUresult::INVALID_VALUE)?;
    let held = Arc::clone(&entry.0);
    drop(store);
    forget_if_last(object.0.addr(), &held, count.into());
    Ok(())
}
