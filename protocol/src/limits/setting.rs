//! One set variable, as the table's readers get it.

use super::error::LimitError;
use super::layer::{Entry, Selector};
use crate::size::Size;

/// The origin of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The environment that is read.
    Own,
    /// The node, for environments that say nothing of it.
    Default,
}

/// One set variable on its way into the limits.
pub(super) struct Setting<'a> {
    pub(super) whose: Whose,
    pub(super) variable: &'a str,
    pub(super) device: Selector,
    pub(super) value: &'a str,
}

impl Setting<'_> {
    pub(super) fn refuse(
        &self,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> LimitError {
        LimitError::new(self.variable, self.value, problem, accepted)
    }

    pub(super) fn entry(&self, size: Size) -> Entry {
        Entry {
            size,
            variable: self.variable.to_owned(),
            value: self.value.to_owned(),
            whose: self.whose,
        }
    }
}
