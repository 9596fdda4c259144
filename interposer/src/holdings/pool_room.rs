//! Memory of a pool that the driver will reuse before it grows the pool: ranges that were freed,
//! less what was allocated of them since.
//!
//! The driver's documents promise it for memory that the allocation's own stream has freed, and for
//! memory whose free is over. Nothing else is believed: ranges that lie side by side are two, and
//! memory that no free has named is none. To forget a range is always right.

use crate::driver::tracker::StreamId;

/// An allocation of a pool takes a multiple of so many bytes.
const GRAIN: u64 = 512;
/// The most ranges of a pool. Of more the smaller ones are forgotten.
const MOST: usize = 256;

/// A freed range, or one that an allocation has had as a whole since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    /// In which stream; `None` where that does not matter, as the free was over at once.
    stream: Option<StreamId>,
    /// It is no room now. It is kept because the next free is likely to be of it.
    is_taken: bool,
}

/// The known room of one pool.
///
/// Frees have numbers, which are taken before the driver is called and told here after it. An
/// allocation that comes in between may have the memory of such a free, so that a free told later
/// adds nothing.
#[derive(Debug, Default)]
pub(crate) struct PoolRoom {
    /// By address. None overlaps another.
    ranges: Vec<Range>,
    /// Frees told so far.
    told: u64,
    /// A free with a lower number adds nothing.
    since: u64,
}

impl Range {
    fn bytes(self) -> u64 {
        self.end - self.start
    }
}

/// The end of an allocation.
fn end_of(start: u64, bytes: u64) -> u64 {
    let rounded = bytes.checked_next_multiple_of(GRAIN).unwrap_or(bytes);
    start.saturating_add(rounded)
}

impl PoolRoom {
    /// The free of this number is made. `freed`: the start of the memory, its bytes, and the stream
    /// if there is one; nothing where it was refused, or its stream is not known.
    #[inline]
    pub(crate) fn tell(&mut self, number: u64, freed: Option<(u64, u64, Option<StreamId>)>) {
        self.told += 1;
        let Some((start, bytes, stream)) = freed.filter(|_| number >= self.since) else {
            return;
        };
        let (end, at) = (end_of(start, bytes), self.first_beyond(start));
        let range = Range {
            start,
            end,
            stream,
            is_taken: false,
        };
        match self.ranges.get_mut(at) {
            Some(known) if known.start == start && known.end == end => *known = range,
            _ => self.insert(range),
        }
    }

    #[cold]
    fn insert(&mut self, range: Range) {
        self.cut(range.start, range.end);
        if self.ranges.len() >= MOST {
            self.forget_the_smaller();
        }
        let at = self.first_beyond(range.start);
        self.ranges.insert(at, range);
    }

    /// An allocation has got this memory. So many frees have a number. Returns whether all of it
    /// was known: memory that had been freed before, and not forgotten.
    #[inline]
    pub(crate) fn took(&mut self, start: u64, bytes: u64, numbered: u64) -> bool {
        if numbered != self.told {
            self.since = numbered;
        }
        let (end, at) = (end_of(start, bytes), self.first_beyond(start));
        match self.ranges.get_mut(at) {
            None => return false,
            Some(range) if end <= range.start => return false,
            Some(range) if range.start == start && end < range.end => range.start = end,
            Some(range) if range.start == start && end == range.end => range.is_taken = true,
            Some(_) => return self.took_across(start, end),
        }
        true
    }

    /// The same of memory that lies in several ranges, or in the midst of one.
    #[cold]
    fn took_across(&mut self, start: u64, end: u64) -> bool {
        let mut known = start;
        for range in &self.ranges[self.first_beyond(start)..] {
            if range.start > known || known >= end {
                break;
            }
            known = range.end;
        }
        self.cut(start, end);
        known >= end
    }

    /// Nothing is known any more, not of the frees under way either. So many have a number.
    pub(crate) fn forget(&mut self, numbered: u64) {
        self.since = numbered;
        self.ranges.clear();
    }

    /// The streams that have freed a range of so many bytes, the calls for which `None` stands
    /// included.
    pub(crate) fn streams_with(&self, bytes: u64) -> Vec<Option<StreamId>> {
        let wanted = end_of(0, bytes);
        let room = self.ranges.iter().filter(|range| !range.is_taken);
        let fitting = room.filter(|range| range.bytes() >= wanted);
        fitting.map(|range| range.stream).collect()
    }

