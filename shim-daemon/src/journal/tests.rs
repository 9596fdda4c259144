//! The queue: nothing waits for a slow disk, and what is lost is said. The log's fields, read by a
//! double of journald's socket.

use super::*;
use gpushare_protocol::wire::EventDevice;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use std::sync::mpsc::channel;

fn record(number: u64) -> Record {
    Arc::new(EventRecord {
        instance: 1,
        number,
        at_ms: number,
        kind: "refused".to_owned(),
        tenant: Some("web".to_owned()),
        device: Some(EventDevice {
            uuid: [0; 16],
            index: 3,
        }),
        text: "over its\nlimit".to_owned(),
        facts: vec![
            ("limit_bytes".to_owned(), Fact::Number(12)),
            ("reason".to_owned(), Fact::Word("limit".to_owned())),
        ],
    })
}

/// A sink that writes only when it is let.
#[derive(Debug)]
struct Slow {
    lets: Receiver<()>,
    written: Arc<Mutex<Vec<Record>>>,
}

impl Sink for Slow {
    fn take(&mut self, batch: &[Record]) {
        // Once nobody lets it any more it writes freely.
        let _ = self.lets.recv();
        self.written.lock().unwrap().extend(batch.iter().cloned());
    }
}

/// Ends it once all is written, however long that takes: the daemon would not wait.
fn ends(mut journal: Journal) {
    journal.queue = None;
    // Its thread's end closes it.
    let _ = journal.done.recv();
}

#[test]
fn a_disk_that_hangs_costs_events_and_says_so() {
    let (lets, waits) = channel();
    let written = Arc::new(Mutex::new(Vec::new()));
    let sink = Slow {
        lets: waits,
        written: Arc::clone(&written),
    };
    let journal = Journal::start(vec![Box::new(sink)]).unwrap();
    let put = 2 * QUEUE as u64;
    for number in 1..=put {
        // Returns although nothing is written.
        journal.put(&record(number));
    }
    assert!(written.lock().unwrap().is_empty());
    drop(lets);
    ends(journal);
    let written = written.lock().unwrap();
    let lost: u64 = written
        .iter()
        .filter_map(|record| record.number_of("count"))
        .sum();
    let kept = written.iter().filter(|record| record.kind == "refused");
    assert!(lost > 0);
    assert_eq!(kept.count() as u64 + lost, put, "each is kept or counted");
}

#[test]
fn what_was_put_is_written_before_the_daemon_has_left() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::new(
        folder.path().to_owned(),
        gpushare_journal::Bounds::default(),
        gpushare_journal::Readers::Owner,
    );
    let journal = Journal::start(vec![Box::new(files)]).unwrap();
    (1..=1000).for_each(|number| journal.put(&record(number)));
    drop(journal);
    let past = gpushare_journal::read(folder.path(), 0).unwrap();
    let numbers: Vec<u64> = past.records.iter().map(|record| record.number).collect();
    assert_eq!(numbers, (1..=1000).collect::<Vec<_>>());
    assert_eq!(past.records[0], *record(1));
}

#[test]
fn gaps_are_counted_while_the_folder_cannot_be_written_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("state");
    // Not a folder.
    std::fs::write(&at, "").unwrap();
    let (bounds, readers) = (
        gpushare_journal::Bounds::default(),
        gpushare_journal::Readers::Owner,
    );
    let files = Files::new(at.clone(), bounds, readers);
    let mut writing = Writing {
        records: sync_channel(1).1,
        lost: Arc::default(),
        gaps: Arc::default(),
        sinks: vec![Box::new(files)],
        unsettled: None,
    };
    let gaps = |writing: &mut Writing, number: u64| {
        writing.write(vec![record(number)]);
        writing.gaps.load(Ordering::Relaxed)
    };
    assert_eq!(gaps(&mut writing, 1), 1);
    assert_eq!(gaps(&mut writing, 2), 2);
    std::fs::remove_file(&at).unwrap();
    assert_eq!(gaps(&mut writing, 3), 2);
    // A full queue is one, too.
    writing.lost.store(7, Ordering::Relaxed);
    assert_eq!(gaps(&mut writing, 4), 3);
}

