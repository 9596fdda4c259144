//! Texture and surface objects. They store only their description.
//!
//! # Safety
//! The description is a C union; its type field tells which member is valid.
#![allow(
    unsafe_code,
    reason = "reads the member of a C union that its type field names"
)]

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresourcetype, CUresult,
};

use super::{array, table};
use crate::Result;
use crate::context::Context;
use crate::exec::Raw;
use crate::handle::Handles;

/// The description that an object was created with.
#[derive(Debug, Clone, Copy)]
pub struct Texture {
    /// The bound resource.
    pub resource: CUDA_RESOURCE_DESC,
    /// The sampling parameters; `None` for a surface.
    pub sampling: Option<CUDA_TEXTURE_DESC>,
    /// The resource view, if one was given.
    pub view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

#[derive(Debug)]
struct Object {
    context: u64,
    texture: Raw<Texture>,
}

static OBJECTS: Handles<Object> = Handles::new();

/// Creates an object; without sampling parameters a surface.
///
/// # Errors
/// `INVALID_VALUE` for an illegal resource, or memory outside the driver's allocations;
/// `INVALID_HANDLE` if an array handle names no array.
pub fn create(
    context: &Context,
    resource: CUDA_RESOURCE_DESC,
    sampling: Option<CUDA_TEXTURE_DESC>,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
) -> Result<u64> {
    check(&resource, sampling.is_none())?;
    let texture = Raw(Texture {
        resource,
        sampling,
        view,
    });
    Ok(OBJECTS.insert(Arc::new(Object {
        context: context.id(),
        texture,
    })) as u64)
}

fn check(resource: &CUDA_RESOURCE_DESC, surface: bool) -> Result {
    match resource.resType {
        CUresourcetype::ARRAY => {
            // SAFETY: the type field says that this member was set.
            let handle = unsafe { resource.res.array }.hArray;
            array::store(handle.0.addr())
                .map(|_| ())
                .ok_or(CUresult::INVALID_HANDLE)
        }
        _ if surface => Err(CUresult::INVALID_VALUE),
        CUresourcetype::MIPMAPPED_ARRAY => {
            // SAFETY: as above.
            let handle = unsafe { resource.res.mipmap }.hMipmappedArray;
            array::mipmap_level(handle.0.addr(), 0).map(|_| ())
        }
        CUresourcetype::LINEAR => {
            // SAFETY: as above.
            let linear = unsafe { resource.res.linear };
            covered(linear.devPtr, linear.sizeInBytes as u64)
        }
        CUresourcetype::PITCH2D => {
            // SAFETY: as above.
            let pitched = unsafe { resource.res.pitch2D };
            covered(
                pitched.devPtr,
                (pitched.pitchInBytes as u64).saturating_mul(pitched.height as u64),
            )
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn covered(address: u64, len: u64) -> Result {
    (len > 0 && table::covers(address, len))
        .then_some(())
        .ok_or(CUresult::INVALID_VALUE)
}

/// The description that an object was created with.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no object of this kind.
pub fn get(handle: u64, surface: bool) -> Result<Texture> {
    let handle = usize::try_from(handle).map_err(|_| CUresult::INVALID_VALUE)?;
    let texture = OBJECTS
        .get(handle)
        .ok_or(CUresult::INVALID_VALUE)?
        .texture
        .0;
    (texture.sampling.is_none() == surface)
        .then_some(texture)
        .ok_or(CUresult::INVALID_VALUE)
}

/// Destroys an object.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no object of this kind.
pub fn destroy(handle: u64, surface: bool) -> Result {
    get(handle, surface)?;
    let handle = usize::try_from(handle).map_err(|_| CUresult::INVALID_VALUE)?;
    OBJECTS
        .remove(handle)
        .map(|_| ())
        .ok_or(CUresult::INVALID_VALUE)
}

/// Forgets the objects of a destroyed context.
pub(crate) fn context_gone(context: u64) {
    OBJECTS.remove_if(|object| object.context == context);
}
