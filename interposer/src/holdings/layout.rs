//! Where a pool has room, as far as that is certain.
//!
//! The driver says how much of a pool is unused, not whether an allocation fits into it. Addresses do: what an allocation grew the
//! pool by is a *piece*, and what of it no allocation covers is free. Only what must be so is believed. Allocations are entered one
//! at a time, with what was reserved before and after each. Whatever these numbers do not explain is forgotten: an address outside
//! every known piece is no room.
//!
//! Memory freed in stream order is *pending* until an event behind the free has been passed: free for its own stream, for no other.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The driver places allocations of a pool at multiples of this.
const GRANULE: u64 = 512;

/// Names one free on its way to the driver, or all that one event stands behind.
pub(crate) type Mark = u64;

/// What is known of one pool's addresses.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// What the pool grew by, by start.
    pieces: BTreeMap<u64, Piece>,
    /// What every stream may have: start to length. Each inside one piece; neighbours in one piece are one.
    free: BTreeMap<u64, u64>,
    /// Freed, but not yet for every stream: start to length and mark.
    pending: BTreeMap<u64, (u64, Mark)>,
    /// What the driver had reserved when that was last looked at.
    reserved: u64,
    /// How often the pool had shrunk when it was last compared with what is reserved; `None` while nothing can be told without asking.
    trusts: Option<u64>,
    /// Allocations since then that were told by their addresses alone.
    unread: u32,
}

/// Allocations told by their addresses alone before the driver is asked again.
const UNREAD: u32 = 64;

#[derive(Debug)]
struct Piece {
    bytes: u64,
    /// Allocations in it that nobody has begun to free. While there is one, the driver cannot let go of the piece.
    live: usize,
    /// It was the driver's when what is reserved was last read, and while anything lived in it ever since, that can only have changed
    /// unnoticed when nothing did.
    sure: bool,
}

/// One allocation and what the driver had reserved around it. Bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The most it may have grown the pool by.
    pub(crate) growth: u64,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

impl Layout {
    /// Enters an allocation.
    pub(crate) fn placed(&mut self, placed: Placed) {
        let Placed { at, bytes, .. } = placed;
        let bytes = granules(bytes);
        self.reserved = placed.after;
        self.unread = 0;
        let grew = placed.after.checked_sub(placed.before);
        let (known, covered) = (self.touches_living(at, bytes), self.covers(at, bytes));
        match grew {
            Some(0) if covered => self.vouch(at, bytes),
            Some(growth) if growth == placed.growth && !known => self.grown(at, growth),
            _ if known && !covered => self.forget(),
            // Something was let go of meanwhile (as much as was grown by, it may be), or the driver's pieces are not as ours.
            _ => self.doubt(),
        }
        self.cut(at, bytes);
        self.count(at, bytes, |live| live + 1);
    }

    /// What is reserved, if that is certain without asking: since it was read the pool has not been seen to shrink, and every allocation
    /// since then was [`Layout::reused`] memory. `shrunk` is how often the pool has been seen to.
    pub(crate) fn trusted(&self, shrunk: u64) -> Option<u64> {
        let trusted = self.trusts == Some(shrunk) && self.unread < UNREAD;
        trusted.then_some(self.reserved)
    }

    /// What is known was compared with what is reserved, after the pool had shrunk so often.
    pub(crate) fn trust(&mut self, shrunk: u64) {
        self.trusts = Some(shrunk);
    }

    /// Enters an allocation if its address says that it did not make the pool grow beyond what is charged: it lies in a piece that is
    /// the driver's still, or in one where a new piece, which would begin there and be `growth` long, would take the old one's place.
    pub(crate) fn reused(&mut self, at: u64, bytes: u64, growth: u64) -> bool {
        let bytes = granules(bytes);
        let Some((start, piece)) = self.pieces.range_mut(..=at).next_back() else {
            return false;
        };
        let end = start + piece.bytes;
        let kept = piece.sure && piece.live > 0;
        if at.saturating_add(bytes) > end || !kept && at.saturating_add(growth) > end {
            return false;
        }
        let enter = |piece: &mut Piece| {
            piece.sure = kept;
            piece.live += 1;
        };
        // What was freed whole and is taken whole again is the most frequent.
        if let Entry::Occupied(freed) = self.pending.entry(at)
            && freed.get().0 == bytes
        {
            freed.remove();
            enter(piece);
        } else if self.covers(at, bytes) {
            self.cut(at, bytes);
            if let Some((_, piece)) = self.pieces.range_mut(..=at).next_back() {
                enter(piece);
            }
        } else {
            return false;
        }
        self.unread += 1;
        true
    }

