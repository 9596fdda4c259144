//! Contexts: primary and user contexts, the thread's stack, flags and limits.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUcontext, CUctx_flags, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUexecAffinityType,
    CUlimit, CUresult,
};
use softgpu::context::{self, CTX_FLAGS, Context, Named, peer, primary};
use softgpu::module::device_heap;
use softgpu::{Result, world};

use crate::abi::{input, out, out_if, required};

/// The result of `cuCtxGetApiVersion` for every context: the version of `cuCtxCreate_v2` and later.
const API_VERSION: u32 = 3020;
/// Stream priorities, least and greatest, as data centre GPUs report them.
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

driver! {
    /// Retains the primary context; the first reference begins it.
    fn cuDevicePrimaryCtxRetain(pctx: *mut CUcontext, dev: CUdevice) {
        required(pctx)?;
        out(pctx, primary::retain(world::process()?.device(dev)?)?.handle())
    }
    fn cuDevicePrimaryCtxRelease(dev: CUdevice) { primary::release(world::process()?.device(dev)?) }
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice) { primary::release(world::process()?.device(dev)?) }
    fn cuDevicePrimaryCtxReset(dev: CUdevice) { reset(dev) }
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice) { reset(dev) }
    /// The first version refuses to change an active context.
    fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: u32) {
        let device = world::process()?.device(dev)?;
        if primary::state(device).1 {
            return Err(CUresult::PRIMARY_CONTEXT_ACTIVE);
        }
        primary::set_flags(device, valid(flags)?);
        Ok(())
    }
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32) {
        let device = world::process()?.device(dev)?;
        primary::set_flags(device, valid(flags)?);
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut u32, active: *mut i32) {
        let (set, is_active) = primary::state(world::process()?.device(dev)?);
        required(flags)?;
        out(active, is_active.into())?;
        out(flags, set)
    }
}

driver! {
    fn cuCtxCreate(pctx: *mut CUcontext, flags: u32, dev: CUdevice) { create(pctx, flags, dev) }
    fn cuCtxCreate_v2(pctx: *mut CUcontext, flags: u32, dev: CUdevice) { create(pctx, flags, dev) }
    /// Execution affinity divides an MPS server's device, and softgpu has no MPS.
    fn cuCtxCreate_v3(pctx: *mut CUcontext, params: *mut CUexecAffinityParam, count: i32, flags: u32, dev: CUdevice) {
        if count != 0 || !params.is_null() {
            return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(pctx, flags, dev)
    }
    fn cuCtxCreate_v4(pctx: *mut CUcontext, params: *mut CUctxCreateParams, flags: u32, dev: CUdevice) {
        if !params.is_null() {
            let params = input(params)?;
            if !params.execAffinityParams.is_null() {
                return Err(CUresult::UNSUPPORTED_EXEC_AFFINITY);
            }
            if !params.cigParams.is_null() {
                return Err(CUresult::NOT_SUPPORTED);
            }
        }
        create(pctx, flags, dev)
    }
    fn cuCtxDestroy(ctx: CUcontext) { destroy(ctx) }
    fn cuCtxDestroy_v2(ctx: CUcontext) { destroy(ctx) }
    fn cuCtxAttach(pctx: *mut CUcontext, flags: u32) {
        required(pctx)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let context = context::current()?;
        context.attach();
        out(pctx, context.handle())
    }
    /// Its page: the context is current in the calling thread.
    fn cuCtxDetach(ctx: CUcontext) {
        let context = context::lookup(ctx)?;
        let current = context::current_unchecked();
        if context.is_primary() || current.is_none_or(|current| current.id() != context.id()) {
            return Err(CUresult::INVALID_CONTEXT);
        }
        if context.detach() { destroy(ctx) } else { Ok(()) }
    }
}

driver! {
    fn cuCtxPushCurrent(ctx: CUcontext) { push(ctx) }
    fn cuCtxPushCurrent_v2(ctx: CUcontext) { push(ctx) }
    fn cuCtxPopCurrent(pctx: *mut CUcontext) { pop(pctx) }
    fn cuCtxPopCurrent_v2(pctx: *mut CUcontext) { pop(pctx) }
    fn cuCtxSetCurrent(ctx: CUcontext) {
        context::set_current(if ctx.is_null() { None } else { Some(context::named(ctx)?) })
    }
    fn cuCtxGetCurrent(pctx: *mut CUcontext) {
        out(pctx, context::current_named().map_or(CUcontext::NULL, |named| named.handle()))
    }
    fn cuCtxGetDevice(device: *mut CUdevice) { required(device)?; out(device, ordinal(&*context::current()?)) }
    fn cuCtxGetDevice_v2(device: *mut CUdevice, ctx: CUcontext) { required(device)?; out(device, ordinal(&*named(ctx)?)) }
    fn cuCtxGetId(ctx: CUcontext, id: *mut u64) { required(id)?; out(id, named(ctx)?.id()) }
    fn cuCtxGetApiVersion(ctx: CUcontext, version: *mut u32) {
        required(version)?;
        named(ctx)?;
        out(version, API_VERSION)
    }
    fn cuCtxSynchronize() { named_or_current(CUcontext::NULL)?.synchronize() }
    fn cuCtxSynchronize_v2(ctx: CUcontext) { named_or_current(ctx)?.synchronize() }
}

driver! {
    fn cuCtxGetFlags(flags: *mut u32) { required(flags)?; out(flags, context::current()?.flags()) }
    fn cuCtxSetFlags(flags: u32) { context::current()?.set_flags(valid(flags)?); Ok(()) }
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) {
        required(value)?;
        let limit = context::current()?.settings().limit(limit)?;
        out(value, usize::try_from(limit).unwrap_or(usize::MAX))
    }
    fn cuCtxSetLimit(limit: CUlimit, value: usize) {
        let context = context::current()?;
        if limit == CUlimit::MALLOC_HEAP_SIZE && device_heap::is_taken(&context) {
            return Err(CUresult::INVALID_VALUE);
        }
        context.settings().set_limit(limit, value as u64)
    }
    fn cuCtxGetCacheConfig(config: *mut u32) { required(config)?; out(config, context::current()?.settings().cache) }
    fn cuCtxSetCacheConfig(config: u32) {
        let context = context::current()?;
        if config > 3 {
            return Err(CUresult::INVALID_VALUE);
        }
        context.settings().cache = config;
        Ok(())
    }
    fn cuCtxGetSharedMemConfig(config: *mut u32) { required(config)?; out(config, context::current()?.settings().shared) }
    /// Bank sizes other than the default have no effect since compute capability 5.
    fn cuCtxSetSharedMemConfig(config: u32) {
        context::current()?;
        if config > 2 { Err(CUresult::INVALID_VALUE) } else { Ok(()) }
    }
    fn cuCtxResetPersistingL2Cache() { context::current().map(|_| ()) }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        context::current()?;
        out_if(least, PRIORITIES.0);
        out_if(greatest, PRIORITIES.1);
        Ok(())
    }
    fn cuCtxGetExecAffinity(affinity: *mut CUexecAffinityParam, kind: CUexecAffinityType) {
        required(affinity)?;
        context::current()?;
        if kind.0 < CUexecAffinityType::MAX.0 { Err(CUresult::UNSUPPORTED_EXEC_AFFINITY) } else { Err(CUresult::INVALID_VALUE) }
    }
}

