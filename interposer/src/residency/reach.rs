//! Which context reaches movable memory. To its program it is plain memory, of which copies and
//! memsets work in every context; to the driver it is mappings, which the current context's device
//! must have the right to.

use gpushare_cuda_abi::cuda::{CUcontext, CUdevice};

use super::blocks::{Block, Blocks};
use super::memory::blocks;
use crate::driver::contexts::Here;
use crate::driver::device;

/// How a memset or copy reaches its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the current context.
    Here,
    /// From this context alone.
    Through(CUcontext),
    /// From no one context: the owners of where it writes and where it reads.
    Between(CUcontext, CUcontext),
}

impl Blocks {
    /// The movable allocation of a context that holds an address. A pool's memory has the pool's
    /// rights, as the driver's has, and all devices reach managed memory.
    fn owned(&self, at: Option<u64>) -> Option<&Block> {
        let (_, block) = self.find(at?)?;
        (block.pool.is_none() && !block.is_managed()).then_some(block)
    }

    fn admits(&self, block: &Block, device: CUdevice) -> bool {
        self.accessors(block).contains(&device)
    }

    fn way(&self, here: CUdevice, to: Option<u64>, from: Option<u64>) -> Way {
        let ends = [self.owned(to), self.owned(from)];
        let reached_from = |device| {
            let mut all = ends.iter().flatten();
            all.all(|block| self.admits(block, device))
        };
        if reached_from(here) {
            return Way::Here;
        }
        let mut owners = ends.iter().flatten();
        match (owners.find(|owner| reached_from(owner.ordinal)), ends) {
            (Some(owner), _) => Way::Through(owner.handle),
            (None, [Some(to), Some(from)]) => Way::Between(to.handle, from.handle),
            (None, _) => Way::Here,
        }
    }
}

/// How a memset or copy in the current context that writes `to` and reads `from` reaches its
/// memory.
pub(crate) fn way(here: Here, to: Option<u64>, from: Option<u64>) -> Way {
    match device::ordinal_of(here.device) {
        Some(device) => blocks().way(device, to, from),
        None => Way::Here,
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Peer;
    use super::*;
    use crate::driver::contexts::ContextId;
    use crate::driver::device::DeviceKey;

    fn context(number: usize) -> CUcontext {
        CUcontext(core::ptr::without_provenance_mut(number))
    }

    /// A block of 4 KiB at 4096 of context 16 on device 0, and one at 8192 of context 32 on device
    /// 1.
    fn two() -> Blocks {
        let mut blocks = Blocks::default();
        for (base, handle, ordinal) in [(4096, 16, 0), (8192, 32, 1)] {
            let block = Block {
                bytes: 4096,
                reserved: 4096,
                handle: context(handle),
                context: ContextId::NONE,
                device: DeviceKey::of_index(0).unwrap(),
                ordinal,
                pool: None,
                freed: None,
                chunks: Vec::new(),
            };
            blocks.insert(base, block);
        }
        blocks
    }

    #[test]
    fn memory_is_reached_through_a_context_of_its_device() {
        let blocks = two();
        assert_eq!(blocks.way(0, Some(4096), None), Way::Here);
        assert_eq!(blocks.way(1, Some(5000), None), Way::Through(context(16)));
        assert_eq!(
            blocks.way(0, None, Some(8192)),
            Way::Through(context(32)),
            "a source"
        );
        assert_eq!(
            blocks.way(1, Some(4096), Some(64)),
            Way::Through(context(16)),
            "the other end is not ours"
        );
        assert_eq!(blocks.way(1, Some(64), Some(65)), Way::Here);
        assert_eq!(blocks.way(1, None, None), Way::Here);
    }

    #[test]
    fn a_copy_between_two_devices_names_both_owners() {
        let blocks = two();
        let both = Way::Between(context(16), context(32));
        for device in 0..3 {
            assert_eq!(blocks.way(device, Some(4096), Some(8192)), both);
        }
    }

    #[test]
    fn a_peer_reaches_the_others_memory_from_its_own_context() {
        let mut blocks = two();
        blocks.peers.push(Peer {
            device: 1,
            from: context(32),
            of: context(16),
        });
        assert_eq!(blocks.way(1, Some(4096), Some(8192)), Way::Here);
        assert_eq!(
            blocks.way(0, Some(4096), Some(8192)),
            Way::Through(context(32))
        );
        assert_eq!(blocks.way(0, Some(8192), None), Way::Through(context(32)));
    }
}
