//! Errors that cross the wire: a stable number, whether trying again can help, and a sentence for a
//! person.

use serde::{Deserialize, Serialize};

/// The error, by a number that never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The message is not known to this daemon's version.
    UnknownRequest,
    /// The peer's major version of the protocol differs.
    Version,
    /// The peer may not ask this (a client on a control request, or another user).
    Forbidden,
    /// Limits that do not parse, contradict each other or differ from those the tenant already
    /// has.
    BadLimits,
    /// No tenant, process or device of that name.
    NotFound,
    /// A request out of order: registered twice, asked before registering.
    OutOfOrder,
    /// An invalid page or descriptor.
    BadPage,
    /// A limit of the daemon itself (tenants, processes, devices) is reached.
    Full,
    /// The daemon failed inside; its log says how.
    Internal,
}

/// An error as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireError {
    /// The stable code.
    pub code: ErrorCode,
    /// Whether the same request may succeed later without a change by the caller.
    pub can_retry: bool,
    /// The fault, its numbers and the next step for the caller: one line.
    pub message: String,
}

impl WireError {
    /// An error that trying again does not mend.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            can_retry: false,
            message: message.into(),
        }
    }

    /// An error that time may mend.
    #[must_use]
    pub fn retry(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            can_retry: true,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WireError {}
