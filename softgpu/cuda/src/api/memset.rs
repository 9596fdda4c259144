//! Memsets. A memset of device memory may return before the bytes are written.

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUstream};
use softgpu::exec::{self, DefaultStream};
use softgpu::memory::Fill;
use softgpu::{Result, context};

driver! {
    fn cuMemsetD8_v2 twin cuMemsetD8_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, uc: u8, n: usize) {
        now(d, line(dst_device, u32::from(uc), 1, n))
    }
    fn cuMemsetD16_v2 twin cuMemsetD16_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, us: u16, n: usize) {
        now(d, line(dst_device, u32::from(us), 2, n))
    }
    fn cuMemsetD32_v2 twin cuMemsetD32_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, ui: u32, n: usize) {
        now(d, line(dst_device, ui, 4, n))
    }
    fn cuMemsetD2D8_v2 twin cuMemsetD2D8_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, dst_pitch: usize, uc: u8, width: usize, height: usize) {
        now(d, rows(dst_device, dst_pitch, u32::from(uc), 1, width, height))
    }
    fn cuMemsetD2D16_v2 twin cuMemsetD2D16_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, dst_pitch: usize, us: u16, width: usize, height: usize) {
        now(d, rows(dst_device, dst_pitch, u32::from(us), 2, width, height))
    }
    fn cuMemsetD2D32_v2 twin cuMemsetD2D32_v2_ptds (d: DefaultStream; dst_device: CUdeviceptr, dst_pitch: usize, ui: u32, width: usize, height: usize) {
        now(d, rows(dst_device, dst_pitch, ui, 4, width, height))
    }
    fn cuMemsetD8Async twin cuMemsetD8Async_ptsz (d: DefaultStream; dst_device: CUdeviceptr, uc: u8, n: usize, h_stream: CUstream) {
        later(d, h_stream, line(dst_device, u32::from(uc), 1, n))
    }
    fn cuMemsetD16Async twin cuMemsetD16Async_ptsz (d: DefaultStream; dst_device: CUdeviceptr, us: u16, n: usize, h_stream: CUstream) {
        later(d, h_stream, line(dst_device, u32::from(us), 2, n))
    }
    fn cuMemsetD32Async twin cuMemsetD32Async_ptsz (d: DefaultStream; dst_device: CUdeviceptr, ui: u32, n: usize, h_stream: CUstream) {
        later(d, h_stream, line(dst_device, ui, 4, n))
    }
    fn cuMemsetD2D8Async twin cuMemsetD2D8Async_ptsz (d: DefaultStream; dst_device: CUdeviceptr, dst_pitch: usize, uc: u8, width: usize, height: usize, h_stream: CUstream) {
        later(d, h_stream, rows(dst_device, dst_pitch, u32::from(uc), 1, width, height))
    }
    fn cuMemsetD2D16Async twin cuMemsetD2D16Async_ptsz (d: DefaultStream; dst_device: CUdeviceptr, dst_pitch: usize, us: u16, width: usize, height: usize, h_stream: CUstream) {
        later(d, h_stream, rows(dst_device, dst_pitch, u32::from(us), 2, width, height))
    }
    fn cuMemsetD2D32Async twin cuMemsetD2D32Async_ptsz (d: DefaultStream; dst_device: CUdeviceptr, dst_pitch: usize, ui: u32, width: usize, height: usize, h_stream: CUstream) {
        later(d, h_stream, rows(dst_device, dst_pitch, ui, 4, width, height))
    }
    fn cuMemsetD8(dst_device: CUdeviceptr_v1, uc: u8, n: u32) { legacy(dst_device, 0, u32::from(uc), 1, n, 1) }
    fn cuMemsetD16(dst_device: CUdeviceptr_v1, us: u16, n: u32) { legacy(dst_device, 0, u32::from(us), 2, n, 1) }
    fn cuMemsetD32(dst_device: CUdeviceptr_v1, ui: u32, n: u32) { legacy(dst_device, 0, ui, 4, n, 1) }
    fn cuMemsetD2D8(dst_device: CUdeviceptr_v1, dst_pitch: u32, uc: u8, width: u32, height: u32) {
        legacy(dst_device, dst_pitch, u32::from(uc), 1, width, height)
    }
    fn cuMemsetD2D16(dst_device: CUdeviceptr_v1, dst_pitch: u32, us: u16, width: u32, height: u32) {
        legacy(dst_device, dst_pitch, u32::from(us), 2, width, height)
    }
    fn cuMemsetD2D32(dst_device: CUdeviceptr_v1, dst_pitch: u32, ui: u32, width: u32, height: u32) {
        legacy(dst_device, dst_pitch, ui, 4, width, height)
    }
}

fn line(dst: CUdeviceptr, value: u32, element: u8, width: usize) -> Fill {
    rows(dst, 0, value, element, width, 1)
}

fn rows(
    dst: CUdeviceptr,
    pitch: usize,
    value: u32,
    element: u8,
    width: usize,
    height: usize,
) -> Fill {
    Fill {
        dst,
        pitch: pitch as u64,
        value,
        element,
        width: width as u64,
        height: height as u64,
    }
}

fn legacy(
    dst: CUdeviceptr_v1,
    pitch: u32,
    value: u32,
    element: u8,
    width: u32,
    height: u32,
) -> Result {
    let (pitch, width, height) = (u64::from(pitch), u64::from(width), u64::from(height));
    now(
        DefaultStream::Legacy,
        Fill {
            dst: u64::from(dst),
            pitch,
            value,
            element,
            width,
            height,
        },
    )
}

fn now(default: DefaultStream, fill: Fill) -> Result {
    fill.issue(&context::current()?, CUstream::NULL, default)
}

fn later(default: DefaultStream, stream: CUstream, fill: Fill) -> Result {
    fill.issue(&exec::context_for(stream)?, stream, default)
}
