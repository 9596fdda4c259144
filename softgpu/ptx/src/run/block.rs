//! A block: its threads take turns until each has ended.

use super::thread::{State, Thread};
use super::{Env, Launch, Trap, TrapKind};

/// Instructions of one thread before the next thread has its turn.
const QUANTUM: u64 = 512;

/// A thread's place in a block.
#[derive(Debug)]
pub(super) enum Slot {
    /// Not begun.
    New,
    Live(Box<Thread>),
    Ended,
}

/// A block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) index: [u32; 3],
    pub(super) number: u64,
    pub(super) shared: Vec<u8>,
    pub(super) slots: Vec<Slot>,
    /// Threads that have not ended.
    pub(super) alive: usize,
    /// Threads that have told a barrier that they were there, without waiting.
    pub(super) told: [u32; 16],
    /// Instructions in this turn among the blocks.
    pub(super) turn: u64,
    /// The thread that is next.
    cursor: usize,
    /// Whether a thread was ready in this round of the threads.
    moved: bool,
    /// Whether a thread waits.
    pub(super) waits: bool,
}

impl Block {
    pub(super) fn new(index: [u32; 3], number: u64, threads: u32, shared: u32) -> Self {
        let count = usize::try_from(threads).unwrap_or(0);
        Self {
            index,
            number,
            shared: vec![0; usize::try_from(shared).unwrap_or(0)],
            slots: (0..count).map(|_| Slot::New).collect(),
            alive: count,
            told: [0; 16],
            turn: 0,
            cursor: 0,
            moved: false,
            waits: false,
        }
    }

    /// Runs until about `until` instructions are `executed`. Returns whether all threads have
    /// ended.
    pub(super) fn run(
        &mut self,
        env: &mut Env<'_>,
        spare: &mut Vec<Thread>,
        executed: &mut u64,
        until: u64,
    ) -> Result<bool, Trap> {
        while *executed < until && self.alive > 0 {
            if self.cursor == self.slots.len() {
                self.end_round(env.launch)?;
                continue;
            }
            let at = self.cursor;
            self.cursor += 1;
            self.turn_of(at, env, spare, executed)?;
        }
        Ok(self.alive == 0)
    }

    /// One thread's turn.
    fn turn_of(
        &mut self,
        at: usize,
        env: &mut Env<'_>,
        spare: &mut Vec<Thread>,
        executed: &mut u64,
    ) -> Result<(), Trap> {
        let slot = &mut self.slots[at];
        if let Slot::New = slot {
            let mut thread = spare.pop().unwrap_or_default();
            thread.begin(u32::try_from(at).unwrap_or(0), env);
            *slot = Slot::Live(Box::new(thread));
        }
        let Slot::Live(thread) = slot else {
            return Ok(());
        };
        let mut quantum = QUANTUM;
        while thread.state() == State::Ready && quantum > 0 {
            self.moved = true;
            let before = quantum;
            let result = thread.run(env, &mut quantum);
            *executed += before - quantum;
            if let Err(kind) = result {
                return Err(trap_of(thread, kind, self.index, env.launch));
            }
            match thread.state() {
                State::Barrier {
                    id, arrives: true, ..
                } => {
                    self.told[usize::try_from(id & 15).unwrap_or(0)] += 1;
                    thread.state = Some(State::Ready);
                }
                // It gave up its turn.
                State::Ready => break,
                _ => {}
            }
        }
        match thread.state() {
            State::Ended => {
                self.alive -= 1;
                if let Slot::Live(thread) = std::mem::replace(slot, Slot::Ended) {
                    spare.push(*thread);
                }
            }
            State::Ready => {}
            _ => self.waits = true,
        }
        Ok(())
    }

    /// After each thread has had its turn: those that wait for each other continue if all have
    /// come.
    fn end_round(&mut self, launch: &Launch) -> Result<(), Trap> {
        self.cursor = 0;
        let moved = std::mem::take(&mut self.moved);
        let released = self.waits && self.release();
        if !moved && !released {
            return Err(self.trap(TrapKind::Deadlock, launch));
        }
        Ok(())
    }

    fn release(&mut self) -> bool {
        let barriers = self.release_barriers();
        let meetings = self.release_meetings();
        let waits =
            |slot: &Slot| matches!(slot, Slot::Live(thread) if thread.state() != State::Ready);
        self.waits = self.slots.iter().any(waits);
        barriers || meetings
    }

    /// A trap of the block as a whole, at the first thread that has not ended.
    pub(super) fn trap(&self, kind: TrapKind, launch: &Launch) -> Trap {
        let live = self.slots.iter().find_map(|slot| match slot {
            Slot::Live(thread) => Some(&**thread),
            _ => None,
        });
        let none = Thread::default();
        trap_of(live.unwrap_or(&none), kind, self.index, launch)
    }
}

fn trap_of(thread: &Thread, kind: TrapKind, block: [u32; 3], launch: &Launch) -> Trap {
    let function = launch.module.functions.get(thread.here.function);
    let line = function.and_then(|function| Some(function.code.get(thread.here.pc)?.line));
    Trap {
        kind,
        function: function.map_or_else(String::new, |function| function.name.clone()),
        line: line.unwrap_or(0),
        block,
        thread: thread.place(launch.block),
    }
}
