//! Questions to the daemon that are not answered yet, and the threads that wait for them.
//!
//! A question stays in the table until it is answered or its asker gives up, whatever becomes of
//! the connection: it is sent again to the next daemon, with the time that is left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpushare_protocol::wire::{Ask, Reply, Request};

use crate::guest::{frames, futex};

/// A question.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// [`Request::Open`].
    Open(u8),
    /// [`Request::OpenMore`].
    More(u8),
    /// [`Request::Ask`].
    Grow(Ask),
    /// [`Request::DriverRefused`].
    DriverRefused(Ask),
}

/// How a wait for an answer ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// With the answer.
    Reply(Reply),
    /// The daemon whose answer was needed was not there. Another one may be by now.
    Gone,
    /// The time was over, or the question was given up.
    Late,
}

#[derive(Debug)]
struct Open {
    question: Question,
    /// Until when it may wait; `None` leaves that to the daemon, the first time.
    until: Option<Instant>,
    reply: Option<Reply>,
}

#[derive(Debug, Default)]
struct Table {
    last: u32,
    open: BTreeMap<u32, Open>,
}

impl Table {
    /// Drops the asks of threads that never returned.
    fn forget(&mut self, now: Instant) {
        self.open.retain(|_, open| {
            let until = open.until.and_then(|until| until.checked_add(FORGOTTEN));
            until.is_none_or(|until| now < until)
        });
    }
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Asks {
    table: Mutex<Table>,
    /// Rises with each answer: waiting threads sleep on it, and hold no lock meanwhile.
    answered: AtomicU32,
}

/// An ask is dropped this long after its deadline if its thread has not returned: it has left its
/// wait by a jump.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// How often a wait asks whether the daemon is still there, where that matters.
const ASKED_EACH: Duration = Duration::from_secs(1);

impl Question {
    /// As a request that may wait `patience_ms`, `None` for as long as the tenant may.
    fn request(self, patience_ms: Option<u64>) -> Request {
        let within = |ask: Ask| Ask { patience_ms, ..ask };
        match self {
            Self::Open(device_index) => Request::Open { device_index },
            Self::More(device_index) => Request::OpenMore {
                device_index,
                patience_ms,
            },
            Self::Grow(ask) => Request::Ask(within(ask)),
            Self::DriverRefused(ask) => Request::DriverRefused(within(ask)),
        }
    }
}

impl Asks {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a request without an answer.
    pub(super) fn number(&self) -> u32 {
        let mut table = self.table();
        table.last = table.last.wrapping_add(1).max(1);
        table.last
    }

    /// Enters a question. Returns its number and what to send.
    pub(super) fn enter(
        &self,
        question: Question,
        patience_ms: Option<u64>,
        until: Instant,
    ) -> (u32, Request) {
        let id = self.number();
        let open = Open {
            question,
            until: Some(until),
            reply: None,
        };
        let mut table = self.table();
        table.forget(Instant::now());
        table.open.insert(id, open);
        drop(table);
        (id, question.request(patience_ms))
    }

    /// Everything unanswered, to be asked again with the time that is left.
    pub(super) fn again(&self) -> Vec<(u32, Request)> {
        let now = Instant::now();
        let mut table = self.table();
        table.forget(now);
        let unanswered = table.open.iter().filter(|(_, open)| open.reply.is_none());
        unanswered
            .map(|(id, open)| {
                let left = open.until.map(|until| until.saturating_duration_since(now));
                let left = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
                (*id, open.question.request(left))
            })
            .collect()
    }

    /// Whether it was answered, and not granted.
    pub(super) fn is_refused(&self, id: u32) -> bool {
        let table = self.table();
        let reply = table.open.get(&id).and_then(|open| open.reply.as_ref());
        reply.is_some_and(|reply| !matches!(reply, Reply::Granted { .. }))
    }

    /// The asker of this question was left by a jump: it takes no answer.
    pub(super) fn give_up(&self, id: u32) {
        self.table().open.remove(&id);
    }

    /// Hands a reply to the waiting thread; an abandoned ask has none.
    pub(super) fn answer(&self, id: u32, reply: Reply) {
        if let Some(open) = self.table().open.get_mut(&id) {
            open.reply = Some(reply);
            self.answered.fetch_add(1, Ordering::AcqRel);
            futex::wake_all(&self.answered);
        }
    }

