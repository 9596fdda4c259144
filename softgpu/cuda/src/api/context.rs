//! Contexts: primary and user contexts, the thread's stack, flags and limits.
