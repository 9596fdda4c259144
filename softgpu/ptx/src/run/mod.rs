//! Runs a kernel: the blocks of its grid, and who is next.

mod barrier;
mod block;
mod calls;
mod exec;
mod meet;
mod space;
mod thread;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::lower::Lowered;
use crate::module::{Kernel, Module};
use block::Block;
use thread::Thread;

/// Instructions of one block before another resident block has its turn.
const TURN: u64 = 1 << 18;

/// An illegal access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no memory, or no right to access it.
    Illegal,
    /// The address is no multiple of the size of what is accessed.
    Misaligned,
}

/// Device memory by generic address, little-endian. `bytes` is 1, 2, 4 or 8, and an address is a
/// multiple of it.
pub trait Memory {
    /// Reads a number.
    ///
    /// # Errors
    /// [`Fault::Illegal`] if part of it may not be read.
    fn load(&mut self, address: u64, bytes: u32) -> Result<u64, Fault>;

    /// Writes the lowest bytes of a number.
    ///
    /// # Errors
    /// [`Fault::Illegal`] if part of it may not be written.
    fn store(&mut self, address: u64, bytes: u32, value: u64) -> Result<(), Fault>;

    /// Replaces a number by what `change` makes of it, in one step for everything that accesses the
    /// memory. `change` may be called several times. Returns the earlier number.
    ///
    /// # Errors
    /// [`Fault::Illegal`] if part of it may not be written.
    fn update(
        &mut self,
        address: u64,
        bytes: u32,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, Fault>;
}

/// The machine that a kernel runs on.
pub trait Machine: Memory {
    /// The device's timer (ns).
    fn now(&mut self) -> u64;
}

/// One launch of a kernel.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The module.
    pub module: Arc<Module>,
    /// The kernel's name.
    pub kernel: String,
    /// The parameters' bytes, laid out as [`Kernel::params`] says.
    pub params: Vec<u8>,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Shared memory of a block beyond that of the kernel's own variables (bytes).
    pub dynamic_shared: u32,
    /// The address of each of [`Module::variables`].
    pub addresses: Vec<u64>,
    /// Blocks that are begun and not ended, at most; at least 1.
    pub resident: u32,
    /// Multiprocessors of the device.
    pub multiprocessors: u32,
    /// Instructions of the whole grid after which it is ended.
    pub watchdog: u64,
}

/// Why a kernel ended before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    /// The reason.
    pub kind: TrapKind,
    /// The function, and the line of its text.
    pub function: String,
    /// The line of the text.
    pub line: u32,
    /// The block and the thread.
    pub block: [u32; 3],
    /// The thread in its block.
    pub thread: [u32; 3],
}

/// Reasons to end a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrapKind {
    /// An access to global memory at this address.
    Global(Fault, u64),
    /// An access to shared, local or parameter memory at this offset.
    Inside(Fault, u64),
    /// A `trap` instruction.
    Trap,
    /// An assertion of the program.
    Assertion,
    /// A call of a function that has no body, by name.
    Missing(String),
    /// A call by an address that is no function's.
    NoFunction(u64),
    /// An instruction that is not known.
    Unknown(String),
    /// Calls too deep, or too much local memory.
    Stack,
    /// Each thread of a block waits, and none can continue.
    Deadlock,
    /// More instructions than the launch allows.
    Watchdog,
}

impl fmt::Display for TrapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = |fault: &Fault| {
            if *fault == Fault::Illegal {
                "illegal"
            } else {
                "misaligned"
            }
        };
        match self {
            Self::Global(why, address) => write!(f, "{} address {address:#x}", fault(why)),
            Self::Inside(why, at) => write!(f, "{} offset {at:#x} in shared, local or parameter memory", fault(why)),
            Self::Trap => f.write_str("a trap instruction"),
            Self::Assertion => f.write_str("an assertion failed"),
            Self::Missing(name) => write!(f, "`{name}` has no body; the software GPU has no system calls"),
            Self::NoFunction(address) => write!(f, "a call to {address:#x}, where no function is"),
            Self::Unknown(what) => write!(f, "{what}"),
            Self::Stack => f.write_str("the stack is full"),
            Self::Deadlock => f.write_str("each thread of the block waits at a barrier or for its warp, and none can continue"),
            Self::Watchdog => f.write_str("more instructions than the watchdog allows"),
        }
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            function,
            line,
            block,
            thread,
        } = self;
        write!(
            f,
            "{function}, line {line}, block {block:?}, thread {thread:?}: {kind}"
        )
    }
}

