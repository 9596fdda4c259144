//! Streams: creation, order, attributes, callbacks.
//!
//! # Safety
//! `unsafe` reads a stream attribute as bytes; every member of the union is plain bytes.
#![allow(unsafe_code, reason = "attribute values are a C union")]

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUevent_wait_flags, CUgreenCtx, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUmemAttach_flags, CUresult, CUstream, CUstreamCallback,
};
use softgpu::Result;
use softgpu::context;
use softgpu::exec::{self, Cost, DefaultStream, HostCall, Kind, Op, StreamRef, event, stream};
use softgpu::memory::{managed, pool};

use crate::abi::{input, out, out_if, required};

/// The stream of a handle in the calling thread's context.
pub(super) fn here(default: DefaultStream, stream: CUstream) -> Result<StreamRef> {
    exec::resolve(&context::current()?, stream, default)
}

driver! {
    fn cuStreamCreate(stream: *mut CUstream, flags: u32) {
        required(stream)?;
        out(stream, stream::create(&context::current()?, flags, 0)?)
    }

    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32) {
        required(stream)?;
        out(stream, stream::create(&context::current()?, flags, priority)?)
    }

    /// The version of CUDA 2 and 3. It does not wait either.
    fn cuStreamDestroy(stream: CUstream) {
        context::current()?;
        stream::destroy(stream)
    }

    fn cuStreamDestroy_v2(stream: CUstream) {
        context::current()?;
        stream::destroy(stream)
    }

    fn cuStreamSynchronize twin cuStreamSynchronize_ptsz (d: DefaultStream; stream: CUstream) {
        let stream = here(d, stream)?;
        exec::synchronize(&stream)?;
        pool::synchronised(stream.context().device());
        Ok(())
    }

    fn cuStreamQuery twin cuStreamQuery_ptsz (d: DefaultStream; stream: CUstream) {
        exec::query(&here(d, stream)?)
    }

    fn cuStreamWaitEvent twin cuStreamWaitEvent_ptsz (d: DefaultStream; stream: CUstream, event: CUevent, flags: u32) {
        if flags > CUevent_wait_flags::EXTERNAL.0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let stream = here(d, stream)?;
        event::wait(&event::lookup(event)?, &stream, flags == CUevent_wait_flags::EXTERNAL.0)
    }

    fn cuStreamGetPriority twin cuStreamGetPriority_ptsz (d: DefaultStream; stream: CUstream, priority: *mut i32) {
        out(priority, here(d, stream)?.priority())
    }

    fn cuStreamGetFlags twin cuStreamGetFlags_ptsz (d: DefaultStream; stream: CUstream, flags: *mut u32) {
        out(flags, here(d, stream)?.flags())
    }

    fn cuStreamGetId twin cuStreamGetId_ptsz (d: DefaultStream; stream: CUstream, id: *mut u64) {
        required(id)?;
        out(id, exec::stream_number(&here(d, stream)?)?)
    }

    fn cuStreamGetDevice twin cuStreamGetDevice_ptsz (d: DefaultStream; stream: CUstream, device: *mut CUdevice) {
        let stream = here(d, stream)?;
        exec::stream_number(&stream)?;
        let ordinal = stream.context().device().ordinal();
        out(device, CUdevice::try_from(ordinal).map_err(|_| CUresult::INVALID_DEVICE)?)
    }

    fn cuStreamGetCtx twin cuStreamGetCtx_ptsz (d: DefaultStream; stream: CUstream, context: *mut CUcontext) {
        let stream = here(d, stream)?;
        out(context, stream.green().map_or_else(|| stream.context().handle(), |green| green.convert()))
    }

    fn cuStreamGetCtx_v2 twin cuStreamGetCtx_v2_ptsz (d: DefaultStream; stream: CUstream, context: *mut CUcontext, green: *mut CUgreenCtx) {
        let stream = here(d, stream)?;
        out_if(green, stream.green().map_or(CUgreenCtx::NULL, |green| green.handle()));
        out(context, stream.context().handle())
    }

    fn cuStreamAddCallback twin cuStreamAddCallback_ptsz (d: DefaultStream; stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: u32) {
        let function = callback.ok_or(CUresult::INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let held = here(d, stream)?;
        let call = HostCall::Callback { function, stream, argument: data.expose_provenance() };
        exec::submit(held.context(), &held, Op { kind: Kind::Host(call), cost: Cost::Instant, effect: None, touch: None })
    }

    /// Managed memory is always coherent here, whatever it is attached to. The call only keeps its
    /// place in the stream order. NVIDIA's page: the length is 0 or the whole allocation's, and
    /// nothing is attached to the NULL stream alone.
    fn cuStreamAttachMemAsync twin cuStreamAttachMemAsync_ptsz (d: DefaultStream; stream: CUstream, address: CUdeviceptr, length: usize, flags: u32) {
        let known = [CUmemAttach_flags::GLOBAL.0, CUmemAttach_flags::HOST.0, CUmemAttach_flags::SINGLE.0];
        let stream = here(d, stream)?;
        let is_alone_in_all = flags == CUmemAttach_flags::SINGLE.0 && stream.is_legacy();
        if !known.contains(&flags) || is_alone_in_all || !managed::is_whole(address, length as u64) {
            return Err(CUresult::INVALID_VALUE);
        }
        exec::submit(stream.context(), &stream, Op::plain(Cost::Instant, || Ok(())))
    }

    fn cuStreamGetAttribute twin cuStreamGetAttribute_ptsz (d: DefaultStream; stream: CUstream, id: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue) {
        required(value)?;
        let pad = here(d, stream)?.attribute(id)?;
        out(value, CUlaunchAttributeValue { pad })
    }

    fn cuStreamSetAttribute twin cuStreamSetAttribute_ptsz (d: DefaultStream; stream: CUstream, id: CUlaunchAttributeID, value: *const CUlaunchAttributeValue) {
        let value = input(value)?;
        // SAFETY: the union is plain bytes from end to end, and the caller passed a whole one.
        here(d, stream)?.set_attribute(id, unsafe { value.pad })
    }

    fn cuStreamCopyAttributes twin cuStreamCopyAttributes_ptsz (d: DefaultStream; to: CUstream, from: CUstream) {
        let (to, from) = (here(d, to)?, here(d, from)?);
        to.copy_attributes(&from);
        Ok(())
    }
}
