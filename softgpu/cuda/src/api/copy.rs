//! Copies of one, two and three dimensions. A file further down the folder has those of CUDA 2's 32-bit interface.

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUarray, CUcontext, CUdeviceptr,
    CUstream,
};
use softgpu::exec::DefaultStream;
use softgpu::memory::{Place, Transfer};
use softgpu::{Result, context};

use crate::abi::input;

driver! {
    fn cuMemcpy twin cuMemcpy_ptds (d: DefaultStream; dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) {
        now(d, line(Place::unified(dst), Place::unified(src), ByteCount))
    }
    fn cuMemcpyAsync twin cuMemcpyAsync_ptsz (d: DefaultStream; dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        later(d, hStream, line(Place::unified(dst), Place::unified(src), ByteCount))
    }
    fn cuMemcpyHtoD_v2 twin cuMemcpyHtoD_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize) {
        now(d, line(Place::Address(dstDevice), host(srcHost), ByteCount))
    }
    fn cuMemcpyHtoDAsync_v2 twin cuMemcpyHtoDAsync_v2_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream) {
        later(d, hStream, line(Place::Address(dstDevice), host(srcHost), ByteCount))
    }
    fn cuMemcpyDtoH_v2 twin cuMemcpyDtoH_v2_ptds (d: DefaultStream; dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize) {
        now(d, line(host(dstHost), Place::Address(srcDevice), ByteCount))
    }
    fn cuMemcpyDtoHAsync_v2 twin cuMemcpyDtoHAsync_v2_ptsz (d: DefaultStream; dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        later(d, hStream, line(host(dstHost), Place::Address(srcDevice), ByteCount))
    }
    fn cuMemcpyDtoD_v2 twin cuMemcpyDtoD_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) {
        now(d, line(Place::Address(dstDevice), Place::Address(srcDevice), ByteCount))
    }
    fn cuMemcpyDtoDAsync_v2 twin cuMemcpyDtoDAsync_v2_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        later(d, hStream, line(Place::Address(dstDevice), Place::Address(srcDevice), ByteCount))
    }
    fn cuMemcpyPeer twin cuMemcpyPeer_ptds (d: DefaultStream; dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) {
        contexts(dstContext, srcContext)?;
        now(d, line(Place::Address(dstDevice), Place::Address(srcDevice), ByteCount))
    }
    fn cuMemcpyPeerAsync twin cuMemcpyPeerAsync_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream) {
        contexts(dstContext, srcContext)?;
        later(d, hStream, line(Place::Address(dstDevice), Place::Address(srcDevice), ByteCount))
    }
    fn cuMemcpyDtoA_v2 twin cuMemcpyDtoA_v2_ptds (d: DefaultStream; dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) {
        now(d, line(array(dstArray), Place::Address(srcDevice), ByteCount).shifted(dstOffset as u64, 0))
    }
    fn cuMemcpyAtoD_v2 twin cuMemcpyAtoD_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        now(d, line(Place::Address(dstDevice), array(srcArray), ByteCount).shifted(0, srcOffset as u64))
    }
    fn cuMemcpyHtoA_v2 twin cuMemcpyHtoA_v2_ptds (d: DefaultStream; dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize) {
        now(d, line(array(dstArray), host(srcHost), ByteCount).shifted(dstOffset as u64, 0))
    }
    fn cuMemcpyHtoAAsync_v2 twin cuMemcpyHtoAAsync_v2_ptsz (d: DefaultStream; dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize, hStream: CUstream) {
        later(d, hStream, line(array(dstArray), host(srcHost), ByteCount).shifted(dstOffset as u64, 0))
    }
    fn cuMemcpyAtoH_v2 twin cuMemcpyAtoH_v2_ptds (d: DefaultStream; dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        now(d, line(host(dstHost), array(srcArray), ByteCount).shifted(0, srcOffset as u64))
    }
    fn cuMemcpyAtoHAsync_v2 twin cuMemcpyAtoHAsync_v2_ptsz (d: DefaultStream; dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream) {
        later(d, hStream, line(host(dstHost), array(srcArray), ByteCount).shifted(0, srcOffset as u64))
    }
    fn cuMemcpyAtoA_v2 twin cuMemcpyAtoA_v2_ptds (d: DefaultStream; dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        now(d, line(array(dstArray), array(srcArray), ByteCount).shifted(dstOffset as u64, srcOffset as u64))
    }
    fn cuMemcpy2D_v2 twin cuMemcpy2D_v2_ptds (d: DefaultStream; pCopy: *const CUDA_MEMCPY2D_v2) {
        now(d, Transfer::from_2d(&input(pCopy)?)?)
    }
    /// Alignment makes no difference here.
    fn cuMemcpy2DUnaligned_v2 twin cuMemcpy2DUnaligned_v2_ptds (d: DefaultStream; pCopy: *const CUDA_MEMCPY2D_v2) {
        now(d, Transfer::from_2d(&input(pCopy)?)?)
    }
    fn cuMemcpy2DAsync_v2 twin cuMemcpy2DAsync_v2_ptsz (d: DefaultStream; pCopy: *const CUDA_MEMCPY2D_v2, hStream: CUstream) {
        later(d, hStream, Transfer::from_2d(&input(pCopy)?)?)
    }
    fn cuMemcpy3D_v2 twin cuMemcpy3D_v2_ptds (d: DefaultStream; pCopy: *const CUDA_MEMCPY3D_v2) {
        now(d, Transfer::from_3d(&input(pCopy)?)?)
    }
    fn cuMemcpy3DAsync_v2 twin cuMemcpy3DAsync_v2_ptsz (d: DefaultStream; pCopy: *const CUDA_MEMCPY3D_v2, hStream: CUstream) {
        later(d, hStream, Transfer::from_3d(&input(pCopy)?)?)
    }
    fn cuMemcpy3DPeer twin cuMemcpy3DPeer_ptds (d: DefaultStream; pCopy: *const CUDA_MEMCPY3D_PEER_v1) {
        let copy = input(pCopy)?;
        contexts(copy.dstContext, copy.srcContext)?;
        now(d, Transfer::from_3d_peer(&copy)?)
    }
    fn cuMemcpy3DPeerAsync twin cuMemcpy3DPeerAsync_ptsz (d: DefaultStream; pCopy: *const CUDA_MEMCPY3D_PEER_v1, hStream: CUstream) {
        let copy = input(pCopy)?;
        contexts(copy.dstContext, copy.srcContext)?;
        later(d, hStream, Transfer::from_3d_peer(&copy)?)
    }
}

/// A place the caller calls host memory; under unified addressing it may be any.
pub(super) fn host(at: *const c_void) -> Place {
    Place::unified(at.expose_provenance() as u64)
}

fn array(handle: CUarray) -> Place {
    Place::Array(handle.0.addr())
}

pub(super) fn line(dst: Place, src: Place, bytes: usize) -> Transfer {
    Transfer::linear(dst, src, bytes as u64)
}

/// Both contexts of a copy between contexts must exist.
fn contexts(dst: CUcontext, src: CUcontext) -> Result {
    context::lookup(dst)?.check()?;
    context::lookup(src)?.check()
}

pub(super) fn now(default: DefaultStream, transfer: Transfer) -> Result {
    transfer.now(&context::current()?, default)
}

pub(super) fn later(default: DefaultStream, stream: CUstream, transfer: Transfer) -> Result {
    transfer.later(&context::current()?, stream, default)
}
