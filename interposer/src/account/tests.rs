//! Joining, growing and dying, with several members in one process.
