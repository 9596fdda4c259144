//! Memory and events of other processes.
