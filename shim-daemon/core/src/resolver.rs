//! What to do when a wanted grant does not fit: one policy a file.
//!
//! A resolver gets facts and returns a verdict; it changes nothing and remembers nothing. A new
//! policy is a file, a variant of [`Resolver`] and a row in [`Resolver::policy`]. A swap engine's
//! resolver would go there too, with a verdict that names the tenants to move out, once an engine
//! exists to carry it out.

mod burst;
mod fail;
mod priority;
mod victims;
mod wait;

pub(crate) use burst::Burst;

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
}

/// A tenant that could be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) tenant: TenantId,
    pub(crate) priority: u16,
    pub(crate) idle: bool,
    /// The memory that the device gets back.
    pub(crate) gives: Bytes,
    /// The memory that is lost: its bytes in use, on all devices.
    pub(crate) destroys: Bytes,
}

/// A policy's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// End these tenants, then the ask is met. Empty: the bytes on their way are enough.
    End(Vec<TenantId>),
    /// Wait for other tenants to free.
    Wait,
    /// Out-of-memory.
    Refuse,
    /// This policy cannot help.
    Pass,
}
