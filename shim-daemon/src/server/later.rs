//! Messages to a command that wait until it has read earlier ones: mostly events, of which a
//! thousand exceed the unread backlog of one connection. Events are shared, so a slow reader costs
//! little.

use std::collections::VecDeque;
use std::sync::Arc;

use gpushare_protocol::wire::{ControlReply, EventRecord, Fact};

use crate::connection::Closed;
use crate::node::Form;

/// Messages that may wait: the past events there are, and as many more while they are read.
const MOST: usize = 2048;
/// The memory of an entry, beside what an event says.
const ENTRY: usize = 64;

/// One queued message.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// Something happened.
    Event(Arc<EventRecord>, Form),
    /// The reply to a request that came after them.
    Reply(Box<ControlReply>),
}

/// Messages in their order, with the requests they belong to.
#[derive(Debug, Default)]
pub(super) struct Later {
    messages: VecDeque<(u32, Outgoing)>,
    held: usize,
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
        self.held += weight(&message);
        self.messages.push_back((id, message));
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<(u32, Outgoing)> {
        let (id, message) = self.messages.pop_front()?;
        self.held -= weight(&message);
        Some((id, message))
    }

    /// Bytes of memory, as if no other connection shared them.
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

/// A reply is counted at its maximum size. Only one at a time waits behind events, since no
/// requests are read meanwhile.
fn weight(message: &Outgoing) -> usize {
    match message {
        Outgoing::Event(record, _) => ENTRY + said(record),
        Outgoing::Reply(_) => ENTRY,
    }
}

fn said(record: &EventRecord) -> usize {
    let facts = record.facts.iter().map(|(name, fact)| match fact {
        Fact::Word(word) => ENTRY + name.len() + word.len(),
        _ => ENTRY + name.len(),
    });
    record.text.len() + facts.sum::<usize>()
}
