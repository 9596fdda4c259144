//! Contexts that may access the movable allocations of others: plain memory is theirs by itself,
//! mappings are by name.

use gpushare_cuda_abi::cuda::{CUcontext, CUdevice, CUresult};

use super::blocks::{Block, Blocks, Peer};
use super::memory::blocks;
use crate::driver::contexts::Here;
use crate::driver::device;
use crate::driver::vmm;

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Which contexts may access a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// A pool's memory: each of these devices by its own rights.
    Pool(Vec<(CUdevice, u64)>),
    /// A context's memory: these devices.
    Context(Vec<CUdevice>),
}

impl Access {
    fn give(&self, at: u64, bytes: u64) -> Result<(), CUresult> {
        match self {
            Self::Pool(rights) => vmm::set_rights(at, length(bytes), rights),
            Self::Context(devices) => vmm::give_access(at, length(bytes), devices),
        }
    }

    fn devices(&self) -> Vec<CUdevice> {
        match self {
            Self::Pool(rights) => rights.iter().map(|(device, _)| *device).collect(),
            Self::Context(devices) => devices.clone(),
        }
    }
}

impl Blocks {
    fn access(&self, block: &Block) -> Access {
        match self.rights(block) {
            Some(rights) => Access::Pool(rights),
            None => Access::Context(self.accessors(block)),
        }
    }

    /// Enters a new block that those may access who were `given` that. `Err`: the block, and who
    /// may access it now. That has changed meanwhile, and the change found no block here.
    fn insert_if(
        &mut self,
        base: u64,
        block: Block,
        given: Option<&Access>,
    ) -> Result<(), (Block, Access)> {
        let now = self.access(&block);
        if given != Some(&now) {
            return Err((block, now));
        }
        self.insert(base, block);
        Ok(())
    }
}

/// Gives those access to a block's addresses that have it. By the mover's thread: nothing changes
/// who that is while the process is sealed.
pub(super) fn open(at: u64, bytes: u64, block: &Block) -> Result<(), CUresult> {
    let access = { blocks().access(block) };
    access.give(at, bytes)
}

/// Gives those access to a new block that have it, and enters it into the books. Inside a passage
/// of the seal.
///
/// # Errors
/// The driver's, and the block.
pub(super) fn enter(base: u64, mut block: Block) -> Result<(), (CUresult, Block)> {
    let mut given: Option<Access> = None;
    loop {
        let entered = { blocks().insert_if(base, block, given.as_ref()) };
        let Err((back, now)) = entered else {
            return Ok(());
        };
        block = back;
        let may = now.devices();
        let before = given.iter().flat_map(Access::devices);
        for device in before.filter(|device| !may.contains(device)) {
            if blocks().is_lost(device) {
                continue;
            }
            if let Err(why) = vmm::take_access(base, length(block.reserved), device) {
                return Err((why, block));
            }
        }
        if let Err(why) = now.give(base, block.reserved) {
            return Err((why, block));
        }
        given = Some(now);
    }
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

#[cfg(test)]
mod tests {
    use gpushare_protocol::page::MAX_DEVICES;

    use super::*;
    use crate::driver::contexts::ContextId;
    use crate::driver::device::DeviceKey;

    fn context(number: usize) -> CUcontext {
        CUcontext(core::ptr::without_provenance_mut(number))
    }

    /// Memory of a context on the first device.
    fn block() -> Block {
        Block {
            bytes: 4096,
            reserved: 4096,
            handle: context(16),
            context: ContextId::NONE,
            device: DeviceKey::of_index(0).unwrap(),
            ordinal: 0,
            pool: None,
            freed: None,
            chunks: Vec::new(),
        }
    }

    #[test]
    fn a_lost_device_is_given_no_right() {
        device::know(&[0, 1]);
        let mut blocks = Blocks::default();
        blocks.peers.push(Peer {
            device: 1,
            from: context(32),
            of: context(16),
        });
        assert_eq!(blocks.access(&block()), Access::Context(vec![0, 1]));
        blocks.lost[1] = true;
        assert_eq!(blocks.access(&block()), Access::Context(vec![0]));
        // The memory's own one is asked for in any case: the driver answers.
        blocks.lost = [true; MAX_DEVICES];
        assert_eq!(blocks.access(&block()), Access::Context(vec![0]));
    }

    #[test]
    fn a_block_whose_peers_changed_while_it_was_made_is_opened_again() {
        let mut blocks = Blocks::default();
        let mut block = block();
        let mut given = None;
        for devices in [vec![0], vec![0, 1], vec![0]] {
            let refused = blocks.insert_if(4096, block, given.as_ref());
            let (back, now) = refused.unwrap_err();
            assert_eq!(now, Access::Context(devices));
            (block, given) = (back, Some(now));
            let peer = Peer {
                device: 1,
                from: context(32),
                of: context(16),
            };
            if blocks.peers.pop().is_none() {
                blocks.peers.push(peer);
            }
        }
        assert!(blocks.map.is_empty());
        blocks.peers.clear();
        assert!(blocks.insert_if(4096, block, given.as_ref()).is_ok());
        assert_eq!(blocks.movable[0], 4096);
    }
}
