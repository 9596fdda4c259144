//! One process: its thread, and its submitted work.

use std::collections::VecDeque;
use std::rc::Rc;

use super::books::Books;
use super::entry::Entry;
use super::meeting::Meeting;
use super::{Gate, Pattern, Program, Who};
use crate::node::rng::Rng;
use gpushare_protocol::page::token::{Hold, Token};
use softgpu::model::Seat;

/// The state of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// Sleeps until its next request is due; none is open.
    Sleeps,
    /// Waits at the gate with an operation of so many ns.
    Gate(u64),
    /// Is in the driver's launch with it.
    Launches(u64),
    /// Has as many launches ahead as it may.
    Room,
    /// Waits for its request.
    Completion,
    /// It wakes up after its wait has ended.
    Wakes,
    /// Has ended, or is about to when all is complete.
    Ends,
}

/// A request of the thread's step to the rig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Go on at this moment.
    GoAt(u64),
    /// Submit an operation of so many ns now.
    Submit(u64),
    /// The same at this moment, when its copy is complete.
    SubmitAt(u64, u64),
    /// It launches and had said that it is idle.
    SayBusy,
}

/// An operation that is submitted and not complete.
#[derive(Clone, Copy, Debug)]
struct Flying {
    ns: u64,
    estimate: u64,
}

/// The counters of a process, for reports.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub useful: u64,
    pub asked: u64,
    pub done: u64,
    pub missed: u64,
    pub waits: Vec<u64>,
}

/// One process with a context on the device.
#[derive(Debug)]
pub struct Client {
    pub who: Who,
    pub seat: Seat,
    pub program: Program,
    pub gate: Gate,
    pub thread: Thread,
    pub books: Books,
    pub tally: Tally,
    /// A wake-up from the gate is on its way.
    pub woken: bool,
    pub said_wanted: bool,
    pub said_drained: bool,
    pub gone: bool,
    /// Its tenant's, and its hold of that.
    pub token: Rc<Token>,
    pub hold: Hold,
    /// It waits for the token, and asks again at this time.
    pub asks_at: Option<u64>,
    /// Its kernels wait for those of a peer.
    pub meeting: Option<Meeting>,
    entry: Entry,
    flying: VecDeque<Flying>,
    /// Operations launched, which kernel comes next.
    launched: usize,
    /// Operations of the open request that are not launched.
    rest: usize,
    /// When its copies are complete.
    copied: u64,
    /// When the next or the open request is due, and came.
    due: u64,
    came: u64,
    rng: Rng,
}

impl Client {
    pub fn new(who: Who, seat: Seat, program: Program, token: Rc<Token>, seed: u64) -> Self {
        let mut rng = Rng(seed);
        let first = match program.pattern {
            Pattern::Poisson(mean) => Program::gap(mean, &mut rng),
            _ => 0,
        };
        Self {
            who,
            seat,
            gate: Gate::Closed,
            thread: Thread::Sleeps,
            books: Books::new(program.from),
            tally: Tally::default(),
            woken: false,
            said_wanted: false,
            said_drained: false,
            gone: false,
            token,
            hold: Hold::default(),
            asks_at: None,
            meeting: (program.meets.clone()).map(|(board, side)| Meeting::new(board, side)),
            entry: Entry::default(),
            flying: VecDeque::new(),
            launched: 0,
            rest: 0,
            copied: 0,
            due: program.from + first,
            came: 0,
            rng,
            program,
        }
    }

    /// Whether a request of its program is open: it could use the device, or would if its launch
    /// were over.
    pub fn is_open(&self) -> bool {
        !matches!(self.thread, Thread::Sleeps | Thread::Ends) || !self.flying.is_empty()
    }

    /// Whether everything it submitted is complete.
    pub fn is_drained(&self) -> bool {
        self.entry.is_empty()
    }

    /// The thread goes on.
    pub fn go(&mut self, now: u64, acts: &mut Vec<Act>) {
        match self.thread {
            Thread::Sleeps => self.request(now, acts),
            Thread::Wakes if self.is_queue() => self.launch(now, acts),
            Thread::Wakes => self.next_request(now, acts),
            Thread::Gate(ns) => self.at_gate(now, ns, acts),
            Thread::Launches(ns) => {
                let estimate = self.estimate(ns);
                self.flying.push_back(Flying { ns, estimate });
                self.note_pending(now);
                let at = self.copied.max(self.program.reaches(now));
                acts.push(if at > now {
                    Act::SubmitAt(at, ns)
                } else {
                    Act::Submit(ns)
                });
                self.launch(now, acts);
            }
            Thread::Room | Thread::Completion | Thread::Ends => {}
        }
    }

    fn is_queue(&self) -> bool {
        matches!(self.program.pattern, Pattern::Queue(_))
    }

    fn estimate(&self, ns: u64) -> u64 {
        ns * self.program.estimate / 1_000
    }

