//! Copies of one, two and three dimensions. The functions of CUDA 2 are in `copy_legacy`, batches
//! in `copy_batch`.

use std::ffi::c_void;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUarray, CUcontext, CUdeviceptr,
    CUmemorytype, CUstream,
};
use softgpu::Result;
use softgpu::context::{self, Context};
use softgpu::exec::{self, DefaultStream};
use softgpu::memory::{Place, Transfer};

use crate::abi::input;

driver! {
    fn cuMemcpy twin cuMemcpy_ptds (d: DefaultStream; dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize) {
        now(d, line(Place::unified(dst), Place::unified(src), byte_count))
    }
    fn cuMemcpyAsync twin cuMemcpyAsync_ptsz (d: DefaultStream; dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize, h_stream: CUstream) {
        later(d, h_stream, line(Place::unified(dst), Place::unified(src), byte_count))
    }
    fn cuMemcpyHtoD_v2 twin cuMemcpyHtoD_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize) {
        now(d, line(Place::Address(dst_device), host(src_host), byte_count))
    }
    fn cuMemcpyHtoDAsync_v2 twin cuMemcpyHtoDAsync_v2_ptsz (d: DefaultStream; dst_device: CUdeviceptr, src_host: *const c_void, byte_count: usize, h_stream: CUstream) {
        later(d, h_stream, line(Place::Address(dst_device), host(src_host), byte_count))
    }
    fn cuMemcpyDtoH_v2 twin cuMemcpyDtoH_v2_ptds (d: DefaultStream; dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize) {
        now(d, line(host(dst_host), Place::Address(src_device), byte_count))
    }
    fn cuMemcpyDtoHAsync_v2 twin cuMemcpyDtoHAsync_v2_ptsz (d: DefaultStream; dst_host: *mut c_void, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) {
        later(d, h_stream, line(host(dst_host), Place::Address(src_device), byte_count))
    }
    fn cuMemcpyDtoD_v2 twin cuMemcpyDtoD_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize) {
        now(d, line(Place::Address(dst_device), Place::Address(src_device), byte_count))
    }
    fn cuMemcpyDtoDAsync_v2 twin cuMemcpyDtoDAsync_v2_ptsz (d: DefaultStream; dst_device: CUdeviceptr, src_device: CUdeviceptr, byte_count: usize, h_stream: CUstream) {
        later(d, h_stream, line(Place::Address(dst_device), Place::Address(src_device), byte_count))
    }
    fn cuMemcpyPeer twin cuMemcpyPeer_ptds (d: DefaultStream; dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize) {
        let copy = line(Place::Address(dst_device), Place::Address(src_device), byte_count);
        now(d, between(copy, dst_context, src_context)?)
    }
    fn cuMemcpyPeerAsync twin cuMemcpyPeerAsync_ptsz (d: DefaultStream; dst_device: CUdeviceptr, dst_context: CUcontext, src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize, h_stream: CUstream) {
        let copy = line(Place::Address(dst_device), Place::Address(src_device), byte_count);
        later(d, h_stream, between(copy, dst_context, src_context)?)
    }
    fn cuMemcpyDtoA_v2 twin cuMemcpyDtoA_v2_ptds (d: DefaultStream; dst_array: CUarray, dst_offset: usize, src_device: CUdeviceptr, byte_count: usize) {
        now(d, line(array(dst_array), Place::Address(src_device), byte_count).shifted(dst_offset as u64, 0))
    }
    fn cuMemcpyAtoD_v2 twin cuMemcpyAtoD_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, src_array: CUarray, src_offset: usize, byte_count: usize) {
        now(d, line(Place::Address(dst_device), array(src_array), byte_count).shifted(0, src_offset as u64))
    }
    fn cuMemcpyHtoA_v2 twin cuMemcpyHtoA_v2_ptds (d: DefaultStream; dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize) {
        now(d, line(array(dst_array), host(src_host), byte_count).shifted(dst_offset as u64, 0))
    }
    fn cuMemcpyHtoAAsync_v2 twin cuMemcpyHtoAAsync_v2_ptsz (d: DefaultStream; dst_array: CUarray, dst_offset: usize, src_host: *const c_void, byte_count: usize, h_stream: CUstream) {
        later(d, h_stream, line(array(dst_array), host(src_host), byte_count).shifted(dst_offset as u64, 0))
    }
    fn cuMemcpyAtoH_v2 twin cuMemcpyAtoH_v2_ptds (d: DefaultStream; dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize) {
        now(d, line(host(dst_host), array(src_array), byte_count).shifted(0, src_offset as u64))
    }
    fn cuMemcpyAtoHAsync_v2 twin cuMemcpyAtoHAsync_v2_ptsz (d: DefaultStream; dst_host: *mut c_void, src_array: CUarray, src_offset: usize, byte_count: usize, h_stream: CUstream) {
        later(d, h_stream, line(host(dst_host), array(src_array), byte_count).shifted(0, src_offset as u64))
    }
    fn cuMemcpyAtoA_v2 twin cuMemcpyAtoA_v2_ptds (d: DefaultStream; dst_array: CUarray, dst_offset: usize, src_array: CUarray, src_offset: usize, byte_count: usize) {
        now(d, line(array(dst_array), array(src_array), byte_count).shifted(dst_offset as u64, src_offset as u64))
    }
    fn cuMemcpy2D_v2 twin cuMemcpy2D_v2_ptds (d: DefaultStream; p_copy: *const CUDA_MEMCPY2D_v2) {
        now(d, Transfer::from_2d(&input(p_copy)?)?)
    }
    /// Alignment makes no difference here.
    fn cuMemcpy2DUnaligned_v2 twin cuMemcpy2DUnaligned_v2_ptds (d: DefaultStream; p_copy: *const CUDA_MEMCPY2D_v2) {
        now(d, Transfer::from_2d(&input(p_copy)?)?)
    }
    fn cuMemcpy2DAsync_v2 twin cuMemcpy2DAsync_v2_ptsz (d: DefaultStream; p_copy: *const CUDA_MEMCPY2D_v2, h_stream: CUstream) {
        later(d, h_stream, Transfer::from_2d(&input(p_copy)?)?)
    }
    fn cuMemcpy3D_v2 twin cuMemcpy3D_v2_ptds (d: DefaultStream; p_copy: *const CUDA_MEMCPY3D_v2) {
        now(d, Transfer::from_3d(&input(p_copy)?)?)
    }
    fn cuMemcpy3DAsync_v2 twin cuMemcpy3DAsync_v2_ptsz (d: DefaultStream; p_copy: *const CUDA_MEMCPY3D_v2, h_stream: CUstream) {
        later(d, h_stream, Transfer::from_3d(&input(p_copy)?)?)
    }
    fn cuMemcpy3DPeer twin cuMemcpy3DPeer_ptds (d: DefaultStream; p_copy: *const CUDA_MEMCPY3D_PEER_v1) {
        now(d, between_3d(&input(p_copy)?)?)
    }
    fn cuMemcpy3DPeerAsync twin cuMemcpy3DPeerAsync_ptsz (d: DefaultStream; p_copy: *const CUDA_MEMCPY3D_PEER_v1, h_stream: CUstream) {
        later(d, h_stream, between_3d(&input(p_copy)?)?)
    }
}

