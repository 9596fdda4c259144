//! A simulated GPU. Two C libraries are built on this crate: `libcuda.so.1` (`softgpu/cuda`) and
//! `libnvidia-ml.so.1` (`softgpu/nvml`).
//!
//! softgpu is meant to be the *worst legal driver*: everything that a real driver may do late, out
//! of order or unasked, softgpu does. Read the modules in this order: [`spec`] (the description of
//! the machine), [`world`] (devices and physical memory, shared by processes), [`va`] (addresses),
//! [`context`], then [`memory`], [`exec`], [`graph`] and [`module`], which implement the API.
//! [`inspect`] gives tests the true state.
#![deny(unsafe_code)]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the documentation is read beside the source"
)]

pub mod context;
pub mod error;
pub mod exec;
pub mod facts;
pub mod fail;
pub mod fallen;
pub mod graph;
pub mod handle;
pub mod hold;
pub mod inspect;
pub mod lock;
pub mod memory;
pub mod module;
pub mod pids;
pub mod spec;
pub mod trace;
pub mod va;
pub mod watch;
pub mod world;

pub use error::Result;
pub use exec::model;
pub use world::{Device, Kind, PageRun, Process};
