//! What a command is told: replies, and events, which wait until earlier ones have been read.

use std::sync::Arc;

use gpushare_protocol::wire::{ControlReply, ErrorCode, EventRecord, FrameError, WireError};

use super::super::buffer_budget::Weight;
use super::super::later::{Change, Outgoing};
use super::Session;
use crate::connection::{Closed, Connection};

impl Session {
    /// Sends a command a reply.
    pub(in crate::server) fn tell(&mut self, id: u32, reply: &ControlReply) -> Result<(), Closed> {
        if !self.later.is_empty() {
            let reply = Outgoing::Reply(Box::new(reply.clone()));
            return self.later.push(id, reply);
        }
        say(&mut self.connection, id, reply)
    }

    /// Tells a command of an event, in its time.
    pub(in crate::server) fn tell_event(
        &mut self,
        id: u32,
        record: Arc<EventRecord>,
    ) -> Result<(), Closed> {
        self.later.push(id, Outgoing::Event(record))?;
        self.catch_up()
    }

    /// Sends what waits, as far as the other end takes it.
    pub(super) fn catch_up(&mut self) -> Result<(), Closed> {
        self.connection.flush()?;
        while !self.connection.wants_to_write()
            && let Some((id, word)) = self.later.pop()
        {
            match word {
                Outgoing::Event(record) => {
                    let reply = ControlReply::Event(Arc::unwrap_or_clone(record));
                    say(&mut self.connection, id, &reply)?;
                }
                Outgoing::Reply(reply) => say(&mut self.connection, id, &reply)?,
            }
        }
        Ok(())
    }

    /// Bytes of memory that its messages take, and the events that wait since the last look.
    pub(in crate::server) fn held(&mut self) -> (Weight, Vec<Change>) {
        let mut weight = self.later.held();
        weight.own += self.connection.held();
        (weight, self.later.take_changes())
    }

    /// Nothing is told any more. Returns the events that waited.
    pub(in crate::server) fn forget_later(&mut self) -> Vec<Change> {
        self.later.clear();
        self.later.take_changes()
    }
}

/// Sends a reply, or the reason why it cannot be sent.
fn say(connection: &mut Connection, id: u32, reply: &ControlReply) -> Result<(), Closed> {
    match connection.send(id, reply, Vec::new()) {
        Err(Closed::Protocol(FrameError::TooLarge)) => {
            let text = "the answer is too long for a message";
            let error = WireError::new(ErrorCode::Full, text);
            connection.send(id, &ControlReply::Error(error), Vec::new())
        }
        sent => sent,
    }
}
