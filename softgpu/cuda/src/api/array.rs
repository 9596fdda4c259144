//! CUDA arrays and mipmapped arrays.

use gpushare_cuda_abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_DESCRIPTOR_v2, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR_v2, CUarray,
    CUdevice, CUmipmappedArray, CUresult,
};
use softgpu::graph::forbidden::Unsafe;
use softgpu::memory::array;
use softgpu::{Result, context, exec, world};

use crate::abi::{input, out, required};

driver! {
    fn cuArrayCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v2) {
        create(p_handle, flat(input(p_allocate_array)?))
    }
    fn cuArrayCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1) {
        let old = input(p_allocate_array)?;
        create(p_handle, flat(CUDA_ARRAY_DESCRIPTOR_v2 {
            Width: old.Width as usize,
            Height: old.Height as usize,
            Format: old.Format,
            NumChannels: old.NumChannels,
        }))
    }
    fn cuArray3DCreate_v2(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v2) {
        create(p_handle, input(p_allocate_array)?)
    }
    fn cuArray3DCreate(p_handle: *mut CUarray, p_allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1) {
        let old = input(p_allocate_array)?;
        create(p_handle, CUDA_ARRAY3D_DESCRIPTOR_v2 {
            Width: old.Width as usize,
            Height: old.Height as usize,
            Depth: old.Depth as usize,
            Format: old.Format,
            NumChannels: old.NumChannels,
            Flags: old.Flags,
        })
    }
    fn cuArrayGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v2, h_array: CUarray) {
        let full = described(h_array)?;
        out(p_array_descriptor, CUDA_ARRAY_DESCRIPTOR_v2 {
            Width: full.Width,
            Height: full.Height,
            Format: full.Format,
            NumChannels: full.NumChannels,
        })
    }
    fn cuArrayGetDescriptor(p_array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1, h_array: CUarray) {
        let full = described(h_array)?;
        out(p_array_descriptor, CUDA_ARRAY_DESCRIPTOR_v1 {
            Width: narrow(full.Width)?,
            Height: narrow(full.Height)?,
            Format: full.Format,
            NumChannels: full.NumChannels,
        })
    }
    fn cuArray3DGetDescriptor_v2(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v2, h_array: CUarray) {
        out(p_array_descriptor, described(h_array)?)
    }
    fn cuArray3DGetDescriptor(p_array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, h_array: CUarray) {
        let full = described(h_array)?;
        out(p_array_descriptor, CUDA_ARRAY3D_DESCRIPTOR_v1 {
            Width: narrow(full.Width)?,
            Height: narrow(full.Height)?,
            Depth: narrow(full.Depth)?,
            Format: full.Format,
            NumChannels: full.NumChannels,
            Flags: full.Flags,
        })
    }
    /// Only arrays with deferred mapping have memory requirements, and this device does not support
    /// them.
    fn cuArrayGetMemoryRequirements(memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS, array: CUarray, device: CUdevice) {
        required(memory_requirements)?;
        world::process()?.device(device)?;
        described(array)?;
        Err(CUresult::INVALID_VALUE)
    }
    /// Only sparse arrays have these properties, and this device does not support them.
    fn cuArrayGetSparseProperties(sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray) {
        required(sparse_properties)?;
        described(array)?;
        Err(CUresult::INVALID_VALUE)
    }
    fn cuArrayDestroy(h_array: CUarray) {
        context::current()?;
        exec::capture_forbids(Unsafe::FreeArray)?;
        array::destroy(h_array.0.addr())
    }
    fn cuMipmappedArrayCreate(p_handle: *mut CUmipmappedArray, p_mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR_v2, num_mipmap_levels: u32) {
        required(p_handle)?;
        let context = context::current()?;
        exec::capture_forbids(Unsafe::AllocateArray)?;
        let made = array::create_mipmap(&context, input(p_mipmapped_array_desc)?, num_mipmap_levels)?;
        out(p_handle, CUmipmappedArray(std::ptr::without_provenance_mut(made)))
    }
    fn cuMipmappedArrayGetLevel(p_level_array: *mut CUarray, h_mipmapped_array: CUmipmappedArray, level: u32) {
        required(p_level_array)?;
        let found = array::mipmap_level(h_mipmapped_array.0.addr(), level)?;
        out(p_level_array, CUarray(std::ptr::without_provenance_mut(found)))
    }
    fn cuMipmappedArrayDestroy(h_mipmapped_array: CUmipmappedArray) {
        context::current()?;
        exec::capture_forbids(Unsafe::FreeArray)?;
        array::destroy_mipmap(h_mipmapped_array.0.addr())
    }
}

/// A one- or two-dimensional descriptor in the three-dimensional form.
fn flat(array: CUDA_ARRAY_DESCRIPTOR_v2) -> CUDA_ARRAY3D_DESCRIPTOR_v2 {
    CUDA_ARRAY3D_DESCRIPTOR_v2 {
        Width: array.Width,
        Height: array.Height,
        Depth: 0,
        Format: array.Format,
        NumChannels: array.NumChannels,
        Flags: 0,
    }
}

fn create(at: *mut CUarray, descriptor: CUDA_ARRAY3D_DESCRIPTOR_v2) -> Result {
    required(at)?;
    let context = context::current()?;
    exec::capture_forbids(Unsafe::AllocateArray)?;
    let made = array::create(&context, descriptor)?;
    out(at, CUarray(std::ptr::without_provenance_mut(made)))
}

fn described(handle: CUarray) -> Result<CUDA_ARRAY3D_DESCRIPTOR_v2> {
    context::current()?;
    array::store(handle.0.addr())
        .map(|array| array.descriptor())
        .ok_or(CUresult::INVALID_HANDLE)
}

fn narrow(extent: usize) -> Result<u32> {
    u32::try_from(extent).map_err(|_| CUresult::INVALID_VALUE)
}
