//! Texture and surface objects: handles that store their description. No built-in kernel samples
//! textures.

use gpushare_cuda_abi::cuda::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresult, CUsurfObject,
    CUtexObject,
};
use softgpu::Result;
use softgpu::context;
use softgpu::memory::texture::{self, Texture};

use crate::abi::{input, out, required};

driver! {
    fn cuTexObjectCreate(tex_object: *mut CUtexObject, res_desc: *const CUDA_RESOURCE_DESC, tex_desc: *const CUDA_TEXTURE_DESC, res_view_desc: *const CUDA_RESOURCE_VIEW_DESC) {
        required(tex_object)?;
        let context = context::current()?;
        let view = if res_view_desc.is_null() { None } else { Some(input(res_view_desc)?) };
        out(tex_object, texture::create(&context, input(res_desc)?, Some(input(tex_desc)?), view)?)
    }
    fn cuTexObjectDestroy(tex_object: CUtexObject) { texture::destroy(tex_object, false) }
    fn cuTexObjectGetResourceDesc(res_desc: *mut CUDA_RESOURCE_DESC, tex_object: CUtexObject) {
        out(res_desc, found(tex_object, false)?.resource)
    }
    fn cuTexObjectGetTextureDesc(tex_desc: *mut CUDA_TEXTURE_DESC, tex_object: CUtexObject) {
        out(tex_desc, found(tex_object, false)?.sampling.ok_or(CUresult::INVALID_VALUE)?)
    }
    /// Fails for an object that was created without a view.
    fn cuTexObjectGetResourceViewDesc(res_view_desc: *mut CUDA_RESOURCE_VIEW_DESC, tex_object: CUtexObject) {
        out(res_view_desc, found(tex_object, false)?.view.ok_or(CUresult::INVALID_VALUE)?)
    }
    fn cuSurfObjectCreate(surf_object: *mut CUsurfObject, res_desc: *const CUDA_RESOURCE_DESC) {
        required(surf_object)?;
        let context = context::current()?;
        out(surf_object, texture::create(&context, input(res_desc)?, None, None)?)
    }
    fn cuSurfObjectDestroy(surf_object: CUsurfObject) { texture::destroy(surf_object, true) }
    fn cuSurfObjectGetResourceDesc(res_desc: *mut CUDA_RESOURCE_DESC, surf_object: CUsurfObject) {
        out(res_desc, found(surf_object, true)?.resource)
    }
}

fn found(handle: u64, surface: bool) -> Result<Texture> {
    context::current()?;
    texture::get(handle, surface)
}
