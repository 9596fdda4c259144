//! The truth about a machine, for tests: what is physically held, what was asked for, the most that ever was.
