//! Mipmapped arrays: one allocation for all levels; each level is an array with its own handle.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUDA_ARRAY3D_DESCRIPTOR_v2, CUresult};

use super::layout::Layout;
use super::{ARRAYS, Array, LAYERED, Memory, plan};
use crate::Result;
use crate::context::Context;
use crate::exec;
use crate::handle::Handles;

static MIPMAPS: Handles<Mipmap> = Handles::new();

/// A mipmapped array.
#[derive(Debug)]
pub struct Mipmap {
    levels: Vec<usize>,
    memory: Arc<Memory>,
}

/// Creates a mipmapped array of up to `levels` levels, at least one, and returns its handle.
///
/// # Errors
/// As for arrays.
pub fn create_mipmap(
    context: &Context,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR_v2,
    levels: u32,
) -> Result<usize> {
    let mut plans: Vec<(CUDA_ARRAY3D_DESCRIPTOR_v2, Layout, u64)> = Vec::new();
    let mut size = 0;
    let mut at = descriptor;
    for _ in 0..levels.clamp(1, most_levels(&descriptor).max(1)) {
        let layout = plan(&at)?;
        plans.push((at, layout, size));
        size += layout.size;
        at = half(&at);
    }
    let memory = Arc::new(Memory::new(context, size)?);
    let levels = plans
        .into_iter()
        .map(|(descriptor, layout, offset)| {
            let memory = Arc::clone(&memory);
            ARRAYS.insert(Arc::new(Array {
                memory,
                offset,
                layout,
                descriptor,
                level: true,
            }))
        })
        .collect();
    Ok(MIPMAPS.insert(Arc::new(Mipmap { levels, memory })))
}

/// The number of levels down to one element: the number of binary digits of the largest extent.
fn most_levels(descriptor: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> u32 {
    let depth = if descriptor.Flags & LAYERED == 0 {
        descriptor.Depth
    } else {
        0
    };
    let largest = descriptor.Width.max(descriptor.Height).max(depth);
    usize::BITS - largest.leading_zeros()
}

fn half(descriptor: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> CUDA_ARRAY3D_DESCRIPTOR_v2 {
    // A dimension of 0 (absent) stays 0; a present dimension ends at 1. Layers are not halved.
    let half = |extent: usize| if extent == 0 { 0 } else { (extent / 2).max(1) };
    let layers = descriptor.Flags & LAYERED != 0;
    CUDA_ARRAY3D_DESCRIPTOR_v2 {
        Width: half(descriptor.Width),
        Height: half(descriptor.Height),
        Depth: if layers {
            descriptor.Depth
        } else {
            half(descriptor.Depth)
        },
        ..*descriptor
    }
}

/// The array handle of one level.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no mipmapped array, `INVALID_VALUE` for a level that does
/// not exist.
pub fn mipmap_level(handle: usize, level: u32) -> Result<usize> {
    let mipmap = MIPMAPS.get(handle).ok_or(CUresult::INVALID_HANDLE)?;
    let level = usize::try_from(level).map_err(|_| CUresult::INVALID_VALUE)?;
    mipmap
        .levels
        .get(level)
        .copied()
        .ok_or(CUresult::INVALID_VALUE)
}

/// Destroys a mipmapped array and its levels after all work on its device.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no mipmapped array.
pub fn destroy_mipmap(handle: usize) -> Result {
    let mipmap = MIPMAPS.get(handle).ok_or(CUresult::INVALID_HANDLE)?;
    exec::drain_device(mipmap.memory.device);
    let mipmap = MIPMAPS.remove(handle).ok_or(CUresult::INVALID_HANDLE)?;
    for level in &mipmap.levels {
        ARRAYS.remove(*level);
    }
    Ok(())
}

pub(super) fn context_gone(context: u64) {
    MIPMAPS.remove_if(|mipmap| mipmap.memory.context == context);
}
