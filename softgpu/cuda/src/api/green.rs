//! Green contexts and their device resources.

use gpushare_cuda_abi::cuda::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUevent, CUgreenCtx,
    CUgreenCtxCreate_flags, CUresult, CUstream,
};
use softgpu::context::resource::{self, SmResource};
use softgpu::context::{self, Named, green};
use softgpu::exec::{DefaultStream, event, stream};
use softgpu::{Result, world};

use super::stream::here;
use crate::abi::{input, inputs, out, out_if, outputs, required};

driver! {
    fn cuDeviceGetDevResource(device: CUdevice, resource: *mut CUdevResource, kind: CUdevResourceType) {
        tell(resource, kind, SmResource::of_device(world::process()?.device(device)?))
    }
    /// For a context that is not green the device's resource.
    fn cuCtxGetDevResource(ctx: CUcontext, resource: *mut CUdevResource, kind: CUdevResourceType) {
        let named = context::named(ctx)?;
        named.check()?;
        tell(resource, kind, of(&named))
    }
    fn cuGreenCtxGetDevResource(ctx: CUgreenCtx, resource: *mut CUdevResource, kind: CUdevResourceType) {
        tell(resource, kind, green::usable(ctx)?.resource().provisioned())
    }
    fn cuStreamGetDevResource twin cuStreamGetDevResource_ptsz (d: DefaultStream; stream: CUstream, resource: *mut CUdevResource, kind: CUdevResourceType) {
        let stream = here(d, stream)?;
        let named = Named { context: stream.context().clone(), green: stream.green().cloned() };
        tell(resource, kind, of(&named))
    }
    /// Without a result array it only counts.
    fn cuDevSmResourceSplitByCount(result: *mut CUdevResource, groups: *mut u32, input_: *const CUdevResource, remainder: *mut CUdevResource, flags: u32, least: u32) {
        let most = if result.is_null() { None } else { Some(input(groups)?) };
        required(groups)?;
        let split = SmResource::read(&input(input_)?)?.split(most, flags, least)?;
        out(groups, u32::try_from(split.parts.len()).unwrap_or(u32::MAX))?;
        if !result.is_null() {
            let parts: Vec<_> = split.parts.into_iter().map(SmResource::write).collect();
            outputs(result, parts.len(), &parts)?;
            out_if(remainder, split.rest.map_or_else(resource::none, SmResource::write));
        }
        Ok(())
    }
    fn cuDevResourceGenerateDesc(desc: *mut CUdevResourceDesc, resources: *mut CUdevResource, count: u32) {
        required(desc)?;
        let given = inputs(resources, count as usize)?;
        let read: Vec<_> = given.iter().map(SmResource::read).collect::<Result<_>>()?;
        out(desc, resource::describe(&read)?)
    }
}

/// The first driver version that makes green contexts without a default stream (cuda.h of 13.3,
/// `CU_GREEN_CTX_NONE`). No page says what the default stream means in one. Here it is its own.
const NEEDS_NO_STREAM: u32 = 13_030;

driver! {
    fn cuGreenCtxCreate(ctx: *mut CUgreenCtx, desc: CUdevResourceDesc, dev: CUdevice, flags: u32) {
        required(ctx)?;
        let device = world::process()?.device(dev)?;
        let needs_stream = device.spec().driver < NEEDS_NO_STREAM;
        match CUgreenCtxCreate_flags(flags) {
            CUgreenCtxCreate_flags::DEFAULT_STREAM => {}
            CUgreenCtxCreate_flags::NONE if !needs_stream => {}
            _ => return Err(CUresult::INVALID_VALUE),
        }
        let resource = resource::described(desc, device)?;
        out(ctx, green::create(device, resource)?.handle())
    }
    fn cuGreenCtxDestroy(ctx: CUgreenCtx) { green::destroy(ctx) }
    fn cuCtxFromGreenCtx(context: *mut CUcontext, ctx: CUgreenCtx) {
        required(context)?;
        out(context, green::usable(ctx)?.convert())
    }
    /// The null handle means the current green context.
    fn cuGreenCtxGetId(ctx: CUgreenCtx, id: *mut u64) {
        required(id)?;
        let green = if ctx.is_null() {
            context::current_green().ok_or(CUresult::INVALID_CONTEXT)?
        } else {
            green::usable(ctx)?
        };
        green.check()?;
        out(id, green.id())
    }
    fn cuGreenCtxStreamCreate(stream: *mut CUstream, ctx: CUgreenCtx, flags: u32, priority: i32) {
        required(stream)?;
        out(stream, stream::create_in(&green::usable(ctx)?, flags, priority)?)
    }
    fn cuStreamGetGreenCtx(stream: CUstream, ctx: *mut CUgreenCtx) {
        required(ctx)?;
        let stream = here(DefaultStream::Legacy, stream)?;
        out(ctx, stream.green().map_or(CUgreenCtx::NULL, |green| green.handle()))
    }
    fn cuGreenCtxRecordEvent(ctx: CUgreenCtx, event: CUevent) {
        event::record_context(&*event::lookup(event)?, &usable(ctx)?)
    }
    fn cuGreenCtxWaitEvent(ctx: CUgreenCtx, event: CUevent) {
        event::wait_context(&*event::lookup(event)?, &usable(ctx)?)
    }
}

fn usable(ctx: CUgreenCtx) -> Result<Named> {
    let green = green::usable(ctx)?;
    Ok(Named {
        context: green.primary().clone(),
        green: Some(green),
    })
}

/// The multiprocessors available to work in a context.
fn of(named: &Named) -> SmResource {
    match &named.green {
        Some(green) => green.resource().provisioned(),
        None => SmResource::of_device(named.context.device()),
    }
}

/// Writes a resource. Work queues are not supported as a resource.
fn tell(resource: *mut CUdevResource, kind: CUdevResourceType, sms: SmResource) -> Result {
    required(resource)?;
    if kind != CUdevResourceType::SM {
        return Err(CUresult::INVALID_RESOURCE_TYPE);
    }
    out(resource, sms.write())
}
