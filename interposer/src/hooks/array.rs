//! Arrays and mipmapped arrays: charged by their layout. The driver reports the size of arrays with
//! deferred mapping alone (cuda.h, `cuArrayGetMemoryRequirements`): to ask it for another is an
//! error, which the program's tools would show as its own.
//!
//! Sparse arrays and arrays with deferred mapping own no memory: memory mapped into them was
//! charged when it was created. They are known, so that it is let go when their context ends.

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUmipmappedArray, CUresult,
};

use crate::account::{self, Units};
use crate::driver::contexts::{self, ContextId, Here};
use crate::entry::args::{In, Out, Plain};
use crate::entry::hooks;
use crate::holdings::objects::physical::Holds;
use crate::holdings::objects::{self, ARRAYS, MIPMAPS, Map, Object};
use crate::hooks::array_size::{Shape, bytes_of, is_mapped_into};

use super::early::Call;
use super::{allocate, array_refusal, vmm};

hooks! {
    fn cuArrayCreate(array: Out<'_, CUarray>, descriptor: In<'_, CUDA_ARRAY_DESCRIPTOR_v1>) -> CUresult
        = |call| create(array, descriptor, call);
    fn cuArrayCreate_v2(array: Out<'_, CUarray>, descriptor: In<'_, CUDA_ARRAY_DESCRIPTOR>) -> CUresult
        = |call| create(array, descriptor, call);
    fn cuArray3DCreate(array: Out<'_, CUarray>, descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR_v1>) -> CUresult
        = |call| create(array, descriptor, call);
    fn cuArray3DCreate_v2(array: Out<'_, CUarray>, descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR>) -> CUresult
        = |call| create(array, descriptor, call);
    fn cuArrayDestroy(array: CUarray) -> CUresult = |call| gone(&ARRAYS, array.0, call);
    fn cuMipmappedArrayCreate(
        array: Out<'_, CUmipmappedArray>, descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR>, levels: u32,
    ) -> CUresult = |call| create_mipmap(array, descriptor, levels, call);
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray) -> CUresult = |call| gone(&MIPMAPS, array.0, call);
}

fn create<D: Plain>(
    array: Out<'_, CUarray>,
    descriptor: In<'_, D>,
    ask: impl Fn() -> CUresult,
) -> CUresult
where
    Shape: for<'a> From<&'a D>,
{
    if array.is_null() {
        return ask();
    }
    let handle = || array.read_back().map(|array| array.0);
    book(&ARRAYS, descriptor, 1, ask, handle)
}

fn create_mipmap(
    array: Out<'_, CUmipmappedArray>,
    descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR>,
    levels: u32,
    ask: impl Fn() -> CUresult,
) -> CUresult {
    if array.is_null() {
        return ask();
    }
    let handle = || array.read_back().map(|array| array.0);
    book(&MIPMAPS, descriptor, levels, ask, handle)
}

fn book<D: Plain>(
    map: &Map<Object>,
    descriptor: In<'_, D>,
    levels: u32,
    ask: impl Fn() -> CUresult,
    handle: impl FnOnce() -> Option<*mut c_void>,
) -> CUresult
where
    Shape: for<'a> From<&'a D>,
{
    let shape = descriptor.read().as_ref().map(Shape::from);
    // Nothing to charge: calls that the driver will refuse, and arrays that own no memory.
    let sized = shape.and_then(|shape| Some((shape, bytes_of(shape, levels)?)));
    let Some((shape, bytes)) = sized else {
        let answer = ask();
        if answer.is_success() && shape.is_some_and(is_mapped_into) {
            note(map, contexts::here(), handle(), Units(0));
        }
        return answer;
    };
    let refusal = |device| array_refusal::refused(shape, device);
    allocate::booked(bytes, Call::Other, refusal, ask, |here, charge| {
        let handle = handle();
        if handle.is_some() {
            note(map, Some(here), handle, charge.keep());
        }
        CUresult::SUCCESS
    })
}

/// An array has been made in the context `here`.
fn note(map: &Map<Object>, here: Option<Here>, handle: Option<*mut c_void>, units: Units) {
    let (Some(here), Some(handle)) = (here, handle) else {
        return;
    };
    let object = Object {
        device: here.device,
        context: here.context,
        units,
    };
    if let Some(stale) = map.insert(handle.expose_provenance() as u64, object) {
        account::release(stale.device, stale.units);
    }
}

/// A context may end now: what is mapped into its arrays, to be settled after it.
pub(super) fn ending(context: ContextId) -> Vec<Holds> {
    let arrays = objects::mapped_into(context);
    arrays.into_iter().map(vmm::unmapping_tiles).collect()
}

fn gone(map: &Map<Object>, handle: *mut c_void, ask: impl Fn() -> CUresult) -> CUresult {
    let handle = handle.expose_provenance() as u64;
    let object = map.take(handle);
    let tiles = vmm::unmapping_tiles(handle);
    let answer = ask();
    vmm::settle(tiles, answer.is_success());
    match object {
        Some(object) if answer.is_success() => account::release(object.device, object.units),
        Some(object) => objects::put_back(map, handle, object),
        None => {}
    }
    answer
}
