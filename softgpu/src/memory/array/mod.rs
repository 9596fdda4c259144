//! CUDA arrays and mipmapped arrays. They have no device address in the API; only copies access
//! them.

mod format;
mod layout;
mod mipmap;

use std::sync::{Arc, OnceLock};

use gpushare_cuda_abi::cuda::{CUDA_ARRAY3D_DESCRIPTOR_v2, CUresult};

pub use mipmap::{Mipmap, create_mipmap, destroy_mipmap, mipmap_level};

use super::blocks::LARGE;
use super::copy::{Shape, Side};
use super::heap::Heap;
use super::phys::Region;
use crate::Result;
use crate::context::Context;
use crate::exec;
use crate::handle::Handles;
use crate::va::{self, Range};
use crate::world::Kind;
use format::texel;
use layout::{Layout, layout};

const LAYERED: u32 = 0x01;
const CUBEMAP: u32 = 0x04;
const SPARSE: u32 = 0x40;
const DEFERRED_MAPPING: u32 = 0x80;
const KNOWN_FLAGS: u32 = 0x1ff;

/// The maximum extents in elements, as the device attributes report them: one, two and three
/// dimensions, layers.
const MAX_1D: u64 = 131_072;
const MAX_2D: (u64, u64) = (131_072, 65_536);
const MAX_3D: u64 = 16_384;
const MAX_LAYERS: u64 = 2048;
const MAX_LAYERED: u64 = 32_768;

static ARRAYS: Handles<Array> = Handles::new();

/// The memory of an array: a part of a block, or its own pages. Dropping it frees the memory.
#[derive(Debug)]
pub(crate) enum Space {
    Part { heap: Arc<Heap>, at: u64, len: u64 },
    Whole(Region),
}

impl Space {
    fn take(context: &Context, len: u64) -> Result<Self> {
        let device = context.device();
        if len < LARGE {
            let slot = context.ext::<ArrayHeap>();
            let heap = slot
                .0
                .get_or_init(|| Arc::new(Heap::new(device, Kind::Array)));
            Ok(Self::Part {
                heap: Arc::clone(heap),
                at: heap.take(len)?,
                len,
            })
        } else {
            Ok(Self::Whole(Region::new(device, Kind::Array, len)?.noted(
                device,
                Kind::Array,
                len,
            )))
        }
    }

    fn base(&self) -> u64 {
        match self {
            Self::Part { at, .. } => *at,
            Self::Whole(region) => region.base(),
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Self::Part { heap, at, len } = self {
            heap.give(*at, *len);
        }
    }
}

/// The heap of a context's small arrays.
#[derive(Debug, Default)]
struct ArrayHeap(OnceLock<Arc<Heap>>);

/// The published range of an array's memory; dropping it makes the memory inaccessible. Only copy
/// engines access arrays.
#[derive(Debug)]
pub(crate) struct Window(u64);

impl Drop for Window {
    fn drop(&mut self) {
        va::retract(self.0);
    }
}

/// The memory of one or several arrays. It is freed with its context.
#[derive(Debug)]
pub(crate) struct Memory {
    // Dropped first: the memory is inaccessible when it is freed.
    _window: Window,
    space: Space,
    context: u64,
    device: u32,
}

impl Memory {
    fn new(context: &Context, len: u64) -> Result<Self> {
        let space = Space::take(context, len)?;
        let device = context.device().ordinal();
        let range = Range {
            peers: false,
            ..Range::on_device(device, len)
        };
        va::publish(space.base(), range)?;
        Ok(Self {
            _window: Window(space.base()),
            space,
            context: context.id(),
            device,
        })
    }
}

/// One array: with its own memory, or one level of a mipmapped array.
#[derive(Debug)]
pub struct Array {
    memory: Arc<Memory>,
    offset: u64,
    layout: Layout,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR_v2,
    /// Whether it is a level. A level is destroyed with its mipmapped array, never alone.
    level: bool,
}

impl Array {
    /// The descriptor of the request.
    pub fn descriptor(&self) -> CUDA_ARRAY3D_DESCRIPTOR_v2 {
        self.descriptor
    }

    /// Whether the box of a copy is inside the array.
    pub(crate) fn contains(&self, side: &Side, shape: Shape) -> bool {
        let fits =
            |at: u64, len: u64, end: u64| at.checked_add(len).is_some_and(|stop| stop <= end);
        fits(side.x, shape.width, self.layout.width)
            && fits(side.y, shape.height, self.layout.height)
            && fits(side.z, shape.depth, self.layout.depth)
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.space.base() + self.offset
    }

    pub(crate) fn pitch(&self) -> u64 {
        self.layout.pitch
    }

    pub(crate) fn slice(&self) -> u64 {
        self.layout.slice
    }
}

/// Checks a descriptor and computes its layout.
fn plan(descriptor: &CUDA_ARRAY3D_DESCRIPTOR_v2) -> Result<Layout> {
    let (width, height, depth) = (
        descriptor.Width as u64,
        descriptor.Height as u64,
        descriptor.Depth as u64,
    );
    let flags = descriptor.Flags;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if flags & (SPARSE | DEFERRED_MAPPING) != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let layered = flags & LAYERED != 0;
    let cubes = flags & CUBEMAP == 0
        || width == height && depth > 0 && depth.is_multiple_of(6) && (layered || depth == 6);
    let fits = match (height, depth, layered) {
        _ if width == 0 => false,
        (0, 0, _) => width <= MAX_1D && !layered,
        (_, 0, false) => width <= MAX_2D.0 && height <= MAX_2D.1,
        (_, layers, true) => {
            layers > 0 && layers <= MAX_LAYERS && width <= MAX_LAYERED && height <= MAX_LAYERED
        }
        (0, _, false) => false,
        _ => width.max(height).max(depth) <= MAX_3D,
    };
    if !cubes || !fits {
        return Err(CUresult::INVALID_VALUE);
    }
    let texel = texel(descriptor.Format, descriptor.NumChannels).ok_or(CUresult::INVALID_VALUE)?;
    layout(texel, width, height, depth).ok_or(CUresult::INVALID_VALUE)
}

/// Creates an array and returns its handle.
///
/// # Errors
/// `INVALID_VALUE` for illegal extents or an illegal format, `NOT_SUPPORTED` for sparse and
/// deferred arrays, `OUT_OF_MEMORY`.
pub fn create(context: &Context, descriptor: CUDA_ARRAY3D_DESCRIPTOR_v2) -> Result<usize> {
    let layout = plan(&descriptor)?;
    let memory = Arc::new(Memory::new(context, layout.size)?);
    Ok(ARRAYS.insert(Arc::new(Array {
        memory,
        offset: 0,
        layout,
        descriptor,
        level: false,
    })))
}

/// Destroys an array after all work on its device.
///
/// # Errors
/// `INVALID_HANDLE` if the handle names no array, `INVALID_VALUE` for a level of a mipmapped array.
pub fn destroy(handle: usize) -> Result {
    let array = ARRAYS.get(handle).ok_or(CUresult::INVALID_HANDLE)?;
    if array.level {
        return Err(CUresult::INVALID_VALUE);
    }
    exec::drain_device(array.memory.device);
    ARRAYS
        .remove(handle)
        .map(|_| ())
        .ok_or(CUresult::INVALID_HANDLE)
}

/// The array of a handle.
pub fn store(handle: usize) -> Option<Arc<Array>> {
    ARRAYS.get(handle)
}

/// Forgets the arrays of a destroyed context.
pub(crate) fn context_gone(context: u64) {
    mipmap::context_gone(context);
    ARRAYS.remove_if(|array| array.memory.context == context);
}
