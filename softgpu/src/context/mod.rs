//! Contexts: primary and user contexts, the stack of current contexts of each thread, sticky
//! errors, destruction.

pub mod coredump;
pub mod green;
mod hooks;
pub mod peer;
pub mod primary;
pub mod resource;
mod settings;
mod stack;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUcontext, CUresult};

use crate::error::Result;
use crate::fallen;
use crate::handle::{self, Handles};
use crate::memory::pool;
use crate::spec::{PAGE, Room};
use crate::va;
use crate::world::{Device, Ext, Kind, PageRun};

pub use green::{Green, Named, detached, keeps_detached, named};
pub use settings::{CTX_FLAGS, Settings};
pub use stack::{current, current_green, current_named, current_unchecked, pop, push, set_current};

static CONTEXTS: Handles<Context> = Handles::new();

/// The sticky error of a device in this process, 0 for none.
#[derive(Debug, Default)]
struct Sticky(AtomicU32);

impl Sticky {
    /// The first error stays.
    fn set(&self, error: CUresult) {
        let _ = self
            .0
            .compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A context of this process on one device.
#[derive(Debug)]
pub struct Context {
    handle: usize,
    device: Arc<Device>,
    primary: bool,
    flags: AtomicU32,
    /// Whether it is destroyed, or is a primary context that is not retained now.
    destroyed: AtomicBool,
    /// Shared by this process's contexts on the device: a fault in one of them loses them all.
    error: Arc<Sticky>,
    /// The sticky error of this one alone.
    alone: Sticky,
    /// `cuCtxAttach`/`cuCtxDetach` count.
    attached: AtomicU32,
    settings: Mutex<Settings>,
    ext: Ext,
    /// The memory that the driver takes for it, unasked.
    memory: Mutex<Vec<PageRun>>,
    /// The context's lock ([`Context::hold`]).
    submits: Mutex<()>,
}

/// Creates a user context on `device`; it is not current in any thread.
///
/// # Errors
/// `OUT_OF_MEMORY` if the device lacks the memory for a context; the sticky error of the device.
pub fn create(device: &Arc<Device>, flags: u32) -> Result<Arc<Context>> {
    let context = Context::new(device, flags, false);
    context.begin()?;
    CONTEXTS.insert_at(context.handle, Arc::clone(&context));
    Ok(context)
}

/// Destroys a user context: its work completes, then everything in it is freed. A thread in which
/// it is current keeps it current, unusable.
///
/// # Errors
/// `INVALID_CONTEXT` if the handle names no context, or a primary one.
pub fn destroy(handle: CUcontext) -> Result<Arc<Context>> {
    let context = lookup(handle)?;
    if context.primary {
        return Err(CUresult::INVALID_CONTEXT);
    }
    // If two threads destroy one context, one of them succeeds.
    let context = CONTEXTS
        .remove(handle.0.addr())
        .ok_or(CUresult::INVALID_CONTEXT)?;
    context.end();
    Ok(context)
}

/// The context of a handle; for a converted green context its primary context.
///
/// # Errors
/// `INVALID_CONTEXT` if the handle names no context.
pub fn lookup(handle: CUcontext) -> Result<Arc<Context>> {
    named(handle).map(|named| named.context)
}

/// Every context of this process that is not destroyed (it may have a sticky error), oldest first.
pub fn live() -> Vec<Arc<Context>> {
    CONTEXTS
        .all()
        .into_iter()
        .map(|(_, context)| context)
        .filter(|context| !context.is_destroyed())
        .collect()
}

impl Context {
    /// A context that is not begun yet.
    fn new(device: &Arc<Device>, flags: u32, primary: bool) -> Arc<Self> {
        Arc::new(Self {
            handle: handle::fresh(),
            device: Arc::clone(device),
            primary,
            flags: AtomicU32::new(flags),
            destroyed: AtomicBool::new(true),
            error: device.ext(),
            alone: Sticky::default(),
            attached: AtomicU32::new(1),
            settings: Mutex::default(),
            ext: Ext::default(),
            memory: Mutex::default(),
            submits: Mutex::default(),
        })
    }

    /// Takes the memory of a context and opens the context for use.
    /// # Errors
    /// The sticky error of the device: a process does not get the device back.
    fn begin(&self) -> Result {
        CUresult(self.error.0.load(Ordering::Acquire)).ok()?;
        let pages = self.device.spec().ctx.div_ceil(PAGE);
        *self.memory() = self.device.take(Kind::Context, pages)?;
        self.destroyed.store(false, Ordering::Release);
        Ok(())
    }

    /// Completes the work, closes the context and frees everything in it.
    fn end(self: &Arc<Self>) {
        // Errors of the work are dropped with the context.
        let _ = hooks::drain(self);
        self.destroyed.store(true, Ordering::Release);
        green::primary_gone(self);
        hooks::gone(self);
        self.ext.clear();
        peer::forget(self.handle);
        self.device.give(&std::mem::take(&mut *self.memory()));
        *self.settings() = Settings::default();
    }

    /// Its handle; it is also its unique number in this process (never reused).
    pub fn handle(&self) -> CUcontext {
        CUcontext(std::ptr::without_provenance_mut(self.handle))
    }

    /// Unique number of this context in this process.
    pub fn id(&self) -> u64 {
        self.handle as u64
    }

    /// The device it is on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether it is its device's primary context.
    pub fn is_primary(&self) -> bool {
        self.primary
    }

    /// Its flags as `cuCtxGetFlags` returns them.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Replaces its flags.
    pub fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// Adds a user (`cuCtxAttach`).
    pub fn attach(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a user (`cuCtxDetach`); true if it was the last.
    pub fn detach(&self) -> bool {
        self.attached.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Its limits and preferences.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Vec<PageRun>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context's lock. A call that submits holds it, even while it waits for room in its
    /// stream; so does a call that loads a module. Calls of other threads that submit in this
    /// context, in any stream, or that destroy an event or a stream, wait for it. Queries and waits
    /// for work do not take it. `None` if SPEC says that calls hold no lock (`room=free`).
    pub fn hold(&self) -> Option<MutexGuard<'_, ()>> {
        (self.device.spec().room == Room::Locked)
            .then(|| self.submits.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether it can still be used.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED`, that of a fallen device, or the sticky error of earlier work.
    pub fn check(&self) -> Result {
        if self.is_destroyed() {
            return Err(CUresult::CONTEXT_IS_DESTROYED);
        }
        fallen::check(self.device.ordinal())?;
        CUresult(self.alone.0.load(Ordering::Acquire)).ok()?;
        CUresult(self.error.0.load(Ordering::Acquire)).ok()
    }

    /// Whether it was destroyed (queued work must not run then).
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Loses this process's contexts on the device to `error`: every later call in one of them
    /// returns that error, and none can be created. The first error stays. After the driver's
    /// teardown the error is `DEINITIALIZED`: work that the teardown stops finds no memory.
    pub fn poison(&self, error: CUresult) {
        let stopped = va::is_closed();
        self.error.set(if stopped {
            CUresult::DEINITIALIZED
        } else {
            error
        });
    }

    /// Loses this context alone.
    pub fn poison_alone(&self, error: CUresult) {
        self.alone.set(error);
    }

    /// Waits for all work submitted in it.
    ///
    /// # Errors
    /// The error of the work, or the reason why the context cannot be used.
    pub fn synchronize(self: &Arc<Self>) -> Result {
        self.check()?;
        hooks::drain(self)?;
        self.check()?;
        pool::synchronised(&self.device);
        Ok(())
    }

    /// Storage for other modules' state of this context; dropped when it is destroyed or reset.
    pub fn ext<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.ext.get()
    }
}
