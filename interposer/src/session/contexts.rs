//! Contexts of this process: the daemon sets memory aside before each is made.
//!
//! The first one on a device is asked for by `Open`. Any other one, beside it or after its end, is
//! asked for by `OpenMore`, and `OpenDone` says that its call has returned. While no daemon is
//! there, further ones are made without asking. Calls that retain one primary context at the same
//! time share one ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use gpushare_protocol::wire::Request;

use super::asks::Question;
use super::deadline::Deadline;
use super::openings::{Entered, Left, Openings};
use super::{Session, Waiting};
use crate::guest::descriptor::Descriptor;

/// What the daemon was told. Devices are bits.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Devices on which there is a context that was asked for.
    opened: AtomicU32,
    /// Those on which a first one was asked for, whatever became of it.
    asked: AtomicU32,
    /// Those on which a first one was made.
    made: AtomicU32,
    /// Calls under way that make contexts.
    openings: Openings,
}

/// Memory is set aside for a context that a call makes. Dropped, the call has returned.
#[derive(Debug)]
#[must_use = "the call has returned when it is dropped"]
pub(crate) struct Opening(Option<(&'static Session, Entered)>);

impl Opening {
    /// No memory is set aside.
    pub(crate) const fn nothing() -> Self {
        Self(None)
    }

    /// Whether none is.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.0.is_none()
    }

    /// The context is complete.
    pub(crate) fn is_made(&self) {
        if let Some((session, entered)) = self.0
            && session.contexts.openings.is_first(entered.key)
        {
            session.first_made(entered.device);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some((session, entered)) = self.0 {
            session.has_returned(entered);
        }
    }
}

/// The devices of a mask.
fn devices(mask: &AtomicU32) -> impl Iterator<Item = u8> + use<> {
    let mask = mask.load(Ordering::Acquire);
    (0_u8..32).filter(move |device_index| mask & (1 << device_index) != 0)
}

impl Session {
    /// Whether there is a context on a device that was asked for.
    pub(crate) fn is_open(&self, device_index: usize) -> bool {
        self.contexts.opened.load(Ordering::Acquire) & (1 << device_index) != 0
    }

    /// Has the daemon set memory aside for a context on a device: its primary one, or one of the
    /// call's own. `None`: there is none.
    pub(crate) fn open(
        &'static self,
        device_index: usize,
        is_primary: bool,
        waiting: Waiting,
        call: &Deadline,
    ) -> Option<Opening> {
        let device = u8::try_from(device_index).ok()?;
        let end = self.bound(waiting, call.began()).end;
        let openings = &self.contexts.openings;
        let entered = openings.enter(device, is_primary, end, |left| self.was_left(left));
        if !entered.is_let && !self.is_let(entered, waiting, call) {
            openings.leave(entered);
            return None;
        }
        Some(Opening(Some((self, entered))))
    }

    /// Whether a call that is entered may make its context: the daemon was asked, or is not to be.
    fn is_let(&self, entered: Entered, waiting: Waiting, call: &Deadline) -> bool {
        let Entered { key, device, .. } = entered;
        let bit = 1 << device;
        let Contexts {
            opened,
            asked,
            openings,
            ..
        } = &self.contexts;
        let is_first = asked.fetch_or(bit, Ordering::AcqRel) & bit == 0;
        let question = match is_first {
            true if self.is_open(usize::from(device)) => None,
            true => Some(Question::Open(device)),
            false => self.is_connected().then_some(Question::More(device)),
        };
        if let Some(question) = question {
            let is_first = matches!(question, Question::Open(_));
            let mut bound = self.bound(waiting, call.began());
            let noted = |ask| openings.is_asked(key, ask, is_first);
            if !self.asks_noting(question, &mut bound, call, noted) {
                if is_first {
                    asked.fetch_and(!bit, Ordering::AcqRel);
                }
                return false;
            }
        }
        opened.fetch_or(bit, Ordering::AcqRel);
        openings.is_let(key, Instant::now());
        true
    }

    /// The first context on a device is there. Lost on a daemon that does not know of it: it sees
    /// it at its next look.
    fn first_made(&self, device_index: u8) {
        let bit = 1 << device_index;
        if self.contexts.made.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.tell_made(self.line().as_ref(), device_index);
        }
    }

    fn tell_made(&self, line: Option<&Arc<Descriptor>>, device_index: u8) {
        self.sends(line, &Request::ContextMade { device_index });
    }

    /// A call that makes a context has returned. Lost on a daemon that is away: what it has set
    /// aside lapses.
    fn has_returned(&self, entered: Entered) {
        let device_index = entered.device;
        let ask = self.contexts.openings.leave(entered);
        if let Some(ask) = ask {
            self.done(device_index, ask);
        }
    }

    /// Calls that would have made a context were left by a jump: nobody takes the answer to their
    /// ask, nor the memory that it sets aside.
    fn was_left(&self, left: Left) {
        let Left {
            device: device_index,
            is_let,
            ..
        } = left;
        let Some((ask, is_first)) = left.ask else {
            return;
        };
        tracing::info!(device_index, ask, "a call that makes a context was left");
        self.asks.give_up(ask);
        if !is_first {
            self.done(device_index, ask);
        } else if !is_let {
            self.sends(self.line().as_ref(), &Request::Cancel { ask });
            let bits = !(1 << device_index);
            self.contexts.asked.fetch_and(bits, Ordering::AcqRel);
        }
    }

    /// The daemon need not set memory aside any more for this ask for a further context: the
    /// context is made, or no call makes it. An ask that still waits is cancelled.
    pub(super) fn done(&self, device_index: u8, ask: u32) {
        let done = Request::OpenDone { device_index, ask };
        self.sends(self.line().as_ref(), &done);
    }

    /// Forgets the calls that were left by a jump, if some are under way on the device, or on any.
    /// Whether there were any.
    pub(super) fn forgets_left(&self, device: Option<u8>) -> bool {
        let all_left = self.contexts.openings.forgotten(device);
        let are_some = !all_left.is_empty();
        all_left.into_iter().for_each(|left| self.was_left(left));
        are_some
    }

    /// The process has no context on a device, if that `is_so`. Nothing is said where a call that
    /// makes one is under way, or has begun meanwhile: its return says it.
    pub(crate) fn no_context(&self, device_index: usize, is_so: impl Fn() -> bool) {
        let Ok(device_index) = u8::try_from(device_index) else {
            return;
        };
        let openings = &self.contexts.openings;
        let mut mark = openings.mark();
        if !is_so() {
            return;
        }
        if self.forgets_left(Some(device_index)) {
            mark = openings.mark();
            if !is_so() {
                return;
            }
        }
        // Held until it is said: a call that begins now asks after it.
        let line = self.line();
        let bits = !(1 << device_index);
        let clear = || {
            self.contexts.opened.fetch_and(bits, Ordering::AcqRel);
            self.contexts.made.fetch_and(bits, Ordering::AcqRel);
        };
        if openings.if_none(device_index, mark, clear) {
            self.sends(line.as_ref(), &Request::NoContext { device_index });
        }
    }

    pub(super) fn sends(&self, line: Option<&Arc<Descriptor>>, request: &Request) {
        self.send(line, self.asks.number(), request);
    }

    /// Tells another daemon, or the same one over another connection, of the contexts that there
    /// are, and of the calls that make some. Those that wait for an answer, `again`, ask by
    /// themselves.
    pub(super) fn repeat_contexts(&self, line: Option<&Arc<Descriptor>>, again: &[(u32, Request)]) {
        for device_index in devices(&self.contexts.opened) {
            self.sends(line, &Request::Open { device_index });
        }
        for device_index in devices(&self.contexts.made) {
            self.tell_made(line, device_index);
        }
        for (ask, device_index) in self.contexts.openings.further() {
            if again.iter().any(|(id, _)| *id == ask) || self.asks.is_refused(ask) {
                continue;
            }
            self.send(line, ask, &Request::OpenAgain { device_index });
        }
    }
}
