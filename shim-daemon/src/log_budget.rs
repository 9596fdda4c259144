//! How much of the log one message may be. journald takes 10,000 lines in 30 s from a unit, and
//! then drops what comes, whatever it says. Many a message is about what a user or a program did,
//! which can be done a thousand times a second.
//!
//! Each place in the source that says something has a budget of its own. What is left out is
//! counted and told. Events have budgets by tenant and user, and pass.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::log_queue::LogQueue;

/// Messages of one place at once.
const BURST: u32 = 32;
/// How long one of them takes to be there again.
const EACH: Duration = Duration::from_secs(1);
/// How often it is told what was left out.
pub(crate) const TELL: Duration = Duration::from_secs(10);

/// A place that says something.
#[derive(Debug)]
struct Place {
    /// Its module, and the line in it.
    name: String,
    /// When its whole budget is there again.
    full_at: Instant,
    left_out: u64,
}

/// The places that have said something, and what was left out.
#[derive(Clone, Debug, Default)]
pub struct LogBudget(Arc<Mutex<HashMap<Identifier, Place>>>);

impl LogBudget {
    /// Whether this message is written.
    fn allows(&self, message: &Metadata<'_>, now: Instant) -> bool {
        if message.target() == crate::journal::TARGET {
            return true;
        }
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(message.callsite()).or_insert_with(|| Place {
            name: format!("{}:{}", message.target(), message.line().unwrap_or(0)),
            full_at: now,
            left_out: 0,
        });
        let full_at = place.full_at.max(now) + EACH;
        if full_at - now > EACH * BURST {
            place.left_out += 1;
            return false;
        }
        place.full_at = full_at;
        true
    }

    /// What was left out since the last question, a line for each place.
    pub(crate) fn take_left_out(&self) -> Vec<String> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let some = places.values_mut().filter(|place| place.left_out > 0);
        some.map(|place| {
            let count = std::mem::take(&mut place.left_out);
            format!(
                "{count} messages like those before of {} were left out: too many came",
                place.name
            )
        })
        .collect()
    }
}

/// Where the log's messages go, each as far as its place's budget goes.
#[derive(Debug)]
pub struct Messages {
    /// On their way out.
    pub queue: LogQueue,
    /// That of each place.
    pub budget: LogBudget,
    /// Whether each line begins with its priority, as journald reads it (`<3>`).
    pub with_priorities: bool,
}

/// One message.
#[derive(Debug)]
pub struct Message {
    /// `None`: it is left out.
    queue: Option<LogQueue>,
    priority: Option<&'static str>,
}

impl Messages {
    fn message(&self, level: Level, is_written: bool) -> Message {
        Message {
            queue: is_written.then(|| self.queue.clone()),
            priority: self.with_priorities.then(|| priority(level)),
        }
    }
}

/// As `sd-daemon(3)` has them.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

impl<'a> MakeWriter<'a> for Messages {
    type Writer = Message;

    fn make_writer(&'a self) -> Message {
        self.message(Level::INFO, true)
    }

    fn make_writer_for(&'a self, message: &Metadata<'_>) -> Message {
        let is_written = self.budget.allows(message, Instant::now());
        self.message(*message.level(), is_written)
    }
}

impl Write for Message {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        match (&mut self.queue, self.priority) {
            (None, _) => {}
            (Some(queue), None) => queue.write_all(message)?,
            (Some(queue), Some(priority)) => {
                let mut lines = String::new();
                for line in String::from_utf8_lossy(message).lines() {
                    let _ = writeln!(lines, "{priority}{line}");
                }
                queue.write_all(lines.as_bytes())?;
            }
        }
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
