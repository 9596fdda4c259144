//! Events on their way out of the daemon: to the journal's files and to the log.
//!
//! The loop puts each event into a bounded queue and goes on; a thread of its own writes them. A
//! full queue costs events, never a turn: they are counted, and the count is an event itself.

mod sinks;
mod system;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpushare_protocol::wire::{EventRecord, Fact};

pub use sinks::{Files, Sink};
pub use system::{Journald, SOCKET, TARGET, is_attached, log};

/// Events that may wait for the thread.
const QUEUE: usize = 4096;
/// Events written at once.
const BATCH: usize = 256;
/// How long events are gathered after a write, so that many cost few writes. A lone event is
/// written at once, and so is what waits when the daemon leaves.
const PAUSE: Duration = Duration::from_millis(50);
/// How long after an event was written the files are made to survive a power failure.
const SETTLE: Duration = Duration::from_secs(1);
/// Longest to wait at the daemon's end for what is still to be written.
const LAST: Duration = Duration::from_secs(2);

/// A record on its way.
type Record = Arc<EventRecord>;

/// See the module's page.
#[derive(Debug)]
pub struct Journal {
    queue: Option<SyncSender<Record>>,
    lost: Arc<AtomicU64>,
    gaps: Arc<AtomicU64>,
    /// Events that came after its thread had ended.
    ended: AtomicU64,
    /// Closed when all is written.
    done: Receiver<()>,
}

impl Journal {
    /// Starts the thread, which writes each batch to all of these.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(sinks: Vec<Box<dyn Sink>>) -> io::Result<Self> {
        let (queue, records) = sync_channel(QUEUE);
        let (alive, done) = sync_channel(1);
        let (lost, gaps) = (Arc::default(), Arc::default());
        let mut writing = Writing {
            records,
            lost: Arc::clone(&lost),
            gaps: Arc::clone(&gaps),
            sinks,
            unsettled: None,
        };
        thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || {
                writing.write_all();
                drop(alive);
            })?;
        Ok(Self {
            queue: Some(queue),
            lost,
            gaps,
            ended: AtomicU64::new(0),
            done,
        })
    }

    /// Hands an event over. Never waits.
    pub fn put(&self, record: &Record) {
        let Some(queue) = &self.queue else { return };
        match queue.try_send(Arc::clone(record)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            // The thread, which would count it, has ended by a panic.
            Err(TrySendError::Disconnected(_)) => {
                if self.ended.fetch_add(1, Ordering::Relaxed) == 0 {
                    tracing::error!(
                        "the journal's thread has ended; no event is written until the daemon is started again"
                    );
                }
            }
        }
    }

    /// How often events were left out, or could not be written.
    #[must_use]
    pub fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed) + self.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.queue = None;
        let _ = self.done.recv_timeout(LAST);
    }
}

/// The thread's part.
#[derive(Debug)]
struct Writing {
    records: Receiver<Record>,
    lost: Arc<AtomicU64>,
    gaps: Arc<AtomicU64>,
    sinks: Vec<Box<dyn Sink>>,
    /// When the first of what a power failure would take was written.
    unsettled: Option<Instant>,
}

impl Writing {
    fn write_all(&mut self) {
        loop {
            let first = match self.unsettled {
                Some(since) => {
                    let left = SETTLE.saturating_sub(since.elapsed());
                    self.records.recv_timeout(left)
                }
                None => self.records.recv().map_err(RecvTimeoutError::from),
            };
            match first {
                Ok(first) => self.write_from(first),
                Err(RecvTimeoutError::Timeout) => {}
                // The daemon does not wait for the disk.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.settle();
        }
    }

    /// Once it is due, whether or not events wait.
    fn settle(&mut self) {
        let is_due = |since: &Instant| since.elapsed() >= SETTLE;
        if self.unsettled.take_if(|since| is_due(since)).is_some() {
            let settled = self.sinks.iter_mut().map(|sink| sink.settle());
            // Each is told to.
            let unsettled = settled.filter(|settled| !settled).count();
            self.gaps
                .fetch_add((unsettled > 0).into(), Ordering::Relaxed);
        }
    }

    /// Writes an event and those that wait behind it, then what comes meanwhile, in intervals.
    fn write_from(&mut self, first: Record) {
        let mut batch = vec![first];
        while !batch.is_empty() {
            batch.extend(self.records.try_iter().take(BATCH - batch.len()));
            self.write(batch);
            self.settle();
            batch = self.gather();
        }
    }

    /// What comes within the pause; less of it where the queue ends or fills a batch.
    fn gather(&self) -> Vec<Record> {
        let (end, mut batch) = (Instant::now() + PAUSE, Vec::new());
        while batch.len() < BATCH {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(record) = self.records.recv_timeout(left) else {
                break;
            };
            batch.push(record);
        }
        batch
    }

    fn write(&mut self, mut batch: Vec<Record>) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if let (Some(last), true) = (batch.last(), lost > 0) {
            batch.push(Arc::new(lost_events(last, lost)));
        }
        self.unsettled.get_or_insert_with(Instant::now);
        for sink in &mut self.sinks {
            sink.take(&batch);
        }
        let lacks = lost > 0 || self.sinks.iter().any(|sink| sink.has_failed());
        self.gaps.fetch_add(lacks.into(), Ordering::Relaxed);
    }
}

/// The event that says how many were lost.
#[expect(
    clippy::disallowed_methods,
    reason = "a label for people: nothing is decided by it"
)]
fn lost_events(last: &EventRecord, lost: u64) -> EventRecord {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    EventRecord {
        instance: last.instance,
        number: 0,
        at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        kind: "journal-lost".to_owned(),
        tenant: None,
        device: None,
        text: format!(
            "{lost} events are missing here: they came faster than they could be written"
        ),
        facts: vec![("count".to_owned(), Fact::Number(lost))],
    }
}

#[cfg(test)]
mod tests;
