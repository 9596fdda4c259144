//! Green contexts: parts of a device's multiprocessors under one primary context, with streams of
//! their own.
//!
//! A green context has no memory, modules or events: those are the primary context's, which it
//! keeps alive. Converted (`cuCtxFromGreenCtx`) it has a second handle, by which it can be made
//! current: in one thread at a time. How many multiprocessors it has changes nothing about the time
//! its work takes here.

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

/// The first driver that says `STREAM_DETACHED`.
const DETACHED_SINCE: u32 = 13010;

/// By their own handles. They stay when they are destroyed, so that a stale handle is known for
/// what it was.
static GREENS: Handles<Green> = Handles::new();
/// By the handles they have as contexts.
static CONVERTED: Handles<Green> = Handles::new();

/// A green context.
#[derive(Debug)]
pub struct Green {
    handle: usize,
    converted: usize,
    primary: Arc<Context>,
    resource: SmResource,
    destroyed: AtomicBool,
    /// The thread that has it, and how often it is on that thread's stack.
    user: Mutex<Option<(ThreadId, u32)>>,
    ext: Ext,
}

/// What the handle of a context names.
#[derive(Debug, Clone)]
pub struct Named {
    /// The context; of a green context, its primary context.
    pub context: Arc<Context>,
    /// The green context, if it is one that was converted.
    pub green: Option<Arc<Green>>,
}

/// A green context is on a thread's stack.
#[derive(Debug)]
pub(super) struct Held(Arc<Green>);

/// Makes a green context on `device` of these multiprocessors. It retains the primary context.
///
/// # Errors
/// `OUT_OF_MEMORY` if the device has not got what the primary context takes.
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

/// Destroys a green context and releases the primary one. Its streams stay, detached; what they
/// were given still runs. Captures on them are invalid.
///
/// # Errors
/// `INVALID_CONTEXT` for what is no green context, `CONTEXT_IS_DESTROYED` for one that was
/// destroyed.
pub fn destroy(handle: CUgreenCtx) -> Result {
    let green = lookup(handle)?;
    if green.destroyed.swap(true, Ordering::AcqRel) {
        return Err(CUresult::CONTEXT_IS_DESTROYED);
    }
    capture::green_gone(green.domain());
    CONVERTED.remove(green.converted);
    primary::release(green.primary.device())
}

/// The green context behind its own handle, destroyed or not.
///
/// # Errors
/// `INVALID_CONTEXT` if there never was one.
pub fn lookup(handle: CUgreenCtx) -> Result<Arc<Green>> {
    GREENS.get(handle.0.addr()).ok_or(CUresult::INVALID_CONTEXT)
}

/// The green context behind its own handle, usable.
///
/// # Errors
/// As [`lookup`]; `CONTEXT_IS_DESTROYED`, or the sticky error of its primary context.
pub fn usable(handle: CUgreenCtx) -> Result<Arc<Green>> {
    let green = lookup(handle)?;
    green.check()?;
    Ok(green)
}

/// What a context's handle names.
///
/// # Errors
/// `INVALID_CONTEXT` for what is no context (any more), a green context's own handle among it.
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

/// What calls on a stream answer whose green context is destroyed.
pub fn detached(context: &Context) -> CUresult {
    if context.device().spec().driver >= DETACHED_SINCE {
        CUresult::STREAM_DETACHED
    } else {
        CUresult::CONTEXT_IS_DESTROYED
    }
}

/// A primary context ends, and its green contexts with it.
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

    /// The number of the streams that share implicit order in it.
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

    /// Its handle as a context, from now on known as one.
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

    /// Room for what other parts keep about it.
    pub(crate) fn ext<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.ext.get()
    }

    /// Takes it for the calling thread.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` if another thread has it. A real driver does not notice, and promises
    /// nothing from then on; so this is said on stderr as well.
    pub(super) fn hold(self: &Arc<Self>) -> Result<Held> {
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
        Ok(Held(Arc::clone(self)))
    }

    fn user(&self) -> std::sync::MutexGuard<'_, Option<(ThreadId, u32)>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
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

    /// The number of the streams that share implicit order in it.
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

    /// Waits for all work submitted in it: in a primary context that of its green contexts too, in
    /// a green one its own.
    ///
    /// # Errors
    /// The error of the work, or why the context cannot be used.
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
