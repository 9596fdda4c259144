//! How much of the daemon's memory connections may take together.
//!
//! One connection may hold an incomplete message and unread replies, up to 1.5 MB. Many connections
//! must not add up: once the total is too large, the largest connection of the payer that holds
//! most is closed. So a crowd of connections of one payer costs no other payer a connection.

use std::collections::{BTreeMap, BTreeSet};

use super::budget::Payer;
use super::later::Change;

/// Most bytes that messages half read and replies unsent of all connections may take.
const MOST: usize = 64 << 20;

/// What a connection holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Bytes of its own. Nothing, where it waits for nothing.
    pub(super) own: usize,
    /// Bytes of events that wait for it, as if no other connection shared them.
    pub(super) shared: usize,
}

impl Weight {
    fn all(self) -> usize {
        self.own + self.shared
    }
}

/// The connections of a payer that hold something.
#[derive(Debug, Default)]
struct Held {
    /// As if they shared nothing.
    total: usize,
    /// By size.
    connections: BTreeSet<(usize, u64)>,
}

/// What all connections hold.
#[derive(Debug, Default)]
pub(super) struct BufferBudget {
    each: BTreeMap<u64, Weight>,
    payers: BTreeMap<Payer, Held>,
    /// The sum of what is each one's own.
    own: usize,
    /// Events that wait for connections, by number: for how many, and the bytes of one.
    events: BTreeMap<u64, (usize, usize)>,
    /// The sum of these bytes.
    shared: usize,
}

impl BufferBudget {
    /// Records events that wait, or wait no more. Each is counted once, for however many
    /// connections.
    pub(super) fn change(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            let (waits, bytes) = self.events.entry(change.event).or_default();
            if change.waits {
                if *waits == 0 {
                    self.shared += change.bytes;
                }
                (*waits, *bytes) = (*waits + 1, change.bytes);
                continue;
            }
            *waits = waits.saturating_sub(1);
            if *waits == 0 {
                self.shared -= *bytes;
                self.events.remove(&change.event);
            }
        }
    }

    /// Records that a connection of this payer holds this much now, nothing once it has ended.
    /// Returns the connection to close, if the total is too large.
    pub(super) fn note(&mut self, connection: u64, payer: Payer, weight: Weight) -> Option<u64> {
        let before = match weight.all() {
            0 => self.each.remove(&connection),
            _ => self.each.insert(connection, weight),
        };
        let before = before.unwrap_or_default();
        self.own = self.own - before.own + weight.own;
        if before.all() != weight.all() {
            let held = self.payers.entry(payer).or_default();
            held.total = held.total - before.all() + weight.all();
            held.connections.remove(&(before.all(), connection));
            if weight.all() > 0 {
                held.connections.insert((weight.all(), connection));
            }
            if held.total == 0 {
                self.payers.remove(&payer);
            }
        }
        if self.total() <= MOST {
            return None;
        }
        let most = self.payers.values().max_by_key(|held| held.total)?;
        most.connections.last().map(|(_, connection)| *connection)
    }

    /// Bytes that all connections take.
    fn total(&self) -> usize {
        self.own + self.shared
    }
}

#[cfg(test)]
mod tests {
    use gpushare_core::TenantId;

    use super::*;

    const ONE: Payer = Payer::Tenant(TenantId(1));
    const OTHER: Payer = Payer::Owner(1000);

    fn own(own: usize) -> Weight {
        Weight { own, shared: 0 }
    }

    #[test]
    fn the_largest_is_cut_off_once_all_together_hold_too_much() {
        let mut buffer_budget = BufferBudget::default();
        let part = MOST / 8;
        for connection in 0..7 {
            assert_eq!(buffer_budget.note(connection, ONE, own(part)), None);
        }
        assert_eq!(buffer_budget.note(7, ONE, own(part + 1)), Some(7));
        assert_eq!(buffer_budget.note(7, ONE, own(0)), None);
        assert_eq!(
            buffer_budget.note(3, ONE, own(2 * part)),
            None,
            "what it held before is not counted twice"
        );
        assert_eq!(buffer_budget.note(8, ONE, own(1)), Some(3));
    }

    #[test]
    fn little_of_many_connections_adds_up() {
        let mut buffer_budget = BufferBudget::default();
        let many = u64::try_from(MOST / 45_000).unwrap();
        for connection in 0..many {
            assert_eq!(buffer_budget.note(connection, ONE, own(45_000)), None);
        }
        assert!(buffer_budget.note(many, ONE, own(45_000)).is_some());
    }

    #[test]
    fn who_holds_most_in_one_connection_pays_for_no_crowd_of_another_payer() {
        let mut buffer_budget = BufferBudget::default();
        assert_eq!(buffer_budget.note(5000, OTHER, own(1 << 20)), None);
        let full = (0..1020).find_map(|id| buffer_budget.note(id, ONE, own(66_000)));
        let closed = full.expect("the crowd is over the bound");
        assert!(closed < 1020, "one of the crowd");
        assert_eq!(buffer_budget.note(closed, ONE, own(0)), None);
        let closed = buffer_budget.note(5000, OTHER, own(2 << 20));
        assert!(closed.is_some_and(|closed| closed < 1020), "{closed:?}");
    }

    #[test]
    fn an_event_is_counted_once_for_all_that_it_waits_for() {
        let mut buffer_budget = BufferBudget::default();
        let change = |event, waits| Change {
            event,
            bytes: 10_000,
            waits,
        };
        for _ in 0..100 {
            buffer_budget.change((0..1000).map(|event| change(event, true)));
        }
        assert_eq!(buffer_budget.total(), 10_000_000);
        let all = Weight {
            own: 64_000,
            shared: 10_000_000,
        };
        let closed = (0..100).find_map(|id| buffer_budget.note(id, ONE, all));
        assert_eq!(closed, None);
        for _ in 0..100 {
            buffer_budget.change((0..1000).map(|event| change(event, false)));
        }
        assert_eq!(buffer_budget.shared, 0);
        assert!(buffer_budget.events.is_empty());
        // Others that wait for none of them count each.
        buffer_budget.change((0..7000).map(|event| change(event, true)));
        assert_eq!(buffer_budget.note(100, OTHER, own(1)), Some(99));
    }
}
