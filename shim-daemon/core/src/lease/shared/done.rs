//! A tenant's work according to a sample.

use crate::lease::arithmetic::any_of;

/// A tenant's work since the last sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Nanoseconds of service it claims.
    pub(super) service: u64,
    /// For how much of the time work was pending, in thousandths.
    pub(super) pending: u64,
    /// The same of each of its processes, added up: each has a context, and the driver's round
    /// robin goes by contexts.
    pub(super) contexts: u64,
    /// Work is pending at its end.
    pub(super) works: bool,
    /// The work of some process has been pending for so long that it is a queue.
    pub(super) deep: bool,
    /// The service is mostly guessed.
    pub(super) guessed: bool,
}

impl Done {
    /// Adds the work of a process, which works side by side with the others.
    pub(super) fn add(&mut self, process: Self) {
        self.service = self.service.saturating_add(process.service);
        self.pending = any_of(self.pending, process.pending);
        self.contexts = self.contexts.saturating_add(process.contexts);
        self.works |= process.works;
        self.deep |= process.deep;
        self.guessed |= process.guessed;
    }
}
