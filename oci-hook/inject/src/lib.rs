//! The changes that gpushare makes to a container: a pure function of the host's facts and of the
//! container's request. The OCI hook, the runtime wrapper and the CDI specification render its
//! result; none of them decides anything else.
//!
//! No I/O: the caller reads and writes the files.
#![forbid(unsafe_code)]

pub mod apply;
pub mod cdi;
pub mod edits;
pub mod preload;
pub mod request;
pub mod rules;
pub mod strict;

pub use edits::{Edits, Host, Mount, Place};
pub use request::{Asks, Class, Request, output_of_hooks};

/// Why a container is refused: one line with the variable or annotation, its value and the accepted
/// form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}
