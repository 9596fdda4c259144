//! The host store: memory that the daemon gives, in which this process's memory lies while it is
//! away. Asked for and pinned in the background, never during a move.

use std::collections::BTreeMap;

use gpushare_cuda_abi::cuda::CUcontext;
use gpushare_protocol::wire::Stored;

/// Sizes of requests are multiples of this.
pub(super) const STEP: u64 = 64 << 20;
/// The most that is asked for at once: the daemon allocates a range in its only thread, about
/// 0.2 s for each GiB.
pub(super) const MOST: u64 = 256 << 20;

/// A piece of the store: where it is mapped, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its range, and its place in that.
    range: usize,
    offset: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
}

/// A range that the daemon has given, mapped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Where it is mapped.
    pub(super) address: usize,
    /// Its place in the daemon's file, and its length.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The memory or the file behind a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Mapped here.
    Mapped(Given),
    /// In a file of the daemon's, and nowhere else.
    Stored(Stored),
}

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Mapped at this address.
    At(usize),
    /// In a file: the number of its range, where that is stored, and the place in it.
    Stored(usize, Stored, u64),
    /// There is no such piece.
    Nowhere,
}

#[derive(Debug)]
struct Range {
    backing: Backing,
    bytes: u64,
    /// A copy may still write to it.
    is_lost: bool,
    /// Free stretches, by their places.
    free: BTreeMap<u64, u64>,
    /// How often some of it was taken: other bytes come there each time.
    takes: u64,
    pinned: Pinned,
}

/// A range as it was when the daemon was asked to store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AsAsked {
    number: usize,
    takes: u64,
}

/// Whether the driver knows a range, so that copies reach it fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pinned {
    /// It was not asked yet.
    Unasked,
    /// It does, as long as this context lasts.
    By(CUcontext),
    /// It did, by a context that has ended. Whether it still does is documented nowhere.
    Ended,
    /// It will not.
    No,
}

/// All ranges that the daemon has given, by a number each.
#[derive(Debug, Default)]
pub(super) struct Store {
    ranges: BTreeMap<usize, Range>,
    next: usize,
    /// Bytes that nothing may use any more.
    lost: u64,
}

impl Store {
    /// A range that the daemon has given.
    pub(super) fn add(&mut self, given: Given) {
        self.put_back(given, Pinned::Unasked);
    }

    /// A range that [`surplus`](Self::surplus) took out stays.
    pub(super) fn put_back(&mut self, given: Given, pinned: Pinned) {
        let range = Range {
            backing: Backing::Mapped(given),
            bytes: given.bytes,
            is_lost: false,
            free: BTreeMap::from([(0, given.bytes)]),
            takes: 0,
            pinned,
        };
        self.ranges.insert(self.next, range);
        self.next += 1;
    }

    fn mapped(&self) -> impl Iterator<Item = (usize, &Range, Given)> {
        self.ranges
            .iter()
            .filter_map(|(number, range)| match range.backing {
                Backing::Mapped(given) => Some((*number, range, given)),
                Backing::Stored(_) => None,
            })
    }

    /// Bytes of host memory in all.
    pub(super) fn bytes(&self) -> u64 {
        self.mapped().map(|(_, range, _)| range.bytes).sum()
    }

    /// Bytes of host memory that can be used.
    pub(super) fn usable(&self) -> u64 {
        self.bytes() - self.lost
    }

    /// Bytes of movable memory that have a place, in memory or in files. Of a stored range those
    /// that lie there: nothing else is put there.
    pub(super) fn covered(&self) -> u64 {
        let covered = self.ranges.values().map(|range| match range.backing {
            Backing::Mapped(_) => range.bytes,
            Backing::Stored(_) => range.bytes - range.free.values().sum::<u64>(),
        });
        covered.sum::<u64>() - self.lost
    }

    /// Bytes that nothing uses.
    pub(super) fn free(&self) -> u64 {
        let ranges = self.mapped();
        ranges.flat_map(|(_, range, _)| range.free.values()).sum()
    }

    /// Where a piece is.
    pub(super) fn find(&self, piece: Piece) -> Found {
        let Some(range) = self.ranges.get(&piece.range) else {
            return Found::Nowhere;
        };
        match range.backing {
            Backing::Mapped(given) => {
                Found::At(given.address + usize::try_from(piece.offset).unwrap_or(0))
            }
            Backing::Stored(stored) => Found::Stored(piece.range, stored, piece.offset),
        }
    }

    /// Takes `bytes`, in as many pieces as needed. `None` if there are not so many.
    pub(super) fn take(&mut self, bytes: u64) -> Option<Vec<Piece>> {
        if self.free() < bytes {
            return None;
        }
        let (mut pieces, mut left) = (Vec::new(), bytes);
        let ranges = self.ranges.iter_mut();
        for (index, range) in
            ranges.filter(|(_, range)| matches!(range.backing, Backing::Mapped(_)))
        {
            while left > 0
                && let Some((offset, length)) = range.free.pop_first()
            {
                let taken = length.min(left);
                range.takes += 1;
                if taken < length {
                    range.free.insert(offset + taken, length - taken);
                }
                pieces.push(Piece {
                    range: *index,
                    offset,
                    bytes: taken,
                });
                left -= taken;
            }
        }
        Some(pieces)
    }

