//! What a command is told: replies, and events, which wait until earlier ones have been read.

use std::sync::Arc;

use gpushare_protocol::wire::{ControlReply, ErrorCode, EventRecord, FrameError, MINOR, WireError};

use super::super::buffer_budget::Weight;
use super::super::later::{Change, Outgoing};
use super::Session;
use crate::connection::{Closed, Connection};
use crate::node::Form;

impl Session {
    /// Sends a command a reply, unless its version is too old for that reply.
    pub(in crate::server) fn tell(&mut self, id: u32, reply: &ControlReply) -> Result<(), Closed> {
        if reply.since() > self.minor {
            return Ok(());
        }
        let older = (self.minor < MINOR).then(|| reply.clone().told(self.minor));
        let reply = older.as_ref().unwrap_or(reply);
        if !self.later.is_empty() {
            return self
                .later
                .push(id, Outgoing::Reply(Box::new(reply.clone())));
        }
        say(&mut self.connection, id, reply)
    }

    /// Tells a command of an event, in its time.
    pub(in crate::server) fn tell_event(
        &mut self,
        id: u32,
        record: Arc<EventRecord>,
        form: Form,
    ) -> Result<(), Closed> {
        self.later.push(id, Outgoing::Event(record, form))?;
        self.catch_up()
    }

    /// Sends what waits, as far as the other end takes it.
    pub(super) fn catch_up(&mut self) -> Result<(), Closed> {
        self.connection.flush()?;
        while !self.connection.wants_to_write()
            && let Some((id, word)) = self.later.pop()
        {
            match word {
                Outgoing::Event(record, form) => {
                    let reply = match form {
                        Form::Row => ControlReply::Event(record.plain()),
                        Form::Record => ControlReply::Record(Arc::unwrap_or_clone(record)),
                    };
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

/// Sends a reply, or the reason why it cannot be sent: an answer too long for a frame must be
/// requested page by page.
fn say(connection: &mut Connection, id: u32, reply: &ControlReply) -> Result<(), Closed> {
    match connection.send(id, reply, Vec::new()) {
        Err(Closed::Protocol(FrameError::TooLarge)) => {
            let text = "the answer is too long for this version of gpushare; use the one that came with the daemon";
            let error = WireError::new(ErrorCode::Full, text);
            connection.send(id, &ControlReply::Error(error), Vec::new())
        }
        sent => sent,
    }
}
