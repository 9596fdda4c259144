//! Kernels that wait on their device for peers on other ones, as those of a collective do: one
//! occupies its engine for its own time, and from then on until all peers have been there for
//! theirs.
//!
//! The engine's operations have fixed lengths. So a kernel is followed by short ones that stand for
//! its waiting, two at a time, until the peers have come.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::US;
use softgpu::model::{RoundRobin, Seat};

/// The length of an operation that stands for waiting (ns).
const STEP: u64 = 10 * US;
/// So many of them are queued: with none the context would lose its turn.
const STEPS: usize = 2;

/// How many kernels of each peer have come to the end of their own time.
pub type Board = Rc<RefCell<Vec<u64>>>;

/// A process whose kernels meet those of its peers.
#[derive(Debug)]
pub struct Meeting {
    board: Board,
    side: usize,
    /// Lengths of kernels that are submitted and have not begun (ns).
    queue: VecDeque<u64>,
    /// The kernel that runs.
    works: Option<u64>,
    /// One has come, and waits for its peers.
    waits: bool,
    steps: usize,
}

impl Meeting {
    pub fn new(board: Board, side: usize) -> Self {
        Self {
            board,
            side,
            queue: VecDeque::new(),
            works: None,
            waits: false,
            steps: 0,
        }
    }

    /// A kernel of `ns` is submitted.
    pub fn submit(&mut self, engine: &mut RoundRobin, seat: Seat, ns: u64) {
        self.queue.push_back(ns);
        self.begin(engine, seat);
    }

    fn begin(&mut self, engine: &mut RoundRobin, seat: Seat) {
        if self.works.is_some() || self.waits {
            return;
        }
        if let Some(ns) = self.queue.pop_front() {
            self.works = Some(engine.submit(seat, ns));
            self.fill(engine, seat);
        }
    }

    fn fill(&mut self, engine: &mut RoundRobin, seat: Seat) {
        while self.steps < STEPS {
            engine.submit(seat, STEP);
            self.steps += 1;
        }
    }

    /// An operation of the engine has ended: whether a kernel is complete.
    pub fn ended(&mut self, engine: &mut RoundRobin, seat: Seat, op: u64) -> bool {
        if self.works == Some(op) {
            self.board.borrow_mut()[self.side] += 1;
            (self.works, self.waits) = (None, true);
        } else {
            self.steps -= 1;
        }
        let is_met = self.waits && self.have_come();
        if is_met {
            self.waits = false;
            self.begin(engine, seat);
        }
        if self.waits || self.works.is_some() {
            self.fill(engine, seat);
        }
        is_met
    }

    fn have_come(&self) -> bool {
        let came = self.board.borrow();
        came.iter().all(|peer| *peer >= came[self.side])
    }
}
