//! Stream memory operations.
