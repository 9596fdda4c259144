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

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use gpushare_core::ProcessId;
use gpushare_protocol::units::Bytes;
use gpushare_protocol::wire::Stored;

use crate::foreign::Lane;
use crate::host_file::{HOST_FILE, HostFile};
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

/// Places in an earlier daemon's file that are to be given back once the lane has room. A process
/// names any place of such a file, and others wait for what another process does to it.
const PUT_OFF: usize = 1024;

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
    /// Those with places that are to be given back later.
    behind: BTreeSet<ProcessId>,
    /// Those in whose adopted file other bytes may be allocated than count.
    unsure: BTreeSet<ProcessId>,
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
    /// Ranges the bytes of which are in the node's files too, by their places.
    copies: BTreeMap<u64, Stored>,
    /// Ranges to which bytes were brought from files, whosever they are.
    fetched: BTreeSet<u64>,
    /// Places of an adopted file that are to be given back later, and their lengths.
    put_off: BTreeMap<u64, u64>,
}

impl Owner {
    /// A place is given back later. `false`: too many are.
    fn puts_off(&mut self, offset: u64, bytes: u64) -> bool {
        if self.put_off.len() >= PUT_OFF && !self.put_off.contains_key(&offset) {
            return false;
        }
        let most = self.put_off.entry(offset).or_default();
        *most = bytes.max(*most);
        true
    }

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
            behind: BTreeSet::new(),
            unsure: BTreeSet::new(),
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

    /// Whether a process has any bytes, or a presented file with bytes of which it said nothing.
    pub(super) fn has_any(&self, process: ProcessId) -> bool {
        let owner = self.owners.get(&process);
        owner.is_some_and(|owner| {
            let file = owner.file.as_ref().filter(|_| owner.adopted);
            let allocated = file.and_then(|file| file.allocated().ok());
            !owner.given().is_zero() || allocated.is_some_and(|bytes| bytes > 0)
        })
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

    /// Bytes of the ranges to which a process had bytes brought from files, and that it has still.
    pub(super) fn fetched(&self, process: ProcessId) -> Bytes {
        let owner = self.owners.get(&process).into_iter();
        let fetched = owner.flat_map(|owner| {
            let ranges = &owner.ranges;
            owner.fetched.iter().filter_map(|offset| ranges.get(offset))
        });
        fetched.copied().sum()
    }

    /// The bytes of a file are brought to a range.
    pub(super) fn is_fetched(&mut self, process: ProcessId, offset: u64) {
        if let Some(owner) = self.owners.get_mut(&process) {
            owner.fetched.insert(offset);
        }
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
        let owner = self.owners.get(&process);
        owner.map_or(Bytes::ZERO, |owner| match owner.adopted {
            true => owner.given(),
            false => owner.own(),
        })
    }

    /// Bytes of a process's ranges that stay on the host whatever it is asked.
    pub(super) fn unstorable(&self, process: ProcessId) -> Bytes {
        self.given(process) - self.storable(process)
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
            self.unsure.insert(process);
        }
    }