    /// A request is due: it comes, or its program has nothing to do yet, or any more.
    fn request(&mut self, now: u64, acts: &mut Vec<Act>) {
        match self.program.resumes(now) {
            Some(at) if at > now => {
                self.due = self.due.max(at);
                self.thread = Thread::Sleeps;
                acts.push(Act::GoAt(at));
            }
            None => self.thread = Thread::Ends,
            Some(_) => {
                self.rest = self.program.burst;
                self.came = match self.program.pattern {
                    Pattern::Poisson(_) => self.due.min(now),
                    _ => now,
                };
                self.launch(now, acts);
            }
        }
    }

    /// The next launch, if there is one to make now.
    fn launch(&mut self, now: u64, acts: &mut Vec<Act>) {
        match self.program.pattern {
            Pattern::Queue(_) if !self.program.works(now) => self.request(now, acts),
            Pattern::Queue(depth) if self.flying.len() >= depth => self.thread = Thread::Room,
            Pattern::Queue(_) => self.come_to_gate(now, acts),
            _ if self.rest == 0 => self.thread = Thread::Completion,
            _ => {
                self.rest -= 1;
                self.come_to_gate(now, acts);
            }
        }
    }

    fn come_to_gate(&mut self, now: u64, acts: &mut Vec<Act>) {
        let kernels = &self.program.kernels;
        let ns = kernels[self.launched % kernels.len()];
        self.launched += 1;
        if self.program.copy > 0 {
            self.copied = self.copied.max(now) + self.program.copy;
        }
        self.tally.asked += ns;
        if std::mem::take(&mut self.books.said_idle) {
            acts.push(Act::SayBusy);
        }
        self.at_gate(now, ns, acts);
    }

    fn at_gate(&mut self, now: u64, ns: u64, acts: &mut Vec<Act>) {
        let estimate = self.estimate(ns);
        self.thread = Thread::Gate(ns);
        if self.passes(now, ns) {
            self.entry.admit(estimate);
            self.thread = Thread::Launches(ns);
            acts.push(Act::GoAt(now + self.program.launch));
        }
        self.note_pending(now);
    }

    /// Whether the gate lets an operation of `ns` through now.
    fn passes(&mut self, now: u64, ns: u64) -> bool {
        if self.program.ungated {
            return true;
        }
        let estimate = self.estimate(ns);
        self.entry.admits(self.gate, estimate) && self.has_token(now, estimate)
    }

    /// Whether it may begin a slice, if the operation begins one.
    fn has_token(&mut self, now: u64, estimate: u64) -> bool {
        let Some(slice) = self.entry.begins_slice(self.gate) else {
            return true;
        };
        let (slot, expected) = (self.who.process, slice.max(estimate));
        let taken = self.hold.begins(&self.token, slot, now, expected);
        self.asks_at = taken.err().map(|taken| now + taken.nap);
        taken.is_ok()
    }

    /// Whether a process of its tenant is to be woken: the token is free.
    pub fn frees(&mut self, now: u64) -> bool {
        let slot = self.who.process;
        match self.gate.yields() {
            None => self.hold.ends(&self.token, slot, now),
            Some(_) if self.entry.is_empty() => {
                let waits = self.waits();
                self.hold.emptied(&self.token, slot, now, waits)
            }
            Some(_) => false,
        }
    }

    /// Whether its thread waits at the gate for nothing any more.
    pub fn could_pass(&mut self, now: u64) -> bool {
        match self.thread {
            Thread::Gate(ns) => self.passes(now, ns),
            _ => false,
        }
    }

    /// Whether its thread waits at the gate.
    pub fn waits(&self) -> bool {
        matches!(self.thread, Thread::Gate(_))
    }

    fn note_pending(&mut self, now: u64) {
        let pending = !self.flying.is_empty() || self.waits();
        self.books.set_pending(now, pending);
    }

    /// Its oldest operation is complete; whether its thread wakes up for that.
    pub fn completed(&mut self, now: u64) -> bool {
        let Some(Flying { ns, estimate }) = self.flying.pop_front() else {
            return false;
        };
        self.entry.complete(estimate);
        self.books.serve(estimate);
        self.tally.useful += ns;
        self.note_pending(now);
        let wakes = match self.thread {
            Thread::Room => true,
            Thread::Completion => self.flying.is_empty(),
            _ => return false,
        };
        if wakes {
            if self.thread == Thread::Completion {
                self.tally.done += 1;
                self.tally.waits.push(now - self.came);
            }
            self.thread = Thread::Wakes;
        }
        wakes
    }

    /// The thread has seen the end of its request.
    fn next_request(&mut self, now: u64, acts: &mut Vec<Act>) {
        match self.program.pattern {
            Pattern::Queue(_) => {}
            Pattern::Sync(think) => self.due = now + think,
            Pattern::Poisson(mean) => self.due += Program::gap(mean, &mut self.rng),
            Pattern::Every(period) => {
                self.due += period;
                while self.due < now {
                    self.due += period;
                    self.tally.missed += 1;
                    self.tally.asked += self.request_ns();
                }
            }
        }
        self.thread = Thread::Sleeps;
        if self.due > now {
            acts.push(Act::GoAt(self.due));
        } else {
            self.request(now, acts);
        }
    }

    /// Device time of one request in the mean (ns).
    fn request_ns(&self) -> u64 {
        let kernels = &self.program.kernels;
        kernels.iter().sum::<u64>() * self.program.burst as u64 / kernels.len() as u64
    }
}
