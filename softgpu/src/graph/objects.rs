//! User objects: things of the application that graphs keep alive, with a destructor to be called
//! when no graph does any more.
//!
//! # Safety
//! The `unsafe` is the destructor's call: the application promised a function and an argument for
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

/// A user object with its number of references.
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

    /// Takes references away; calls the destructor when none is left. False if there are not as
    /// many.
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
            // SAFETY: the application handed over destructor and argument for this one call, which
            // only the last release makes.
            unsafe { (self.destructor)(std::ptr::with_exposed_provenance_mut(self.argument)) };
        }
        true
    }
}

/// References that a graph holds; given back when it goes.
#[derive(Debug, Default)]
pub struct Held(HashMap<usize, (Arc<UserObject>, u64)>);

impl Drop for Held {
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

/// Makes an object with `count` references.
///
/// # Errors
/// `INVALID_VALUE` for no references.
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
/// `INVALID_VALUE` for what is no object (any more).
pub fn retain(object: CUuserObject, count: u32) -> Result {
    lookup(object)?.retain(count.into());
    Ok(())
}

/// Takes references away; with the last one the object is destroyed.
///
/// # Errors
/// `INVALID_VALUE` for what is no object (any more) or has fewer references.
pub fn release(object: CUuserObject, count: u32) -> Result {
    let held = lookup(object)?;
    if forget_if_last(object.0.addr(), &held, count.into()) {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

/// Makes a graph hold references: new ones, or with `moved` the caller's.
///
/// # Errors
/// `INVALID_VALUE` for what is no object or graph (any more).
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

/// Makes a graph give references back.
///
/// # Errors
/// `INVALID_VALUE` if it has not got them.
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
