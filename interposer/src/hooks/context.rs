//! Contexts: what they take is measured as overhead; when one goes, everything in it is credited.
//!
//! # Safety
//! The driver is called with the program's own arguments. Results are read only after the driver accepted the pointers.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::c_int;

use gpushare_cuda_abi::cuda::*;

use crate::account::{self, Deadline};
use crate::driver::calls;
use crate::driver::captures;
use crate::driver::captures::unnoticed;
use crate::driver::contexts;
use crate::driver::device::{self, DeviceKey};
use crate::driver::green;
use crate::driver::streams;
use crate::entry::hooks;
use crate::gate;
use crate::holdings::frees;
use crate::holdings::objects::Map;
use crate::holdings::overhead;
use crate::holdings::reclaim;

hooks! {
    fn cuCtxCreate | cuCtxCreate_v2(context: *mut CUcontext, flags: u32, device: CUdevice) -> CUresult = create;
    fn cuCtxCreate_v3(context: *mut CUcontext, affinity: *mut CUexecAffinityParam, count: c_int, flags: u32,
        device: CUdevice) -> CUresult = create_v3;
    fn cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: u32, device: CUdevice) -> CUresult
        = create_v4;
    fn cuCtxDestroy | cuCtxDestroy_v2(context: CUcontext) -> CUresult = destroy;
    fn cuCtxDetach(context: CUcontext) -> CUresult = detach;
    fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult = set_limit;
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult = retain;
    fn cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> CUresult = release;
    fn cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2(device: CUdevice) -> CUresult = reset;
    fn cuGreenCtxCreate(context: *mut CUgreenCtx, resources: CUdevResourceDesc, device: CUdevice, flags: u32) -> CUresult
        = create_green;
    fn cuGreenCtxDestroy(context: CUgreenCtx) -> CUresult = destroy_green;
}

/// Primary contexts by device ordinal.
static PRIMARY: Map<CUcontext> = Map::new();

/// The number a handle is known by in our maps.
fn key(handle: CUcontext) -> u64 {
    handle.0.addr() as u64
}

fn create(real: cuCtxCreate, context: *mut CUcontext, flags: u32, device: CUdevice) -> CUresult {
    // SAFETY: the program's own arguments.
    creating(context, device, || unsafe { real(context, flags, device) })
}

fn create_v3(
    real: cuCtxCreate_v3,
    context: *mut CUcontext,
    affinity: *mut CUexecAffinityParam,
    count: c_int,
    flags: u32,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the program's own arguments.
    creating(context, device, || unsafe {
        real(context, affinity, count, flags, device)
    })
}

fn create_v4(
    real: cuCtxCreate_v4,
    context: *mut CUcontext,
    params: *mut CUctxCreateParams,
    flags: u32,
    device: CUdevice,
) -> CUresult {
    // SAFETY: the program's own arguments.
    creating(context, device, || unsafe {
        real(context, params, flags, device)
    })
}

/// Makes a context by `call` and measures what it took.
fn creating(context: *mut CUcontext, ordinal: CUdevice, call: impl Fn() -> CUresult) -> CUresult {
    let device = device::of_ordinal(ordinal);
    let (answer, took) = match begun(device, call) {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    if let (true, Some(device)) = (answer.is_success(), device) {
        // SAFETY: the driver wrote it.
        let made = unsafe { *context };
        // Noticed now, so that the gate thread knows it.
        contexts::of(made);
        overhead::book_context(made, device, took);
        account::context_made(device);
    }
    answer
}

/// Has the daemon make room for a context on `device`; the gate follows the leases from then on.
fn opened(device: DeviceKey, patience: &Deadline) -> Result<(), CUresult> {
    account::open(device, patience)?;
    gate::follow_leases();
    Ok(())
}

/// Makes a context by `call`: what the driver said, and what that took. `Err` if the device has no room for one.
fn begun(
    device: Option<DeviceKey>,
    call: impl Fn() -> CUresult,
) -> Result<(CUresult, i64), CUresult> {
    let patience = Deadline::new();
    if let Some(device) = device {
        opened(device, &patience)?;
    }
    Ok(overhead::measured(device, || match device {
        // What a context takes is known to the daemon alone.
        Some(device) => reclaim::insist(device, 0, &patience, &call),
        None => call(),
    }))
}

fn destroy(real: cuCtxDestroy, context: CUcontext) -> CUresult {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(context) };
    ending(context, call, |answer| answer.is_success())
}

/// The last user's detaching destroys the context, which is then no longer the thread's current one.
fn detach(real: cuCtxDetach, context: CUcontext) -> CUresult {
    let ended = |answer: CUresult| {
        let mut current = CUcontext::NULL;
        // SAFETY: an out parameter that outlives the call.
        let known = unsafe { calls::cuCtxGetCurrent(&raw mut current) }.is_success();
        answer.is_success() && known && current != context
    };
    // SAFETY: the program's own argument.
    ending(context, || unsafe { real(context) }, ended)
}

