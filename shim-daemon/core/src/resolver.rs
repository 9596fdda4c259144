//! What to do when a wanted grant does not fit: one policy a file.
//!
//! A resolver gets facts and returns a verdict; it changes nothing and remembers nothing. A new policy is a file, a variant
//! of [`Resolver`] and a row in [`Resolver::policy`]; that is where the swap engine's resolver goes, together with a
//! verdict that names whom to move out, once there is an engine to carry it out.

mod burst;
mod fail;
mod priority;
mod victims;
mod wait;

pub(crate) use burst::Burst;

use crate::ids::ContainerId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// The resolvers a container can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// Out-of-memory at once.
    Fail,
    /// Wait until others free enough.
    Wait,
    /// End lower or idle containers that hold borrowed memory and allow it.
    Priority,
}

impl Resolver {
    /// Whether it never passes the case on.
    pub(crate) fn always_decides(self) -> bool {
        match self {
            Self::Fail | Self::Wait => true,
            Self::Priority => false,
        }
    }

    pub(crate) fn policy(self) -> &'static dyn Resolve {
        match self {
            Self::Fail => &fail::Fail,
            Self::Wait => &wait::Wait,
            Self::Priority => &priority::Priority,
        }
    }
}

/// A policy.
pub(crate) trait Resolve {
    fn resolve(&self, case: &Case<'_>) -> Verdict;
}

/// The facts of one collision.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    /// The asker's priority.
    pub(crate) priority: u16,
    /// What is missing even when all bytes on their way have come.
    pub(crate) short: Bytes,
    /// Whether taking back what others borrowed could help: not if the memory is promised to others.
    pub(crate) borrowed: bool,
    /// How long the asker still waits.
    pub(crate) patience: Nanos,
    /// How long a victim may take, from SIGTERM until its bytes are back.
    pub(crate) ladder: Nanos,
    /// Containers above their request that may be ended, none of them ending already.
    pub(crate) candidates: &'a [Candidate],
}

/// A container that could be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) container: ContainerId,
    pub(crate) priority: u16,
    pub(crate) idle: bool,
    /// What the device gets back.
    pub(crate) gives: Bytes,
    /// What is lost: its bytes in use, on all devices.
    pub(crate) destroys: Bytes,
}

/// What a policy wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// End these, then the ask is met. Empty: what is on its way is enough.
    End(Vec<ContainerId>),
    /// Wait for others to free.
    Wait,
    /// Out-of-memory.
    Refuse,
    /// Nothing this policy can do.
    Pass,
}
