//! The bookkeeping of one stream-ordered pool, without a device: reuse, growth, release.
//!
//! Reuse rules, as the driver documents them: the freeing stream can reuse memory at once; any
//! stream can reuse it once the free has executed (opportunistic reuse, which can be disabled).
//! Memory whose free has not executed is *pending*.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::pending::Pending;
use crate::memory::extents::Extents;

/// A pool grows in multiples of this many bytes. Segments are released whole.
pub(crate) const STEP: u64 = 32 << 20;
/// Alignment and rounding of an allocation.
pub(crate) const GRANULE: u64 = 512;

/// A stream's number.
pub(crate) type StreamKey = u64;
/// The number of a free, from its submission to its execution.
pub(crate) type Ticket = u64;

/// The pool's counters, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Physical memory the pool holds now.
    pub(crate) reserved: u64,
    /// The highest `reserved` since it was last reset.
    pub(crate) reserved_high: u64,
    /// Bytes of live allocations, rounded to the granule.
    pub(crate) used: u64,
    /// The highest `used` since it was last reset.
    pub(crate) used_high: u64,
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Model {
    /// Space that any stream can use.
    free: Extents,
    /// Space whose free has executed while opportunistic reuse was off. Any stream can use it after
    /// the next synchronisation.
    parked: Vec<(u64, u64)>,
    /// Segments with memory whose free has executed since the host last synchronised. They are in
    /// use for a release: the driver's documents say that such memory can count as outstanding.
    unobserved: BTreeSet<u64>,
    pending: HashMap<StreamKey, Pending>,
    /// The current pieces of each pending free: the stream, and the starts of the pieces.
    tickets: HashMap<Ticket, (StreamKey, BTreeSet<u64>)>,
    next_ticket: Ticket,
    /// Base address → length.
    segments: BTreeMap<u64, u64>,
    usage: Usage,
    /// Reserved bytes that a synchronisation keeps.
    pub(crate) threshold: u64,
    /// Whether another stream may reuse memory once its free has executed.
    pub(crate) opportunistic: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            free: Extents::default(),
            parked: Vec::new(),
            unobserved: BTreeSet::new(),
            pending: HashMap::new(),
            tickets: HashMap::new(),
            next_ticket: 1,
            segments: BTreeMap::new(),
            usage: Usage::default(),
            threshold: 0,
            opportunistic: true,
        }
    }
}

impl Model {
    /// Space for `len` bytes (rounded by the caller) in `stream`; `None` if the pool must grow.
    pub(crate) fn take(&mut self, stream: StreamKey, len: u64) -> Option<u64> {
        let start = self
            .take_pending(stream, len)
            .or_else(|| self.free.take(len))?;
        self.count_used(len);
        Some(start)
    }

    /// Adds a segment and takes `len` bytes from its front.
    pub(crate) fn grow(&mut self, base: u64, segment: u64, len: u64) -> u64 {
        debug_assert!(segment.is_multiple_of(STEP) && len <= segment);
        self.segments.insert(base, segment);
        self.usage.reserved += segment;
        self.usage.reserved_high = self.usage.reserved_high.max(self.usage.reserved);
        if segment > len {
            self.free.insert(base + len, segment - len);
        }
        self.count_used(len);
        base
    }

    /// Records a free submitted to `stream`.
    pub(crate) fn free_submitted(&mut self, stream: StreamKey, start: u64, len: u64) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.usage.used -= len;
        self.pending
            .entry(stream)
            .or_default()
            .insert(start, len, ticket);
        self.tickets
            .insert(ticket, (stream, BTreeSet::from([start])));
        ticket
    }

    /// Records the execution of a free: all streams can use the pieces that its stream has not
    /// reused.
    pub(crate) fn free_executed(&mut self, ticket: Ticket) {
        let Some((stream, starts)) = self.tickets.remove(&ticket) else {
            return;
        };
        let Some(pending) = self.pending.get_mut(&stream) else {
            return;
        };
        for start in starts {
            let segment = self.segments.range(..=start).next_back();
            self.unobserved.extend(segment.map(|(base, _)| *base));
            match pending.remove(start) {
                Some((len, _)) if self.opportunistic => {
                    self.free.insert(start, len);
                }
                Some((len, _)) => self.parked.push((start, len)),
                None => {}
            }
        }
        if pending.is_empty() {
            self.pending.remove(&stream);
        }
    }

    /// Frees space at once (`cuMemFree` of a pool's pointer, or an allocation that is rolled back).
    pub(crate) fn free_now(&mut self, start: u64, len: u64) {
        self.usage.used -= len;
        self.free.insert(start, len);
    }

    /// Records that the host has synchronised: every stream can use the space of executed frees.
    pub(crate) fn synchronised(&mut self) {
        self.observed();
        for (start, len) in self.parked.drain(..) {
            self.free.insert(start, len);
        }
    }

    /// Records that executed frees are known to the host. Their memory can be released.
    pub(crate) fn observed(&mut self) {
        self.unobserved.clear();
    }

    /// Selects and removes free segments, the largest first, as long as at least `keep` bytes stay
    /// reserved.
    pub(crate) fn release(&mut self, keep: u64) -> Vec<u64> {
        let mut candidates: Vec<(u64, u64)> = self
            .segments
            .iter()
            .filter(|&(&base, &len)| self.free.holds(base, len) && !self.unobserved.contains(&base))
            .map(|(&base, &len)| (len, base))
            .collect();
        candidates.sort_unstable_by(|a, b| b.cmp(a));
        let mut released = Vec::new();
        for (len, base) in candidates {
            if self.usage.reserved <= keep || self.usage.reserved - len < keep {
                continue;
            }
            self.free.take_at(base, len);
            self.segments.remove(&base);
            self.usage.reserved -= len;
            released.push(base);
        }
        released
    }

    /// Whether a free has not executed yet.
    pub(crate) fn has_pending(&self) -> bool {
        !self.tickets.is_empty()
    }

    /// The counters.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Resets the high-water mark of reserved bytes to the current value.
    pub(crate) fn reset_reserved_high(&mut self) {
        self.usage.reserved_high = self.usage.reserved;
    }

    /// Resets the high-water mark of used bytes to the current value.
    pub(crate) fn reset_used_high(&mut self) {
        self.usage.used_high = self.usage.used;
    }

    fn take_pending(&mut self, stream: StreamKey, len: u64) -> Option<u64> {
        let taken = self.pending.get_mut(&stream)?.take(len)?;
        if let Some((_, starts)) = self.tickets.get_mut(&taken.ticket) {
            starts.remove(&taken.start);
            starts.extend(taken.rest);
        }
        Some(taken.start)
    }

    fn count_used(&mut self, len: u64) {
        self.usage.used += len;
        self.usage.used_high = self.usage.used_high.max(self.usage.used);
    }
}

