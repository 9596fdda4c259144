//! Green contexts: parts of a device's multiprocessors under one primary context, with their own
//! streams.
//!
//! A green context has no memory, modules or events of its own: it uses the primary context's, and
//! keeps the primary context alive. A converted green context (`cuCtxFromGreenCtx`) has a second
//! handle, with which it can be made current, in one thread at a time. The number of its
//! multiprocessors does not change the time that its work takes here.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use gpushare_cuda_abi::cuda::{CUcontext, CUgreenCtx, CUresult};

use super::resource::SmResource;
use super::{CONTEXTS, Context, primary};
use crate::error::Result;
use crate::exec;
use crate::graph::capture;
use crate::handle::{self, Handles};
use crate::world::{Device, Ext};

/// The first driver version that returns `STREAM_DETACHED`, and that destroys such streams.
const DETACHED_SINCE: u32 = 13010;

/// By their own handles. A destroyed green context stays in the table, so that calls with its stale
/// handle return `CONTEXT_IS_DESTROYED`.
static GREENS: Handles<Green> = Handles::new();
/// By their handles as contexts.
static CONVERTED: Handles<Green> = Handles::new();

/// A green context.
#[derive(Debug)]
pub struct Green {
    handle: usize,
    converted: usize,
    primary: Arc<Context>,
    resource: SmResource,
    destroyed: AtomicBool,
    /// The thread in which it is current, and how often it is on that thread's stack.
    user: Mutex<Option<(ThreadId, u32)>>,
    ext: Ext,
}

/// The object that a context handle names.
#[derive(Debug, Clone)]
pub struct Named {
    /// The context; for a green context its primary context.
    pub context: Arc<Context>,
    /// The green context, if the handle names a converted green context.
    pub green: Option<Arc<Green>>,
}

/// Marks a green context as current in a thread; dropping it takes it off the thread's stack.
#[derive(Debug)]
pub(super) struct GreenGuard(Arc<Green>);

/// Creates a green context on `device` with these multiprocessors. It retains the primary context.
///
/// # Errors
/// `OUT_OF_MEMORY` if the device lacks the memory for the primary context.
pub fn create(device: &Arc<Device>, resource: SmResource) -> Result<Arc<Green>> {
    let primary = primary::retain(device)?;
    let green = Arc::new(Green {
        handle: handle::fresh(),
        converted: handle::fresh(),
        primary,
        resource,
        destroyed: AtomicBool::new(false),
        user: Mutex::new(None),
        ext: Ext::default(),
    });
    GREENS.insert_at(green.handle, Arc::clone(&green));
    Ok(green)
}

/// Destroys a green context and releases the primary context. Its streams stay, detached; work
/// submitted to them still runs. Captures on them become invalid.
///
/// # Errors
/// `INVALID_CONTEXT` if the handle names no green context, `CONTEXT_IS_DESTROYED` if it was
/// destroyed before.
pub fn destroy(handle: CUgreenCtx) -> Result {
    let green = lookup(handle)?;
    if green.destroyed.swap(true, Ordering::AcqRel) {
        return Err(CUresult::CONTEXT_IS_DESTROYED);
    }
    capture::green_gone(green.domain());
    CONVERTED.remove(green.converted);
    primary::release(green.primary.device())
}

/// The green context of its own handle, destroyed or not.
///
/// # Errors
/// `INVALID_CONTEXT` if the handle never named a green context.
pub fn lookup(handle: CUgreenCtx) -> Result<Arc<Green>> {
    GREENS.get(handle.0.addr()).ok_or(CUresult::INVALID_CONTEXT)
}

/// The green context of its own handle, if it is usable.
///
/// # Errors
/// As [`lookup`]; `CONTEXT_IS_DESTROYED`, or the sticky error of its primary context.
pub fn usable(handle: CUgreenCtx) -> Result<Arc<Green>> {
    let green = lookup(handle)?;
    green.check()?;
    Ok(green)
}

/// The object that a context handle names.
///
/// # Errors
/// `INVALID_CONTEXT` if the handle names no context. A green context's own handle is not a context
/// handle.
pub fn named(handle: CUcontext) -> Result<Named> {
    let number = handle.0.addr();
    if let Some(context) = CONTEXTS.get(number) {
        return Ok(context.into());
    }
    let green = CONVERTED.get(number).ok_or(CUresult::INVALID_CONTEXT)?;
    Ok(Named {
        context: Arc::clone(&green.primary),
        green: Some(green),
    })
}

