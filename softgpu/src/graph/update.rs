//! Changing an executable graph: one node's parameters, or all of them from a graph of the same
//! shape.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUgraphExecUpdateResult, CUgraphNodeType, CUresult};

use super::instance::{Exec, Step, steps_of};
use super::store::{GraphId, NodeId, NodeWork};
use crate::context::Context;
use crate::error::Result;

/// Why an update is refused, and at which nodes (of the instance, of the graph; 0 for none).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub result: CUgraphExecUpdateResult,
    /// The node that could not be updated, in the new graph.
    pub node: NodeId,
    /// The node it depends on wrongly; 0 where the reason is not an edge.
    pub from: NodeId,
}

impl Exec {
    /// Replaces what the node `origin` does by work of the same type.
    ///
    /// # Errors
    /// `INVALID_VALUE` if this graph has no such node or the type differs.
    pub fn set_work(
        &self,
        origin: NodeId,
        work: NodeWork,
        context: Option<Arc<Context>>,
    ) -> Result {
        let mut steps = self.steps();
        let step = find(&mut steps.list, origin)?;
        if step.work.kind() != work.kind()
            || work.is_memory()
            || matches!(work, NodeWork::MemOps(_))
        {
            return Err(CUresult::INVALID_VALUE);
        }
        step.work = work;
        step.context = context;
        Ok(())
    }

    /// Switches a kernel, copy or memset on or off.
    ///
    /// # Errors
    /// `INVALID_VALUE` if this graph has no such node, or it is of another type.
    pub fn set_enabled(&self, origin: NodeId, enabled: bool) -> Result {
        let mut steps = self.steps();
        let step = find(&mut steps.list, origin)?;
        can_be_off(step)?;
        step.enabled = enabled;
        Ok(())
    }

    /// Whether a kernel, copy or memset is on.
    ///
    /// # Errors
    /// As [`set_enabled`](Self::set_enabled).
    pub fn is_enabled(&self, origin: NodeId) -> Result<bool> {
        let mut steps = self.steps();
        let step = find(&mut steps.list, origin)?;
        can_be_off(step)?;
        Ok(step.enabled)
    }

    /// Takes over the parameters of `new` for the child that was made of `old`, if it has the same
    /// nodes and edges.
    ///
    /// # Errors
    /// `INVALID_VALUE` if not, or this graph has no such child.
    pub fn update_child(&self, old: GraphId, new: GraphId) -> Result {
        let (old, new) = (steps_of(old)?, steps_of(new)?);
        let same = old.len() == new.len()
            && old
                .iter()
                .zip(&new)
                .all(|(old, new)| difference(old, new).is_none());
        if !same {
            return Err(CUresult::INVALID_VALUE);
        }
        old.iter()
            .zip(new)
            .try_for_each(|(old, new)| self.set_work(old.origin, new.work, new.context))
    }

    /// Takes over all parameters from `graph`, if it has the same nodes and edges.
    ///
    /// # Errors
    /// The refusal; nothing is changed then. A graph that does not exist or has a circle is
    /// `ERROR`.
    pub fn update(&self, graph: GraphId) -> std::result::Result<(), Refusal> {
        let refuse = |result, node| Refusal {
            result,
            node,
            from: 0,
        };
        let new = steps_of(graph).map_err(|_| refuse(CUgraphExecUpdateResult::ERROR, 0))?;
        let mut steps = self.steps();
        if new.len() != steps.list.len() {
            return Err(refuse(CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED, 0));
        }
        for (old, new) in steps.list.iter().zip(&new) {
            if let Some(result) = difference(old, new) {
                return Err(refuse(result, new.origin));
            }
        }
        for (old, new) in steps.list.iter_mut().zip(new) {
            if !old.work.is_memory() {
                old.work = new.work;
                old.context = new.context;
            }
        }
        Ok(())
    }
}

fn find(list: &mut [Step], origin: NodeId) -> Result<&mut Step> {
    list.iter_mut()
        .find(|step| step.origin == origin)
        .ok_or(CUresult::INVALID_VALUE)
}

fn can_be_off(step: &Step) -> Result {
    let kinds = [
        CUgraphNodeType::KERNEL,
        CUgraphNodeType::MEMCPY,
        CUgraphNodeType::MEMSET,
    ];
    if kinds.contains(&step.work.kind()) {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

/// What stands against turning `old` into `new`.
fn difference(old: &Step, new: &Step) -> Option<CUgraphExecUpdateResult> {
    if old.after != new.after {
        return Some(CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED);
    }
    if old.work.kind() != new.work.kind() {
        return Some(CUgraphExecUpdateResult::ERROR_NODE_TYPE_CHANGED);
    }
    match (&old.work, &new.work) {
        (NodeWork::Alloc(old), NodeWork::Alloc(new))
        | (NodeWork::Free(old), NodeWork::Free(new)) => {
            (!Arc::ptr_eq(old, new)).then_some(CUgraphExecUpdateResult::ERROR_NOT_SUPPORTED)
        }
        _ => {
            let moved = old.context.as_ref().map(|context| context.id())
                != new.context.as_ref().map(|context| context.id());
            moved.then_some(CUgraphExecUpdateResult::ERROR_PARAMETERS_CHANGED)
        }
    }
}
