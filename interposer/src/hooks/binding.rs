//! Bindings: physical memory held by multicast objects and logical endpoints.
//!
//! # Safety
//! The driver is called with the program's own arguments.
#![allow(unsafe_code, reason = "calls the driver with the program's arguments")]

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUdevice, CUdeviceptr, CUlogicalEndpointId, CUmemGenericAllocationHandle, CUresult,
};

use crate::entry::hooks;
use crate::holdings::objects::physical::Place;
use crate::hooks::vmm::{physical, settle};

hooks! {
    fn cuMulticastBindMem(
        mc: CUmemGenericAllocationHandle, mc_offset: usize, mem: CUmemGenericAllocationHandle, mem_offset: usize,
        size: usize, flags: u64,
    ) -> CUresult = bind_mem;
    fn cuMulticastBindMem_v2(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, mem: CUmemGenericAllocationHandle,
        mem_offset: usize, size: usize, flags: u64,
    ) -> CUresult = bind_mem_v2;
    fn cuMulticastBindAddr(
        mc: CUmemGenericAllocationHandle, mc_offset: usize, ptr: CUdeviceptr, size: usize, flags: u64,
    ) -> CUresult = bind_addr;
    fn cuMulticastBindAddr_v2(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, ptr: CUdeviceptr, size: usize, flags: u64,
    ) -> CUresult = bind_addr_v2;
    fn cuMulticastUnbind(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, size: usize,
    ) -> CUresult = unbind;
    fn cuLogicalEndpointBindMem(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, mem: CUmemGenericAllocationHandle, mem_offset: u64,
        size: u64, flags: u64,
    ) -> CUresult = endpoint_bind_mem;
    fn cuLogicalEndpointBindAddr(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, ptr: *mut c_void, size: u64, flags: u64,
    ) -> CUresult = endpoint_bind_addr;
    fn cuLogicalEndpointUnbind(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, size: u64,
    ) -> CUresult = endpoint_unbind;
    fn cuLogicalEndpointDestroy(endpoint: CUlogicalEndpointId) -> CUresult = endpoint_destroy;
}

/// Bindings made without naming a device: it is the memory's own.
const UNNAMED: CUdevice = -1;

fn noted(answer: CUresult, note: impl FnOnce()) -> CUresult {
    if answer.is_success() {
        note();
    }
    answer
}

fn bind_mem(
    real: cuMulticastBindMem,
    mc: CUmemGenericAllocationHandle,
    mc_offset: usize,
    mem: CUmemGenericAllocationHandle,
    mem_offset: usize,
    size: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(mc, mc_offset, mem, mem_offset, size, flags) };
    let place = Place::Multicast(mc, UNNAMED, mc_offset as u64);
    noted(answer, || {
        physical().held_by_handle(mem, place, size as u64)
    })
}

fn bind_mem_v2(
    real: cuMulticastBindMem_v2,
    mc: CUmemGenericAllocationHandle,
    dev: CUdevice,
    mc_offset: usize,
    mem: CUmemGenericAllocationHandle,
    mem_offset: usize,
    size: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(mc, dev, mc_offset, mem, mem_offset, size, flags) };
    let place = Place::Multicast(mc, dev, mc_offset as u64);
    noted(answer, || {
        physical().held_by_handle(mem, place, size as u64)
    })
}

fn bind_addr(
    real: cuMulticastBindAddr,
    mc: CUmemGenericAllocationHandle,
    mc_offset: usize,
    ptr: CUdeviceptr,
    size: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(mc, mc_offset, ptr, size, flags) };
    let place = Place::Multicast(mc, UNNAMED, mc_offset as u64);
    noted(answer, || {
        physical().held_by_address(ptr, place, size as u64)
    })
}

fn bind_addr_v2(
    real: cuMulticastBindAddr_v2,
    mc: CUmemGenericAllocationHandle,
    dev: CUdevice,
    mc_offset: usize,
    ptr: CUdeviceptr,
    size: usize,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(mc, dev, mc_offset, ptr, size, flags) };
    let place = Place::Multicast(mc, dev, mc_offset as u64);
    noted(answer, || {
        physical().held_by_address(ptr, place, size as u64)
    })
}

fn unbind(
    real: cuMulticastUnbind,
    mc: CUmemGenericAllocationHandle,
    dev: CUdevice,
    mc_offset: usize,
    size: usize,
) -> CUresult {
    let (from, to) = (
        mc_offset as u64,
        (mc_offset as u64).saturating_add(size as u64),
    );
    let holds = [dev, UNNAMED].map(|dev| {
        let (from, to) = (
            Place::Multicast(mc, dev, from),
            Place::Multicast(mc, dev, to),
        );
        physical().undoing(from, to)
    });
    // SAFETY: the program's arguments.
    let answer = unsafe { real(mc, dev, mc_offset, size) };
    holds
        .into_iter()
        .for_each(|holds| settle(holds, answer.is_success()));
    answer
}

/// A multicast object is gone, and its bindings with it.
pub(super) fn multicast_gone(mc: CUmemGenericAllocationHandle) {
    let holds = physical().undoing(
        Place::Multicast(mc, CUdevice::MIN, 0),
        Place::Multicast(mc, CUdevice::MAX, u64::MAX),
    );
    settle(holds, true);
}

fn endpoint_bind_mem(
    real: cuLogicalEndpointBindMem,
    endpoint: CUlogicalEndpointId,
    dev: CUdevice,
    offset: u64,
    mem: CUmemGenericAllocationHandle,
    mem_offset: u64,
    size: u64,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(endpoint, dev, offset, mem, mem_offset, size, flags) };
    noted(answer, || {
        physical().held_by_handle(mem, Place::Endpoint(endpoint, dev, offset), size)
    })
}

fn endpoint_bind_addr(
    real: cuLogicalEndpointBindAddr,
    endpoint: CUlogicalEndpointId,
    dev: CUdevice,
    offset: u64,
    ptr: *mut c_void,
    size: u64,
    flags: u64,
) -> CUresult {
    // SAFETY: the program's arguments.
    let answer = unsafe { real(endpoint, dev, offset, ptr, size, flags) };
    let address = ptr.expose_provenance() as u64;
    noted(answer, || {
        physical().held_by_address(address, Place::Endpoint(endpoint, dev, offset), size)
    })
}

fn endpoint_unbind(
    real: cuLogicalEndpointUnbind,
    endpoint: CUlogicalEndpointId,
    dev: CUdevice,
    offset: u64,
    size: u64,
) -> CUresult {
    let (from, to) = (
        Place::Endpoint(endpoint, dev, offset),
        Place::Endpoint(endpoint, dev, offset.saturating_add(size)),
    );
    let holds = physical().undoing(from, to);
    // SAFETY: the program's arguments.
    let answer = unsafe { real(endpoint, dev, offset, size) };
    settle(holds, answer.is_success());
    answer
}

fn endpoint_destroy(real: cuLogicalEndpointDestroy, endpoint: CUlogicalEndpointId) -> CUresult {
    let (from, to) = (
        Place::Endpoint(endpoint, CUdevice::MIN, 0),
        Place::Endpoint(endpoint, CUdevice::MAX, u64::MAX),
    );
    let holds = physical().undoing(from, to);
    // SAFETY: the program's argument.
    let answer = unsafe { real(endpoint) };
    settle(holds, answer.is_success());
    answer
}
