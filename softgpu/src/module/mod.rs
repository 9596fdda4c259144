//! Modules, libraries, functions and the built-in kernels.
//!
//! Images are opaque: any bytes load. What a function does is decided by its name alone
//! ([`kernels`]); every other name is a kernel that takes a little time and does nothing. Kernels
//! of a library (`CUkernel`) become functions of a context when they are first used there, and are
//! accepted wherever a function is.

mod attributes;
mod function;
pub mod kernels;
mod launch;
pub mod legacy;
pub mod library;
pub mod linker;
mod memory;
mod modules;
pub mod occupancy;
mod params;

use std::sync::Arc;

use crate::context::Context;

pub use attributes::Attributes;
pub use function::{Function, function};
pub use launch::{Launch, Shape, launch};

pub use modules::{Loading, Module, load, loading, lookup, unload};
pub use params::Params;

/// Forgets what belongs to a context that is being destroyed.
pub fn context_gone(context: &Arc<Context>) {
    library::context_gone(context.id());
    modules::context_gone(context.id());
}
