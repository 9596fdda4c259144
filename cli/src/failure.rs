//! gpushare's own failures: one message, one exit status.

use gpushare_client::TalkError;
use gpushare_protocol::limits::LimitError;
use std::fmt::Display;

/// A command failed.
pub(crate) const FAILED: u8 = 1;
/// It was asked for in a way that is not understood.
pub(crate) const USAGE: u8 = 2;
/// There is no daemon to ask.
pub(crate) const NO_DAEMON: u8 = 3;
/// Each of these of `run`, so that none is taken for its program's status.
pub(crate) const OF_RUN: u8 = 125;
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
        Self::of(FAILED, message)
    }

    /// A value or a combination of flags that is not accepted.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::of(USAGE, message)
    }

    /// No daemon serves.
    pub(crate) fn no_daemon(message: impl Display) -> Self {
        Self::of(NO_DAEMON, message)
    }

    fn of(status: u8, message: impl Display) -> Self {
        Self {
            status,
            message: message.to_string(),
        }
    }
}

/// The exit status of a failure of `run`, or of another command.
pub(crate) fn status(failed: u8, of_run: bool) -> u8 {
    match failed {
        FAILED | USAGE | NO_DAEMON if of_run => OF_RUN,
        other => other,
    }
}

impl From<LimitError> for Failure {
    fn from(error: LimitError) -> Self {
        Self::usage(error)
    }
}

impl From<TalkError> for Failure {
    fn from(error: TalkError) -> Self {
        Self::ours(error)
    }
}
