//! Streams, events and the queue of submitted work.

/// Which stream the null handle means: each function with a twin is one or the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultStream {
    /// The one of the context, which waits for the other blocking streams (plain names).
    Legacy,
    /// The calling thread's own (`_ptsz`, `_ptds`).
    PerThread,
}