    /// The pieces of a range are the driver's: what is reserved says so.
    fn vouch(&mut self, at: u64, bytes: u64) {
        let starts: Vec<u64> = overlapped(&self.pieces, at, bytes).collect();
        for start in starts {
            if let Some(piece) = self.pieces.get_mut(&start) {
                piece.sure = true;
            }
        }
    }

    /// Compares with what is reserved now: whatever the driver has let go of was entirely free, so what may be gone is forgotten.
    /// `trimmed` is what was [`Layout::idle`] before the pool was made to let go of all it could. Whether more is reserved than was
    /// certain.
    pub(crate) fn look(&mut self, reserved: u64, trimmed: Option<&[u64]>) -> bool {
        let surprised = self.trusts.is_some() && reserved > self.reserved;
        let gone = self.reserved.saturating_sub(reserved);
        self.reserved = reserved;
        self.unread = 0;
        if gone == 0 {
            return surprised;
        }
        let bytes = |start: &u64| self.pieces.get(start).map_or(0, |piece| piece.bytes);
        let sure = |piece: &Piece| piece.sure || piece.live == 0;
        let explained = trimmed.filter(|idle| {
            self.pieces.values().all(sure) && idle.iter().map(bytes).sum::<u64>() == gone
        });
        match explained {
            Some(idle) => idle.iter().for_each(|start| self.drop_piece(*start)),
            None => self.doubt(),
        }
        surprised
    }

    /// Pieces that are free for every stream as a whole.
    pub(crate) fn idle(&self) -> Vec<u64> {
        let whole = |(start, piece): &(&u64, &Piece)| self.free.get(start) == Some(&piece.bytes);
        let idle = self.pieces.iter().filter(whole);
        idle.map(|(start, _)| *start).collect()
    }

    /// Whether there is room for `bytes` in a stream whose own frees under way are behind these marks.
    pub(crate) fn fits(&self, bytes: u64, own: &[Mark]) -> bool {
        let bytes = granules(bytes);
        let mut own = self.pending.values().filter(|(_, mark)| own.contains(mark));
        self.free.values().any(|length| *length >= bytes) || own.any(|(length, _)| *length >= bytes)
    }

    /// A free is about to be asked for, which `mark` names.
    pub(crate) fn leaving(&mut self, at: u64, bytes: u64, mark: Mark) {
        let bytes = granules(bytes);
        if bytes > 0 {
            self.count(at, bytes, |live| live.saturating_sub(1));
            self.pending.insert(at, (bytes, mark));
        }
    }

    /// The driver has refused that free.
    pub(crate) fn stayed(&mut self, at: u64, bytes: u64, mark: Mark) {
        self.take_marked(at, bytes, mark);
        self.count(at, granules(bytes), |live| live + 1);
    }

    /// The driver has accepted that free; it is over when `event` is, or nobody will know.
    pub(crate) fn submitted(&mut self, at: u64, bytes: u64, mark: Mark, event: Option<Mark>) {
        let whole = granules(bytes);
        if let (Some((length, now)), Some(event)) = (self.pending.get_mut(&at), event)
            && (*length, *now) == (whole, mark)
        {
            *now = event;
            return;
        }
        for (at, bytes) in self.take_marked(at, bytes, mark) {
            if let Some(event) = event {
                self.pending.insert(at, (bytes, event));
            }
        }
    }

    /// That free is over.
    pub(crate) fn freed(&mut self, at: u64, bytes: u64, mark: Mark) {
        for (at, bytes) in self.take_marked(at, bytes, mark) {
            self.give(at, bytes);
        }
    }

    /// Everything behind an event is over.
    pub(crate) fn passed(&mut self, event: Mark) {
        let over = self
            .pending
            .extract_if(.., |_, (_, mark)| *mark == event)
            .map(|(at, (bytes, _))| (at, bytes))
            .collect::<Vec<_>>();
        for (at, bytes) in over {
            self.give(at, bytes);
        }
    }

    /// Forgets all room and every piece.
    pub(crate) fn forget(&mut self) {
        self.pieces.clear();
        self.free.clear();
        self.pending.clear();
        self.trusts = None;
    }

    /// Forgets every piece that the driver may have let go of, and all that is in none.
    fn doubt(&mut self) {
        let doubtful = |piece: &Piece| piece.live == 0 || !piece.sure;
        let unused = self.pieces.extract_if(.., |_, piece| doubtful(piece));
        let unused: Vec<(u64, u64)> = unused.map(|(start, piece)| (start, piece.bytes)).collect();
        for (start, bytes) in unused {
            self.cut(start, bytes);
        }
        let pieces = &self.pieces;
        self.pending
            .retain(|at, (bytes, _)| overlapped(pieces, *at, *bytes).next().is_some());
    }

    fn take_marked(&mut self, at: u64, bytes: u64, wanted: Mark) -> Vec<(u64, u64)> {
        let range = at..at.saturating_add(granules(bytes));
        self.pending
            .extract_if(range, |_, (_, mark)| *mark == wanted)
            .map(|(at, (bytes, _))| (at, bytes))
            .collect()
    }

