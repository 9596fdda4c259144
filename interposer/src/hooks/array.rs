//! Arrays and mipmapped arrays: charged by their layout, corrected by what the driver says it took.
//!
//! Sparse arrays and arrays with deferred mapping own no memory: what is mapped into them was charged when it was created.
//!
//! # Safety
//! The driver is called with the program's own arguments; a descriptor is read where the driver would read it, a handle after the
//! driver has said that it wrote it.
#![allow(
    unsafe_code,
    reason = "calls the driver and reads through the program's pointers"
)]

use core::ffi::c_void;

use gpushare_cuda_abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUmipmappedArray, CUresult,
};

use crate::account;
use crate::driver::calls;
use crate::driver::captures::unnoticed;
use crate::driver::device::{self, DeviceKey};
use crate::entry::hooks;
use crate::holdings::objects::{ARRAYS, MIPMAPS, Map, Object};
use crate::hooks::array_size::{Shape, bytes_of};

use super::{allocate, array_refusal, vmm};

hooks! {
    fn cuArrayCreate(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1) -> CUresult = create_v1;
    fn cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) -> CUresult = create;
    fn cuArray3DCreate(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> CUresult = create_3d_v1;
    fn cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult = create_3d;
    fn cuArrayDestroy(array: CUarray) -> CUresult = destroy;
    fn cuMipmappedArrayCreate(
        array: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: u32,
    ) -> CUresult = create_mipmap;
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray) -> CUresult = destroy_mipmap;
}

fn create_v1(
    real: cuArrayCreate,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: null, or the program's descriptor.
    let shape = unsafe { descriptor.as_ref() }.map(Shape::from);
    // SAFETY: the program's arguments.
    array_of(shape, array, || unsafe { real(array, descriptor) })
}

fn create(
    real: cuArrayCreate_v2,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
) -> CUresult {
    // SAFETY: null, or the program's descriptor.
    let shape = unsafe { descriptor.as_ref() }.map(Shape::from);
    // SAFETY: the program's arguments.
    array_of(shape, array, || unsafe { real(array, descriptor) })
}

fn create_3d_v1(
    real: cuArray3DCreate,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: null, or the program's descriptor.
    let shape = unsafe { descriptor.as_ref() }.map(Shape::from);
    // SAFETY: the program's arguments.
    array_of(shape, array, || unsafe { real(array, descriptor) })
}

fn create_3d(
    real: cuArray3DCreate_v2,
    array: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> CUresult {
    // SAFETY: null, or the program's descriptor.
    let shape = unsafe { descriptor.as_ref() }.map(Shape::from);
    // SAFETY: the program's arguments.
    array_of(shape, array, || unsafe { real(array, descriptor) })
}

fn create_mipmap(
    real: cuMipmappedArrayCreate,
    array: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> CUresult {
    // SAFETY: null, or the program's descriptor.
    let shape = unsafe { descriptor.as_ref() }.map(Shape::from);
    let kind = ObjectKind {
        map: &MIPMAPS,
        discard: |handle| {
            // SAFETY: the driver has just made it, and the program has not seen it.
            unnoticed(|| unsafe { calls::cuMipmappedArrayDestroy(CUmipmappedArray(handle)) })
        },
        took: |handle, device| {
            let ask = |needs: *mut _, device| {
                // SAFETY: an out parameter that outlives the call; an array that is alive.
                unsafe {
                    calls::cuMipmappedArrayGetMemoryRequirements(
                        needs,
                        CUmipmappedArray(handle),
                        device,
                    )
                }
            };
            requirements(device, ask)
        },
    };
    // SAFETY: the program's arguments.
    let ask = || unsafe { real(array, descriptor, levels) };
    if array.is_null() {
        return ask();
    }
    // SAFETY: the driver has written the handle.
    book(&kind, shape, levels, ask, || unsafe { (*array).0 })
}

fn array_of(shape: Option<Shape>, array: *mut CUarray, ask: impl Fn() -> CUresult) -> CUresult {
    let kind = ObjectKind {
        map: &ARRAYS,
        // SAFETY: the driver has just made it, and the program has not seen it.
        discard: |handle| unnoticed(|| unsafe { calls::cuArrayDestroy(CUarray(handle)) }),
        took: |handle, device| {
            let ask = |needs: *mut _, device| {
                // SAFETY: an out parameter that outlives the call; an array that is alive.
                unsafe { calls::cuArrayGetMemoryRequirements(needs, CUarray(handle), device) }
            };
            requirements(device, ask)
        },
    };
    if array.is_null() {
        return ask();
    }
    // SAFETY: the driver has written the handle.
    book(&kind, shape, 1, ask, || unsafe { (*array).0 })
}

/// What differs between arrays and mipmapped arrays.
struct ObjectKind {
    map: &'static Map<Object>,
    discard: fn(*mut c_void) -> CUresult,
    took: fn(*mut c_void, DeviceKey) -> Option<u64>,
}

fn book(
    kind: &ObjectKind,
    shape: Option<Shape>,
    levels: u32,
    ask: impl Fn() -> CUresult,
    handle: impl FnOnce() -> *mut c_void,
) -> CUresult {
    // Nothing to charge: what the driver will refuse, and what owns no memory.
    let sized = shape.and_then(|shape| Some((shape, bytes_of(shape, levels)?)));
    let Some((shape, bytes)) = sized else {
        return ask();
    };
    let refusal = |device| array_refusal::refused(shape, device);
    allocate::booked(bytes, refusal, ask, |here, mut charge| {
        let handle = handle();
        if let Some(took) = (kind.took)(handle, here.device)
            && let Err(refused) = charge.settle(took)
        {
            let _ = (kind.discard)(handle);
            return refused.into();
        }
        let object = Object {
            device: here.device,
            context: here.context,
            units: charge.keep(),
        };
        if let Some(stale) = kind.map.insert(handle.expose_provenance() as u64, object) {
            account::release(stale.device, stale.units);
        }
        CUresult::SUCCESS
    })
}

/// What the driver says an array takes; most drivers say it only of arrays with deferred mapping.
fn requirements(
    device: DeviceKey,
    ask: impl FnOnce(*mut CUDA_ARRAY_MEMORY_REQUIREMENTS, i32) -> CUresult,
) -> Option<u64> {
    let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: 0,
        alignment: 0,
        reserved: [0; 4],
    };
    ask(&raw mut needs, device::ordinal_of(device)?).ok().ok()?;
    (needs.size > 0).then_some(needs.size as u64)
}

fn destroy(real: cuArrayDestroy, array: CUarray) -> CUresult {
    // SAFETY: the program's argument.
    gone(&ARRAYS, array.0, || unsafe { real(array) })
}

fn destroy_mipmap(real: cuMipmappedArrayDestroy, array: CUmipmappedArray) -> CUresult {
    // SAFETY: the program's argument.
    gone(&MIPMAPS, array.0, || unsafe { real(array) })
}

fn gone(map: &Map<Object>, handle: *mut c_void, ask: impl Fn() -> CUresult) -> CUresult {
    let handle = handle.expose_provenance() as u64;
    let object = map.take(handle);
    let tiles = vmm::unmapping_tiles(handle);
    let answer = ask();
    vmm::settle(tiles, answer.is_success());
    match object {
        Some(object) if answer.is_success() => account::release(object.device, object.units),
        Some(object) => drop(map.insert(handle, object)),
        None => {}
    }
    answer
}
