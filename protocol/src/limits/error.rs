//! The one shape of a refused limit.

use std::error::Error;
use std::fmt;

/// Longest value shown, in characters; the rest is cut.
const SHOWN: usize = 80;

/// A variable (or flag) whose value is refused. `Display` is one line: the problem and the accepted
/// form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    /// The variable or the flag.
    pub variable: String,
    /// Its value as given; bytes that are no UTF-8 replaced.
    pub value: String,
    /// The problem.
    pub problem: String,
    /// The accepted form.
    pub accepted: String,
}

impl LimitError {
    pub(crate) fn new(
        variable: impl Into<String>,
        value: impl Into<String>,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self {
            variable: variable.into(),
            value: value.into(),
            problem: problem.into(),
            accepted: accepted.into(),
        }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: String = self.value.chars().take(SHOWN).collect();
        let cut = if shown.len() < self.value.len() {
            " (cut)"
        } else {
            ""
        };
        let Self {
            variable,
            problem,
            accepted,
            ..
        } = self;
        write!(
            out,
            "{variable}={shown:?}{cut} is refused: {problem}; accepted: {accepted}"
        )
    }
}

impl Error for LimitError {}
