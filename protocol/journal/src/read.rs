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

/// Reads what the journal in `folder` has since `since_ms`, milliseconds since 1970, in the order
/// of [`in_order`]. A folder without a journal has nothing.
///
/// # Errors
/// If a file that is there cannot be read.
pub fn read(folder: &Path, since_ms: u64) -> io::Result<Past> {
    let (mut past, mut seen) = (Past::default(), BTreeSet::new());
    let mut files = Vec::new();
    // The newest first: a file that is renamed meanwhile is read twice, and none is missed.
    for path in files::all(folder) {
        match File::open(&path) {
            Ok(file) => files.push(file),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    // One that follows on one of that time is of it, though the clock was set back meanwhile.
    let oldest = files.iter().rposition(|file| !ended_before(file, since_ms));
    files.truncate(oldest.map_or(0, |at| at + 1));
    for file in files {
        for line in BufReader::new(file).split(b'\n') {
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            if text.is_empty() {
                continue;
            }
            match Line::parse(&text).and_then(Line::record) {
                None => past.unreadable += 1,
                Some(record) => {
                    if record.number == 0 || seen.insert((record.instance, record.number)) {
                        past.records.push(record);
                    }
                }
            }
        }
    }
    past.records = in_order(past.records, since_ms);
    Ok(past)
}

/// These events in the order in which they happened, as far as that is known, from `since_ms` on,
/// in milliseconds since 1970.
///
/// Events of one daemon are in the order of their numbers, whatever the clock was set to meanwhile.
/// Where daemons, or events without a number, are put between each other, an event counts as of
/// the latest time that its daemon has labelled by then.
#[must_use]
pub fn in_order(mut records: Vec<EventRecord>, since_ms: u64) -> Vec<EventRecord> {
    records.sort_by_key(|record| (record.instance, record.number));
    let mut latest = (0, 0);
    let at = |record: EventRecord| {
        if record.number == 0 {
            return (record.at_ms, record);
        }
        if latest.0 != record.instance {
            latest = (record.instance, 0);
        }
        latest.1 = latest.1.max(record.at_ms);
        (latest.1, record)
    };
    let mut all: Vec<(u64, EventRecord)> = records.into_iter().map(at).collect();
    all.retain(|(at, _)| *at >= since_ms);
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, record)| record).collect()
}

/// Events that daemons and journals told, each once and [in order](in_order): those from `since_ms`
/// on, in milliseconds since 1970, and all of the daemon of the number `whole`.
#[must_use]
pub fn merged(mut all: Vec<EventRecord>, since_ms: u64, whole: Option<u64>) -> Vec<EventRecord> {
    let mut seen = BTreeSet::new();
    all.retain(|record| record.number == 0 || seen.insert((record.instance, record.number)));
    let is_whole = |record: &EventRecord| Some(record.instance) == whole;
    let (remembered, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_whole);
    let since = in_order(others, since_ms).into_iter();
    in_order(since.chain(remembered).collect(), 0)
}

/// How far the clock that dates files may be behind the one that labels events, in milliseconds:
/// on a network file system it is the server's.
const BEHIND: u64 = 600_000;

