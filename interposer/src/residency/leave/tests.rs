//! Room on the host for a part of a way out.

use gpushare_cuda_abi::cuda::CUcontext;

use super::super::blocks::Block;
use super::super::host::Given;
use super::*;
use crate::driver::contexts::ContextId;
use crate::driver::device::DeviceKey;

const MIB: u64 = 1 << 20;

/// Chunks of these sizes on the first device, each the only one of its allocation.
fn chunks(sizes: &[u64]) -> Blocks {
    let mut blocks = Blocks::default();
    for (number, bytes) in (1..).zip(sizes) {
        let chunk = Chunk {
            at: number << 32,
            bytes: *bytes,
            used: *bytes,
            valid: Valid::Device(number),
            new: None,
        };
        let block = Block {
            bytes: *bytes,
            reserved: *bytes,
            handle: CUcontext(core::ptr::null_mut()),
            context: ContextId::NONE,
            device: DeviceKey::of_index(0).unwrap(),
            ordinal: 0,
            pool: None,
            freed: None,
            chunks: vec![chunk],
        };
        blocks.insert(number << 32, block);
    }
    blocks
}

fn with_room(sizes: &[u64], bytes: u64) -> Blocks {
    let mut blocks = chunks(sizes);
    blocks.store.add(Given {
        address: 4096,
        offset: 0,
        bytes,
    });
    blocks
}

/// The bytes of the chunks of the next part.
fn next(blocks: &mut Blocks) -> Result<u64, u64> {
    let (list, _) = to_leave(blocks, 0, None)?;
    Ok(list.iter().map(|(_, _, chunk)| chunk.bytes).sum())
}

#[test]
fn lack_of_room_is_that_of_all_chunks_that_are_left() {
    let sizes = [64 * MIB; 3];
    assert_eq!(next(&mut with_room(&sizes, 60 * MIB)), Err(132 * MIB));
    // The first one of a part had its room.
    let sizes = [16 * MIB, 16 * MIB, 64 * MIB];
    let mut blocks = with_room(&sizes, 20 * MIB);
    assert_eq!(next(&mut blocks), Err(76 * MIB));
    assert_eq!(blocks.store.free(), 20 * MIB, "and has given it back");
}

#[test]
fn part_with_room_leaves_though_there_is_none_for_the_rest() {
    let mut blocks = with_room(&[16 * MIB, 16 * MIB, 64 * MIB], 32 * MIB);
    assert_eq!(next(&mut blocks), Ok(32 * MIB));
    assert_eq!(blocks.store.free(), 0);
}
