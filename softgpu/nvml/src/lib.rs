//! `libnvidia-ml.so.1` of the simulated GPU. It answers monitors' queries from the same shared
//! state as the driver's calls.
//!
//! Each function is one item of `nvml!` in `api/`. A function of the symbol table that is not
//! implemented returns `NVML_ERROR_NOT_SUPPORTED`, which monitors show as "N/A".
#![deny(unsafe_code)]

#[macro_use]
mod library;
mod abi;
mod api;
mod others;
