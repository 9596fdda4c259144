//! What is written of many messages, and how its lines begin.

use std::sync::mpsc::{Sender, channel};

use tracing::subscriber::with_default;

use super::*;
use crate::log_queue::Rest;

/// A log in memory. It says what it was given.
struct Memory(Sender<Vec<u8>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).unwrap();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines of a log in which this says something.
fn said(with_priorities: bool, says: impl FnOnce()) -> Vec<String> {
    let (send, sent) = channel();
    let budget = LogBudget::default();
    let (queue, rest): (LogQueue, Rest) =
        LogQueue::start(Memory(send), budget.clone(), with_priorities).unwrap();
    let messages = Messages {
        queue,
        budget,
        with_priorities,
    };
    let log = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(messages);
    with_default(log.finish(), says);
    drop(rest);
    let text: Vec<u8> = sent.try_iter().flatten().collect();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn of_many_messages_of_one_place_a_few_are_written_and_the_rest_told() {
    let lines = said(false, || {
        for id in 0..1000 {
            tracing::info!(id, "cut off");
        }
        tracing::error!("the file is wrong");
    });
    let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    // A slow machine may earn one more meanwhile.
    let written = of("cut off");
    assert!((32..64).contains(&written), "{written}");
    assert_eq!(of("the file is wrong"), 1, "another place is not touched");
    let rest = format!("{} messages like those before of ", 1000 - written);
    assert_eq!(of(&rest), 1, "{lines:?}");
}

#[test]
fn messages_that_come_slowly_are_all_written() {
    let budget = LogBudget::default();
    let place = {
        let seen = Mutex::new(None);
        let log = tracing_subscriber::fmt().with_writer(io::sink).finish();
        with_default(log, || {
            let span = tracing::info_span!("one");
            *seen.lock().unwrap() = span.metadata();
        });
        seen.into_inner().unwrap().unwrap()
    };
    let begin = Instant::now();
    for second in 0..1000 {
        assert!(budget.allows(place, begin + Duration::from_secs(second)));
    }
    assert!(budget.take_left_out().is_empty());
    let end = begin + Duration::from_secs(1000);
    let at_once = (0..1000).filter(|_| budget.allows(place, end)).count();
    assert!(at_once <= 32, "{at_once}");
    assert_eq!(budget.take_left_out().len(), 1);
    assert!(budget.take_left_out().is_empty(), "it is told once");
}

#[test]
fn events_have_budgets_of_their_own_and_all_pass() {
    let lines = said(false, || {
        for id in 0..1000 {
            tracing::info!(target: crate::journal::TARGET, id, "set");
        }
    });
    assert_eq!(lines.len(), 1000);
}

#[test]
fn a_line_begins_with_its_priority_only_where_journald_reads_it() {
    let says = || {
        tracing::error!("the file is wrong");
        tracing::warn!("one\nanother");
        tracing::info!("serving");
    };
    let begins = |with_priorities| -> Vec<String> {
        let lines = said(with_priorities, says).into_iter();
        lines.map(|line| line.chars().take(3).collect()).collect()
    };
    assert_eq!(begins(true), ["<3>", "<4>", "<4>", "<6>"]);
    assert!(begins(false).iter().all(|begin| !begin.starts_with('<')));
}

#[test]
fn what_is_left_out_is_a_warning_to_journald() {
    let lines = said(true, || {
        for id in 0..100 {
            tracing::info!(id, "cut off");
        }
    });
    let told = lines.iter().find(|line| line.contains("were left out"));
    assert!(told.unwrap().starts_with("<4>"), "{told:?}");
}
