//! A tenant's work according to a sample.

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
