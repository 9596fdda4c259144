//! User objects: reference-counted objects of the application that graphs keep alive: a graph, its
//! clones, its executable graphs, and their launches. When the last reference is released, a thread
//! of the driver calls the destructor, under no lock.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use gpushare_cuda_abi::cuda::{CUresult, CUuserObject};

use super::store::{GraphId, NodeWork, Store};
use crate::error::Result;
use crate::exec;
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

    /// Releases references; the destructor is called when none is left. False if the object has
    /// fewer references.
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
            exec::destroy(self.destructor, self.argument);
        }
        true
    }
}

/// The references that a graph holds; released when the graph is dropped. A clone holds as many.
#[derive(Debug, Default)]
pub struct GraphReferences(HashMap<usize, (Arc<UserObject>, u64)>);

impl Clone for GraphReferences {
    fn clone(&self) -> Self {
        let all = self.0.values();
        all.for_each(|(object, count)| object.retain(*count));
        Self(self.0.clone())
    }
}

impl Drop for GraphReferences {
    fn drop(&mut self) {
        for (handle, (object, count)) in self.0.drain() {
            forget_if_last(handle, &object, count);
        }
    }
}

/// What an executable graph holds for a graph and those inside it, each by the number of the graph
/// it was instantiated from. Launches share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Vec<(GraphId, Arc<GraphReferences>)>);

impl Held {
    /// New references to all objects of `graph` and of the graphs inside it.
    ///
    /// # Errors
    /// `INVALID_VALUE` if there is no such graph.
    pub(super) fn of(store: &Store, graph: GraphId) -> Result<Self> {
        let mut held = Self::default();
        held.add(store, graph)?;
        Ok(held)
    }

    fn add(&mut self, store: &Store, graph: GraphId) -> Result {
        let home = store.graph(graph)?;
        self.0.push((graph, Arc::new(home.objects.clone())));
        home.nodes().try_for_each(|(_, node)| match &node.work {
            NodeWork::Child(child) => self.add(store, *child),
            NodeWork::Conditional(node) => node.bodies().try_for_each(|body| self.add(store, body)),
            _ => Ok(()),
        })
    }

    /// Whether no object is held.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, references)| references.0.is_empty())
    }

    /// Replaces what is held for a graph and those inside it by what is held for another one of the
    /// same shape. Those of earlier launches stay with them.
    pub(super) fn replace(&mut self, graph: GraphId, new: &Self) {
        let Some(first) = self.0.iter().position(|(of, _)| *of == graph) else {
            return;
        };
        for ((_, old), (_, new)) in self.0[first..].iter_mut().zip(&new.0) {
            *old = Arc::clone(new);
        }
    }

    /// Replaces all that is held.
    pub(super) fn replace_all(&mut self, new: &Self) {
        if let Some((root, _)) = self.0.first() {
            self.replace(*root, new);
        }
    }

    /// New references to all objects, for one graph.
    pub(super) fn together(&self) -> GraphReferences {
        let mut all = GraphReferences::default();
        for (_, references) in &self.0 {
            for (handle, (object, count)) in &references.0 {
                object.retain(*count);
                let entry = all.0.entry(*handle);
                entry.or_insert_with(|| (Arc::clone(object), 0)).1 += count;
            }
        }
        all
    }
}

/// References at most in one call: "must be nonzero and not larger than INT_MAX" (CUDA Driver API,
/// Graph Management, `cuUserObjectRetain` and the functions beside it).
const MOST: u32 = i32::MAX.unsigned_abs();

fn is_count(count: u32) -> Result {
    if (1..=MOST).contains(&count) {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
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
/// `INVALID_VALUE` if `count` is 0 or larger than `INT_MAX`.
pub fn create(argument: *mut c_void, destructor: Destructor, count: u32) -> Result<CUuserObject> {
    is_count(count)?;
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
/// `INVALID_VALUE` if `object` names no user object, or for a count that [`create`] refuses.
pub fn retain(object: CUuserObject, count: u32) -> Result {
    is_count(count)?;
    lookup(object)?.retain(count.into());
    Ok(())
}

/// Releases references; releasing the last one destroys the object.
///
/// # Errors
/// `INVALID_VALUE` if `object` names no user object or has fewer references, or for a count that
/// [`create`] refuses.
pub fn release(object: CUuserObject, count: u32) -> Result {
    is_count(count)?;
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
/// `INVALID_VALUE` if `object` or `graph` does not exist, or for a count that [`create`] refuses.
pub fn retain_in_graph(graph: usize, object: CUuserObject, count: u32, moved: bool) -> Result {
    is_count(count)?;
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
/// `INVALID_VALUE` if the graph holds fewer references, or for a count that [`create`] refuses.
pub fn release_from_graph(graph: usize, object: CUuserObject, count: u32) -> Result {
    is_count(count)?;
    let mut store = super::store::store();
    let objects = &mut store.graph_mut(graph)?.objects;
    let entry = objects
        .0
        .get_mut(&object.0.addr())
        .ok_or(CUresult::INVALID_VALUE)?;
    entry.1 = entry
        .1
        .checked_sub(count.into())
        .ok_or(CUresult::INVALID_VALUE)?;
    let held = Arc::clone(&entry.0);
    if entry.1 == 0 {
        objects.0.remove(&object.0.addr());
    }
    drop(store);
    forget_if_last(object.0.addr(), &held, count.into());
    Ok(())
}