/// The error of calls on a stream whose green context is destroyed.
pub fn detached(context: &Context) -> CUresult {
    if keeps_detached(context) {
        CUresult::CONTEXT_IS_DESTROYED
    } else {
        CUresult::STREAM_DETACHED
    }
}

/// Whether the driver refuses to destroy a stream whose green context is destroyed.
pub fn keeps_detached(context: &Context) -> bool {
    context.device().spec().driver < DETACHED_SINCE
}

/// Marks the green contexts of a primary context that ends as destroyed.
pub(super) fn primary_gone(context: &Context) {
    let of_it = |green: &Green| green.primary.handle == context.handle;
    for green in CONVERTED.remove_if(of_it) {
        green.destroyed.store(true, Ordering::Release);
    }
    for (_, green) in GREENS.all() {
        if of_it(&green) {
            green.destroyed.store(true, Ordering::Release);
        }
    }
}

impl Green {
    /// Its own handle.
    pub fn handle(&self) -> CUgreenCtx {
        CUgreenCtx(std::ptr::without_provenance_mut(self.handle))
    }

    /// Its number, unique in this process.
    pub fn id(&self) -> u64 {
        self.handle as u64
    }

    /// The number of its domain: the streams that implicitly synchronise with each other.
    pub fn domain(&self) -> u64 {
        self.converted as u64
    }

    /// The primary context it is a part of.
    pub fn primary(&self) -> &Arc<Context> {
        &self.primary
    }

    /// Its multiprocessors.
    pub fn resource(&self) -> SmResource {
        self.resource
    }

    /// Its handle as a context. The handle is valid from this call on.
    pub fn convert(self: &Arc<Self>) -> CUcontext {
        CONVERTED.insert_at(self.converted, Arc::clone(self));
        self.converted_handle()
    }

    fn converted_handle(&self) -> CUcontext {
        CUcontext(std::ptr::without_provenance_mut(self.converted))
    }

    /// Whether it was destroyed, or its primary context ended.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Whether it can still be used.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, or the sticky error of the primary context.
    pub fn check(&self) -> Result {
        if self.is_destroyed() {
            return Err(CUresult::CONTEXT_IS_DESTROYED);
        }
        self.primary.check()
    }

    /// Storage for other modules' state of it.
    pub(crate) fn ext<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.ext.get()
    }

    /// Marks it as current in the calling thread.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` if it is current in another thread. A real driver does not detect this,
    /// and its behaviour is then undefined, so softgpu also prints a line to stderr.
    pub(super) fn hold(self: &Arc<Self>) -> Result<GreenGuard> {
        let me = thread::current().id();
        let mut user = self.user();
        let times = match *user {
            Some((other, _)) if other != me => {
                drop(user);
                eprintln!("softgpu: a green context is made current in a second thread");
                return Err(CUresult::INVALID_CONTEXT);
            }
            Some((_, times)) => times + 1,
            None => 1,
        };
        *user = Some((me, times));
        Ok(GreenGuard(Arc::clone(self)))
    }

    fn user(&self) -> std::sync::MutexGuard<'_, Option<(ThreadId, u32)>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GreenGuard {
    fn drop(&mut self) {
        let mut user = self.0.user();
        *user = match *user {
            Some((thread, times)) if times > 1 => Some((thread, times - 1)),
            _ => None,
        };
    }
}

impl From<Arc<Context>> for Named {
    fn from(context: Arc<Context>) -> Self {
        Self {
            context,
            green: None,
        }
    }
}

impl Named {
    /// The handle that names it.
    pub fn handle(&self) -> CUcontext {
        let green = self.green.as_ref();
        green.map_or_else(|| self.context.handle(), |green| green.converted_handle())
    }

    /// The number of its domain: the streams that implicitly synchronise with each other.
    pub fn domain(&self) -> u64 {
        let green = self.green.as_ref();
        green.map_or_else(|| self.context.id(), |green| green.domain())
    }

    /// Whether it can still be used.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, or the context's sticky error.
    pub fn check(&self) -> Result {
        match &self.green {
            Some(green) => green.check(),
            None => self.context.check(),
        }
    }

    /// Waits for all work submitted in it. A primary context includes the work of its green
    /// contexts; a green context waits for its own work only.
    ///
    /// # Errors
    /// The error of the work, or the reason why the context cannot be used.
    pub fn synchronize(&self) -> Result {
        self.check()?;
        match &self.green {
            None => self.context.synchronize(),
            Some(green) => {
                exec::drain_green(green)?;
                crate::memory::pool::synchronised(self.context.device());
                Ok(())
            }
        }
    }
}
