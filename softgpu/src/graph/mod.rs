//! Graphs: built node by node or captured from streams, instantiated, launched.
//!
//! [`store`] holds what a graph is: nodes and edges. [`instance`] makes an executable one of it and
//! puts it on the timeline; [`update`] changes one. [`allocation`] is memory whose life is inside
//! graphs. [`capture`] turns what is submitted to streams into nodes, and knows what is forbidden
//! meanwhile.

pub mod allocation;
pub mod capture;
mod captured;
pub mod forbidden;
mod green;
pub mod instance;
pub mod node;
pub mod objects;
mod rules;
mod session;
pub mod store;
pub mod update;

pub use captured::{capture_alloc, capture_free, is_freed_in};

use std::sync::Arc;

use crate::context::Context;

/// Forgets what belongs to a context that is being destroyed.
pub fn context_gone(context: &Arc<Context>) {
    rules::context_gone(context.id());
}