/// Whether the file was surely last written before that time.
fn ended_before(file: &File, since_ms: u64) -> bool {
    let written = file.metadata().and_then(|known| known.modified());
    let since = Duration::from_millis(since_ms.saturating_sub(BEHIND));
    written.is_ok_and(|at| at < UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record((instance, number, at_ms): (u64, u64, u64)) -> EventRecord {
        EventRecord {
            instance,
            number,
            at_ms,
            kind: "k".to_owned(),
            tenant: None,
            device: None,
            text: String::new(),
            facts: vec![],
        }
    }

    /// Instance and number of each, in order.
    fn ordered(records: &[(u64, u64, u64)], since_ms: u64) -> Vec<(u64, u64)> {
        let all = in_order(records.iter().copied().map(record).collect(), since_ms);
        let all = all.iter();
        all.map(|record| (record.instance, record.number)).collect()
    }

    #[test]
    fn a_clock_that_is_set_back_moves_no_event_before_its_predecessor() {
        let set_back = [(1, 1, 20_000), (1, 2, 10_000), (1, 3, 10_500)];
        assert_eq!(ordered(&set_back, 0), [(1, 1), (1, 2), (1, 3)]);
        // Another daemon's come where the first one was by then.
        let two = [&set_back[..], &[(2, 1, 19_000), (2, 2, 21_000)]].concat();
        let all = [(2, 1), (1, 1), (1, 2), (1, 3), (2, 2)];
        assert_eq!(ordered(&two, 0), all);
        // What happened after an event that is wanted is wanted, too.
        assert_eq!(ordered(&two, 20_000), all[1..]);
    }

    #[test]
    fn a_file_that_follows_on_one_of_the_time_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, number: u64, at_ms: u64| {
            let path = folder.path().join(name);
            std::fs::write(&path, crate::json(&record((1, number, at_ms)))).unwrap();
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_millis(at_ms))
                .unwrap();
        };
        let since = |since_ms| read(folder.path(), since_ms).unwrap().records.len();
        write("journal.1.jsonl", 1, 20_000);
        write("journal.jsonl", 2, 10_000);
        assert_eq!([10_001, 20_000, 20_001].map(since), [2, 2, 0]);
        // The clock runs right.
        write("journal.jsonl", 2, 30_000);
        assert_eq!([20_000, 20_001].map(since), [2, 1]);
    }

    #[test]
    fn a_file_that_a_server_dates_a_few_minutes_early_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let at = 10 * BEHIND;
        std::fs::write(&path, crate::json(&record((1, 1, at)))).unwrap();
        let found = |behind: u64| {
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_millis(at - behind))
                .unwrap();
            read(folder.path(), at).unwrap().records.len()
        };
        // Beyond that it is not opened.
        assert_eq!([BEHIND / 2, BEHIND, BEHIND + 1].map(found), [1, 1, 0]);
    }

    #[test]
    fn with_a_clock_that_runs_right_events_are_in_the_order_of_its_time() {
        let right = [
            (2, 2, 60),
            (2, 1, 50),
            (1, 10, 60),
            (1, 9, 10),
            (1, 11, 70),
            // Without a number: by its label alone.
            (1, 0, 55),
            (0, 0, 50),
            (0, 0, 5),
        ];
        let mut by_time = right;
        by_time.sort_by_key(|(instance, number, at)| (*at, *instance, *number));
        for since in [0, 50, 61] {
            let wanted = by_time.iter().filter(|(.., at)| *at >= since);
            let wanted: Vec<_> = wanted.map(|(of, number, _)| (*of, *number)).collect();
            assert_eq!(ordered(&right, since), wanted);
        }
    }

    #[test]
    fn all_that_a_wanted_daemon_remembers_is_told_whatever_its_label() {
        let all: Vec<_> = [(1, 1, 10), (1, 2, 90), (2, 1, 20)].map(record).to_vec();
        let told = |whole| -> Vec<(u64, u64)> {
            let merged = merged(all.clone(), 50, whole);
            let merged = merged.iter();
            merged
                .map(|record| (record.instance, record.number))
                .collect()
        };
        assert_eq!(told(Some(1)), [(1, 1), (1, 2)]);
        assert_eq!(told(None), [(1, 2)]);
        assert_eq!(told(Some(2)), [(2, 1), (1, 2)]);
    }

    #[test]
    fn an_event_that_daemon_and_journal_tell_is_one() {
        let all: Vec<_> = [
            (2, 1, 50),
            (2, 2, 60),
            (1, 9, 10),
            (1, 10, 20),
            (2, 1, 50),
            // `journal-lost`, which has no number: each is one.
            (2, 0, 55),
            (2, 0, 55),
        ]
        .map(record)
        .to_vec();
        let times = |since| -> Vec<u64> {
            let merged = merged(all.clone(), since, None);
            merged.iter().map(|record| record.at_ms).collect()
        };
        assert_eq!(times(0), [10, 20, 50, 55, 55, 60]);
        assert_eq!(times(50), [50, 55, 55, 60]);
    }
}
