//! Bindings: physical memory held by multicast objects and logical endpoints.

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUdevice, CUdeviceptr, CUlogicalEndpointId, CUmemGenericAllocationHandle, CUresult,
};

use crate::driver::device;
use crate::entry::hooks;
use crate::holdings::objects::physical::{Binding, UNNAMED, unnamed};
use crate::hooks::plain;
use crate::hooks::vmm::{held, physical, settle};
use crate::residency::own;

hooks! {
    fn cuMulticastBindMem(
        mc: CUmemGenericAllocationHandle, mc_offset: usize, mem: CUmemGenericAllocationHandle, mem_offset: usize,
        size: usize, flags: u64,
    ) -> CUresult = |real(..)| {
        bound(mem, Binding::Multicast(mc, UNNAMED, mc_offset as u64), size as u64, |mem| {
            real(mc, mc_offset, mem, mem_offset, size, flags)
        })
    };
    fn cuMulticastBindMem_v2(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, mem: CUmemGenericAllocationHandle,
        mem_offset: usize, size: usize, flags: u64,
    ) -> CUresult = |real(..)| {
        bound(mem, Binding::Multicast(mc, dev, mc_offset as u64), size as u64, |mem| {
            real(mc, dev, mc_offset, mem, mem_offset, size, flags)
        })
    };
    fn cuMulticastBindAddr(
        mc: CUmemGenericAllocationHandle, mc_offset: usize, ptr: CUdeviceptr, size: usize, flags: u64,
    ) -> CUresult = |call| bound_by_address(ptr, Binding::Multicast(mc, UNNAMED, mc_offset as u64), size as u64, call);
    fn cuMulticastBindAddr_v2(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, ptr: CUdeviceptr, size: usize, flags: u64,
    ) -> CUresult = |call| bound_by_address(ptr, Binding::Multicast(mc, dev, mc_offset as u64), size as u64, call);
    fn cuMulticastUnbind(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, size: usize,
    ) -> CUresult = |call| unbind(mc, dev, mc_offset as u64, size as u64, call);
    fn cuLogicalEndpointBindMem(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, mem: CUmemGenericAllocationHandle, mem_offset: u64,
        size: u64, flags: u64,
    ) -> CUresult = |real(..)| {
        bound(mem, Binding::Endpoint(endpoint, dev, offset), size, |mem| {
            real(endpoint, dev, offset, mem, mem_offset, size, flags)
        })
    };
    fn cuLogicalEndpointBindAddr(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, ptr: *mut c_void, size: u64, flags: u64,
    ) -> CUresult = |call| {
        let at = ptr.expose_provenance() as u64;
        bound_by_address(at, Binding::Endpoint(endpoint, dev, offset), size, call)
    };
    fn cuLogicalEndpointUnbind(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, size: u64,
    ) -> CUresult = |call| {
        let end = Binding::Endpoint(endpoint, dev, offset.saturating_add(size));
        undoing(Binding::Endpoint(endpoint, dev, offset), end, call)
    };
    fn cuLogicalEndpointDestroy(endpoint: CUlogicalEndpointId) -> CUresult = |call| {
        let first = Binding::Endpoint(endpoint, CUdevice::MIN, 0);
        undoing(first, Binding::Endpoint(endpoint, CUdevice::MAX, u64::MAX), call)
    };
}

/// Makes a call that binds the memory of a handle.
fn bound(
    mem: CUmemGenericAllocationHandle,
    place: Binding,
    size: u64,
    call: impl Fn(CUmemGenericAllocationHandle) -> CUresult,
) -> CUresult {
    let holding = physical().holding(mem);
    held(holding, place, size, || own::with_handle(mem, true, call))
}

/// The same of the memory at an address.
fn bound_by_address(
    ptr: CUdeviceptr,
    place: Binding,
    size: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let holding = physical().holding_at(ptr);
    held(holding, place, size, || {
        plain::not_bound(ptr, size, || own::exporting(ptr, size, call))
    })
}

fn unbind(
    mc: CUmemGenericAllocationHandle,
    dev: CUdevice,
    from: u64,
    size: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let to = from.saturating_add(size);
    let its_own = device::of_ordinal(dev).map(unnamed);
    let holds = [Some(dev), its_own].map(|dev| {
        let dev = dev?;
        let (from, to) = (
            Binding::Multicast(mc, dev, from),
            Binding::Multicast(mc, dev, to),
        );
        Some(physical().undoing(from, to))
    });
    let answer = call();
    holds
        .into_iter()
        .flatten()
        .for_each(|holds| settle(holds, answer.is_success()));
    answer
}

/// Makes a call that undoes the bindings between two places.
fn undoing(from: Binding, to: Binding, call: impl FnOnce() -> CUresult) -> CUresult {
    let holds = physical().undoing(from, to);
    let answer = call();
    settle(holds, answer.is_success());
    answer
}

/// A multicast object is gone, and its bindings with it.
pub(super) fn multicast_gone(mc: CUmemGenericAllocationHandle) {
    let holds = physical().undoing(
        Binding::Multicast(mc, CUdevice::MIN, 0),
        Binding::Multicast(mc, CUdevice::MAX, u64::MAX),
    );
    settle(holds, true);
}
