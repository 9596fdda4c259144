//! `libcuda.so.1` of the simulated GPU: the C interface of [`softgpu`].
//!
//! Each function is one item of `driver!` in `api/`, one file per family. A function of the symbol
//! table that is not implemented returns `CUDA_ERROR_NOT_SUPPORTED`, and `cuGetProcAddress` does
//! not find it.
#![deny(unsafe_code)]

#[macro_use]
mod driver;
mod abi;
mod api;
mod attributes;
mod injection;
mod mps;
mod names;
