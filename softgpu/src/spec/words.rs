//! The words of SPEC: keys whose value is one of two names.

use std::fmt;

/// When an event completes that has no unfinished work before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// When its context has the multiprocessors, or no context has them.
    Turn,
    /// At once.
    Any,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turn => "turn",
            Self::Any => "any",
        })
    }
}

/// The calls that other threads of a context cannot make while a thread waits inside a submitting
/// call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// All calls that submit, or that destroy an event or a stream.
    Locked,
    /// None.
    Free,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Locked => "locked",
            Self::Free => "free",
        })
    }
}

/// What a synchronous copy of at most 64 KiB from pageable memory does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// It returns once the work before it is complete.
    Waits,
    /// It is queued behind that work.
    Along,
}

impl fmt::Display for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "waits",
            Self::Along => "along",
        })
    }
}

/// What an asynchronous copy from pageable memory to a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It returns once the work before it is complete.
    Waits,
    /// It is queued behind that work.
    Along,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "waits",
            Self::Along => "along",
        })
    }
}

/// When `cuMemFree` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// Once all work of the process on the device is complete.
    Waits,
    /// At once; the memory is given back behind that work.
    Now,
}

impl fmt::Display for Free {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "waits",
            Self::Now => "now",
        })
    }
}

/// When memory of a pool is accessible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the execution of its allocation in stream order to that of its free.
    Strict,
    /// From the call that allocates it.
    Lenient,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Lenient => "lenient",
        })
    }
}

/// The effect of a call after the driver's teardown at process exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process aborts: such a call is undefined for a real driver.
    Abort,
    /// The call returns `CUDA_ERROR_DEINITIALIZED`.
    Refuse,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "abort",
            Self::Refuse => "refuse",
        })
    }
}

/// Which value the handle of a new object has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// One that no object had before.
    Never,
    /// That of the last object of its kind that was destroyed.
    Lifo,
}

impl fmt::Display for Reuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "never",
            Self::Lifo => "lifo",
        })
    }
}

/// Whether the host link carries both directions at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplex {
    /// Each direction has its own copy engine, and neither slows the other.
    Full,
    /// One copy engine carries both directions in turn.
    Half,
}

impl fmt::Display for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Half => "half",
        })
    }
}

/// The devices' abilities with managed memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagedAccess {
    /// Pages move when they are touched, and leave for other memory.
    Concurrent,
    /// An allocation is on its device as a whole.
    Fixed,
}

impl fmt::Display for ManagedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Concurrent => "concurrent",
            Self::Fixed => "fixed",
        })
    }
}

/// The device memory of managed pages that have gone to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeMemory {
    /// It stays taken until other memory needs it, or the pages come back to it.
    Kept,
    /// It is free.
    Freed,
}

impl fmt::Display for HomeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::Freed => "freed",
        })
    }
}

/// The memory with which NVML lists a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// That of its own objects: pages of managed memory belong to the driver's kernel module.
    Own,
    /// All of it.
    All,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::All => "all",
        })
    }
}
