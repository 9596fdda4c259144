//! The log on its way out. The loop and the threads beside it hand their messages over and go on;
//! a thread of its own writes them. What reads the log may stop reading: then it costs messages,
//! never a turn. They are counted, and the count is a message itself.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::log_budget::{LogBudget, TELL};

/// Bytes of messages that may wait for the thread, unless one message is longer.
const MOST: usize = 4 << 20;
/// Longest to wait at the daemon's end for what is still to be written.
const LAST: Duration = Duration::from_secs(2);

/// What the thread gets.
#[derive(Debug)]
enum Item {
    Message(Vec<u8>),
    /// All before it is written: says so.
    End(SyncSender<()>),
}

/// What waits, and what could not.
#[derive(Debug, Default)]
struct Counts {
    bytes: AtomicUsize,
    lost: AtomicU64,
}

/// Takes messages, each in one write. Never waits.
#[derive(Clone, Debug)]
pub struct LogQueue {
    queue: Sender<Item>,
    counts: Arc<Counts>,
}

/// Dropped, it waits a moment until what was said is written.
#[derive(Debug)]
pub struct Rest(Sender<Item>);

impl LogQueue {
    /// Starts the thread, which writes to `log`, and also what the budget left out; its own lines
    /// with their priority, if that is wanted. No signal comes to it.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(
        log: impl Write + Send + 'static,
        budget: LogBudget,
        with_priorities: bool,
    ) -> io::Result<(Self, Rest)> {
        let (queue, items) = channel();
        let counts = Arc::new(Counts::default());
        let its = Arc::clone(&counts);
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let started = thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                let notes = Notes {
                    budget,
                    begin: if with_priorities { "<4>" } else { "" },
                };
                write_all(&items, log, &its, &notes);
            });
        before.thread_set_mask()?;
        started?;
        let rest = Rest(queue.clone());
        Ok((Self { queue, counts }, rest))
    }
}

impl Write for LogQueue {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let size = message.len();
        let before = self.counts.bytes.fetch_add(size, Ordering::Relaxed);
        let fits = before == 0 || before.saturating_add(size) <= MOST;
        if !fits || self.queue.send(Item::Message(message.to_vec())).is_err() {
            self.counts.bytes.fetch_sub(size, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(size)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let (say, said) = sync_channel(1);
        if self.0.send(Item::End(say)).is_ok() {
            let _ = said.recv_timeout(LAST);
        }
    }
}

/// What the thread has to say itself.
struct Notes {
    budget: LogBudget,
    /// How such a line begins.
    begin: &'static str,
}

impl Notes {
    fn left_out(&self, log: &mut impl Write) {
        for line in self.budget.take_left_out() {
            let _ = writeln!(log, "{}{line}", self.begin);
        }
    }
}

/// The thread's part. A message that cannot be written is no reason to end.
fn write_all(items: &Receiver<Item>, mut log: impl Write, counts: &Counts, notes: &Notes) {
    let mut tell = Instant::now() + TELL;
    loop {
        let now = Instant::now();
        if now >= tell {
            notes.left_out(&mut log);
            tell = now + TELL;
        }
        let item = match items.recv_timeout(tell - now.min(tell)) {
            Ok(item) => item,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match item {
            Item::Message(message) => {
                let lost = counts.lost.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ = writeln!(
                        log,
                        "{}{lost} messages are missing near here: they were not read as fast as they came",
                        notes.begin
                    );
                }
                let _ = log.write_all(&message);
                counts.bytes.fetch_sub(message.len(), Ordering::Relaxed);
            }
            Item::End(say) => {
                notes.left_out(&mut log);
                let _ = log.flush();
                let _ = say.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A log that writes a message only when it is let.
    struct Slow {
        lets: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Once nobody lets it any more it writes freely.
            let _ = self.lets.recv();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (LogQueue, Rest, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (lets_it, lets) = channel();
        let written = Arc::default();
        let log = Slow {
            lets,
            written: Arc::clone(&written),
        };
        let (queue, rest) = LogQueue::start(log, LogBudget::default(), false).unwrap();
        (queue, rest, lets_it, written)
    }

    #[test]
    fn what_is_said_is_written_in_order_by_the_end() {
        let (mut queue, rest, lets, written) = slow();
        for line in 0..100 {
            let line = format!("line {line}\n");
            queue.write_all(line.as_bytes()).unwrap();
        }
        drop(lets);
        drop(rest);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let lines: Vec<String> = (0..100).map(|line| format!("line {line}")).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_log_that_is_not_read_costs_messages_and_never_a_wait() {
        let (mut queue, rest, lets, written) = slow();
        let message = [b'x'; 64 << 10];
        for _ in 0..200 {
            queue.write_all(&message).unwrap();
        }
        assert!(written.lock().unwrap().is_empty(), "it writes nothing yet");
        assert!(queue.counts.bytes.load(Ordering::Relaxed) <= MOST);
        drop(lets);
        drop(rest);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(text.contains("messages are missing near here"));
        let kept = text.bytes().filter(|byte| *byte == b'x').count() / message.len();
        assert!(kept == MOST / message.len() && kept < 200, "{kept}");
    }
}
