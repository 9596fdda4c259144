//! How much of the daemon's memory connections may take together.
//!
//! One connection may hold an incomplete message and unread replies, up to 1.5 MB. Many connections
//! must not add up: once the total is too large, the connection that holds the most is closed.

use std::collections::BTreeMap;

/// Most bytes that messages half read and replies unsent of all connections may take.
const MOST: usize = 64 << 20;
/// The memory that a connection may hold uncounted: the ordinary case.
const FREE: usize = 64 << 10;

/// The bytes of each connection that holds more than [`FREE`], and their sum.
#[derive(Debug, Default)]
pub(super) struct BufferBudget {
    held: BTreeMap<u64, usize>,
    total: usize,
}

impl BufferBudget {
    /// Records that a connection holds this much now, nothing once it has ended. Returns the
    /// connection to close, if the total is too large.
    pub(super) fn note(&mut self, connection: u64, bytes: usize) -> Option<u64> {
        let before = match bytes > FREE {
            true => self.held.insert(connection, bytes),
            false => self.held.remove(&connection),
        };
        let counted = if bytes > FREE { bytes } else { 0 };
        self.total = self.total - before.unwrap_or(0) + counted;
        if self.total <= MOST {
            return None;
        }
        let largest = self.held.iter().max_by_key(|(_, held)| **held);
        largest.map(|(connection, _)| *connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_cut_off_once_all_together_hold_too_much() {
        let mut buffer_budget = BufferBudget::default();
        let part = MOST / 8;
        for connection in 0..7 {
            assert_eq!(buffer_budget.note(connection, part), None);
        }
        assert_eq!(buffer_budget.note(7, part + 1), Some(7));
        assert_eq!(buffer_budget.note(7, 0), None);
        assert_eq!(
            buffer_budget.note(3, 2 * part),
            None,
            "what it held before is not counted twice"
        );
        assert_eq!(
            buffer_budget.note(8, FREE),
            None,
            "and little is not counted"
        );
        assert_eq!(buffer_budget.note(9, FREE + 1), Some(3));
    }
}
