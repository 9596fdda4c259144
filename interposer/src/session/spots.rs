//! Where the process's ranges lie, in memory and in files: each connection begins with that, for
//! what was given up before may not have been heard.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};

use gpushare_protocol::wire::{Request, Spot, Stored};

use super::Session;
use crate::guest::descriptor::Descriptor;
use crate::guest::sys;

/// How many a message names: of bytes, a few thousand.
const A_MESSAGE: usize = 512;
/// How many are named in all: the messages lie in the socket until the daemon reads them. What is
/// behind them is as the daemon knows it.
const MOST: usize = 4096;

impl Session {
    fn spots(&self) -> MutexGuard<'_, BTreeSet<Spot>> {
        self.spots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process has a range there from now on. For the control thread.
    pub(super) fn has(&self, spot: Spot) {
        self.spots().insert(spot);
    }

    /// A range of host memory is used no more. Its pages are free at once, also where no daemon
    /// hears of it.
    pub(crate) fn drops(&self, address: usize, offset: u64, bytes: u64) {
        sys::give_back(address, usize::try_from(bytes).unwrap_or(0));
        self.gives_up(Spot::memory(offset), &Request::HostDrop { offset, bytes });
    }

    /// Stored bytes are wanted no more.
    pub(crate) fn forgets(&self, stored: Stored) {
        self.gives_up(stored.spot(), &Request::HostForget(stored));
    }

    /// The next connection is told of it, or the daemon hears it on this one, and never both: the
    /// place may be another range's by then.
    pub(super) fn gives_up(&self, spot: Spot, request: &Request) {
        let line = self.line();
        self.spots().remove(&spot);
        self.says_on(line.as_ref(), request);
    }

    /// Tells a new connection all that the process has.
    pub(super) fn tell_spots(&self, line: Option<&Arc<Descriptor>>) {
        let messages = messages(&self.spots());
        for message in messages {
            self.send(line, self.asks.number(), &message);
        }
    }
}

/// Messages that together are about all spots, or about those before the first that is too much.
fn messages(all: &BTreeSet<Spot>) -> Vec<Request> {
    let end = all.iter().nth(MOST).copied().unwrap_or(Spot::END);
    let named: Vec<Spot> = all.iter().take(MOST).copied().collect();
    let mut messages = Vec::new();
    let mut from = Spot::FIRST;
    let mut left = &named[..];
    loop {
        let (part, behind) = left.split_at(left.len().min(A_MESSAGE));
        let until = behind.first().copied().unwrap_or(end);
        messages.push(Request::Has {
            from,
            until,
            spots: part.to_vec(),
        });
        if behind.is_empty() {
            return messages;
        }
        (from, left) = (until, behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What messages are about, where each begins and ends, and how many spots they name.
    fn told(count: usize) -> (Vec<(Spot, Spot)>, usize) {
        let all = (0..).take(count).map(|at| Spot::memory(at * 10)).collect();
        let mut named = 0;
        let told = messages(&all).into_iter().map(|message| match message {
            Request::Has { from, until, spots } => {
                assert!(spots.iter().all(|spot| (from..until).contains(spot)));
                named += spots.len();
                (from, until)
            }
            other => panic!("{other:?}"),
        });
        (told.collect(), named)
    }

    #[test]
    fn process_without_ranges_says_that_it_has_none() {
        assert_eq!(told(0), (vec![(Spot::FIRST, Spot::END)], 0));
    }

    #[test]
    fn messages_are_about_all_spots_without_a_gap() {
        for count in [1, A_MESSAGE, A_MESSAGE + 1, MOST] {
            let (parts, named) = told(count);
            assert_eq!((named, parts[0].0), (count, Spot::FIRST));
            assert!(
                parts.windows(2).all(|pair| pair[0].1 == pair[1].0),
                "{parts:?}"
            );
            assert_eq!(parts.last().map(|part| part.1), Some(Spot::END));
        }
    }

    #[test]
    fn nothing_is_said_of_spots_that_are_too_many() {
        let (parts, named) = told(MOST + 7);
        let behind = Spot::memory(MOST as u64 * 10);
        assert_eq!(
            (parts.last().map(|part| part.1), named),
            (Some(behind), MOST)
        );
    }
}
