//! Contexts: which device one belongs to, and a small number that a pointer's record has room for.
//!
//! A context is noticed the first time an allocation is made in it. Its number is given out again only when everything that carries it
//! has been credited. A green context is not one of its own here: what is asked about it is answered for its primary context.
//!
//! # Safety
//! `unsafe` calls the driver with out parameters that outlive the calls.
#![allow(unsafe_code, reason = "asks the driver about contexts")]

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::CUcontext;

use crate::driver::calls;
use crate::driver::device::{self, DeviceKey};
use crate::driver::green;
use crate::driver::streams;
use crate::gate;
use crate::guest::fork::ForkLocal;
use crate::holdings::objects;
use crate::holdings::table;

/// Number of a context in this process; 0 is one that has none, because more than 4095 contexts are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContextId(pub(crate) u16);

impl ContextId {
    /// Memory that belongs to no context: physical memory of `cuMemCreate`.
    pub(crate) const NONE: Self = Self(0);
    /// Highest number, what a record has bits for.
    pub(crate) const MAX: u16 = (1 << 12) - 1;
}

/// A context and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    /// Its device.
    pub(crate) device: DeviceKey,
    /// Its number.
    pub(crate) context: ContextId,
    /// The driver's handle.
    pub(crate) handle: CUcontext,
}

#[derive(Debug, Default)]
struct Registry {
    known: Vec<Here>,
}

static REGISTRY: ForkLocal<Mutex<Registry>> = ForkLocal::new();
/// Rises when a context goes, so that no thread's remembered one outlives it.
static EPOCH: AtomicU64 = AtomicU64::new(1);

thread_local! {
    // Const and without a destructor: allocations are made in other libraries' destructors too.
    static LAST: Cell<Option<(u64, CUcontext, Here)>> = const { Cell::new(None) };
}

/// The calling thread's current context. `None` without one: the driver will say so itself.
#[inline]
pub(crate) fn here() -> Option<Here> {
    let mut handle = CUcontext::NULL;
    // SAFETY: an out parameter that outlives the call.
    let answer = unsafe { calls::cuCtxGetCurrent(&raw mut handle) };
    if !answer.is_success() || handle.is_null() {
        return None;
    }
    match LAST.get() {
        Some((epoch, asked, here)) if asked == handle && epoch == EPOCH.load(Ordering::Acquire) => {
            Some(here)
        }
        _ => look_up(handle, false),
    }
}

/// What is known of a context, current or not.
pub(crate) fn of(handle: CUcontext) -> Option<Here> {
    if handle.is_null() {
        None
    } else {
        look_up(handle, true)
    }
}

/// Credits everything that went with a context, after the driver has destroyed or reset it.
pub(crate) fn gone(handle: CUcontext) {
    let position = |registry: &Registry| {
        registry
            .known
            .iter()
            .position(|known| known.handle == handle)
    };
    let Some(here) = ({
        let registry = registry();
        position(&registry).map(|at| registry.known[at])
    }) else {
        return;
    };
    EPOCH.fetch_add(1, Ordering::AcqRel);
    if here.context != ContextId::NONE {
        table::drain_context(here.context);
        objects::drain_context(here.context);
    }
    green::primary_gone(handle);
    // Only now may the number mean another context.
    let mut registry = registry();
    if let Some(at) = position(&registry) {
        registry.known.swap_remove(at);
    }
}

/// A green context is gone: its handle may soon be another context's.
pub(crate) fn green_gone(gone: &green::Green) {
    green::gone(gone);
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY
        .get_or(Default::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn look_up(asked: CUcontext, switch: bool) -> Option<Here> {
    let epoch = EPOCH.load(Ordering::Acquire);
    let here = match (known(asked), green::converted(asked)) {
        (Some(here), _) => here,
        (None, Some(green)) => in_primary(&green)?,
        (None, None) if switch => enter(asked, device_of(asked)?),
        (None, None) => match green::notice(asked) {
            Some(green) => in_primary(&green)?,
            None => enter(asked, current_device()?),
        },
    };
    LAST.set(Some((epoch, asked, here)));
    Some(here)
}

fn known(handle: CUcontext) -> Option<Here> {
    let registry = registry();
    let mut known = registry.known.iter();
    known.find(|known| known.handle == handle).copied()
}

/// The primary context of a green one.
fn in_primary(green: &green::Green) -> Option<Here> {
    let device = || device::of_ordinal(green.ordinal);
    known(green.primary).or_else(|| Some(enter(green.primary, device()?)))
}

/// Gives a context a number, unless another thread did meanwhile.
fn enter(handle: CUcontext, device: DeviceKey) -> Here {
    let mut registry = registry();
    if let Some(known) = registry.known.iter().find(|known| known.handle == handle) {
        return *known;
    }
    let free = (1..=ContextId::MAX).find(|number| {
        registry
            .known
            .iter()
            .all(|known| known.context.0 != *number)
    });
    let here = Here {
        device,
        context: free.map_or(ContextId::NONE, ContextId),
        handle,
    };
    registry.known.push(here);
    drop(registry);
    // Its making may have been seen by nobody: a tool's, while the driver started.
    gate::follow_leases();
    streams::context_seen(here);
    here
}

fn current_device() -> Option<DeviceKey> {
    let mut ordinal = 0;
    // SAFETY: an out parameter that outlives the call.
    let answer = unsafe { calls::cuCtxGetDevice(&raw mut ordinal) };
    if answer.is_success() {
        device::of_ordinal(ordinal)
    } else {
        None
    }
}

/// The device of a context that need not be current.
fn device_of(handle: CUcontext) -> Option<DeviceKey> {
    // SAFETY: a context the program holds; it is popped again.
    if !unsafe { calls::cuCtxPushCurrent_v2(handle) }.is_success() {
        return None;
    }
    let device = current_device();
    let mut popped = CUcontext::NULL;
    // SAFETY: an out parameter that outlives the call.
    let _ = unsafe { calls::cuCtxPopCurrent_v2(&raw mut popped) };
    device
}