/// Makes a call that may end a context, and credits what goes with it if `ended` says that it did.
fn ending(
    context: CUcontext,
    call: impl FnOnce() -> CUresult,
    ended: impl FnOnce(CUresult) -> bool,
) -> CUresult {
    let call = || {
        frees::context_going(context);
        call()
    };
    streams::destroying_context(context, call, |answer| {
        let ended = ended(answer);
        if ended {
            contexts::gone(context);
            overhead::context_gone(context);
            captures::context_gone(context);
            frees::context_gone(context);
        } else {
            frees::context_stays(context);
        }
        ended
    })
}

/// Heap and print buffer are device memory; the change counts as the context's.
fn set_limit(real: cuCtxSetLimit, limit: CUlimit, value: usize) -> CUresult {
    let here = contexts::here();
    // SAFETY: the program's own arguments.
    let (answer, took) = overhead::measured(here.map(|here| here.device), || unsafe {
        real(limit, value)
    });
    if let (true, Some(here)) = (answer.is_success(), here) {
        overhead::book(key(here.handle), here.handle, here.device, took);
    }
    answer
}

fn retain(real: cuDevicePrimaryCtxRetain, context: *mut CUcontext, device: CUdevice) -> CUresult {
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(context, device) };
    if is_active(device) {
        // Somebody whom no hook saw has made it: a tool that the driver lets in while it starts.
        let is_news = PRIMARY
            .with(u64::from(device.cast_unsigned()), |_| ())
            .is_none();
        let device_here = device::of_ordinal(device).filter(|_| is_news);
        if let Some(refused) = device_here.and_then(|device| opened(device, &Deadline::new()).err())
        {
            return refused;
        }
        return remembered(device, context, call());
    }
    let answer = creating(context, device, call);
    remembered(device, context, answer)
}

/// Remembers the primary context that a retain answered, for the release that names only the device.
fn remembered(device: CUdevice, context: *const CUcontext, answer: CUresult) -> CUresult {
    if answer.is_success() {
        // SAFETY: the driver wrote it.
        let made = unsafe { *context };
        PRIMARY.insert(u64::from(device.cast_unsigned()), made);
        contexts::of(made);
    }
    answer
}

fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: out parameters that outlive the call.
    let answer = unnoticed(|| unsafe {
        calls::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active)
    });
    answer.is_success() && active != 0
}

fn release(real: cuDevicePrimaryCtxRelease, device: CUdevice) -> CUresult {
    // SAFETY: the program's own argument.
    ending_primary(device, || unsafe { real(device) }, || !is_active(device))
}

/// A reset empties the primary context, whoever still retains it.
fn reset(real: cuDevicePrimaryCtxReset, device: CUdevice) -> CUresult {
    // SAFETY: the program's own argument.
    ending_primary(device, || unsafe { real(device) }, || true)
}

/// Makes a call that may end a device's primary context.
fn ending_primary(
    device: CUdevice,
    call: impl FnOnce() -> CUresult,
    ended: impl FnOnce() -> bool,
) -> CUresult {
    let number = u64::from(device.cast_unsigned());
    let Some(context) = PRIMARY.with(number, |context| *context) else {
        return call();
    };
    ending(context, call, |answer| {
        answer.is_success() && ended() && PRIMARY.take(number).is_some()
    })
}

/// A green context retains the primary one, and is perhaps the first to.
fn create_green(
    real: cuGreenCtxCreate,
    context: *mut CUgreenCtx,
    resources: CUdevResourceDesc,
    ordinal: CUdevice,
    flags: u32,
) -> CUresult {
    let device: Option<DeviceKey> = device::of_ordinal(ordinal);
    let begins = !is_active(ordinal);
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(context, resources, ordinal, flags) };
    let (answer, took) = match begun(device, call) {
        Ok(begun) => begun,
        Err(refused) => return refused,
    };
    if let (true, Some(device)) = (answer.is_success(), device) {
        // SAFETY: the driver wrote it.
        let made = unsafe { *context };
        let primary = note_green(made, ordinal, device, begins.then_some(took));
        let took = if begins { 0 } else { took };
        overhead::book(number(made), primary, device, took.max(1));
    }
    answer
}

/// Notes what a green context is a part of, and answers that; `took` is what that took if it began with it.
fn note_green(
    made: CUgreenCtx,
    ordinal: CUdevice,
    device: DeviceKey,
    took: Option<i64>,
) -> CUcontext {
    let Some(green) = green::made(made, ordinal) else {
        return CUcontext(made.0);
    };
    PRIMARY.insert(u64::from(ordinal.cast_unsigned()), green.primary);
    contexts::of(green.primary);
    if let Some(took) = took {
        overhead::book_context(green.primary, device, took);
    }
    green.primary
}

/// It releases the primary context, perhaps as the last one to. Its streams stay, detached: nothing can be put into them any more, and
/// what they were given is still done.
fn destroy_green(real: cuGreenCtxDestroy, context: CUgreenCtx) -> CUresult {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(context) };
    let Some(green) = green::of(context) else {
        return call();
    };
    let destroyed = || {
        let answer = streams::destroying_green(&green, call);
        if answer.is_success() {
            overhead::forget(number(context));
            contexts::green_gone(&green);
        }
        answer
    };
    ending_primary(green.ordinal, destroyed, || !is_active(green.ordinal))
}

/// The number a green context is known by in our maps.
fn number(handle: CUgreenCtx) -> u64 {
    handle.0.addr() as u64
}