    /// Waits for the reply until `end`, and then for as long as `more` says each time, but no
    /// longer than `is_there`, which is asked once a second. Without a reply none is waited for any
    /// more.
    pub(super) fn wait(
        &self,
        id: u32,
        mut end: Instant,
        more: impl Fn() -> Option<Instant>,
        is_there: Option<&dyn Fn() -> bool>,
    ) -> Waited {
        loop {
            let seen = self.answered.load(Ordering::Acquire);
            // Before the table is locked: it locks the connection, as do threads that enter an ask.
            let is_gone = is_there.is_some_and(|is_there| !is_there());
            let mut table = self.table();
            let Some(open) = table.open.get_mut(&id) else {
                return Waited::Late;
            };
            let reply = open.reply.take();
            let now = Instant::now();
            if let Some(later) = more().filter(|later| now >= end && *later > now) {
                (end, open.until) = (later, Some(later));
            }
            let left = end.saturating_duration_since(now);
            let waited = match reply {
                Some(reply) => Some(Waited::Reply(reply)),
                None if is_gone => Some(Waited::Gone),
                None => left.is_zero().then_some(Waited::Late),
            };
            if let Some(waited) = waited {
                table.open.remove(&id);
                return waited;
            }
            drop(table);
            let nap = is_there.map_or(left, |_| left.min(ASKED_EACH));
            frames::sleep_on(&self.answered, seen, nap);
        }
    }
}

/// An ask of these amounts.
pub(super) fn ask(device_index: usize, held: u64, bytes: u64) -> Ask {
    Ask {
        device_index: u8::try_from(device_index).unwrap_or(u8::MAX),
        held,
        bytes,
        patience_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    fn grow(bytes: u64) -> Question {
        Question::Grow(Ask {
            device_index: 0,
            held: 0,
            bytes,
            patience_ms: None,
        })
    }

    #[test]
    fn a_reply_reaches_its_asker_and_no_other() {
        let asks = Asks::default();
        let soon = Instant::now() + Duration::from_millis(5);
        let far = Instant::now() + Duration::from_secs(60);
        let (one, _) = asks.enter(grow(1), None, far);
        let (two, _) = asks.enter(grow(2), None, far);
        asks.answer(two, Reply::Granted { grant: 7 });
        let wait = |id, end| asks.wait(id, end, || None, None);
        assert_eq!(wait(two, far), Waited::Reply(Reply::Granted { grant: 7 }));
        assert_eq!(wait(one, soon), Waited::Late);
        asks.answer(one, Reply::Done);
        assert_eq!(wait(one, far), Waited::Late, "it was given up");
    }

    #[test]
    fn an_extended_wait_goes_on_and_ends_where_the_last_extension_does() {
        let asks = Asks::default();
        let now = Instant::now();
        let (id, _) = asks.enter(grow(1), None, now);
        let later = now + Duration::from_millis(20);
        assert_eq!(asks.wait(id, now, || Some(later), None), Waited::Late);
        assert!(Instant::now() >= later);
        let (id, _) = asks.enter(grow(1), None, now);
        let far = now + Duration::from_secs(60);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| asks.wait(id, now, || Some(far), None));
            // It stays in the table, whatever its own deadline.
            while asks.table().open[&id].until != Some(far) {
                std::thread::yield_now();
            }
            asks.answer(id, Reply::Done);
            assert_eq!(waits.join().ok(), Some(Waited::Reply(Reply::Done)));
        });
    }

    #[test]
    fn a_wait_that_needs_a_daemon_ends_once_none_is_there() {
        let asks = Asks::default();
        let far = Instant::now() + Duration::from_secs(60);
        let (id, _) = asks.enter(grow(1), None, far);
        // Another one is there as soon as it was looked for.
        let looks = Cell::new(0);
        let comes_back = || looks.replace(looks.get() + 1) > 0;
        let waited = asks.wait(id, far, || None, Some(&comes_back));
        assert_eq!((waited, looks.get()), (Waited::Gone, 1));
        assert!(asks.again().is_empty(), "it is not asked again");
        let (id, _) = asks.enter(grow(1), None, far);
        asks.answer(id, Reply::Done);
        let reply = asks.wait(id, far, || None, Some(&|| true));
        assert_eq!(reply, Waited::Reply(Reply::Done));
        let (id, _) = asks.enter(grow(1), None, far);
        let waited = asks.wait(id, Instant::now(), || None, Some(&|| true));
        assert_eq!(waited, Waited::Late, "one is there");
    }

    #[test]
    fn a_question_whose_asker_never_came_back_is_forgotten() {
        let asks = Asks::default();
        let Some(long_ago) = Instant::now().checked_sub(2 * FORGOTTEN) else {
            return;
        };
        let (left, _) = asks.enter(grow(1), None, long_ago);
        let (waits, _) = asks.enter(grow(2), None, Instant::now());
        let again: Vec<u32> = asks.again().into_iter().map(|(id, _)| id).collect();
        assert_eq!(again, [waits]);
        asks.answer(left, Reply::Done);
    }

    #[test]
    fn what_is_unanswered_is_asked_again_with_the_time_that_is_left() {
        let asks = Asks::default();
        let until = Instant::now() + Duration::from_secs(10);
        let (one, first) = asks.enter(grow(1), None, until);
        let (two, _) = asks.enter(grow(2), None, until);
        assert!(matches!(first, Request::Ask(ask) if ask.patience_ms.is_none()));
        asks.answer(two, Reply::Done);
        let again = asks.again();
        assert_eq!(again.len(), 1);
        let (id, request) = &again[0];
        assert_eq!(*id, one);
        assert!(
            matches!(request, Request::Ask(ask) if ask.patience_ms.is_some_and(|left| left <= 10_000 && left > 0))
        );
    }
}
