//! The books of the host's ranges.

use super::*;

const MIB: u64 = 1 << 20;
const ONE: CUcontext = CUcontext(core::ptr::without_provenance_mut(16));
const TWO: CUcontext = CUcontext(core::ptr::without_provenance_mut(32));

fn given(address: usize, bytes: u64) -> Given {
    Given {
        address,
        offset: 0,
        bytes,
    }
}

#[test]
fn pieces_never_overlap_and_come_together_again() {
    let mut store = Store::default();
    store.add(given(0x10_0000, 8 * MIB));
    store.add(given(0x90_0000, 4 * MIB));
    let one = store.take(6 * MIB).unwrap();
    let two = store.take(4 * MIB).unwrap();
    assert_eq!(two.len(), 2, "over the end of a range");
    assert_eq!(store.find(two[0]), Found::At(0x10_0000 + (6 << 20)));
    assert_eq!(store.find(two[1]), Found::At(0x90_0000));
    assert_eq!((store.free(), store.take(3 * MIB)), (2 * MIB, None));
    store.give(one);
    store.give(two);
    assert_eq!(store.free(), store.bytes());
    assert_eq!(store.take(12 * MIB).unwrap().len(), 2, "whole ranges again");
}

#[test]
fn each_range_is_pinned_once() {
    let mut store = Store::default();
    store.add(given(4096, MIB));
    let (first, range) = store.next_to_pin().unwrap();
    assert_eq!(range, given(4096, MIB));
    store.settled(first, Pinned::By(ONE));
    assert_eq!(store.next_to_pin(), None);
    store.add(given(8192, MIB));
    let (second, range) = store.next_to_pin().unwrap();
    assert_eq!(range, given(8192, MIB));
    store.settled(second, Pinned::No);
    assert_eq!(store.next_to_pin(), None);
}

#[test]
fn range_is_pinned_again_when_its_own_context_ends() {
    let mut store = Store::default();
    store.add(given(4096, MIB));
    store.add(given(8192, MIB));
    store.settled(0, Pinned::By(ONE));
    store.settled(1, Pinned::No);
    store.context_gone(TWO);
    assert_eq!(store.next_to_pin(), None);
    store.context_gone(ONE);
    assert_eq!(store.next_to_pin(), Some((0, given(4096, MIB))));
}

#[test]
fn range_of_a_context_that_ended_may_still_be_known_to_the_driver() {
    let mut store = Store::default();
    store.add(given(4096, MIB));
    store.add(given(8192, MIB));
    store.settled(1, Pinned::By(ONE));
    store.context_gone(ONE);
    let surplus = [store.surplus(0), store.surplus(0)];
    let known = surplus.map(|range| range.map(|(_, pinned)| pinned.is_known()));
    assert_eq!(known, [Some(true), Some(false)], "and one that never was");
}

#[test]
fn only_a_range_that_is_unused_and_too_much_is_given_back() {
    let mut store = Store::default();
    store.add(given(0x10_0000, 8 * MIB));
    store.add(given(0x90_0000, 4 * MIB));
    assert_eq!(store.surplus(9 * MIB), None, "too little would be left");
    let used = store.take(9 * MIB).unwrap();
    assert_eq!(store.surplus(0), None, "something lies in both");
    store.give(used[1..].to_vec());
    let (range, _) = store.surplus(8 * MIB).unwrap();
    assert_eq!(range, given(0x90_0000, 4 * MIB));
    assert_eq!((store.bytes(), store.surplus(0)), (8 * MIB, None));
    store.give(used[..1].to_vec());
    assert_eq!(store.take(8 * MIB).unwrap().len(), 1);
}

#[test]
fn what_a_copy_may_still_write_to_is_used_for_nothing_else() {
    let mut store = Store::default();
    store.add(given(0x10_0000, 8 * MIB));
    let taken = store.take(2 * MIB).unwrap();
    store.lose(&taken);
    assert_eq!((store.usable(), store.free()), (6 * MIB, 6 * MIB));
    assert_eq!((store.take(7 * MIB), store.surplus(0)), (None, None));
}

