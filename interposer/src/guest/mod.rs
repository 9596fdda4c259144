//! The process that this library is a guest in: threads, forks, jumps, locks, logs. Knows nothing
//! of CUDA.

pub(crate) mod background;
pub(crate) mod barrier;
pub(crate) mod clock;
pub(crate) mod descriptor;
pub(crate) mod exit;
mod exports;
pub(crate) mod fork;
pub(crate) mod frames;
pub(crate) mod futex;
pub(crate) mod late;
pub(crate) mod left;
pub(crate) mod linker;
pub(crate) mod log;
pub(crate) mod map;
pub(crate) mod nap;
pub(crate) mod sys;
pub(crate) mod thread_word;
pub(crate) mod timed_lock;
