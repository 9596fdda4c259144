//! Messages to a command that wait until it has read earlier ones: mostly events, of which a
//! thousand exceed the unread backlog of one connection. Events are shared, so a slow reader costs
//! little.

use std::collections::VecDeque;
use std::sync::Arc;

use gpushare_protocol::wire::{ControlReply, EventRecord, Fact};

use super::buffer_budget::Weight;
use crate::connection::Closed;

/// Messages that may wait: the past events there are, and as many more while they are read.
const MOST: usize = 2048;
/// The memory of an entry, and of a fact, beside what an event says.
const ENTRY: usize = 64;

/// One queued message.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// Something happened.
    Event(Arc<EventRecord>),
    /// The reply to a request that came after them.
    Reply(Box<ControlReply>),
}

/// An event that waits for one more connection, or for one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// Its number.
    pub(super) event: u64,
    /// What it says, in bytes of memory.
    pub(super) bytes: usize,
    /// Whether it waits.
    pub(super) waits: bool,
}

/// Messages in their order, with the requests they belong to.
#[derive(Debug, Default)]
pub(super) struct Later {
    messages: VecDeque<(u32, Outgoing)>,
    /// The bytes of its events.
    said: usize,
    /// Since the last look.
    changes: Vec<Change>,
}

impl Later {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// # Errors
    /// [`Closed::SlowReader`] if too many wait already.
    pub(super) fn push(&mut self, id: u32, message: Outgoing) -> Result<(), Closed> {
        if self.messages.len() >= MOST {
            return Err(Closed::SlowReader);
        }
        if let Some(change) = change(&message, true) {
            self.said += change.bytes;
            self.changes.push(change);
        }
        self.messages.push_back((id, message));
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<(u32, Outgoing)> {
        let (id, message) = self.messages.pop_front()?;
        if let Some(change) = change(&message, false) {
            self.said -= change.bytes;
            let came = Change {
                waits: true,
                ..change
            };
            match self.changes.last() == Some(&came) {
                // It has not waited.
                true => drop(self.changes.pop()),
                false => self.changes.push(change),
            }
        }
        Some((id, message))
    }

    /// Bytes of memory. A reply is counted as an entry: only one at a time waits behind events,
    /// since no requests are read meanwhile.
    pub(super) fn held(&self) -> Weight {
        Weight {
            own: self.messages.len() * ENTRY,
            shared: self.said,
        }
    }

    /// The events that wait now and did not at the last look, and those that did.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        while self.pop().is_some() {}
        self.messages = VecDeque::new();
    }
}

fn change(message: &Outgoing, waits: bool) -> Option<Change> {
    let Outgoing::Event(record) = message else {
        return None;
    };
    Some(Change {
        event: record.number,
        bytes: said(record),
        waits,
    })
}

fn said(record: &EventRecord) -> usize {
    let facts = record.facts.iter().map(|(name, fact)| match fact {
        Fact::Word(word) => ENTRY + name.len() + word.len(),
        _ => ENTRY + name.len(),
    });
    ENTRY + record.text.len() + facts.sum::<usize>()
}
