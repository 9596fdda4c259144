//! Copies of CUDA 2's interface with 32-bit addresses and sizes.

use std::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUDA_MEMCPY2D_v1, CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_v1, CUDA_MEMCPY3D_v2, CUarray,
    CUdeviceptr_v1, CUstream,
};
use softgpu::exec::DefaultStream::Legacy;
use softgpu::memory::{Place, Transfer};

use super::copy::{array, host, later, line, now};
use crate::abi::input;

driver! {
    fn cuMemcpyHtoD(dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: u32) {
        now(Legacy, line(device(dst_device), host(src_host), byte_count as usize))
    }
    fn cuMemcpyDtoH(dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: u32) {
        now(Legacy, line(host(dst_host), device(src_device), byte_count as usize))
    }
    fn cuMemcpyDtoD(dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: u32) {
        now(Legacy, line(device(dst_device), device(src_device), byte_count as usize))
    }
    fn cuMemcpyHtoDAsync(dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: u32, stream: CUstream) {
        later(Legacy, stream, line(device(dst_device), host(src_host), byte_count as usize))
    }
    fn cuMemcpyDtoHAsync(dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: u32, stream: CUstream) {
        later(Legacy, stream, line(host(dst_host), device(src_device), byte_count as usize))
    }
    fn cuMemcpyDtoDAsync(dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: u32, stream: CUstream) {
        later(Legacy, stream, line(device(dst_device), device(src_device), byte_count as usize))
    }
    fn cuMemcpyDtoA(dst_array: CUarray, dst_offset: u32, src_device: CUdeviceptr_v1, byte_count: u32) {
        now(Legacy, line(array(dst_array), device(src_device), byte_count as usize).shifted(dst_offset.into(), 0))
    }
    fn cuMemcpyAtoD(dst_device: CUdeviceptr_v1, src_array: CUarray, src_offset: u32, byte_count: u32) {
        now(Legacy, line(device(dst_device), array(src_array), byte_count as usize).shifted(0, src_offset.into()))
    }
    fn cuMemcpyHtoA(dst_array: CUarray, dst_offset: u32, src_host: *const c_void, byte_count: u32) {
        now(Legacy, line(array(dst_array), host(src_host), byte_count as usize).shifted(dst_offset.into(), 0))
    }
    fn cuMemcpyHtoAAsync(dst_array: CUarray, dst_offset: u32, src_host: *const c_void, byte_count: u32, stream: CUstream) {
        later(Legacy, stream, line(array(dst_array), host(src_host), byte_count as usize).shifted(dst_offset.into(), 0))
    }
    fn cuMemcpyAtoH(dst_host: *mut c_void, src_array: CUarray, src_offset: u32, byte_count: u32) {
        now(Legacy, line(host(dst_host), array(src_array), byte_count as usize).shifted(0, src_offset.into()))
    }
    fn cuMemcpyAtoHAsync(dst_host: *mut c_void, src_array: CUarray, src_offset: u32, byte_count: u32, stream: CUstream) {
        later(Legacy, stream, line(host(dst_host), array(src_array), byte_count as usize).shifted(0, src_offset.into()))
    }
    fn cuMemcpyAtoA(dst_array: CUarray, dst_offset: u32, src_array: CUarray, src_offset: u32, byte_count: u32) {
        let copy = line(array(dst_array), array(src_array), byte_count as usize);
        now(Legacy, copy.shifted(dst_offset.into(), src_offset.into()))
    }
    fn cuMemcpy2D(copy: *const CUDA_MEMCPY2D_v1) { now(Legacy, Transfer::from_2d(&wide_2d(&input(copy)?))?) }
    fn cuMemcpy2DUnaligned(copy: *const CUDA_MEMCPY2D_v1) { now(Legacy, Transfer::from_2d(&wide_2d(&input(copy)?))?) }
    fn cuMemcpy2DAsync(copy: *const CUDA_MEMCPY2D_v1, stream: CUstream) {
        later(Legacy, stream, Transfer::from_2d(&wide_2d(&input(copy)?))?)
    }
    fn cuMemcpy3D(copy: *const CUDA_MEMCPY3D_v1) { now(Legacy, Transfer::from_3d(&wide_3d(&input(copy)?))?) }
    fn cuMemcpy3DAsync(copy: *const CUDA_MEMCPY3D_v1, stream: CUstream) {
        later(Legacy, stream, Transfer::from_3d(&wide_3d(&input(copy)?))?)
    }
}

fn device(address: CUdeviceptr_v1) -> Place {
    Place::Address(address.into())
}

fn wide_2d(copy: &CUDA_MEMCPY2D_v1) -> CUDA_MEMCPY2D_v2 {
    CUDA_MEMCPY2D_v2 {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice.into(),
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice.into(),
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
    }
}

fn wide_3d(copy: &CUDA_MEMCPY3D_v1) -> CUDA_MEMCPY3D_v2 {
    CUDA_MEMCPY3D_v2 {
        srcXInBytes: copy.srcXInBytes as usize,
        srcY: copy.srcY as usize,
        srcZ: copy.srcZ as usize,
        srcLOD: copy.srcLOD as usize,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice.into(),
        srcArray: copy.srcArray,
        reserved0: copy.reserved0,
        srcPitch: copy.srcPitch as usize,
        srcHeight: copy.srcHeight as usize,
        dstXInBytes: copy.dstXInBytes as usize,
        dstY: copy.dstY as usize,
        dstZ: copy.dstZ as usize,
        dstLOD: copy.dstLOD as usize,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice.into(),
        dstArray: copy.dstArray,
        reserved1: copy.reserved1,
        dstPitch: copy.dstPitch as usize,
        dstHeight: copy.dstHeight as usize,
        WidthInBytes: copy.WidthInBytes as usize,
        Height: copy.Height as usize,
        Depth: copy.Depth as usize,
    }
}
