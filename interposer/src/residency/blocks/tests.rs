//! The books of chunks: what of managed memory counts as sent home.

use super::*;

const BYTES: u64 = 4096;

/// Managed memory of two contexts on device 0, at those addresses, all of it at home.
fn at_home() -> (Blocks, [u64; 2]) {
    let mut blocks = Blocks::default();
    let bases = [BYTES, 2 * BYTES];
    for base in bases {
        let chunk = Chunk {
            at: base,
            bytes: BYTES,
            used: BYTES,
            valid: Valid::Managed { home: false },
            new: None,
        };
        let number = usize::try_from(base).unwrap();
        let block = Block {
            bytes: BYTES,
            reserved: BYTES,
            handle: CUcontext(core::ptr::without_provenance_mut(number)),
            context: ContextId::NONE,
            device: DeviceKey::of_index(0).unwrap(),
            ordinal: 0,
            pool: None,
            freed: None,
            chunks: vec![chunk],
        };
        blocks.insert(base, block);
    }
    blocks.are_home(0);
    (blocks, bases)
}

fn homes(blocks: &Blocks) -> Vec<u64> {
    let home = |chunk: &Chunk| matches!(chunk.valid, Valid::Managed { home: true });
    let list = blocks.some(0, u64::MAX, home);
    list.iter().map(|(base, ..)| *base).collect()
}

/// A return that fails later would else find it again and again as memory to be given up.
#[test]
fn managed_memory_that_was_given_up_is_not_sent_home_again() {
    let (mut blocks, [failed, other]) = at_home();
    assert_eq!((homes(&blocks).len(), blocks.away[0]), (2, 2 * BYTES));
    assert!(blocks.is_gone(failed, 0).is_none());
    blocks.has_gone(other, 0, false);
    blocks.are_home(0);
    assert_eq!((homes(&blocks), blocks.away[0]), (vec![other], BYTES));
}

/// The driver frees managed memory with its context, before that is noted here.
#[test]
fn an_address_that_is_given_again_has_the_bytes_of_one_block() {
    let (mut blocks, [base, _]) = at_home();
    let mut next = blocks.map[&base].clone();
    next.chunks[0].valid = Valid::Managed { home: false };
    blocks.insert(base, next);
    assert_eq!((blocks.movable[0], blocks.away[0]), (2 * BYTES, BYTES));
    assert!(blocks.remove(base).is_some() && blocks.remove(base).is_none());
    assert_eq!(blocks.movable[0], BYTES);
}

#[test]
fn a_refused_free_puts_memory_back_unless_its_address_has_another() {
    let (mut blocks, [base, _]) = at_home();
    let block = blocks.remove(base).unwrap();
    blocks.put_back(base, block.clone());
    assert_eq!((blocks.movable[0], blocks.away[0]), (2 * BYTES, 2 * BYTES));
    let mut next = block.clone();
    next.chunks[0].valid = Valid::Managed { home: false };
    let _ = blocks.remove(base);
    blocks.insert(base, next);
    blocks.put_back(base, block);
    assert_eq!((blocks.movable[0], blocks.away[0]), (2 * BYTES, BYTES));
}

#[test]
fn memory_at_an_address_that_was_given_up_is_sent_home() {
    let (mut blocks, [failed, _]) = at_home();
    let _ = blocks.is_gone(failed, 0);
    let block = blocks.remove(failed).unwrap();
    blocks.insert(failed, block);
    blocks.are_home(0);
    assert_eq!(homes(&blocks).len(), 2);
}
