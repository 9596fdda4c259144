//! Kernels that wait on their device for a peer on another one, as those of a collective do: one
//! occupies its engine for its own time, and from then on until its peer has been there for its
//! time.
//!
//! The engine's operations have fixed lengths. So a kernel is followed by short ones that stand for
//! its waiting, two at a time, until the peer has come.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::US;
use softgpu::model::{RoundRobin, Seat};

/// The length of an operation that stands for waiting (ns).
const STEP: u64 = 10 * US;
/// So many of them are queued: with none the context would lose its turn.
const STEPS: usize = 2;

/// How many kernels of each of two peers have come to the end of their own time.
pub type Board = Rc<Cell<[u64; 2]>>;

/// A process whose kernels meet those of a peer.
#[derive(Debug)]
pub struct Meeting {
    board: Board,
    side: usize,
    /// Lengths of kernels that are submitted and have not begun (ns).
    queue: VecDeque<u64>,
    /// The kernel that runs.
    works: Option<u64>,
    /// One has come, and waits for its peer.
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
            let mut came = self.board.get();
            came[self.side] += 1;
            self.board.set(came);
            (self.works, self.waits) = (None, true);
        } else {
            self.steps -= 1;
        }
        let came = self.board.get();
        let is_met = self.waits && came[1 - self.side] >= came[self.side];
        if is_met {
            self.waits = false;
            self.begin(engine, seat);
        }
        if self.waits || self.works.is_some() {
            self.fill(engine, seat);
        }
        is_met
    }
}