/// A sink to which the next event comes with each, until it is told to settle.
#[derive(Debug)]
struct Busy {
    /// How many events come at most.
    left: u64,
    queue: Option<SyncSender<Record>>,
    settled: Arc<AtomicU64>,
    /// What it answers then.
    survives: bool,
}

impl Sink for Busy {
    fn take(&mut self, _: &[Record]) {
        if let (Some(queue), true) = (&self.queue, self.left > 0) {
            self.left -= 1;
            queue.try_send(record(self.left)).unwrap();
        }
        // Enough have come.
        self.queue.take_if(|_| self.left == 1);
    }

    fn settle(&mut self) -> bool {
        self.settled.fetch_add(1, Ordering::Relaxed);
        self.queue = None;
        self.survives
    }
}

/// How often a sink is told to settle to which so many events come after the first.
fn settled(events: u64, is_leaving: bool) -> u64 {
    settled_and_gaps(events, is_leaving, true).0
}

/// The same, and the gaps that are counted, of a sink that answers so.
fn settled_and_gaps(events: u64, is_leaving: bool, survives: bool) -> (u64, u64) {
    let (queue, records) = sync_channel(QUEUE);
    queue.send(record(0)).unwrap();
    let settled = Arc::default();
    let sink = Busy {
        left: events,
        queue: Some(queue).filter(|_| !is_leaving),
        settled: Arc::clone(&settled),
        survives,
    };
    let gaps = Arc::default();
    let mut writing = Writing {
        records,
        lost: Arc::default(),
        gaps: Arc::clone(&gaps),
        sinks: vec![Box::new(sink)],
        unsettled: None,
    };
    writing.write_all();
    let [settled, gaps] = [settled, gaps].map(|count| count.load(Ordering::Relaxed));
    (settled, gaps)
}

#[test]
fn what_does_not_survive_though_it_was_written_is_a_gap() {
    assert_eq!(settled_and_gaps(0, false, false), (1, 1));
    assert_eq!(settled_and_gaps(0, false, true), (1, 0));
}

/// A sink that panics.
#[derive(Debug)]
struct Broken;

impl Sink for Broken {
    fn take(&mut self, _: &[Record]) {
        panic!("as a bug of a sink would");
    }
}

#[test]
fn events_after_the_end_of_the_journals_thread_are_gaps() {
    let mut journal = Journal::start(vec![Box::new(Broken)]).unwrap();
    journal.put(&record(1));
    // Its thread's end closes it.
    let _ = journal.done.recv();
    assert_eq!(journal.gaps(), 0);
    // The queue's end goes with the thread's last values.
    while journal.gaps() == 0 {
        journal.put(&record(2));
        thread::yield_now();
    }
    journal.queue = None;
}

#[test]
fn events_that_come_without_a_pause_survive_a_power_failure() {
    // For three seconds: one in each pause between two writes.
    assert_eq!(settled(60, false), 1);
}

#[test]
fn a_lone_event_survives_a_power_failure_and_no_end_waits_for_it() {
    assert_eq!(settled(0, false), 1);
    assert_eq!(settled(0, true), 0);
}

