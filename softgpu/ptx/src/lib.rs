//! An interpreter of PTX, NVIDIA's language of kernels: it parses modules ([`Module`]) and runs
//! their kernels ([`Run`]) on memory that the caller provides ([`Machine`]).
//!
//! It covers what compilers make of kernels with integers and floating-point numbers: arithmetic in
//! every rounding, all state spaces but textures, calls, atomic operations, barriers, shuffles and
//! votes. It does not cover matrix instructions, textures and surfaces, asynchronous copies and
//! their barriers, clusters, and system calls such as `printf`. An instruction that is not known
//! does not keep a module from loading; [`Kernel::unknown`] names it.
//!
//! The threads of a grid are state machines on one thread of the host. They take turns at barriers,
//! where the threads of a warp meet, and after a number of instructions. So a thread that waits for
//! another thread's value does not stop the other, in its own block or in another one. No thread
//! makes a step at the same time as another one, and memory is always in order: a program that
//! lacks a fence or a `volatile` works here, and may not on a device.
#![forbid(unsafe_code)]

mod ast;
mod code;
mod lex;
mod lower;
mod math;
mod module;
mod parse;
mod run;
mod ty;

use std::fmt;

pub use module::{Kernel, Module, Param, Patch, Variable};
pub use run::{Fault, Launch, Machine, Memory, Progress, Run, Trap, TrapKind};

/// A text that is not PTX, or not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The fault at that place.
    pub message: String,
}

impl ParseError {
    pub(crate) fn new(line: u32, message: &str) -> Self {
        Self {
            line,
            message: message.to_owned(),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX, line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}