    /// Gives pieces back.
    pub(super) fn give(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            let Some(range) = self.ranges.get_mut(&piece.range) else {
                continue;
            };
            let (mut from, mut bytes) = (piece.offset, piece.bytes);
            if let Some(behind) = range.free.remove(&(from + bytes)) {
                bytes += behind;
            }
            if let Some((&before, &length)) = range.free.range(..from).next_back()
                && before + length == from
            {
                (from, bytes) = (before, length + bytes);
            }
            range.free.insert(from, bytes);
        }
    }

    /// Pieces that a copy may write to at any time from now on: nothing is ever put there.
    pub(super) fn lose(&mut self, pieces: &[Piece]) {
        self.lost += pieces.iter().map(|piece| piece.bytes).sum::<u64>();
        for piece in pieces {
            if let Some(range) = self.ranges.get_mut(&piece.range) {
                range.is_lost = true;
            }
        }
    }

    /// A range of which the driver was not asked yet, or since its context ended: its number.
    pub(super) fn next_to_pin(&self) -> Option<(usize, Given)> {
        let mut ranges = self.mapped();
        let is_next = |range: &Range| matches!(range.pinned, Pinned::Unasked | Pinned::Ended);
        let (number, _, given) = ranges.find(|(_, range, _)| is_next(range))?;
        Some((number, given))
    }

    /// Whether a range was pinned by a context that has ended: the driver may know it still.
    pub(super) fn was_pinned(&self, number: usize) -> bool {
        let range = self.ranges.get(&number);
        range.is_some_and(|range| range.pinned == Pinned::Ended)
    }

    /// The driver has answered about that range.
    pub(super) fn settled(&mut self, number: usize, pinned: Pinned) {
        if let Some(range) = self.ranges.get_mut(&number) {
            range.pinned = pinned;
        }
    }

    /// A context has ended, and what it pinned is pinned no more: that is asked again.
    pub(super) fn context_gone(&mut self, context: CUcontext) {
        for range in self.ranges.values_mut() {
            if range.pinned == Pinned::By(context) {
                range.pinned = Pinned::Ended;
            }
        }
    }

    /// Takes out a range in which nothing lies and without which `kept` bytes are left.
    pub(super) fn surplus(&mut self, kept: u64) -> Option<(Given, Pinned)> {
        let (number, given) = self.find_surplus(kept)?;
        let range = self.ranges.remove(&number)?;
        Some((given, range.pinned))
    }

    /// Whether there is such a range.
    pub(super) fn has_surplus(&self, kept: u64) -> bool {
        self.find_surplus(kept).is_some()
    }

    fn find_surplus(&self, kept: u64) -> Option<(usize, Given)> {
        let usable = self.usable();
        let is_surplus =
            |range: &Range| range.is_unused() && usable.checked_sub(range.bytes) >= Some(kept);
        let all = self.mapped().filter(|(_, range, _)| is_surplus(range));
        let (number, _, given) = all.last()?;
        Some((number, given))
    }

    /// A range with bytes in it that could be stored in a file, and is not one of these.
    pub(super) fn next_to_store(&self, but: &[AsAsked]) -> Option<(AsAsked, Given)> {
        let is_left_out = |number| but.iter().any(|asked| asked.number == number);
        let mut all = self.mapped();
        let (number, range, given) = all.find(|(number, range, _)| {
            !range.is_lost && !range.is_unused() && !is_left_out(*number)
        })?;
        let takes = range.takes;
        Some((AsAsked { number, takes }, given))
    }

    /// A mapped range, and whether the driver knows it; `None` if other bytes may have come there
    /// since: some of them may not be in the file.
    pub(super) fn unchanged(&self, asked: AsAsked) -> Option<(Given, Pinned)> {
        let mut all = self.mapped();
        let (_, range, given) = all.find(|(number, ..)| *number == asked.number)?;
        (range.takes == asked.takes).then_some((given, range.pinned))
    }

    /// The bytes of a range are in a file from now on.
    pub(super) fn is_stored(&mut self, asked: AsAsked, stored: Stored) {
        if let Some(range) = self.ranges.get_mut(&asked.number) {
            range.backing = Backing::Stored(stored);
            range.pinned = Pinned::No;
        }
    }

    /// Takes out a stored range in which nothing lies any more.
    pub(super) fn unused_stored(&mut self) -> Option<Stored> {
        let mut all = self.ranges.iter();
        let found = all.find_map(|(number, range)| match range.backing {
            Backing::Stored(stored) if range.is_unused() => Some((*number, stored)),
            _ => None,
        });
        let (number, stored) = found?;
        self.ranges.remove(&number);
        Some(stored)
    }

    /// Whether any range is in a file.
    pub(super) fn has_stored(&self) -> bool {
        let mut all = self.ranges.values();
        all.any(|range| matches!(range.backing, Backing::Stored(_)))
    }
}

impl Pinned {
    /// Whether the driver may know it: then it is told before the range is unmapped.
    pub(super) fn is_known(self) -> bool {
        matches!(self, Self::By(_) | Self::Ended)
    }
}

impl Range {
    fn is_unused(&self) -> bool {
        self.free.get(&0) == Some(&self.bytes)
    }
}

#[cfg(test)]
mod tests;
