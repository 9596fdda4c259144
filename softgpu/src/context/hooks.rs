//! The actions of other modules when a context synchronises or is destroyed: one row each.

use std::sync::Arc;

use super::Context;
use crate::error::Result;

/// Called by `cuCtxSynchronize`, and before a context is destroyed. Returns when all work submitted
/// in the context is complete, or returns its error.
type Drain = fn(&Arc<Context>) -> Result;
/// Called once when a context is destroyed or reset, after draining, in the order of the rows.
/// Frees the context's objects.
type Gone = fn(&Arc<Context>);

const DRAIN: &[Drain] = &[crate::exec::drain];
const GONE: &[Gone] = &[
    crate::graph::context_gone,
    crate::exec::context_gone,
    crate::module::context_gone,
    crate::memory::context_gone,
];

pub(super) fn drain(context: &Arc<Context>) -> Result {
    DRAIN.iter().try_for_each(|drain| drain(context))
}

pub(super) fn gone(context: &Arc<Context>) {
    GONE.iter().for_each(|gone| gone(context));
}
