//! Memory freed in one stream that this stream can reuse at once; other streams wait until the free
//! has executed.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Ticket;

/// Space taken from a pending piece: its start, the start of the piece's rest, and the piece's
/// free.
pub(super) struct Taken {
    pub(super) start: u64,
    pub(super) rest: Option<u64>,
    pub(super) ticket: Ticket,
}

/// Pieces freed in one stream whose frees have not executed.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pieces: BTreeMap<u64, (u64, Ticket)>,
    by_len: BTreeSet<(u64, u64)>,
}

impl Pending {
    /// Adds a piece.
    pub(super) fn insert(&mut self, start: u64, len: u64, ticket: Ticket) {
        self.pieces.insert(start, (len, ticket));
        self.by_len.insert((len, start));
    }

    /// Takes `len` bytes from the front of the smallest piece that is large enough.
    pub(super) fn take(&mut self, len: u64) -> Option<Taken> {
        let &(found, start) = self.by_len.range((len, 0)..).next()?;
        let ticket = self.remove(start)?.1;
        let rest = (found > len).then_some(start + len);
        if let Some(rest) = rest {
            self.insert(rest, found - len, ticket);
        }
        Some(Taken {
            start,
            rest,
            ticket,
        })
    }

    /// Removes a whole piece; returns its length and its free.
    pub(super) fn remove(&mut self, start: u64) -> Option<(u64, Ticket)> {
        let (len, ticket) = self.pieces.remove(&start)?;
        self.by_len.remove(&(len, start));
        Some((len, ticket))
    }

    /// Whether no piece is left.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}