driver! {
    fn cuCtxEnablePeerAccess(ctx: CUcontext, flags: u32) {
        let current = context::current()?;
        let other = context::lookup(ctx)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        peer::enable(&current, &other)
    }
    fn cuCtxDisablePeerAccess(ctx: CUcontext) { peer::disable(&*context::current()?, &*context::lookup(ctx)?) }
}

fn reset(dev: CUdevice) -> Result {
    primary::reset(world::process()?.device(dev)?);
    Ok(())
}

/// Refuses unknown flags and more than one scheduling flag.
fn valid(flags: u32) -> Result<u32> {
    let scheduling = flags & CUctx_flags::SCHED_MASK.0;
    if flags & !CTX_FLAGS != 0 || (scheduling != 0 && !scheduling.is_power_of_two()) {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(flags)
}

fn create(pctx: *mut CUcontext, flags: u32, dev: CUdevice) -> Result {
    required(pctx)?;
    let context = context::create(world::process()?.device(dev)?, valid(flags)?)?;
    context::push(Arc::clone(&context).into())?;
    out(pctx, context.handle())
}

/// Destroys a context and pops it if it is current in the calling thread.
fn destroy(ctx: CUcontext) -> Result {
    let gone = context::destroy(ctx)?;
    if context::current_unchecked().is_some_and(|current| Arc::ptr_eq(&current, &gone)) {
        context::pop();
    }
    Ok(())
}

fn push(ctx: CUcontext) -> Result {
    context::push(context::named(ctx)?)
}

fn pop(pctx: *mut CUcontext) -> Result {
    let context = context::pop().ok_or(CUresult::INVALID_CONTEXT)?;
    out_if(pctx, context.handle());
    Ok(())
}

/// The context of a handle, if usable; the null handle means the current context.
fn named(ctx: CUcontext) -> Result<Arc<Context>> {
    named_or_current(ctx).map(|named| named.context)
}

/// As [`named`], but keeps a green context distinct from its primary context.
pub(super) fn named_or_current(ctx: CUcontext) -> Result<Named> {
    let named = if ctx.is_null() {
        context::current_named().ok_or(CUresult::INVALID_CONTEXT)?
    } else {
        context::named(ctx)?
    };
    named.check()?;
    Ok(named)
}

fn ordinal(context: &Context) -> CUdevice {
    CUdevice::try_from(context.device().ordinal()).expect("ordinals are small")
}
