//! Graphs: built node by node or captured from streams, instantiated, launched.
//!
//! [`store`] holds a graph's nodes and edges. [`instance`] makes an executable graph and submits it
//! to the timeline; [`update`] changes an executable graph. [`conditional`] is nodes whose bodies
//! run or not. [`allocation`] is memory that graphs allocate and free. [`capture`] turns work
//! submitted to streams into nodes, and refuses the calls that are forbidden during a capture.

pub mod allocation;
pub mod capture;
mod captured;
pub mod conditional;
mod dot;
pub mod forbidden;
mod green;
pub mod instance;
pub mod node;
pub mod objects;
mod operands;
mod rules;
mod session;
pub mod store;
pub mod update;

pub use captured::{capture_alloc, capture_free, is_freed_in};

use std::sync::Arc;

use crate::context::Context;

/// Ends the captures of a context that is being destroyed.
pub fn context_gone(context: &Arc<Context>) {
    rules::context_gone(context.id());
}
