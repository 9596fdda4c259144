//! Texture and surface objects. They hold nothing but their description.
//!
//! # Safety
//! The description is a C union; which member is valid is what its type says.
#![allow(
    unsafe_code,
    reason = "reads the member of a C union that its type names"
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

/// What an object was made with.
#[derive(Debug, Clone, Copy)]
pub struct Texture {
    /// What it is bound to.
    pub resource: CUDA_RESOURCE_DESC,
    /// How it is sampled; `None` for a surface.
    pub sampling: Option<CUDA_TEXTURE_DESC>,
    /// How it is seen, if that differs.
    pub view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

#[derive(Debug)]
struct Object {
    context: u64,
    texture: Raw<Texture>,
}

static OBJECTS: Handles<Object> = Handles::new();

/// Makes an object; a surface where nothing is said about sampling.
///
/// # Errors
/// `INVALID_VALUE` for a resource that cannot be, or memory the driver did not give out;
/// `INVALID_HANDLE` for what is no array.
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
            // SAFETY: the type says that this member is the one that was set.
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

/// What an object was made with.
///
/// # Errors
/// `INVALID_VALUE` for what is no object of that sort.
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
/// `INVALID_VALUE` for what is no object of that sort.
pub fn destroy(handle: u64, surface: bool) -> Result {
    get(handle, surface)?;
    let handle = usize::try_from(handle).map_err(|_| CUresult::INVALID_VALUE)?;
    OBJECTS
        .remove(handle)
        .map(|_| ())
        .ok_or(CUresult::INVALID_VALUE)
}

/// Forgets the objects of a context that is gone.
pub(crate) fn context_gone(context: u64) {
    OBJECTS.remove_if(|object| object.context == context);
}
