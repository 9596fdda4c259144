//! What the store gives, takes back and keeps of each process.

use super::*;
use crate::foreign::{Foreign, Lanes};
use std::sync::mpsc::channel;

const ONE: ProcessId = ProcessId(1);
const OTHER: ProcessId = ProcessId(2);

fn store(budget: Bytes) -> HostStore {
    HostStore::new(budget)
}

/// That of the daemon of this number.
fn store_of(number: u64) -> HostStore {
    let mut store = store(Bytes::gib(1));
    store.starts(number);
    store
}

fn lane() -> Lane {
    Lanes::default().own()
}

impl HostStore {
    /// A new range, with its memory.
    fn allocate(&mut self, process: ProcessId, bytes: Bytes) -> (u64, Arc<HostFile>) {
        let (offset, file) = self.place(process, bytes, &lane()).unwrap();
        file.allocate(offset, bytes.0).unwrap();
        (offset, file)
    }
}

/// What is allocated once all that was wanted of a file is done.
fn allocated(file: &HostFile) -> u64 {
    let (says, heard) = channel();
    file.lane().run(move || says.send(()).unwrap());
    heard.recv().unwrap();
    file.allocated().unwrap()
}

#[test]
fn what_a_process_claims_or_drops_changes_its_own_part_only() {
    let mut store = store(Bytes::mib(64));
    let (offset, _) = store.allocate(ONE, Bytes::mib(16));
    store.allocate(OTHER, Bytes::mib(16));
    let given = |store: &HostStore| [ONE, OTHER].map(|process| store.given(process).0 >> 20);
    store.drop_range(ONE, 0, u64::MAX);
    assert_eq!(given(&store), [16, 16], "it has no such range");
    store.drop_range(ONE, offset, u64::MAX);
    assert_eq!(given(&store), [0, 16]);
    store.found(ONE, Bytes::MAX, Bytes::MAX);
    assert_eq!(given(&store), [0, 16], "it is not an earlier daemon's");
    store.comes(ONE);
    store.found(ONE, Bytes::MAX, Bytes::mib(8));
    assert_eq!(given(&store), [8, 16], "no more than is plausible");
    store.found(ONE, Bytes::MAX, Bytes::MAX);
    assert_eq!(given(&store), [64, 16], "the whole budget at most");
    store.ended(ONE);
    assert_eq!(given(&store), [0, 16]);
}

#[test]
fn a_dropped_range_is_free_memory_and_its_place_is_given_again() {
    let mut store = store(Bytes::gib(1));
    let (first, file) = store.allocate(ONE, Bytes::mib(4));
    let (second, _) = store.allocate(ONE, Bytes::mib(2));
    assert_ne!(first, second);
    assert_eq!(allocated(&file), 6 << 20);
    store.drop_range(ONE, first, 4 << 20);
    assert_eq!(allocated(&file), 2 << 20);
    assert_eq!(store.allocate(ONE, Bytes::mib(4)).0, first);
    assert!(store.range(ONE, first, 4 << 20).is_some());
    assert!(store.range(ONE, first, 2 << 20).is_none(), "another length");
    assert!(store.range(OTHER, first, 4 << 20).is_none());
}

#[test]
fn memory_of_a_process_that_ended_is_free_though_a_child_has_it() {
    let mut store = store(Bytes::gib(1));
    let (_, childs) = store.allocate(ONE, Bytes::mib(4));
    let (_, others) = store.allocate(OTHER, Bytes::mib(2));
    store.ended(ONE);
    assert_eq!(allocated(&childs), 0);
    assert_eq!(allocated(&others), 2 << 20);
    assert_eq!(store.given(ONE), Bytes::ZERO);
}

#[test]
fn a_presented_file_is_free_once_its_process_ended() {
    let (mut one, mut next) = (store_of(77), store_of(78));
    let (_, file) = one.allocate(ONE, Bytes::mib(4));
    next.comes(ONE);
    let lane = lane();
    let shown = Foreign::new(file.file().try_clone().unwrap().into(), &lane);
    let adopted = Arc::new(HostFile::adopt(shown).unwrap());
    next.adopt(
        ONE,
        HostFile::adopt(Foreign::new(
            adopted.file().try_clone().unwrap().into(),
            &lane,
        ))
        .unwrap(),
    );
    next.ended(ONE);
    assert_eq!(allocated(&adopted), 0);
}

