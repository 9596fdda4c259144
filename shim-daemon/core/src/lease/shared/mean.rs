//! The useful part of a device's time, over the last while.

use super::rules::scaled;
use crate::time::Nanos;

/// Useful time in a span (ns). Completions come in lumps, so a single sample may have more useful
/// time than it is long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    useful: u64,
    span: u64,
}

impl Mean {
    pub(super) fn add(&mut self, useful: u64, span: Nanos) {
        self.useful = self.useful.saturating_add(useful);
        self.span += span.0;
    }

    /// Forgets so much that it is of no longer a span than this.
    pub(super) fn keep(&mut self, most: Nanos) {
        if self.span > most.0 {
            self.useful = scaled(self.useful, most.0, self.span);
            self.span = most.0;
        }
    }

    /// The useful part of the time, in thousandths.
    pub(super) fn part(&self) -> u64 {
        scaled(self.useful, 1000, self.span).min(1000)
    }

    pub(super) fn is_of(&self, span: Nanos) -> bool {
        self.span >= span.0
    }
}
