//! Host memory for tenants' memory: one memory file a process, made by the daemon, of which ranges
//! are allocated as they are given, so that their pages count for the daemon's memory cgroup and a
//! full host shows here.
//!
//! A file is one process's: no other gets its descriptor, so no tenant can read another's bytes.
//! The daemon keeps it, so that it can store ranges elsewhere, and so that what a process drops is
//! free at once, whatever the process has mapped.
//!
//! The brain decides which tenant may have how much: it counts what is given here together with
//! what it has reserved.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpushare_core::ProcessId;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::Stored;

use crate::foreign::Lane;
use crate::host_file::HostFile;
use crate::pages::PagesError;

/// The longest range. Allocating it takes about 15 ms. A process that wants more asks again.
pub(super) const PIECE: Bytes = Bytes::mib(64);
/// Ranges are multiples of this.
const LEAST: Bytes = Bytes::mib(2);
/// The places of this many bytes in each process's file are this daemon's.
const OWN: u64 = 1 << 42;
/// Daemons with places of their own in one file: as many as fit the upper half of it. Daemons
/// without a number of their start have places in the lower half.
pub(super) const STARTS: u64 = 1 << 19;

/// The part that each process has of the node's host memory.
#[derive(Debug)]
pub(super) struct HostStore {
    budget: Bytes,
    /// The longest range of this node.
    piece: Bytes,
    /// Where this daemon's ranges begin in a file: ranges that a process has from another daemon
    /// are elsewhere.
    base: u64,
    owners: BTreeMap<ProcessId, Owner>,
}

/// A process's part.
#[derive(Debug, Default)]
struct Owner {
    file: Option<Arc<HostFile>>,
    /// Its ranges, by their places in the file.
    ranges: BTreeMap<u64, Bytes>,
    /// It comes from a previous daemon, and may have memory from there.
    earlier: bool,
    /// Bytes that the process reports to have from previous daemons.
    before: Bytes,
    /// The file is a previous daemon's too: `before` lies in it.
    adopted: bool,
    /// Its library can have ranges stored in files.
    stores: bool,
    /// Ranges the bytes of which are in the node's files too, by their places.
    copies: BTreeMap<u64, Stored>,
}

impl Owner {
    fn given(&self) -> Bytes {
        self.own() + self.before
    }

    /// What this daemon gave it.
    fn own(&self) -> Bytes {
        self.ranges.values().copied().sum()
    }

    /// No more lies in an adopted file than is allocated there.
    fn compare(&mut self) {
        let file = self.file.as_ref().filter(|_| self.adopted);
        if let Some(allocated) = file.and_then(|file| file.allocated().ok()) {
            self.before = self.before.min(Bytes(allocated) - self.own());
        }
    }
}

impl HostStore {
    pub(super) fn new(budget: Bytes) -> Self {
        let piece = Bytes(budget.0 / 16 / LEAST.0 * LEAST.0);
        Self {
            budget,
            piece: piece.max(LEAST).min(PIECE),
            base: base(0),
            owners: BTreeMap::new(),
        }
    }

    /// This daemon is the one of this number, of all that have had the tenants. Its places are no
    /// other's.
    pub(super) fn starts(&mut self, number: u64) {
        self.base = base(number);
    }

    /// The node's budget.
    pub(super) fn budget(&self) -> Bytes {
        self.budget
    }

    /// The longest range of this node: small enough that a small budget has several.
    pub(super) fn piece(&self) -> Bytes {
        self.piece
    }

    /// Bytes that a process has.
    pub(super) fn given(&self, process: ProcessId) -> Bytes {
        let owner = self.owners.get(&process);
        owner.map_or(Bytes::ZERO, Owner::given)
    }

    /// The part of them that is in the node's files too.
    pub(super) fn copies(&self, process: ProcessId) -> Bytes {
        let owner = self.owners.get(&process).into_iter();
        let copies = owner.flat_map(|owner| owner.copies.values());
        copies.map(|stored| Bytes(stored.bytes)).sum()
    }