#[test]
fn another_daemons_ranges_are_at_other_places() {
    let (mut one, mut next) = (store_of(77), store_of(78));
    let (mine, _) = one.allocate(ONE, Bytes::mib(2));
    let (its, _) = next.allocate(ONE, Bytes::mib(2));
    assert_ne!(mine, its);
    next.comes(ONE);
    next.found(ONE, Bytes::mib(4), Bytes::MAX);
    assert_eq!(next.given(ONE), Bytes::mib(4));
    next.drop_range(ONE, mine, 2 << 20);
    assert_eq!(next.given(ONE), Bytes::mib(2));
    assert!(next.range(ONE, its, 2 << 20).is_some());
}

#[test]
fn a_daemons_places_end_where_the_next_daemons_begin() {
    let places = |number: u64| {
        let first = store_of(number).place(ONE, PIECE, &lane()).unwrap().0;
        (first, first + OWN)
    };
    // Earlier versions had places up to there, by the clock.
    let earlier = (1 << 19) * OWN;
    let (first, second, last) = (places(0), places(1), places(STARTS - 1));
    assert_eq!((first.0, first.1), (earlier, second.0));
    assert_eq!(last.1, 1 << 62, "the end of the file");
    assert_eq!(places(STARTS), first, "numbers begin anew");
}

#[test]
fn what_lies_in_a_presented_file_can_be_stored_and_is_freed_when_dropped() {
    let (mut one, mut next) = (store_of(77), store_of(78));
    let (mine, file) = one.allocate(ONE, Bytes::mib(4));
    next.comes(ONE);
    next.found(ONE, Bytes::mib(8), Bytes::MAX);
    assert!(next.storable(ONE).is_zero() && next.range(ONE, mine, 4 << 20).is_none());
    let shown = Foreign::new(file.file().try_clone().unwrap().into(), &lane());
    next.adopt(ONE, HostFile::adopt(shown).unwrap());
    assert_eq!(next.storable(ONE), Bytes::mib(4), "as the file shows");
    let (its, presented) = next.allocate(ONE, Bytes::mib(2));
    assert_eq!(allocated(&presented), 6 << 20, "it goes on with that file");
    let stored = next.range(ONE, mine, 4 << 20).is_some();
    assert!(stored && next.range(ONE, its, 4 << 20).is_none());
    next.drop_range(ONE, mine, 4 << 20);
    assert_eq!(allocated(&presented), 2 << 20);
    assert_eq!(next.given(ONE), Bytes::mib(2));
}

#[test]
fn bytes_on_their_way_to_or_from_a_file_are_known_until_one_copy_is_gone() {
    let mut store = store(Bytes::gib(1));
    let stored = |at| Stored {
        file: 1,
        at,
        bytes: 2 << 20,
        sum: 0,
    };
    let [(one, _), (two, _)] = [(); 2].map(|()| store.allocate(ONE, Bytes::mib(2)));
    store.is_copied(ONE, one, stored(0));
    store.is_copied(ONE, two, stored(PIECE.0));
    assert_eq!(store.copies(ONE), Bytes::mib(4));
    store.is_forgotten(ONE, stored(0));
    assert_eq!(store.copies(ONE), Bytes::mib(2));
    store.drop_range(ONE, two, 2 << 20);
    assert_eq!(
        (store.copies(ONE), store.given(ONE)),
        (Bytes::ZERO, Bytes::mib(2))
    );
}

#[test]
fn a_small_budget_has_several_ranges() {
    for (budget, piece) in [(96, 6), (8, 2), (64 << 10, 64)] {
        assert_eq!(store(Bytes::mib(budget)).piece(), Bytes::mib(piece));
    }
}

