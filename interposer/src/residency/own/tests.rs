//! Ranges of addresses and the memory that they reach.

use super::*;

const MIB: u64 = 1 << 20;

/// Blocks with memory of so many bytes, mapped at these addresses.
fn mapped(all: &[(u64, u64)]) -> Blocks {
    let mut blocks = Blocks::default();
    for (number, (at, bytes)) in (FIRST..).zip(all) {
        let own = Own {
            props: Props {
                handle_types: 0,
                rdma: 0,
            },
            device: DeviceKey::default(),
            ordinal: 0,
            references: 1,
            is_fixed: false,
            maps: Vec::new(),
            chunk: Chunk {
                at: 0,
                bytes: *bytes,
                used: *bytes,
                valid: Valid::Device(number),
                new: None,
            },
            window: None,
        };
        blocks.movable[0] += bytes;
        blocks.owns.map.insert(number, own);
        blocks.mapped(number, *at, *bytes);
    }
    blocks
}

#[test]
fn a_range_reaches_all_memory_in_it_and_none_beside_it() {
    let at = 1 << 40;
    let blocks = mapped(&[
        (at, 20 * MIB),
        (at + 20 * MIB, 20 * MIB),
        (at + 40 * MIB, 2 * MIB),
    ]);
    let reached = |from, bytes| blocks.owns.over(at + from, bytes);
    assert_eq!(reached(0, 40 * MIB), [FIRST, FIRST + 1]);
    assert_eq!(reached(19 * MIB, 2 * MIB), [FIRST, FIRST + 1]);
    assert_eq!(reached(20 * MIB, 20 * MIB + 1), [FIRST + 1, FIRST + 2]);
    assert_eq!(reached(42 * MIB, MIB), [0_u64; 0]);
}

#[test]
fn all_that_a_shared_range_reaches_stays_on_the_device() {
    let at = 1 << 40;
    let mut blocks = mapped(&[(at, 20 * MIB), (at + 20 * MIB, 20 * MIB)]);
    blocks.fix_range(at + MIB, 30 * MIB);
    assert_eq!(blocks.owns.movable(DeviceKey::default()), 0);
    assert_eq!(blocks.movable[0], 0);
}
