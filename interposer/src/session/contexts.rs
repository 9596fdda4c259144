//! Contexts of this process: the daemon sets memory aside before each is made.
//!
//! The first one on a device is asked for by `Open`. Any other one, beside it or after its end, is
//! asked for by `OpenMore`, and `OpenDone` says that its call has returned. An older daemon hears
//! of first ones only. While no daemon is there, further ones are made without asking.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_protocol::wire::Request;

use super::asks::Question;
use super::deadline::Deadline;
use super::{Session, Waiting};
use crate::guest::descriptor::Descriptor;

/// The first minor version of the protocol that hears of a context.
const SINCE_MADE: u16 = 3;
/// The first one that hears of further contexts.
const SINCE_MORE: u16 = 23;

/// What the daemon was told. Devices are bits.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Devices on which there is a context that was asked for.
    opened: AtomicU32,
    /// Those on which a first one was asked for, whatever became of it.
    asked: AtomicU32,
    /// Those on which a first one was made.
    made: AtomicU32,
    /// Calls under way that make further contexts: the numbers of their asks, and the devices.
    making: Mutex<Vec<(u32, u8)>>,
}

/// Memory is set aside for a context that a call makes. Dropped, the call has returned.
#[derive(Debug)]
#[must_use = "the call has returned when it is dropped"]
pub(crate) struct Opening(Option<(&'static Session, u8, Kind)>);

#[derive(Clone, Copy, Debug)]
enum Kind {
    First,
    /// The number of its ask; none where the daemon was not asked.
    Further(Option<u32>),
}

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
        if let Some((session, device_index, Kind::First)) = self.0 {
            session.first_made(device_index);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some((session, device_index, Kind::Further(Some(ask)))) = self.0 {
            session.has_returned(device_index, ask);
        }
    }
}

impl Contexts {
    fn making(&self) -> MutexGuard<'_, Vec<(u32, u8)>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call may make its context. Until it has returned no thread finds that there is none.
    fn opens(&self, device_index: u8) {
        let _making = self.making();
        self.opened.fetch_or(1 << device_index, Ordering::AcqRel);
    }

    /// A call is under way no more.
    fn ends(&self, ask: u32) {
        self.making().retain(|(own, _)| *own != ask);
    }

    /// No context is on a device any more. False: a call makes one.
    fn none_on(&self, device_index: u8) -> bool {
        let making = self.making();
        let none = making.iter().all(|(_, device)| *device != device_index);
        if none {
            self.opened
                .fetch_and(!(1 << device_index), Ordering::AcqRel);
            self.made.fetch_and(!(1 << device_index), Ordering::AcqRel);
        }
        none
    }
}

/// The devices of a mask.
fn devices(mask: &AtomicU32) -> impl Iterator<Item = u8> + use<> {
    let mask = mask.load(Ordering::Acquire);
    (0_u8..32).filter(move |device_index| mask & (1 << device_index) != 0)
}

impl Session {
    fn knows(&self, since: u16) -> bool {
        self.minor.load(Ordering::Relaxed) >= since
    }

    /// Whether there is a context on a device that was asked for.
    pub(crate) fn is_open(&self, device_index: usize) -> bool {
        self.contexts.opened.load(Ordering::Acquire) & (1 << device_index) != 0
    }

    /// Has the daemon set memory aside for a context on a device. `None`: there is none.
    pub(crate) fn open(
        &'static self,
        device_index: usize,
        waiting: Waiting,
        call: &Deadline,
    ) -> Option<Opening> {
        let device = u8::try_from(device_index).ok()?;
        let bit = 1 << device;
        let Contexts { opened, asked, .. } = &self.contexts;
        let opening = |kind| Some(Opening(Some((self, device, kind))));
        let is_first = asked.fetch_or(bit, Ordering::AcqRel) & bit == 0;
        if self.knows(SINCE_MORE) && !is_first {
            let ask = match self.is_connected() {
                true => Some(self.open_more(device, waiting, call)?),
                false => None,
            };
            self.contexts.opens(device);
            return opening(Kind::Further(ask));
        }
        if self.is_open(device_index) {
            return opening(Kind::Further(None));
        }
        let mut bound = self.bound(waiting, call.began());
        if !self.asks_question(Question::Open(device), &mut bound, call) {
            asked.fetch_and(!bit, Ordering::AcqRel);
            return None;
        }
        opened.fetch_or(bit, Ordering::AcqRel);
        opening(Kind::First)
    }

    /// The same for one beside those that the process has, or has had. Returns the ask's number.
    fn open_more(&self, device: u8, waiting: Waiting, call: &Deadline) -> Option<u32> {
        let mut bound = self.bound(waiting, call.began());
        let mut ask = None;
        let question = Question::More(device);
        let granted = self.asks_noting(question, &mut bound, call, |number| {
            ask = Some(number);
            self.contexts.making().push((number, device));
        });
        let ask = ask?;
        if !granted {
            self.contexts.ends(ask);
        }
        granted.then_some(ask)
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
        if self.knows(SINCE_MADE) {
            self.sends(line, &Request::ContextMade { device_index });
        }
    }

    /// A call that makes a further context has returned. Lost on a daemon that is away: what it has
    /// set aside lapses.
    fn has_returned(&self, device_index: u8, ask: u32) {
        self.contexts.ends(ask);
        if self.knows(SINCE_MORE) {
            self.says(&Request::OpenDone { device_index, ask });
        }
    }

    /// The process has no context on a device.
    pub(crate) fn no_context(&self, device_index: usize) {
        let Ok(device_index) = u8::try_from(device_index) else {
            return;
        };
        if !self.contexts.none_on(device_index) {
            return;
        }
        if self.knows(SINCE_MORE) {
            self.says(&Request::NoContext { device_index });
        }
    }

    fn sends(&self, line: Option<&Arc<Descriptor>>, request: &Request) {
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
        if !self.knows(SINCE_MORE) {
            return;
        }
        for (ask, device_index) in self.contexts.making().clone() {
            if again.iter().all(|(id, _)| *id != ask) {
                let request = Request::OpenMore {
                    device_index,
                    patience_ms: Some(0),
                };
                self.send(line, ask, &request);
            }
        }
    }

    /// A request as this daemon knows it: to an older one all contexts are first ones.
    pub(super) fn as_known(&self, request: Request) -> Request {
        match request {
            Request::OpenMore { device_index, .. } if !self.knows(SINCE_MORE) => {
                Request::Open { device_index }
            }
            request => request,
        }
    }
}