#[test]
fn on_a_lane_that_stands_few_holes_wait_and_more_stay_counted() {
    let (mut one, mut next) = (store_of(77), store_of(78));
    let (mine, file) = one.allocate(ONE, Bytes::mib(4));
    next.comes(ONE);
    let lane = lane();
    next.adopt(
        ONE,
        HostFile::adopt(Foreign::new(file.file().try_clone().unwrap().into(), &lane)).unwrap(),
    );
    next.found(ONE, Bytes::mib(4), Bytes::MAX);
    let go = lane.stands();
    let places = 2 * PUT_OFF as u64;
    for place in 1..places {
        next.drop_range(ONE, mine + place * PIECE.0, 2 << 20);
        let put_off = next.owners[&ONE].put_off.len();
        assert!(put_off <= PUT_OFF);
    }
    assert_eq!(next.owners[&ONE].put_off.len(), PUT_OFF);
    next.found(ONE, Bytes::mib(4), Bytes::MAX);
    next.drop_range(ONE, mine, 4 << 20);
    assert_eq!(next.given(ONE), Bytes::mib(4), "it is not given back");
    next.give_back_more();
    assert_eq!(next.owners[&ONE].put_off.len(), PUT_OFF, "the lane stands");
    drop(go);
    // All that waited is done: one more does not fill the lane again.
    let (done, is_done) = channel();
    lane.run(move || done.send(()).unwrap());
    is_done.recv().unwrap();
    next.give_back_more();
    assert!(next.owners[&ONE].put_off.is_empty() && next.behind.is_empty());
    next.drop_range(ONE, mine, 4 << 20);
    let (done, is_done) = channel();
    lane.run(move || done.send(()).unwrap());
    is_done.recv().unwrap();
    assert_eq!((allocated(&file), next.given(ONE)), (0, Bytes::ZERO));
}

/// A store to whose process another daemon gave 4 MiB in this file, at that place.
fn adopted() -> (HostStore, Arc<HostFile>, u64) {
    let (mut one, mut next) = (store_of(77), store_of(78));
    let (mine, file) = one.allocate(ONE, Bytes::mib(4));
    next.comes(ONE);
    let shown = Foreign::new(file.file().try_clone().unwrap().into(), &lane());
    next.adopt(ONE, HostFile::adopt(shown).unwrap());
    (next, file, mine)
}

/// The count once nothing is under way in the adopted file.
fn counted(store: &mut HostStore, most: Bytes) -> u64 {
    let file = store.owners[&ONE].file.clone().unwrap();
    allocated(&file);
    store.recount(ONE, most);
    store.given(ONE).0 >> 20
}

#[test]
fn what_is_allocated_in_an_adopted_file_counts_whatever_is_said() {
    let (mut store, _, mine) = adopted();
    store.found(ONE, Bytes::ZERO, Bytes::MAX);
    assert_eq!(counted(&mut store, Bytes::MAX), 4);
    store.drop_range(ONE, mine + 3 * PIECE.0, 4 << 20);
    assert_eq!(counted(&mut store, Bytes::MAX), 4, "nothing was there");
    assert_eq!(counted(&mut store, Bytes::mib(2)), 2, "what is plausible");
    store.drop_range(ONE, mine, 4 << 20);
    assert_eq!(counted(&mut store, Bytes::MAX), 0);
}

#[test]
fn places_of_earlier_daemons_that_a_process_does_not_name_are_given_back() {
    let (mut store, file, mine) = adopted();
    let unheard = mine + PIECE.0;
    file.allocate(unheard, 2 << 20).unwrap();
    let (_, own) = store.allocate(ONE, Bytes::mib(8));
    let all = 0..u64::MAX;
    store.has_only(ONE, all.clone(), &[mine, unheard]);
    assert_eq!(allocated(&own), 14 << 20);
    store.has_only(ONE, 0..unheard, &[mine]);
    assert_eq!(allocated(&own), 14 << 20, "it is not about that");
    store.has_only(ONE, all.clone(), &[mine]);
    assert_eq!(allocated(&own), 12 << 20);
    store.has_only(ONE, all, &[]);
    assert_eq!(allocated(&own), 8 << 20, "what this daemon gave stays");
}