#[cfg(test)]
mod tests {
    use super::{Model, STEP};

    const KIB: u64 = 1024;

    fn pool_with(len: u64) -> (Model, u64) {
        let mut pool = Model::default();
        assert_eq!(pool.take(1, len), None);
        let start = pool.grow(STEP, STEP, len);
        (pool, start)
    }

    #[test]
    fn a_stream_reuses_its_freed_memory_before_the_free_executes() {
        let (mut pool, start) = pool_with(STEP);
        pool.free_submitted(1, start, STEP);
        assert_eq!(
            pool.take(2, KIB),
            None,
            "another stream must not reuse it yet"
        );
        assert_eq!(pool.take(1, KIB), Some(start));
    }

    #[test]
    fn another_stream_reuses_memory_after_the_free_has_executed() {
        let (mut pool, start) = pool_with(STEP);
        let ticket = pool.free_submitted(1, start, STEP);
        pool.free_executed(ticket);
        assert_eq!(pool.take(2, STEP), Some(start));
    }

    #[test]
    fn without_opportunistic_reuse_another_stream_waits_for_a_sync() {
        let (mut pool, start) = pool_with(STEP);
        pool.opportunistic = false;
        let ticket = pool.free_submitted(1, start, STEP);
        pool.free_executed(ticket);
        assert_eq!(pool.take(2, STEP), None);
        pool.synchronised();
        assert_eq!(pool.take(2, STEP), Some(start));
    }

    #[test]
    fn a_second_free_of_reused_space_waits_for_its_own_execution() {
        let (mut pool, start) = pool_with(STEP);
        let first = pool.free_submitted(1, start, STEP);
        let again = pool.take(1, STEP).unwrap();
        let second = pool.free_submitted(1, again, STEP);
        pool.free_executed(first);
        assert_eq!(pool.take(2, KIB), None);
        pool.free_executed(second);
        assert_eq!(pool.take(2, KIB), Some(start));
    }

    #[test]
    fn the_rest_of_a_partly_reused_free_goes_to_other_streams() {
        let (mut pool, start) = pool_with(STEP);
        let ticket = pool.free_submitted(1, start, STEP);
        assert_eq!(pool.take(1, KIB), Some(start));
        pool.free_executed(ticket);
        assert_eq!(pool.take(2, STEP - KIB), Some(start + KIB));
        assert!(!pool.has_pending());
    }

    #[test]
    fn memory_of_an_executed_free_is_released_once_the_host_has_waited() {
        let (mut pool, start) = pool_with(STEP);
        let ticket = pool.free_submitted(1, start, STEP);
        pool.free_executed(ticket);
        assert!(pool.release(0).is_empty(), "the host has not waited");
        assert_eq!(pool.take(2, STEP), Some(start), "another stream may use it");
        pool.free_now(start, STEP);
        pool.synchronised();
        assert_eq!(pool.release(0), [start]);
    }

    #[test]
    fn only_whole_free_segments_above_the_threshold_are_released() {
        let (mut pool, first) = pool_with(STEP);
        let second = pool.grow(4 * STEP, STEP, STEP);
        pool.free_now(first, STEP);
        pool.free_now(second, STEP);
        assert_eq!(pool.release(2 * STEP), Vec::<u64>::new());
        assert_eq!(pool.release(STEP).len(), 1);
        let live = pool.take(1, KIB).unwrap();
        assert!(
            pool.release(0).is_empty(),
            "a live allocation holds its segment"
        );
        pool.free_now(live, KIB);
        assert_eq!(pool.release(0).len(), 1);
        assert_eq!(pool.usage().reserved, 0);
        assert_eq!(pool.usage().reserved_high, 2 * STEP);
    }
}
