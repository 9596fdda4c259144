//! The journal's files as the end of the queue.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use gpushare_journal::{Bounds, Readers, Writer, write_json};
use gpushare_protocol::wire::EventRecord;

/// Where events end up.
pub trait Sink: Send + Debug {
    /// Writes these. A failure to write is logged, once for each cause.
    fn take(&mut self, batch: &[Arc<EventRecord>]);

    /// Whether it is the journal, and could not be written the last time.
    fn has_failed(&self) -> bool {
        false
    }

    /// What was taken is to survive a power failure. Returns whether it will, as far as that is
    /// known; else the cause is logged, once for each.
    fn settle(&mut self) -> bool {
        true
    }
}

/// The journal's files.
#[derive(Debug)]
pub struct Files {
    writer: Writer,
    /// The last error that was said.
    said: Option<String>,
    /// The last error of a file that was to survive.
    unsettled: Option<String>,
    /// Whether it was said that there are no locks.
    said_unlocked: bool,
    text: Vec<u8>,
}

impl Files {
    /// Files in this folder, which is made when there is something to write.
    #[must_use]
    pub fn new(folder: PathBuf, bounds: Bounds, readers: Readers) -> Self {
        Self {
            writer: Writer::new(folder, bounds, readers),
            said: None,
            unsettled: None,
            said_unlocked: false,
            text: Vec::new(),
        }
    }
}

impl Sink for Files {
    fn take(&mut self, batch: &[Arc<EventRecord>]) {
        self.text.clear();
        for record in batch {
            write_json(record, &mut self.text);
            self.text.push(b'\n');
        }
        let written = self.writer.append(&self.text);
        if let Some(error) = self.writer.take_unlocked()
            && !std::mem::replace(&mut self.said_unlocked, true)
        {
            tracing::warn!(%error, "the journal's file system has no locks: of two daemons that begin a file at once, events may be lost");
        }
        let error = match written {
            Ok(()) => return self.said = None,
            Err(error) => error.to_string(),
        };
        if self.said.as_ref() != Some(&error) {
            tracing::warn!(%error, "the journal cannot be written; `gpushare events --since` will lack what happens now");
            self.said = Some(error);
        }
    }

    fn has_failed(&self) -> bool {
        self.said.is_some()
    }

    fn settle(&mut self) -> bool {
        let error = match self.writer.sync() {
            Ok(()) => {
                self.unsettled = None;
                return true;
            }
            // A network file system tells only here that its disk or a quota is full.
            Err(error) => error.to_string(),
        };
        if self.unsettled.as_ref() != Some(&error) {
            tracing::warn!(%error, "what was written of the journal may be lost; `gpushare events --since` may lack it");
            self.unsettled = Some(error);
        }
        false
    }
}