    /// The bytes of a range are in a file too, or will be.
    pub(super) fn is_copied(&mut self, process: ProcessId, offset: u64, stored: Stored) {
        if let Some(owner) = self.owners.get_mut(&process) {
            owner.copies.insert(offset, stored);
        }
    }

    /// These bytes are in a file no more.
    pub(super) fn is_forgotten(&mut self, process: ProcessId, stored: Stored) {
        if let Some(owner) = self.owners.get_mut(&process) {
            let place = |one: &Stored| (one.file, one.at);
            owner.copies.retain(|_, one| place(one) != place(&stored));
        }
    }

    /// Bytes of a process's ranges that it could have stored in files.
    pub(super) fn storable(&self, process: ProcessId) -> Bytes {
        let owner = self.owners.get(&process).filter(|owner| owner.stores);
        owner.map_or(Bytes::ZERO, |owner| match owner.adopted {
            true => owner.given(),
            false => owner.own(),
        })
    }

    /// Bytes of a process's ranges that stay on the host whatever it is asked.
    pub(super) fn unstorable(&self, process: ProcessId) -> Bytes {
        self.given(process) - self.storable(process)
    }

    /// Whether a process's library can have ranges stored.
    pub(super) fn can_store(&self, process: ProcessId) -> bool {
        let owner = self.owners.get(&process);
        owner.is_some_and(|owner| owner.stores)
    }

    /// A process's library can have ranges stored.
    pub(super) fn stores(&mut self, process: ProcessId) {
        self.owners.entry(process).or_default().stores = true;
    }

    /// A new range for a process, whatever the budget: its place, and the file. Its memory is to be
    /// allocated on the lane of the process's tenant.
    pub(super) fn place(
        &mut self,
        process: ProcessId,
        bytes: Bytes,
        lane: &Lane,
    ) -> Result<(u64, Arc<HostFile>), PagesError> {
        let owner = self.owners.entry(process).or_default();
        let file = match &owner.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(owner.file.insert(Arc::new(HostFile::create(lane)?))),
        };
        let mut places = (0..OWN / PIECE.0).map(|place| self.base + place * PIECE.0);
        let offset = places.find(|offset| !owner.ranges.contains_key(offset));
        let offset = offset.ok_or(PagesError::NoPlace)?;
        owner.ranges.insert(offset, bytes);
        Ok((offset, file))
    }

    /// The file of a process, if this is a range in it.
    pub(super) fn range(
        &self,
        process: ProcessId,
        offset: u64,
        bytes: u64,
    ) -> Option<Arc<HostFile>> {
        let owner = self.owners.get(&process)?;
        let is_own = owner.ranges.get(&offset) == Some(&Bytes(bytes));
        let is_before = owner.adopted && !self.is_ours(offset) && is_range(offset, bytes);
        (is_own || is_before).then(|| owner.file.clone()).flatten()
    }

    /// The ranges that this daemon gave a process: their places and lengths.
    pub(super) fn ranges(&self, process: ProcessId) -> impl Iterator<Item = (u64, Bytes)> {
        let owner = self.owners.get(&process).into_iter();
        let ranges = owner.flat_map(|owner| owner.ranges.iter());
        ranges.map(|(offset, bytes)| (*offset, *bytes))
    }

    /// Whether a place in a file is this daemon's to give.
    fn is_ours(&self, offset: u64) -> bool {
        offset / OWN == self.base / OWN
    }

    /// A process that can move its memory comes from a previous daemon. What others say of earlier
    /// memory is false.
    pub(super) fn comes(&mut self, process: ProcessId) {
        self.owners.entry(process).or_default().earlier = true;
    }

    /// Whether a process comes from a previous daemon.
    pub(super) fn is_earlier(&self, process: ProcessId) -> bool {
        let owner = self.owners.get(&process);
        owner.is_some_and(|owner| owner.earlier)
    }

    /// A process presents the file in which it has ranges from previous daemons.
    pub(super) fn adopt(&mut self, process: ProcessId, file: HostFile) {
        let owner = self.owners.get_mut(&process);
        if let Some(owner) = owner.filter(|owner| owner.earlier && owner.file.is_none()) {
            (owner.file, owner.adopted) = (Some(Arc::new(file)), true);
            owner.compare();
        }
    }

    /// A process of the previous daemon reports so much, of which `most` is plausible.
    pub(super) fn found(&mut self, process: ProcessId, bytes: Bytes, most: Bytes) {
        let bytes = bytes.min(most).min(self.budget);
        let owner = self.owners.get_mut(&process);
        if let Some(owner) = owner.filter(|owner| owner.earlier) {
            owner.before = bytes - owner.own();
            owner.compare();
        }
    }

    /// A process says that it uses a range no more: its memory is given back.
    pub(super) fn drop_range(&mut self, process: ProcessId, offset: u64, bytes: u64) {
        let is_ours = self.is_ours(offset);
        let Some(owner) = self.owners.get_mut(&process) else {
            return;
        };
        let given = owner.ranges.remove(&offset);
        owner.copies.remove(&offset);
        if given.is_none() {
            owner.before -= Bytes(bytes);
        }
        // A file that the process did not present is gone with its last mapping.
        let is_here = given.is_some() || (owner.adopted && !is_ours && is_range(offset, bytes));
        let file = owner.file.as_ref().filter(|_| is_here);
        let length = given.unwrap_or(Bytes(bytes)).0;
        if let Some(file) = file {
            file.give_back(offset, length);
        }
    }

    /// A range that work was done for comes to nothing. Its process may have said before the work
    /// began that it drops the place: then the memory that came is in no books, and goes back.
    pub(super) fn take_back(
        &mut self,
        process: ProcessId,
        file: &Arc<HostFile>,
        (offset, bytes): (u64, u64),
    ) {
        if self.range(process, offset, bytes).is_some() {
            return self.drop_range(process, offset, bytes);
        }
        // Another range of the process may begin at that place by now.
        let owner = self.owners.get(&process);
        let other = owner.and_then(|owner| owner.ranges.get(&offset));
        let kept = other.map_or(0, |other| other.0.min(bytes));
        if kept < bytes {
            file.give_back(offset + kept, bytes - kept);
        }
    }

    /// A process has ended: its memory is free at once. A child that it forked may have the file
    /// mapped for as long as it likes, and its bytes are of no use there.
    pub(super) fn ended(&mut self, process: ProcessId) {
        let owner = self.owners.remove(&process);
        if let Some(file) = owner.and_then(|owner| owner.file) {
            file.give_all_back();
        }
    }

    /// A process lives on under another number, or as another program: its file stays as it is.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.owners.remove(&process);
    }
}

