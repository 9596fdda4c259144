//! Bindings: physical memory held by multicast objects and logical endpoints.

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUdevice, CUdeviceptr, CUlogicalEndpointId, CUmemGenericAllocationHandle,
    CUmulticastObjectProp, CUresult,
};

use crate::driver::device;
use crate::entry::args::Out;
use crate::entry::hooks;
use crate::holdings::objects::physical::{Binding, Holding, InObject, UNNAMED, unnamed};
use crate::hooks::plain;
use crate::hooks::vmm::{credit, held, physical, settle};
use crate::residency::own;

hooks! {
    fn cuMulticastCreate(mc: Out<'_, CUmemGenericAllocationHandle>, prop: *const CUmulticastObjectProp) -> CUresult
        = |call| created(mc, call());
    fn cuMulticastBindMem(
        mc: CUmemGenericAllocationHandle, mc_offset: usize, mem: CUmemGenericAllocationHandle, mem_offset: usize,
        size: usize, flags: u64,
    ) -> CUresult = |real(..)| {
        to_object(holding(mem), (mc, UNNAMED, mc_offset as u64), size as u64, || {
            own::with_handle(mem, true, |mem| real(mc, mc_offset, mem, mem_offset, size, flags))
        })
    };
    fn cuMulticastBindMem_v2(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, mem: CUmemGenericAllocationHandle,
        mem_offset: usize, size: usize, flags: u64,
    ) -> CUresult = |real(..)| {
        to_object(holding(mem), (mc, dev, mc_offset as u64), size as u64, || {
            own::with_handle(mem, true, |mem| real(mc, dev, mc_offset, mem, mem_offset, size, flags))
        })
    };
    fn cuMulticastBindAddr(
        mc: CUmemGenericAllocationHandle, mc_offset: usize, ptr: CUdeviceptr, size: usize, flags: u64,
    ) -> CUresult = |call| {
        to_object(holding_at(ptr), (mc, UNNAMED, mc_offset as u64), size as u64, || by_address(ptr, size as u64, call))
    };
    fn cuMulticastBindAddr_v2(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, ptr: CUdeviceptr, size: usize, flags: u64,
    ) -> CUresult = |call| {
        to_object(holding_at(ptr), (mc, dev, mc_offset as u64), size as u64, || by_address(ptr, size as u64, call))
    };
    fn cuMulticastUnbind(
        mc: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize, size: usize,
    ) -> CUresult = |call| unbind(mc, dev, mc_offset as u64, size as u64, call);
    fn cuLogicalEndpointBindMem(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, mem: CUmemGenericAllocationHandle, mem_offset: u64,
        size: u64, flags: u64,
    ) -> CUresult = |real(..)| {
        held(holding(mem), Binding::Endpoint(endpoint, dev, offset), size, || {
            own::with_handle(mem, true, |mem| real(endpoint, dev, offset, mem, mem_offset, size, flags))
        })
    };
    fn cuLogicalEndpointBindAddr(
        endpoint: CUlogicalEndpointId, dev: CUdevice, offset: u64, ptr: *mut c_void, size: u64, flags: u64,
    ) -> CUresult = |call| {
        let at = ptr.expose_provenance() as u64;
        held(holding_at(at), Binding::Endpoint(endpoint, dev, offset), size, || by_address(at, size, call))
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

/// The memory of a handle, held while it is bound.
fn holding(mem: CUmemGenericAllocationHandle) -> Option<Holding> {
    physical().holding(mem)
}

/// The same of the memory at an address.
fn holding_at(ptr: CUdeviceptr) -> Option<Holding> {
    physical().holding_at(ptr)
}

/// Makes a call that binds the memory at an address.
fn by_address(ptr: CUdeviceptr, size: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    plain::not_bound(ptr, size, || own::exporting(ptr, size, call))
}

fn created(mc: Out<'_, CUmemGenericAllocationHandle>, answer: CUresult) -> CUresult {
    if let Some(mc) = mc.after(answer) {
        physical().object_created(mc);
    }
    answer
}

/// Makes a call that binds memory to a multicast object, which is held meanwhile too: another
/// thread may release it.
fn to_object(
    memory: Option<Holding>,
    place: InObject,
    size: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let object = physical().holding(place.0);
    let answer = call();
    let gone = if answer.is_success() {
        physical().bound(memory, object, place, size)
    } else {
        let mut books = physical();
        let refused = memory.into_iter().chain(object);
        refused
            .flat_map(|holding| books.not_held(holding))
            .collect()
    };
    credit(gone);
    answer
}

fn unbind(
    mc: CUmemGenericAllocationHandle,
    dev: CUdevice,
    from: u64,
    size: u64,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(object) = physical().holding(mc) else {
        return call();
    };
    let range = (from, from.saturating_add(size));
    let its_own = device::of_ordinal(dev).map(unnamed);
    let holds = [Some(dev), its_own].map(|dev| {
        let dev = dev?;
        Some(physical().unbinding(&object, dev, range))
    });
    let answer = call();
    holds
        .into_iter()
        .flatten()
        .for_each(|holds| settle(holds, answer.is_success()));
    let gone = physical().not_held(object);
    credit(gone);
    answer
}

/// Makes a call that undoes the bindings between two places.
fn undoing(from: Binding, to: Binding, call: impl FnOnce() -> CUresult) -> CUresult {
    let holds = physical().undoing(from, to);
    let answer = call();
    settle(holds, answer.is_success());
    answer
}
