//! `libcuda.so.1` of the simulated GPU: the C face of [`softgpu`].
//!
//! Each function is one item of `driver!` in `api/`, a file per family; everything that
//! the symbol table names and nothing here implements answers `CUDA_ERROR_NOT_SUPPORTED` and is not
//! found by `cuGetProcAddress`.
#![deny(unsafe_code)]

#[macro_use]
mod driver;
mod abi;
mod api;
mod attributes;
mod injection;
mod mps;
mod names;