    /// A new piece begins at `at`; what was known of its addresses was of pieces that are gone.
    fn grown(&mut self, at: u64, growth: u64) {
        let stale: Vec<u64> = overlapped(&self.pieces, at, growth).collect();
        for start in stale {
            self.drop_piece(start);
        }
        self.cut(at, growth);
        self.pieces.insert(
            at,
            Piece {
                bytes: growth,
                live: 0,
                sure: true,
            },
        );
        self.free.insert(at, growth);
    }

    fn drop_piece(&mut self, start: u64) {
        if let Some(piece) = self.pieces.remove(&start) {
            self.cut(start, piece.bytes);
        }
    }

    /// Takes a range out of all room.
    fn cut(&mut self, at: u64, bytes: u64) {
        cut(
            &mut self.free,
            at,
            bytes,
            |length, _| length,
            |length| *length,
        );
        cut(
            &mut self.pending,
            at,
            bytes,
            |length, (_, mark)| (length, *mark),
            |(length, _)| *length,
        );
    }

    /// Gives a range to every stream, as far as it is in known pieces.
    fn give(&mut self, at: u64, bytes: u64) {
        let end = at.saturating_add(bytes);
        // A piece's neighbours are other pieces, though they touch: nothing is sure to be placed across them.
        let parts: Vec<(u64, u64, u64)> = overlapped(&self.pieces, at, bytes)
            .filter_map(|start| {
                let piece_end = start + self.pieces.get(&start)?.bytes;
                Some((start, at.max(start), end.min(piece_end)))
            })
            .collect();
        for (piece, mut at, mut end) in parts {
            let before = self.free.range(piece..at).next_back();
            if let Some((&start, &length)) = before
                && start + length == at
            {
                self.free.remove(&start);
                at = start;
            }
            let in_piece = |next: &u64| overlapped(&self.pieces, *next, 1).next() == Some(piece);
            if let Some(length) = self.free.get(&end).copied().filter(|_| in_piece(&end)) {
                self.free.remove(&end);
                end += length;
            }
            self.free.insert(at, end - at);
        }
    }

    /// Whether all of a range is free or pending in known pieces.
    fn covers(&self, at: u64, bytes: u64) -> bool {
        let (mut at, end) = (at, at.saturating_add(bytes));
        while at < end {
            let free = self.free.range(..=at).next_back();
            let free = free.map(|(start, length)| start + length);
            let pending = self.pending.range(..=at).next_back();
            let pending = pending.map(|(start, (length, _))| start + length);
            let Some(next) = free.into_iter().chain(pending).max().filter(|to| *to > at) else {
                return false;
            };
            at = next;
        }
        true
    }

    /// Whether a range is in pieces with living allocations.
    fn touches_living(&self, at: u64, bytes: u64) -> bool {
        let live = |start: u64| self.pieces.get(&start).is_some_and(|piece| piece.live > 0);
        overlapped(&self.pieces, at, bytes).any(live)
    }

    fn count(&mut self, at: u64, bytes: u64, change: impl Fn(usize) -> usize) {
        // Nearly all are in one piece.
        if let Some((start, piece)) = self.pieces.range_mut(..=at).next_back()
            && at.saturating_add(bytes) <= start + piece.bytes
        {
            piece.live = change(piece.live);
            return;
        }
        let starts: Vec<u64> = overlapped(&self.pieces, at, bytes).collect();
        for start in starts {
            if let Some(piece) = self.pieces.get_mut(&start) {
                piece.live = change(piece.live);
            }
        }
    }
}

/// Starts of the pieces that a range lies in.
fn overlapped(pieces: &BTreeMap<u64, Piece>, at: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let end = at.saturating_add(bytes);
    let pieces = pieces.range(..end).rev();
    pieces
        .take_while(move |(start, piece)| *start + piece.bytes > at)
        .map(|(start, _)| *start)
}

/// Takes `[at, at + bytes)` out of ranges; what is left of one keeps the rest of its value.
fn cut<V>(
    ranges: &mut BTreeMap<u64, V>,
    at: u64,
    bytes: u64,
    with: impl Fn(u64, &V) -> V,
    length: impl Fn(&V) -> u64,
) {
    let end = at.saturating_add(bytes);
    while let Some((&start, value)) = ranges.range(..end).next_back()
        && start + length(value) > at
    {
        let Some(value) = ranges.remove(&start) else {
            return;
        };
        let old_end = start + length(&value);
        if old_end > end {
            ranges.insert(end, with(old_end - end, &value));
        }
        if start < at {
            ranges.insert(start, with(at - start, &value));
        }
    }
}

fn granules(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(bytes)
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
