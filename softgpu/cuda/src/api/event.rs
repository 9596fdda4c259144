//! Events.

use gpushare_cuda_abi::cuda::{CUcontext, CUevent, CUevent_record_flags, CUresult, CUstream};
use softgpu::Result;
use softgpu::context;
use softgpu::exec::{DefaultStream, event};

use super::context::named_or_current;
use super::stream::here;
use crate::abi::{out, required};

fn record(default: DefaultStream, event: CUevent, stream: CUstream, flags: u32) -> Result {
    if flags > CUevent_record_flags::EXTERNAL.0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let stream = here(default, stream)?;
    event::record(
        &event::lookup(event)?,
        &stream,
        flags == CUevent_record_flags::EXTERNAL.0,
    )
}

fn elapsed(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Result {
    required(milliseconds)?;
    context::current()?;
    out(
        milliseconds,
        event::elapsed(&*event::lookup(start)?, &*event::lookup(end)?)?,
    )
}

driver! {
    fn cuEventCreate(event: *mut CUevent, flags: u32) {
        required(event)?;
        out(event, event::create(&context::current()?, flags)?)
    }

    fn cuEventDestroy(event: CUevent) {
        context::current()?;
        event::destroy(event)
    }

    fn cuEventDestroy_v2(event: CUevent) {
        context::current()?;
        event::destroy(event)
    }

    fn cuEventRecord twin cuEventRecord_ptsz (d: DefaultStream; event: CUevent, stream: CUstream) {
        record(d, event, stream, 0)
    }

    fn cuEventRecordWithFlags twin cuEventRecordWithFlags_ptsz (d: DefaultStream; event: CUevent, stream: CUstream, flags: u32) {
        record(d, event, stream, flags)
    }

    fn cuCtxRecordEvent(context: CUcontext, event: CUevent) {
        event::record_context(&*event::lookup(event)?, &named_or_current(context)?)
    }

    fn cuCtxWaitEvent(context: CUcontext, event: CUevent) {
        event::wait_context(&*event::lookup(event)?, &named_or_current(context)?)
    }

    fn cuEventQuery(event: CUevent) {
        context::current()?;
        event::query(&event::lookup(event)?)
    }

    fn cuEventSynchronize(event: CUevent) {
        context::current()?;
        event::synchronize(&event::lookup(event)?)
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) {
        elapsed(milliseconds, start, end)
    }
}
