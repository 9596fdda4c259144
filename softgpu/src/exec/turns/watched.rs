//! The log as a process sees it that writes no turns, and the seats of the dead.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{LOG, SEATS, Turn, Turns};

/// The end of the log in `words`, for a process that only reads it.
pub(crate) fn busy_until(words: &[AtomicU64]) -> u64 {
    Turns::watched(words).last().1.end
}

/// A turn of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Had {
    /// The current owner of the seat; 0 if the seat is free.
    pub(crate) owner: u64,
    /// When it began (ns).
    pub(crate) from: u64,
    /// When it ends (ns).
    pub(crate) to: u64,
}

/// The turns after `place` that the log still holds, oldest first, and the last place of the log.
pub(crate) fn had(words: &[AtomicU64], place: u64) -> (Vec<Had>, u64) {
    let turns = Turns::watched(words);
    let oldest = |end: u64| end.saturating_sub(LOG as u64 - 2);
    let (end, _) = turns.last();
    let read = |at: u64| {
        let turn = Turn::of(turns.at(at).load(Ordering::Acquire));
        let from = Turn::of(turns.at(at - 1).load(Ordering::Acquire)).end;
        let owner = turns.owner(turn.seat()?).load(Ordering::Acquire);
        let to = turn.end;
        Some((at, Had { owner, from, to }))
    };
    let read: Vec<_> = (place.max(oldest(end)).saturating_add(1)..=end)
        .filter_map(read)
        .collect();
    // Turns that were overwritten during the read are left out.
    let (now, _) = turns.last();
    let whole = read.into_iter().filter(|(at, _)| *at > oldest(now));
    (whole.map(|(_, turn)| turn).collect(), end)
}

/// Frees the seats of a dead process.
pub(crate) fn evict(words: &[AtomicU64], owner: u64) {
    let turns = Turns::watched(words);
    for seat in 0..SEATS {
        if turns.owner(seat).load(Ordering::Acquire) == owner {
            turns.clear(seat, owner);
        }
    }
}
