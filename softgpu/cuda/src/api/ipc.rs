//! Memory and events shared through legacy IPC handles.

use std::ffi::c_char;

use gpushare_cuda_abi::cuda::{
    CUdeviceptr, CUevent, CUipcEventHandle, CUipcMem_flags, CUipcMemHandle, CUresult,
};
use softgpu::exec::{event, shared};
use softgpu::memory::ipc;
use softgpu::{Result, context};

use crate::abi::{out, required};

driver! {
    fn cuIpcGetMemHandle(p_handle: *mut CUipcMemHandle, dptr: CUdeviceptr) {
        required(p_handle)?;
        context::current()?;
        out(p_handle, CUipcMemHandle { reserved: ipc::export(dptr)?.map(|byte| c_char::from_ne_bytes([byte])) })
    }
    fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) { open(pdptr, handle.reserved, flags) }
    fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32) { open(pdptr, handle.reserved, flags) }
    fn cuIpcCloseMemHandle(dptr: CUdeviceptr) {
        context::current()?;
        ipc::close(dptr)
    }
    fn cuIpcGetEventHandle(p_handle: *mut CUipcEventHandle, event: CUevent) {
        required(p_handle)?;
        context::current()?;
        let bytes = shared::export(&*event::lookup(event)?)?;
        out(p_handle, CUipcEventHandle { reserved: bytes.map(|byte| c_char::from_ne_bytes([byte])) })
    }
    fn cuIpcOpenEventHandle(ph_event: *mut CUevent, handle: CUipcEventHandle) {
        required(ph_event)?;
        let context = context::current()?;
        out(ph_event, shared::open(&context, &handle.reserved.map(|byte| byte.to_ne_bytes()[0]))?)
    }
}

fn open(at: *mut CUdeviceptr, handle: [c_char; 64], flags: u32) -> Result {
    required(at)?;
    let context = context::current()?;
    // It is no option: without it nothing is opened.
    if flags != CUipcMem_flags::LAZY_ENABLE_PEER_ACCESS.0 {
        return Err(CUresult::INVALID_VALUE);
    }
    out(
        at,
        ipc::open(&context, &handle.map(|byte| byte.to_ne_bytes()[0]))?,
    )
}
