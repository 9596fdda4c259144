//! Events of a daemon: those that it remembers, and those that come.

use crate::{Talk, TalkError};
use gpushare_protocol::wire::{Control, ControlReply, EventRecord};
use std::io::ErrorKind;

impl Talk {
    /// The past events that the daemon still remembers, oldest first.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn past(&mut self) -> Result<Vec<EventRecord>, TalkError> {
        self.last(u32::MAX)
    }

    /// So many of these at most, the last ones.
    ///
    /// # Errors
    /// As [`Talk::tenants`].
    pub fn last(&mut self, most: u32) -> Result<Vec<EventRecord>, TalkError> {
        let follow = self.ask(&self.following(most))?;
        let end = self.ask(&Control::Devices)?;
        let mut past = Vec::new();
        // Replies come in order: what precedes the answer to the later question is the past.
        loop {
            match self.next().map_err(|error| self.lost(&error))? {
                (id, reply) if id == follow => past.extend(record(reply)),
                (id, _) if id == end => return Ok(past),
                _ => {}
            }
        }
    }

    /// Every event from now on, after so many that the daemon remembers, until it leaves.
    ///
    /// A daemon cuts off what reads more slowly than events come. Then this connects again, and
    /// goes on with the events that the daemon remembers by then and this has not had. A gap in
    /// their numbers shows what is missing.
    ///
    /// # Errors
    /// Those of `each`, and of the connection.
    pub fn follow<E: From<TalkError>>(
        &mut self,
        past: u32,
        mut each: impl FnMut(EventRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut past, mut last) = (past, 0);
        loop {
            let before = last;
            self.follow_once(past, |record| {
                // A daemon of before minor 8 gives no numbers.
                if record.number > 0 && record.number <= last {
                    return Ok(());
                }
                last = record.number;
                each(record)
            })?;
            if last == before {
                return Ok(());
            }
            match self.again() {
                Ok(next) if next.instance() == self.instance() => *self = next,
                _ => return Ok(()),
            }
            past = u32::MAX;
        }
    }

    /// The same until the connection ends.
    fn follow_once<E: From<TalkError>>(
        &mut self,
        past: u32,
        mut each: impl FnMut(EventRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let follow = self.ask(&self.following(past))?;
        loop {
            match self.next() {
                // Too many follow already.
                Ok((id, ControlReply::Error(error))) if id == follow => {
                    return Err(TalkError::new(error).into());
                }
                Ok((id, reply)) if id == follow => {
                    if let Some(record) = record(reply) {
                        each(record)?;
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(TalkError::new(error).into()),
            }
        }
    }

    fn following(&self, past: u32) -> Control {
        match self.minor() {
            0..8 => Control::Follow { past },
            _ => Control::FollowRecords { past },
        }
    }
}

/// The event of a reply, with its facts where the daemon knows them.
fn record(reply: ControlReply) -> Option<EventRecord> {
    match reply {
        ControlReply::Record(record) => Some(record),
        ControlReply::Event(row) => Some(row.into()),
        _ => None,
    }
}
