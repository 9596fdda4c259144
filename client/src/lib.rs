//! One connection to a daemon's control socket, and the daemon's lists, of any length.
#![forbid(unsafe_code)]

mod listing;
mod past;
mod talk;

pub use talk::{CONTROL, Talk};

/// Why the daemon could not be asked, or what it refused, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TalkError {
    /// The line.
    pub message: String,
}

impl TalkError {
    fn new(message: impl std::fmt::Display) -> Self {
        Self {
            message: message.to_string(),
        }
    }
}

impl std::fmt::Display for TalkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TalkError {}
