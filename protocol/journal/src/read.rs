//! Reads a journal: while it is written, and whatever a crash left of it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use gpushare_protocol::wire::EventRecord;

use crate::files;
use crate::line::Line;

/// The content of a journal.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The events, oldest first.
    pub records: Vec<EventRecord>,
    /// Lines that are no events: torn by a crash, or of a later version.
    pub unreadable: u64,
}

/// Reads what the journal in `folder` has since `since_ms`, milliseconds since 1970. A folder
/// without a journal has nothing.
///
/// # Errors
/// If a file that is there cannot be read.
pub fn read(folder: &Path, since_ms: u64) -> io::Result<Past> {
    let (mut past, mut seen) = (Past::default(), BTreeSet::new());
    // The newest first: a file that is renamed meanwhile is read twice, and none is missed.
    for path in files::all(folder) {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if ended_before(&file, since_ms) {
            continue;
        }
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            if text.is_empty() {
                continue;
            }
            match Line::parse(&text).and_then(Line::record) {
                None => past.unreadable += 1,
                Some(record) if record.at_ms < since_ms => {}
                Some(record) => {
                    if record.number == 0 || seen.insert((record.instance, record.number)) {
                        past.records.push(record);
                    }
                }
            }
        }
    }
    let order = |record: &EventRecord| (record.at_ms, record.instance, record.number);
    past.records.sort_by_key(order);
    Ok(past)
}

/// Whether the file was last written before that time.
fn ended_before(file: &File, since_ms: u64) -> bool {
    let written = file.metadata().and_then(|known| known.modified());
    written.is_ok_and(|at| at < UNIX_EPOCH + Duration::from_millis(since_ms))
}