    /// The place of the first range that ends behind an address.
    #[inline]
    fn first_beyond(&self, address: u64) -> usize {
        self.ranges.partition_point(|range| range.end <= address)
    }

    /// Takes all between two addresses out.
    #[cold]
    fn cut(&mut self, start: u64, end: u64) {
        let first = self.first_beyond(start);
        let here = |range: &&Range| range.start < end;
        let count = self.ranges[first..].iter().take_while(here).count();
        if count == 0 {
            return;
        }
        let (low, high) = (self.ranges[first], self.ranges[first + count - 1]);
        let below = Range { end: start, ..low };
        let above = Range { start: end, ..high };
        let left = [
            (low.start < start).then_some(below),
            (high.end > end).then_some(above),
        ];
        self.ranges
            .splice(first..first + count, left.into_iter().flatten());
    }

    /// Forgets ranges that are taken, or where none is, those below the mean size; every second one
    /// where all are of one size.
    #[cold]
    fn forget_the_smaller(&mut self) {
        let count = self.ranges.len();
        self.ranges.retain(|range| !range.is_taken);
        if self.ranges.len() < count {
            return;
        }
        let sum: u64 = self.ranges.iter().map(|range| range.bytes()).sum();
        let mean = sum / count.max(1) as u64;
        self.ranges.retain(|range| range.bytes() >= mean);
        if self.ranges.len() == count {
            let mut keeps = false;
            self.ranges.retain(|_| {
                keeps = !keeps;
                keeps
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;
    const ONE: Option<StreamId> = Some(StreamId::Number(1));
    const TWO: Option<StreamId> = Some(StreamId::Number(2));

    /// Room after these frees, one after the other: start, bytes and stream.
    fn after(frees: &[(u64, u64, Option<StreamId>)]) -> PoolRoom {
        let mut room = PoolRoom::default();
        for (number, freed) in frees.iter().enumerate() {
            room.tell(number as u64, Some(*freed));
        }
        room
    }

    #[test]
    fn a_freed_range_is_room_for_what_is_not_larger() {
        let room = after(&[(0, 8 * KIB, ONE)]);
        assert_eq!(room.streams_with(8 * KIB), [ONE]);
        assert_eq!(room.streams_with(8 * KIB - 100), [ONE]);
        assert!(room.streams_with(8 * KIB + 1).is_empty());
    }

    #[test]
    fn an_allocation_leaves_what_lies_around_it() {
        let mut room = after(&[(0, 8 * KIB, ONE)]);
        room.took(KIB, 2 * KIB, 1);
        assert!(room.streams_with(5 * KIB + 1).is_empty());
        assert_eq!(room.streams_with(5 * KIB), [ONE]);
        assert_eq!(room.streams_with(KIB), [ONE, ONE]);
    }

    #[test]
    fn what_is_allocated_as_a_whole_is_no_room_until_it_is_freed() {
        let mut room = after(&[(0, 8 * KIB, ONE)]);
        room.took(0, 8 * KIB, 1);
        assert!(room.streams_with(1).is_empty());
        room.tell(1, Some((0, 8 * KIB, TWO)));
        assert_eq!(room.streams_with(8 * KIB), [TWO]);
    }

    #[test]
    fn an_allocation_across_ranges_takes_of_each() {
        let mut room = after(&[(0, 4 * KIB, ONE), (4 * KIB, KIB, TWO), (5 * KIB, KIB, TWO)]);
        room.took(3 * KIB, 5 * KIB / 2, 3);
        assert_eq!(room.streams_with(512), [ONE, TWO]);
        assert_eq!(room.streams_with(3 * KIB), [ONE]);
        assert!(room.streams_with(3 * KIB + 1).is_empty());
    }

    #[test]
    fn what_an_allocation_gets_was_known_if_no_byte_of_it_is_new() {
        let ranges = [
            (KIB, KIB, ONE),
            (2 * KIB, 2 * KIB, TWO),
            (5 * KIB, KIB, ONE),
        ];
        for (start, bytes, was_known) in [
            (KIB, KIB, true),
            (KIB, 512, true),
            (2 * KIB + 512, 1024, true),
            (KIB + 512, 2 * KIB, true),
            (KIB, 3 * KIB, true),
            (0, KIB, false),
            (0, 2 * KIB, false),
            (3 * KIB, 3 * KIB, false),
            (5 * KIB, 2 * KIB, false),
            (4 * KIB, KIB, false),
            (8 * KIB, KIB, false),
        ] {
            let took = after(&ranges).took(start, bytes, 3);
            assert_eq!(took, was_known, "{start} {bytes}");
        }
        let mut room = after(&ranges);
        assert!(room.took(KIB, KIB, 3));
        assert!(room.took(KIB, KIB, 4), "its free is not told yet");
        room.forget(4);
        assert!(!room.took(KIB, KIB, 4));
    }

    #[test]
    fn ranges_side_by_side_are_not_one() {
        let room = after(&[(0, KIB, ONE), (KIB, KIB, ONE)]);
        assert!(room.streams_with(2 * KIB).is_empty());
        assert_eq!(room.streams_with(KIB), [ONE, ONE]);
    }

    #[test]
    fn a_later_free_says_in_which_stream_the_memory_is() {
        let mut room = after(&[(0, 4 * KIB, ONE)]);
        room.tell(1, Some((0, 4 * KIB, TWO)));
        assert_eq!(room.streams_with(4 * KIB), [TWO]);
        room.tell(2, Some((KIB, KIB, None)));
        assert_eq!(room.streams_with(KIB), [TWO, None, TWO]);
    }

    #[test]
    fn a_free_that_is_told_after_an_allocation_came_adds_nothing() {
        let mut room = PoolRoom::default();
        // The driver has taken free 0, and gives its memory out again before it is told here.
        room.took(0, KIB, 1);
        room.tell(0, Some((0, KIB, ONE)));
        assert!(room.streams_with(1).is_empty());
        // A free that begins later is another one.
        room.tell(1, Some((0, KIB, ONE)));
        assert_eq!(room.streams_with(KIB), [ONE]);
    }

    #[test]
    fn a_refused_free_adds_nothing_and_hides_nothing() {
        let mut room = PoolRoom::default();
        room.tell(0, None);
        assert!(room.streams_with(1).is_empty());
        room.took(0, KIB, 1);
        room.tell(1, Some((0, KIB, ONE)));
        assert_eq!(room.streams_with(KIB), [ONE]);
    }

    #[test]
    fn what_is_forgotten_is_no_room_and_frees_under_way_neither() {
        let mut room = after(&[(0, KIB, ONE)]);
        room.forget(2);
        room.tell(1, Some((4 * KIB, KIB, ONE)));
        assert!(room.streams_with(1).is_empty());
        room.tell(2, Some((8 * KIB, KIB, ONE)));
        assert_eq!(room.streams_with(KIB), [ONE]);
    }

    #[test]
    fn of_too_many_ranges_the_large_ones_are_kept() {
        let mut room = after(&[(0, 64 * KIB, ONE)]);
        for number in 1..2000 {
            room.tell(number, Some((number << 20, KIB, TWO)));
            assert!(room.ranges.len() <= MOST);
        }
        assert_eq!(room.streams_with(64 * KIB), [ONE]);
        assert!(room.streams_with(KIB).len() > MOST / 4);
    }

    #[test]
    fn of_ranges_of_one_size_half_are_kept() {
        let mut room = PoolRoom::default();
        for number in 0..=MOST as u64 {
            room.tell(number, Some((number << 20, KIB, ONE)));
        }
        assert_eq!(room.streams_with(KIB).len(), MOST / 2 + 1);
    }

    /// Random work: what is room is never what an allocation has.
    #[test]
    fn no_room_overlaps_an_allocation() {
        let mut draw = 1_u64;
        let mut below = |end: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (draw >> 33) % end
        };
        let (mut room, mut live) = (PoolRoom::default(), Vec::<(u64, u64)>::new());
        for number in 0..4000 {
            let (start, bytes) = (below(64) * KIB, (1 + below(16)) * KIB);
            let clashes = live
                .iter()
                .any(|(at, end)| start < *end && *at < start + bytes);
            if !clashes {
                room.took(start, bytes, number);
                live.push((start, start + bytes));
            }
            let gone = usize::try_from(below(live.len() as u64)).expect("an index");
            let (at, end) = live.swap_remove(gone);
            room.tell(number, Some((at, end - at, ONE)));
            assert!(room.ranges.iter().all(|range| range.start < range.end));
            for range in room.ranges.iter().filter(|range| !range.is_taken) {
                assert!(
                    live.iter()
                        .all(|(at, end)| range.end <= *at || *end <= range.start)
                );
            }
            assert!(room.ranges.is_sorted_by(|one, next| one.end <= next.start));
        }
    }
}