#[test]
fn journald_is_sent_a_field_for_each_part_of_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let journald = UnixDatagram::bind(&path).unwrap();
    let sink = Journald::new(&path).unwrap();
    let journal = Journal::start(vec![Box::new(sink)]).unwrap();
    journal.put(&record(1));
    let mut bytes = [0; 4096];
    let length = journald.recv(&mut bytes).unwrap();
    let sent = fields_of(&bytes[..length]);
    let field = |name: &str| {
        let found = sent.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(
        field("MESSAGE"),
        Some("refused of web on GPU 3: over its\nlimit")
    );
    assert_eq!(field("PRIORITY"), Some("6"));
    assert_eq!(field("SYSLOG_IDENTIFIER"), Some("gpushared"));
    assert_eq!(field("GPUSHARE_EVENT"), Some("refused"));
    assert_eq!(field("GPUSHARE_TENANT"), Some("web"));
    assert_eq!(field("GPUSHARE_GPU"), Some("3"));
    assert_eq!(field("GPUSHARE_LIMIT_BYTES"), Some("12"));
    assert_eq!(field("GPUSHARE_REASON"), Some("limit"));
    // One that a person should look at is a warning.
    let lost = EventRecord {
        kind: "memory-lost".to_owned(),
        ..EventRecord::clone(&record(2))
    };
    journal.put(&Arc::new(lost));
    let length = journald.recv(&mut bytes).unwrap();
    let sent = fields_of(&bytes[..length]);
    assert!(
        sent.contains(&("PRIORITY".to_owned(), "4".to_owned())),
        "{sent:?}"
    );
    // Nobody listens any more: nothing happens.
    drop(journald);
    journal.put(&record(2));
}

/// journald's socket with a reader that has read nothing yet, and what sends to it.
fn unread() -> (tempfile::TempDir, UnixDatagram, Journald) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let journald = UnixDatagram::bind(&path).unwrap();
    let sink = Journald::new(&path).unwrap();
    (folder, journald, sink)
}

/// Reads all that waits, and returns how many messages that is.
fn drain(journald: &UnixDatagram) -> usize {
    journald.set_nonblocking(true).unwrap();
    let messages = std::iter::from_fn(|| journald.recv(&mut [0; 4096]).ok());
    messages.count()
}

#[test]
fn a_journald_that_does_not_read_keeps_no_event_from_the_files() {
    let (folder, _journald, sink) = unread();
    let files = Files::new(
        folder.path().to_owned(),
        gpushare_journal::Bounds::default(),
        gpushare_journal::Readers::Owner,
    );
    let journal = Journal::start(vec![Box::new(files), Box::new(sink)]).unwrap();
    let put = QUEUE as u64;
    (1..=put).for_each(|number| journal.put(&record(number)));
    ends(journal);
    let past = gpushare_journal::read(folder.path(), 0).unwrap();
    assert_eq!(past.records.len() as u64, put);
}

#[test]
fn a_journald_that_reads_gets_each_event_of_a_batch() {
    let (folder, journald, _) = unread();
    let path = folder.path().join("socket");
    // However late the reader is on a busy machine.
    let mut sink = Journald::within(&path, Duration::from_secs(60)).unwrap();
    let batch: Vec<Record> = (1..=BATCH as u64).map(record).collect();
    let reader = thread::spawn(move || {
        let messages = std::iter::from_fn(|| journald.recv(&mut [0; 4096]).ok());
        messages.take_while(|length| *length > 0).count()
    });
    sink.take(&batch);
    // Nothing more comes.
    UnixDatagram::unbound()
        .unwrap()
        .send_to(&[], &path)
        .unwrap();
    assert_eq!(reader.join().unwrap(), BATCH);
}

#[test]
fn a_journald_that_reads_again_gets_the_events_that_come_from_then_on() {
    let (_folder, journald, mut sink) = unread();
    let batch: Vec<Record> = (1..=5000).map(record).collect();
    sink.take(&batch);
    let sent = drain(&journald);
    assert!(0 < sent && sent < batch.len(), "{sent}");
    sink.take(&batch[..5]);
    assert_eq!(drain(&journald), 5);
}

/// Reads journald's native form: `NAME=value` in a line, or a line `NAME`, eight bytes of length
/// and the value.
fn fields_of(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let head = std::str::from_utf8(&bytes[..line]).unwrap();
        bytes = &bytes[line + 1..];
        if let Some((name, value)) = head.split_once('=') {
            fields.push((name.to_owned(), value.to_owned()));
            continue;
        }
        let (length, rest) = bytes.split_at(8);
        let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
        let value = String::from_utf8(rest[..length].to_vec()).unwrap();
        assert_eq!(rest[length], b'\n');
        bytes = &rest[length + 1..];
        fields.push((head.to_owned(), value));
    }
    fields
}
