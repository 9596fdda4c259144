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

/// Finds all functions that this library calls for itself, in what of the driver's libraries the
/// program has loaded ([`real::bind`]).
pub(crate) fn bind() {
    for called in [calls::CALLED, vmm::CALLED, across::CALLED, nvml::CALLED] {
        real::bind(called);
    }
}
