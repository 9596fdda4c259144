//! Which device's copies and memsets reach memory: plain memory any device's; a mapping and a
//! pool's memory by the devices' rights.
#![allow(unsafe_code, reason = "zeroed C structures")]

use std::mem::zeroed;

use crate::driver::*;
use gpushare_cuda_abi::cuda::*;

const BYTES: usize = 2 << 20;
const REFUSED: CUresult = CUresult::INVALID_VALUE;
const BOTH: CUmemAccess_flags = CUmemAccess_flags::READWRITE;

fn place(device: CUdevice) -> CUmemLocation {
    // SAFETY: zeros are a valid value of this C structure.
    let mut place: CUmemLocation = unsafe { zeroed() };
    place.type_ = CUmemLocationType::DEVICE;
    place.id = device;
    place
}

pub(crate) fn right(device: CUdevice, flags: CUmemAccess_flags) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: place(device),
        flags,
    }
}

fn allow(at: CUdeviceptr, device: CUdevice, flags: CUmemAccess_flags) {
    let list = [right(device, flags)];
    assert_eq!(cuMemSetAccess(at, BYTES, list.as_ptr(), 1), OK);
}

/// The properties of plain memory of a device.
pub(crate) fn properties(device: CUdevice) -> CUmemAllocationProp {
    // SAFETY: zeros are a valid value of this C structure.
    let mut prop: CUmemAllocationProp = unsafe { zeroed() };
    prop.type_ = CUmemAllocationType::PINNED;
    prop.location = place(device);
    prop
}

/// Memory of a device that this device alone may access.
fn mapped(device: CUdevice) -> CUdeviceptr {
    let prop = properties(device);
    let memory = get(0, |out| cuMemCreate(out, BYTES, &raw const prop, 0));
    let at = get(0, |out| cuMemAddressReserve(out, BYTES, 0, 0, 0));
    assert_eq!(cuMemMap(at, BYTES, 0, memory, 0), OK);
    allow(at, device, BOTH);
    at
}

/// The primary contexts of both devices. That of the second is current.
fn two() -> [CUcontext; 2] {
    start();
    let context = |device| get(CUcontext::NULL, |out| cuDevicePrimaryCtxRetain(out, device));
    let both = [context(0), context(1)];
    assert_eq!(cuCtxSetCurrent(both[1]), OK);
    both
}

/// The answers to a memset, copies of both directions to the host, and those from and to `other`.
fn answers(at: CUdeviceptr, other: CUdeviceptr) -> [CUresult; 5] {
    let mut word = [0_u32];
    let stream = free_stream();
    let answers = [
        cuMemsetD32_v2(at, 7, 1),
        cuMemcpyHtoD_v2(at, word.as_ptr().cast(), 4),
        cuMemcpyDtoH_v2(word.as_mut_ptr().cast(), at, 4),
        cuMemcpyDtoDAsync_v2(other, at, 4, stream),
        cuMemcpyDtoDAsync_v2(at, other, 4, stream),
    ];
    assert_eq!(cuCtxSynchronize(), OK);
    answers
}

#[test]
fn a_mapping_is_reached_by_the_devices_that_may() {
    let name = "a_mapping_is_reached_by_the_devices_that_may";
    alone(name, "count=2", || {
        let _both = two();
        let (there, here, plain) = (mapped(0), mapped(1), memory(BYTES));
        assert_eq!(answers(here, plain), [OK; 5]);
        assert_eq!(answers(there, here), [REFUSED; 5]);
        assert_eq!(answers(there, plain), [REFUSED; 5]);
        allow(there, 1, CUmemAccess_flags::READ);
        assert_eq!(answers(there, here), [REFUSED, REFUSED, OK, OK, REFUSED]);
        allow(there, 1, BOTH);
        assert_eq!(answers(there, here), [OK; 5]);
    });
}

#[test]
fn plain_memory_is_reached_by_every_device() {
    alone("plain_memory_is_reached_by_every_device", "count=2", || {
        let both = two();
        let here = memory(BYTES);
        assert_eq!(cuCtxSetCurrent(both[0]), OK);
        assert_eq!(answers(here, memory(BYTES)), [OK; 5]);
    });
}

#[test]
fn a_pools_memory_is_reached_by_the_devices_that_may() {
    let name = "a_pools_memory_is_reached_by_the_devices_that_may";
    alone(name, "count=2", || {
        let both = two();
        let here = memory(BYTES);
        assert_eq!(cuCtxSetCurrent(both[0]), OK);
        let there = get(0, |out| cuMemAllocAsync(out, BYTES, CUstream::NULL));
        assert_eq!(answers(there, here), [OK; 5]);
        assert_eq!(cuCtxSetCurrent(both[1]), OK);
        assert_eq!(answers(there, here), [REFUSED; 5]);
        let pool = get(CUmemoryPool::NULL, |out| cuDeviceGetDefaultMemPool(out, 0));
        let list = [right(1, BOTH)];
        assert_eq!(cuMemPoolSetAccess(pool, list.as_ptr(), 1), OK);
        assert_eq!(answers(there, here), [OK; 5]);
    });
}

#[test]
fn a_copy_between_contexts_needs_the_rights_of_each_ones_device() {
    let name = "a_copy_between_contexts_needs_the_rights_of_each_ones_device";
    alone(name, "count=2", || {
        let [a, b] = two();
        let (there, here) = (mapped(0), mapped(1));
        let copy = |to, from| cuMemcpyPeerAsync(here, to, there, from, 4096, CUstream::NULL);
        assert_eq!(copy(b, a), OK);
        assert_eq!(copy(b, b), REFUSED);
        assert_eq!(copy(a, a), REFUSED);
        // SAFETY: zeros are a valid value of this C structure.
        let mut rows: CUDA_MEMCPY3D_PEER_v1 = unsafe { zeroed() };
        (rows.srcMemoryType, rows.srcDevice) = (CUmemorytype::DEVICE, there);
        (rows.dstMemoryType, rows.dstDevice) = (CUmemorytype::DEVICE, here);
        (rows.WidthInBytes, rows.Height, rows.Depth) = (64, 2, 1);
        (rows.srcPitch, rows.dstPitch) = (64, 128);
        (rows.srcContext, rows.dstContext) = (a, b);
        assert_eq!(cuMemcpy3DPeerAsync(&raw const rows, CUstream::NULL), OK);
        rows.srcContext = CUcontext::NULL;
        assert_eq!(
            cuMemcpy3DPeerAsync(&raw const rows, CUstream::NULL),
            REFUSED
        );
        assert_eq!(cuCtxSynchronize(), OK);
    });
}

#[test]
fn a_right_that_is_taken_before_the_copy_runs_is_a_fault() {
    let name = "a_right_that_is_taken_before_the_copy_runs_is_a_fault";
    alone(name, "count=2", || {
        let _both = two();
        let (there, here, stream) = (mapped(0), mapped(1), free_stream());
        allow(there, 1, BOTH);
        let gate = Gate::close(stream);
        assert_eq!(cuMemcpyDtoDAsync_v2(here, there, 4096, stream), OK);
        allow(there, 1, CUmemAccess_flags::NONE);
        gate.open();
        assert_eq!(cuStreamSynchronize(stream), CUresult::ILLEGAL_ADDRESS);
    });
}