/// The place of an address passed as host memory. Under unified addressing it may be any memory.
pub(super) fn host(at: *const c_void) -> Place {
    Place::unified(at.expose_provenance() as u64)
}

pub(super) fn array(handle: CUarray) -> Place {
    Place::Array(handle.0.addr())
}

pub(super) fn line(dst: Place, src: Place, bytes: usize) -> Transfer {
    Transfer::linear(dst, src, bytes as u64)
}

/// A copy between contexts, which must exist.
fn between(copy: Transfer, dst: CUcontext, src: CUcontext) -> Result<Transfer> {
    Ok(copy.between(&*alive(dst)?, &*alive(src)?))
}

/// A 3D copy between contexts. NULL is the current one, and an array's is not looked at.
fn between_3d(copy: &CUDA_MEMCPY3D_PEER_v1) -> Result<Transfer> {
    let of = |kind, context: CUcontext| match kind {
        CUmemorytype::ARRAY => context::current(),
        _ if context.0.is_null() => context::current(),
        _ => alive(context),
    };
    let dst = of(copy.dstMemoryType, copy.dstContext)?;
    let src = of(copy.srcMemoryType, copy.srcContext)?;
    Ok(Transfer::from_3d_peer(copy)?.between(&dst, &src))
}

fn alive(context: CUcontext) -> Result<Arc<Context>> {
    let context = context::lookup(context)?;
    context.check()?;
    Ok(context)
}

pub(super) fn now(default: DefaultStream, transfer: Transfer) -> Result {
    transfer.now(&context::current()?, default)
}

pub(super) fn later(default: DefaultStream, stream: CUstream, transfer: Transfer) -> Result {
    transfer.later(&exec::context_for(stream)?, stream, default)
}
