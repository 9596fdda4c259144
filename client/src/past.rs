//! Events of a daemon: those that it remembers, and those that come.

use crate::{Talk, TalkError};
use gpushare_protocol::wire::{Control, ControlReply, EventRecord, Listing};
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
        let follow = self.ask(&Control::Follow { past: most })?;
        let end = self.ask(&Listing::Devices.first())?;
        let mut past = Vec::new();
        // Replies come in order: what precedes the answer to the later question is the past.
        loop {
            match self.next().map_err(|error| self.lost(&error))? {
                (id, ControlReply::Event(record)) if id == follow => past.push(record),
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
                if record.number <= last {
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
        let follow = self.ask(&Control::Follow { past })?;
        loop {
            match self.next() {
                // Too many follow already.
                Ok((id, ControlReply::Error(error))) if id == follow => {
                    return Err(TalkError::new(error).into());
                }
                Ok((id, ControlReply::Event(record))) if id == follow => each(record)?,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(TalkError::new(error).into()),
            }
        }
    }
}
