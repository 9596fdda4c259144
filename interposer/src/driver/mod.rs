//! The driver's own functions, and the single truth about its devices, contexts and streams.

pub(crate) mod across;
pub(crate) mod calls;
pub(crate) mod current;
pub(crate) mod device;
pub(crate) mod green;
pub(crate) mod mps;
pub(crate) mod nvml;
mod outcome;
pub(crate) mod real;
pub(crate) mod relaxed;
pub(crate) mod stream_ref;
pub(crate) mod tracker;
pub(crate) mod vmm;

pub(crate) use tracker::{captures, contexts, marking, streams};
