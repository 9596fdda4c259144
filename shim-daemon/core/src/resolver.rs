//! The policies for a wanted grant that does not fit: one policy a file.
//!
//! A resolver gets facts and returns a verdict; it changes nothing and remembers nothing. A new
//! policy is a file, a variant of [`Resolver`] and a row in [`Resolver::policy`].

mod burst;
mod fail;
mod priority;
mod swap;
mod victims;
mod wait;

pub(crate) use burst::Burst;
pub(crate) use swap::{Mover, are_enough};

use crate::ids::TenantId;
use crate::time::Nanos;
use gpushare_protocol::units::Bytes;

/// The resolvers a tenant can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// Out-of-memory at once.
    Fail,
    /// Wait until other tenants free enough.
    Wait,
    /// End lower or idle tenants that hold borrowed memory and allow it.
    Priority,
    /// Move tenants that allow it to the host until they run again.
    Swap,
}

impl Resolver {
    /// Whether it never passes the case on.
    pub(crate) fn always_decides(self) -> bool {
        match self {
            Self::Fail | Self::Wait => true,
            Self::Priority | Self::Swap => false,
        }
    }

    pub(crate) fn policy(self) -> &'static dyn Resolve {
        match self {
            Self::Fail => &fail::Fail,
            Self::Wait => &wait::Wait,
            Self::Priority => &priority::Priority,
            Self::Swap => &swap::Swap,
        }
    }
}

/// A policy.
pub(crate) trait Resolve {
    fn resolve(&self, case: &Case<'_>) -> Verdict;
}

/// The facts of one collision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    /// The asker's priority.
    pub(crate) priority: u16,
    /// The bytes that are missing even when all bytes on their way have arrived.
    pub(crate) short: Bytes,
    /// Whether taking back borrowed memory could help: not if the memory is reserved for other
    /// tenants.
    pub(crate) borrowed: bool,
    /// How long the asker still waits.
    pub(crate) patience: Nanos,
    /// How long a victim may take, from SIGTERM until its bytes are back.
    pub(crate) ladder: Nanos,
    /// Tenants above their request that may be ended, none of them ending already.
    pub(crate) candidates: &'a [Candidate],
    /// Tenants on the card that may be moved, now or later.
    pub(crate) movers: &'a [Mover],
    /// Whether the ask is within its tenant's request.
    pub(crate) guaranteed: bool,
    pub(crate) now: Nanos,
    /// Host memory that these moves may take: what they leave must let another tenant be moved.
    pub(crate) host: Bytes,
    /// Host memory that no tenant counts with: what these moves may take beyond what the store has
    /// given their tenants already.
    pub(crate) room: Bytes,
    /// Whether there is enough for it alone, once every tenant that may be moved has its turn over.
    pub(crate) alone: bool,
}

/// A tenant that could be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) tenant: TenantId,
    pub(crate) priority: u16,
    pub(crate) idle: bool,
    /// The memory that the device gets back for its end: of one that leaves, what its move does not
    /// give.
    pub(crate) gives: Bytes,
    /// The memory that is lost: its bytes in use, on all devices.
    pub(crate) destroys: Bytes,
}

/// A policy's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// End these tenants, then the ask is met. Empty: the bytes on their way are enough.
    End(Vec<TenantId>),
    /// Move these tenants off the card, then the ask is met.
    Move(Vec<TenantId>),
    /// Tenants may be moved then. `certain`: all of them left whenever they were asked.
    Turn {
        /// When. `None`: when asks before this one are met.
        at: Option<Nanos>,
        /// See above.
        certain: bool,
    },
    /// Wait for other tenants to free.
    Wait,
    /// Out-of-memory.
    Refuse,
    /// This policy cannot help.
    Pass,
}
