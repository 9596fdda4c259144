//! gpushare's own failures: one message, one exit status.

use gpushare_client::TalkError;
use gpushare_protocol::limits::LimitError;
use std::fmt::Display;

/// gpushare itself failed.
pub(crate) const OURS: u8 = 125;
/// The command was found and could not be started.
pub(crate) const NOT_STARTED: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// A message (what happened, with the numbers and what to do next) and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl Failure {
    /// A failure of gpushare itself.
    pub(crate) fn ours(message: impl Display) -> Self {
        Self {
            status: OURS,
            message: message.to_string(),
        }
    }
}

impl From<LimitError> for Failure {
    fn from(error: LimitError) -> Self {
        Self::ours(error)
    }
}

impl From<TalkError> for Failure {
    fn from(error: TalkError) -> Self {
        Self::ours(error)
    }
}
