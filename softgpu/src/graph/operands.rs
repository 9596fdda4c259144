//! What an update of an executable graph may change of a node's operands.
//!
//! NVIDIA's pages of `cuGraphExecMemcpyNodeSetParams` and its kin: operands are one-dimensional, of
//! at least a byte, and allocated as the original ones. Of `cuGraphExecUpdate`: the memory keeps
//! its kind and device, a two-dimensional memset its size. Of a kernel both say that the context
//! that owns the function stays.

use gpushare_cuda_abi::cuda::{CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v2};

use crate::exec::{Kind, Op};
use crate::memory::copy::{Home, homes};
use crate::memory::home_of;

/// Whether one node's copy or memset may be set to `new`: both are one line of at least a byte, in
/// the same kinds of memory.
pub(super) fn may_be_set(old: &Op, new: &Op) -> bool {
    let lines = [old, new].into_iter().all(is_line);
    lines && is_alike(old, new)
}

/// Whether the update by a graph may replace `old` by `new`.
pub(super) fn may_become(old: &Op, new: &Op) -> bool {
    let (Kind::Fill(one), Kind::Fill(other)) = (&old.kind, &new.kind) else {
        return is_alike(old, new);
    };
    let size =
        |fill: &CUDA_MEMSET_NODE_PARAMS_v2| (fill.pitch, fill.elementSize, fill.width, fill.height);
    let is_flat = |fill: &CUDA_MEMSET_NODE_PARAMS_v2| fill.height <= 1;
    let keeps = is_flat(&one.0) && is_flat(&other.0) || size(&one.0) == size(&other.0);
    keeps && is_alike(old, new)
}

fn is_line(op: &Op) -> bool {
    let is_flat_copy =
        |copy: &CUDA_MEMCPY3D_v2| copy.WidthInBytes > 0 && copy.Height == 1 && copy.Depth == 1;
    match &op.kind {
        Kind::Copy(copy) => is_flat_copy(&copy.0),
        Kind::Fill(fill) => fill.0.width > 0 && fill.0.height == 1,
        _ => true,
    }
}

/// Whether the memory of the operands is of the same kind, device and context, as far as it is
/// there.
fn is_alike(old: &Op, new: &Op) -> bool {
    match (&old.kind, &new.kind) {
        (Kind::Copy(old), Kind::Copy(new)) => {
            let (old, new) = (homes(&old.0), homes(&new.0));
            old.iter().zip(&new).all(|(old, new)| stays(*old, *new))
        }
        (Kind::Fill(old), Kind::Fill(new)) => stays(home_of(old.0.dst), home_of(new.0.dst)),
        _ => true,
    }
}

fn stays(old: Home, new: Home) -> bool {
    match (old, new) {
        (Home::Unknown, _) | (_, Home::Unknown) => true,
        (Home::Device(old, in_old), Home::Device(new, in_new)) => {
            // Memory of pools and mappings is of no context.
            old == new && (in_old == in_new || in_old == 0 || in_new == 0)
        }
        (old, new) => old == new,
    }
}
