//! Contexts that may access the movable allocations of others: plain memory is theirs by itself,
//! mappings are by name.

use gpushare_cuda_abi::cuda::{CUcontext, CUdevice};

use super::blocks::Peer;
use super::memory::blocks;
use crate::driver::contexts::Here;
use crate::driver::device;
use crate::driver::vmm;

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The context `from` may access the allocations of the context `of`, or no more. Inside a passage
/// of the seal.
pub(crate) fn changed(from: Here, of: CUcontext, may: bool) {
    let Some(device) = device::ordinal_of(from.device) else {
        return;
    };
    let peer = Peer {
        device,
        from: from.handle,
        of,
    };
    let was = reaches(device, of);
    {
        let mut blocks = blocks();
        blocks.peers.retain(|known| *known != peer);
        if may {
            blocks.peers.push(peer);
        }
    }
    if was != reaches(device, of) {
        change_access(device, of, may);
    }
}

/// Whether a device may access a context's allocations, as a peer.
fn reaches(device: CUdevice, of: CUcontext) -> bool {
    let blocks = blocks();
    let mut peers = blocks.peers.iter();
    peers.any(|peer| peer.device == device && peer.of == of)
}

/// Rights belong to a device's mappings: they are changed with the first context of that device
/// that may access another one's memory, and with the last.
fn change_access(device: CUdevice, of: CUcontext, may: bool) {
    let reached: Vec<(u64, u64)> = {
        let blocks = blocks();
        let of_it = blocks.map.iter();
        of_it
            .filter(|(_, block)| block.handle == of && block.ordinal != device)
            // All devices may access managed memory.
            .filter(|(_, block)| !block.is_managed())
            .map(|(base, block)| (*base, block.reserved))
            .collect()
    };
    for (base, bytes) in reached {
        let done = if may {
            vmm::give_access(base, length(bytes), &[device])
        } else {
            vmm::take_access(base, length(bytes), device)
        };
        if let Err(why) = done {
            tracing::warn!(?why, "the access of a peer was not changed");
        }
    }
}

/// A context that could access others has ended: its device can no more, unless another of its
/// contexts can.
pub(super) fn gone(from: CUcontext) {
    let gone: Vec<Peer> = {
        let mut blocks = blocks();
        let (gone, kept) = core::mem::take(&mut blocks.peers)
            .into_iter()
            .partition(|peer| peer.from == from);
        blocks.peers = kept;
        gone
    };
    for peer in gone {
        if !reaches(peer.device, peer.of) {
            change_access(peer.device, peer.of, false);
        }
    }
}