    /// A process of the previous daemon reports so much, of which `most` is plausible.
    pub(super) fn found(&mut self, process: ProcessId, bytes: Bytes, most: Bytes) {
        let bytes = bytes.min(most).min(self.budget);
        let owner = self.owners.get_mut(&process);
        if let Some(owner) = owner.filter(|owner| owner.earlier) {
            owner.before = bytes - owner.own();
            owner.compare();
            self.unsure.insert(process);
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
        owner.fetched.remove(&offset);
        // A file that the process did not present is gone with its last mapping.
        let is_here = given.is_some() || (owner.adopted && !is_ours && is_range(offset, bytes));
        let file = owner.file.as_ref().filter(|_| is_here);
        let length = given.unwrap_or(Bytes(bytes)).0;
        match (file, given) {
            (Some(file), None) if file.lane().is_full() => {
                if !owner.puts_off(offset, length) {
                    // It stays allocated, and counts.
                    return;
                }
                self.behind.insert(process);
            }
            (Some(file), _) => file.give_back(offset, length),
            (None, _) => {}
        }
        if given.is_none() {
            owner.before -= Bytes(bytes);
            // That place may have held less.
            self.unsure.insert(process);
        }
    }

    /// Of earlier daemons' places in this stretch, a process has those that begin at `had`. Memory
    /// of the others is given back: such a daemon ended before the process heard of it.
    pub(super) fn has_only(&mut self, process: ProcessId, about: Range<u64>, had: &[u64]) {
        let own = (self.base, self.base + OWN);
        let Some(owner) = self.owners.get(&process).filter(|owner| owner.adopted) else {
            return;
        };
        let file = owner.file.as_ref().filter(|file| !file.lane().is_full());
        // It stays allocated where the lane is full, and counts.
        let Some(file) = file else { return };
        let had = had.iter().map(|at| (*at, at.saturating_add(PIECE.0)));
        let mut kept: Vec<(u64, u64)> = had.chain([own]).collect();
        kept.sort_unstable();
        let about = about.start..about.end.min(HOST_FILE.unsigned_abs());
        file.give_back_each(between(about, &kept));
        self.unsure.insert(process);
    }

    /// The processes in whose adopted files nothing is under way, and other bytes may be allocated
    /// than count.
    pub(super) fn unsure(&self) -> Vec<ProcessId> {
        let is_idle = |process: &&ProcessId| {
            let file = self.owners.get(process).and_then(|one| one.file.as_ref());
            file.is_some_and(|file| file.lane().is_idle())
        };
        self.unsure.iter().filter(is_idle).copied().collect()
    }

    /// Counts what is allocated in a process's adopted file, whatever it says, up to what is
    /// plausible. No memory of it is being allocated or given back. Whether it is another figure.
    pub(super) fn recount(&mut self, process: ProcessId, most: Bytes) -> bool {
        self.unsure.remove(&process);
        let owner = self.owners.get_mut(&process);
        let Some(owner) = owner.filter(|owner| owner.adopted) else {
            return false;
        };
        let allocated = owner.file.as_ref().and_then(|file| file.allocated().ok());
        let all = allocated.map(|bytes| Bytes(bytes).min(most).min(self.budget));
        let before = all.map_or(owner.before, |all| all - owner.own());
        std::mem::replace(&mut owner.before, before) != before
    }

    /// Gives back what was put off, where there is room for it.
    pub(super) fn give_back_more(&mut self) {
        let owners = &mut self.owners;
        self.behind.retain(|process| {
            let Some(owner) = owners.get_mut(process) else {
                return false;
            };
            let Some(file) = owner.file.as_ref() else {
                return false;
            };
            let waits = file.lane().is_full();
            if !waits {
                file.give_back_each(std::mem::take(&mut owner.put_off));
            }
            waits
        });
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
        self.unsure.remove(&process);
        if let Some(file) = owner.and_then(|owner| owner.file) {
            file.give_all_back();
        }
    }
}

/// Where the ranges of the daemon of this number begin.
fn base(number: u64) -> u64 {
    (STARTS + number % STARTS) * OWN
}

/// The parts of a stretch, with their lengths, that lie outside these, which are in order.
fn between(about: Range<u64>, kept: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut from, mut parts) = (about.start, Vec::new());
    for (begin, end) in kept.iter().copied().chain([(about.end, about.end)]) {
        let begin = begin.min(about.end);
        if from < begin {
            parts.push((from, begin - from));
        }
        from = from.max(end);
    }
    parts
}

/// Whether these could be a range of any daemon's.
fn is_range(offset: u64, bytes: u64) -> bool {
    let pages = offset.is_multiple_of(LEAST.0) && bytes.is_multiple_of(LEAST.0);
    pages && bytes > 0 && bytes <= PIECE.0
}

#[cfg(test)]
mod tests;