impl std::error::Error for Trap {}

/// The state after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    Running,
    /// The whole grid has ended.
    Ended,
}

/// A running kernel.
#[derive(Debug)]
pub struct Run {
    launch: Launch,
    entry: usize,
    /// Where variables of shared memory are, and the bytes of all of them.
    shared_at: Vec<u32>,
    shared_bytes: u32,
    next: u64,
    total: u64,
    blocks: VecDeque<Block>,
    spare: Vec<Thread>,
    executed: u64,
}

/// The parts of a launch that all threads of a block can see.
struct Env<'r> {
    launch: &'r Launch,
    functions: &'r [Lowered],
    shared_at: &'r [u32],
    shared_bytes: u32,
    entry: usize,
    index: [u32; 3],
    number: u64,
    shared: &'r mut [u8],
    machine: &'r mut dyn Machine,
}

impl Run {
    /// A launch that has not begun. `None` if the module has no such kernel.
    pub fn new(launch: Launch) -> Option<Self> {
        let kernel: Kernel<'_> = launch.module.kernel(&launch.kernel)?;
        let entry = kernel.number;
        let (shared_at, _, shared_bytes) = kernel.shared_layout(launch.dynamic_shared);
        let total = launch.grid.iter().map(|side| u64::from(*side)).product();
        let (blocks, spare) = (VecDeque::new(), Vec::new());
        Some(Self {
            launch,
            entry,
            shared_at,
            shared_bytes,
            next: 0,
            total,
            blocks,
            spare,
            executed: 0,
        })
    }

    /// Instructions run until now, of all threads.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Runs about `budget` instructions.
    ///
    /// # Errors
    /// The fault that ended the kernel early; it must not be continued then.
    pub fn step(&mut self, machine: &mut dyn Machine, budget: u64) -> Result<Progress, Trap> {
        let end = self.executed.saturating_add(budget);
        while self.executed < end {
            if self.blocks.is_empty() && !self.begin_block() {
                return Ok(Progress::Ended);
            }
            self.step_block(machine, end)?;
        }
        let ended = self.blocks.is_empty() && self.next == self.total;
        Ok(if ended {
            Progress::Ended
        } else {
            Progress::Running
        })
    }

    /// Begins the next block of the grid, if there is one.
    fn begin_block(&mut self) -> bool {
        if self.next == self.total {
            return false;
        }
        let number = self.next;
        self.next += 1;
        let [x, y, _] = self.launch.grid.map(u64::from);
        let side = |value: u64| u32::try_from(value).unwrap_or(0);
        let index = [
            side(number % x),
            side(number / x % y),
            side(number / (x * y)),
        ];
        let threads = self.launch.block.iter().product();
        self.blocks
            .push_front(Block::new(index, number, threads, self.shared_bytes));
        true
    }

    /// Lets the first block run, until `end`, its own end, or the end of its turn.
    fn step_block(&mut self, machine: &mut dyn Machine, end: u64) -> Result<(), Trap> {
        let Some(mut block) = self.blocks.pop_front() else {
            return Ok(());
        };
        let from = self.executed;
        let until = end.min(from.saturating_add(TURN));
        let mut shared = std::mem::take(&mut block.shared);
        let mut env = Env {
            launch: &self.launch,
            functions: &self.launch.module.functions,
            shared_at: &self.shared_at,
            shared_bytes: self.shared_bytes,
            entry: self.entry,
            index: block.index,
            number: block.number,
            shared: &mut shared,
            machine,
        };
        let ended = block.run(&mut env, &mut self.spare, &mut self.executed, until)?;
        block.shared = shared;
        block.turn += self.executed - from;
        if self.executed > self.launch.watchdog {
            return Err(block.trap(TrapKind::Watchdog, &self.launch));
        }
        if ended {
            return Ok(());
        }
        if block.turn < TURN {
            self.blocks.push_front(block);
            return Ok(());
        }
        block.turn = 0;
        self.blocks.push_back(block);
        let resident = usize::try_from(self.launch.resident).unwrap_or(1).max(1);
        if self.blocks.len() < resident {
            self.begin_block();
        }
        Ok(())
    }
}