/// Where the ranges of the daemon of this number begin.
fn base(number: u64) -> u64 {
    (STARTS + number % STARTS) * OWN
}

/// Whether these could be a range of any daemon's.
fn is_range(offset: u64, bytes: u64) -> bool {
    let pages = offset.is_multiple_of(LEAST.0) && bytes.is_multiple_of(LEAST.0);
    pages && bytes > 0 && bytes <= PIECE.0
}

#[cfg(test)]
mod tests {
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
        store.forget(ONE);
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
        let shown = Foreign::new(file.descriptor().unwrap(), &lane);
        let adopted = Arc::new(HostFile::adopt(shown).unwrap());
        next.adopt(
            ONE,
            HostFile::adopt(Foreign::new(adopted.descriptor().unwrap(), &lane)).unwrap(),
        );
        next.ended(ONE);
        assert_eq!(allocated(&adopted), 0);
    }

    #[test]
    fn memory_of_a_process_that_lives_on_stays_as_it_is() {
        let mut store = store(Bytes::gib(1));
        let (_, file) = store.allocate(ONE, Bytes::mib(4));
        store.forget(ONE);
        assert_eq!(allocated(&file), 4 << 20);
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
        next.stores(ONE);
        next.found(ONE, Bytes::mib(8), Bytes::MAX);
        assert!(next.storable(ONE).is_zero() && next.range(ONE, mine, 4 << 20).is_none());
        let shown = Foreign::new(file.descriptor().unwrap(), &lane());
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
}