#[test]
fn a_stored_range_keeps_its_pieces_and_nothing_else_is_put_there() {
    let mut store = Store::default();
    store.add(given(0x10_0000, 8 * MIB));
    let taken = store.take(6 * MIB).unwrap();
    let (asked, range) = store.next_to_store(&[]).unwrap();
    assert_eq!(range, given(0x10_0000, 8 * MIB));
    assert!(store.unchanged(asked).is_some());
    let stored = Stored {
        file: 1,
        at: 2,
        bytes: 8 * MIB,
        sum: 3,
    };
    store.is_stored(asked, stored);
    assert_eq!(store.find(taken[0]), Found::Stored(asked.number, stored, 0));
    assert_eq!(store.unchanged(asked), None, "it is not mapped any more");
    assert_eq!(
        (store.bytes(), store.free(), store.covered()),
        (0, 0, 6 * MIB)
    );
    assert_eq!((store.take(1), store.next_to_store(&[])), (None, None));
    assert_eq!((store.next_to_pin(), store.surplus(0)), (None, None));
    assert_eq!(store.unused_stored(), None, "something lies there");
    let behind = Piece {
        offset: 2 * MIB,
        bytes: 4 * MIB,
        ..taken[0]
    };
    store.give(vec![behind]);
    assert_eq!(store.covered(), 2 * MIB, "a hole covers nothing");
    store.give(vec![Piece {
        bytes: 2 * MIB,
        ..taken[0]
    }]);
    assert_eq!(
        (store.unused_stored(), store.has_stored()),
        (Some(stored), false)
    );
    assert_eq!(store.covered(), 0);
}

#[test]
fn a_range_into_which_bytes_came_since_is_not_as_it_was_asked_for() {
    let mut store = Store::default();
    store.add(given(0x10_0000, 8 * MIB));
    store.add(given(0x90_0000, 8 * MIB));
    let first = store.take(2 * MIB).unwrap();
    let (asked, range) = store.next_to_store(&[]).unwrap();
    assert_eq!(store.unchanged(asked), Some((range, Pinned::Unasked)));
    let behind = store.take(6 * MIB).unwrap();
    assert_eq!(store.unchanged(asked), None, "bytes beside those");
    let (asked, _) = store.next_to_store(&[]).unwrap();
    store.give(first);
    assert!(store.unchanged(asked).is_some(), "nothing was written");
    let again = store.take(2 * MIB).unwrap();
    assert_eq!(store.unchanged(asked), None, "other bytes in their place");
    let (asked, _) = store.next_to_store(&[]).unwrap();
    let elsewhere = store.take(8 * MIB).unwrap();
    assert!(store.unchanged(asked).is_some(), "bytes in another range");
    for pieces in [behind, again, elsewhere] {
        store.give(pieces);
    }
    assert!(store.surplus(8 * MIB).is_some() && store.surplus(0).is_some());
    assert_eq!(store.unchanged(asked), None, "it is given back");
}

#[test]
fn a_range_that_is_left_out_is_not_stored_and_others_are() {
    let mut store = Store::default();
    store.add(given(0x10_0000, 8 * MIB));
    store.add(given(0x90_0000, 8 * MIB));
    let _taken = store.take(10 * MIB).unwrap();
    let (first, _) = store.next_to_store(&[]).unwrap();
    let (second, range) = store.next_to_store(&[first]).unwrap();
    assert_eq!(range, given(0x90_0000, 8 * MIB));
    assert_eq!(store.next_to_store(&[first, second]), None);
}

#[test]
fn what_is_unused_or_may_be_written_to_is_not_stored() {
    let mut store = Store::default();
    store.add(given(0x10_0000, 8 * MIB));
    assert_eq!(store.next_to_store(&[]), None);
    let taken = store.take(2 * MIB).unwrap();
    store.lose(&taken);
    assert_eq!(store.next_to_store(&[]), None);
}
