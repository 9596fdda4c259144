//! Modules, libraries, functions and the built-in kernels.
//!
//! Any bytes load as an image, but a PTX text with errors does not ([`Image`]). The kernels of a
//! PTX text run ([`program`]). Of a cubin the declarations of functions and variables are read, and
//! nothing else: a function's name decides what it does ([`kernels`]), and a function with another
//! name is a kernel that takes a little time and does nothing. A library's kernel (`CUkernel`)
//! becomes a function of a context at its first use there, and is accepted in place of a function.

mod attributes;
pub mod device_heap;
mod function;
mod header;
mod image;
pub mod kernels;
mod launch;
pub mod legacy;
pub mod library;
pub mod linker;
mod memory;
mod modules;
pub mod occupancy;
mod params;
mod program;
mod variables;

use std::sync::Arc;

use crate::context::Context;

pub use attributes::Attributes;
pub use function::{Function, function};
pub use header::is_ptx;
pub use image::{Image, length};
pub use launch::{Launch, Shape, launch};

pub use modules::{Loading, Module, load, loading, lookup, unload};
pub use params::Params;

/// Removes the modules of a context that is being destroyed.
pub fn context_gone(context: &Arc<Context>) {
    library::context_gone(context.id());
    modules::context_gone(context.id());
}
