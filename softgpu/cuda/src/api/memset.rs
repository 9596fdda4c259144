//! Memsets. All but those of host memory return before the bytes are written.

use gpushare_cuda_abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUstream};
use softgpu::exec::DefaultStream;
use softgpu::memory::Fill;
use softgpu::{Result, context, exec};

driver! {
    fn cuMemsetD8_v2 twin cuMemsetD8_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, uc: u8, N: usize) {
        now(d, line(dstDevice, u32::from(uc), 1, N))
    }
    fn cuMemsetD16_v2 twin cuMemsetD16_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, us: u16, N: usize) {
        now(d, line(dstDevice, u32::from(us), 2, N))
    }
    fn cuMemsetD32_v2 twin cuMemsetD32_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, ui: u32, N: usize) {
        now(d, line(dstDevice, ui, 4, N))
    }
    fn cuMemsetD2D8_v2 twin cuMemsetD2D8_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize) {
        now(d, rows(dstDevice, dstPitch, u32::from(uc), 1, Width, Height))
    }
    fn cuMemsetD2D16_v2 twin cuMemsetD2D16_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize) {
        now(d, rows(dstDevice, dstPitch, u32::from(us), 2, Width, Height))
    }
    fn cuMemsetD2D32_v2 twin cuMemsetD2D32_v2_ptds (d: DefaultStream; dstDevice: CUdeviceptr, dstPitch: usize, ui: u32, Width: usize, Height: usize) {
        now(d, rows(dstDevice, dstPitch, ui, 4, Width, Height))
    }
    fn cuMemsetD8Async twin cuMemsetD8Async_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, uc: u8, N: usize, hStream: CUstream) {
        later(d, hStream, line(dstDevice, u32::from(uc), 1, N))
    }
    fn cuMemsetD16Async twin cuMemsetD16Async_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream) {
        later(d, hStream, line(dstDevice, u32::from(us), 2, N))
    }
    fn cuMemsetD32Async twin cuMemsetD32Async_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, ui: u32, N: usize, hStream: CUstream) {
        later(d, hStream, line(dstDevice, ui, 4, N))
    }
    fn cuMemsetD2D8Async twin cuMemsetD2D8Async_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: CUstream) {
        later(d, hStream, rows(dstDevice, dstPitch, u32::from(uc), 1, Width, Height))
    }
    fn cuMemsetD2D16Async twin cuMemsetD2D16Async_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: CUstream) {
        later(d, hStream, rows(dstDevice, dstPitch, u32::from(us), 2, Width, Height))
    }
    fn cuMemsetD2D32Async twin cuMemsetD2D32Async_ptsz (d: DefaultStream; dstDevice: CUdeviceptr, dstPitch: usize, ui: u32, Width: usize, Height: usize, hStream: CUstream) {
        later(d, hStream, rows(dstDevice, dstPitch, ui, 4, Width, Height))
    }
    fn cuMemsetD8(dstDevice: CUdeviceptr_v1, uc: u8, N: u32) { legacy(dstDevice, 0, u32::from(uc), 1, N, 1) }
    fn cuMemsetD16(dstDevice: CUdeviceptr_v1, us: u16, N: u32) { legacy(dstDevice, 0, u32::from(us), 2, N, 1) }
    fn cuMemsetD32(dstDevice: CUdeviceptr_v1, ui: u32, N: u32) { legacy(dstDevice, 0, ui, 4, N, 1) }
    fn cuMemsetD2D8(dstDevice: CUdeviceptr_v1, dstPitch: u32, uc: u8, Width: u32, Height: u32) {
        legacy(dstDevice, dstPitch, u32::from(uc), 1, Width, Height)
    }
    fn cuMemsetD2D16(dstDevice: CUdeviceptr_v1, dstPitch: u32, us: u16, Width: u32, Height: u32) {
        legacy(dstDevice, dstPitch, u32::from(us), 2, Width, Height)
    }
    fn cuMemsetD2D32(dstDevice: CUdeviceptr_v1, dstPitch: u32, ui: u32, Width: u32, Height: u32) {
        legacy(dstDevice, dstPitch, ui, 4, Width, Height)
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
    let context = context::current()?;
    exec::capture_forbids()?;
    fill.issue(&context, CUstream::NULL, default)
}

fn later(default: DefaultStream, stream: CUstream, fill: Fill) -> Result {
    fill.issue(&context::current()?, stream, default)
}
