//! Updates of an executable graph: one node's parameters, or all parameters from a graph of the
//! same shape.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUgraphExecUpdateResult, CUgraphNodeType, CUresult};

use super::instance::{Exec, Step, steps_of};
use super::objects::Held;
use super::operands;
use super::store::{GraphId, NodeId, NodeWork, store};
use crate::context::Context;
use crate::error::Result;

/// The reason why an update is refused, and the nodes involved (0 for none).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub result: CUgraphExecUpdateResult,
    /// The node of the new graph that could not be updated.
    pub node: NodeId,
    /// The predecessor of that node on a changed edge; 0 if the reason is not an edge.
    pub from: NodeId,
}

impl Exec {
    /// Replaces the work of the node `origin` by work of the same type.
    ///
    /// # Errors
    /// `INVALID_VALUE` if this graph has no such node, the type differs, the work is a memory node
    /// or a batch of memory operations, a kernel's function is of another context, or operands
    /// change that may not (see the module `operands`).
    pub fn set_work(
        &self,
        origin: NodeId,
        work: NodeWork,
        context: Option<Arc<Context>>,
    ) -> Result {
        let mut steps = self.steps();
        let step = find(&mut steps.list, origin)?;
        let operands = match (&step.work, &work) {
            (NodeWork::Op(old), NodeWork::Op(new)) => operands::may_be_set(old, new),
            _ => true,
        };
        let is_kernel = work.kind() == CUgraphNodeType::KERNEL;
        if !operands || is_kernel && is_elsewhere(&step.context, &context) {
            return Err(CUresult::INVALID_VALUE);
        }
        step.replace(work, context)
    }

    /// Enables or disables a kernel, copy or memset.
    ///
    /// # Errors
    /// `INVALID_VALUE` if this graph has no such node, or the node is of another type.
    pub fn set_enabled(&self, origin: NodeId, enabled: bool) -> Result {
        let mut steps = self.steps();
        let step = find(&mut steps.list, origin)?;
        can_be_off(step)?;
        step.enabled = enabled;
        Ok(())
    }

    /// Whether a kernel, copy or memset is enabled.
    ///
    /// # Errors
    /// As [`set_enabled`](Self::set_enabled).
    pub fn is_enabled(&self, origin: NodeId) -> Result<bool> {
        let mut steps = self.steps();
        let step = find(&mut steps.list, origin)?;
        can_be_off(step)?;
        Ok(step.enabled)
    }

    /// Copies the parameters of `new` to the child graph that was made from `old`, if both have the
    /// same nodes and edges.
    ///
    /// # Errors
    /// `INVALID_VALUE` if they differ, or this graph has no such child.
    pub fn update_child(&self, old: GraphId, new: GraphId) -> Result {
        let objects = Held::of(&store(), new)?;
        let (child, old, new) = (old, steps_of(old)?, steps_of(new)?);
        let same = old.len() == new.len()
            && old
                .iter()
                .zip(&new)
                .all(|(old, new)| difference(old, new).is_none());
        if !same {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut steps = self.steps();
        old.iter().zip(new).try_for_each(|(old, new)| {
            find(&mut steps.list, old.origin)?.replace(new.work, new.context)
        })?;
        steps.objects.replace(child, &objects);
        Ok(())
    }

    /// Copies all parameters from `graph`, if it has the same nodes and edges. Allocations are the
    /// new graph's from then on: "Memory nodes: It is not possible to update a cudaGraphExec_t with
    /// a cudaGraph_t if the cudaGraph_t is currently instantiated as a different cudaGraphExec_t"
    /// (CUDA Programming Guide 4.2, *Update Limitations*) is all that is said of them.
    ///
    /// # Errors
    /// The refusal; then nothing is changed. A graph that does not exist or has a cycle gives
    /// `ERROR`.
    pub fn update(&self, graph: GraphId) -> std::result::Result<(), Refusal> {
        let refuse = |result, node| Refusal {
            result,
            node,
            from: 0,
        };
        let invalid = |_| refuse(CUgraphExecUpdateResult::ERROR, 0);
        let new = steps_of(graph).map_err(invalid)?;
        let objects = Held::of(&store(), graph).map_err(invalid)?;
        let mut steps = self.steps();
        if new.len() != steps.list.len() {
            return Err(refuse(CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED, 0));
        }
        for (old, new) in steps.list.iter().zip(&new) {
            if let Some(result) = difference(old, new) {
                return Err(refuse(result, new.origin));
            }
        }
        if let Some(node) = new.iter().find(|step| step.work.is_memory()) {
            self.become_instance_of(graph)
                .map_err(|result| refuse(result, node.origin))?;
        }
        for (old, new) in steps.list.iter_mut().zip(new) {
            old.work = new.work;
            old.context = new.context;
        }
        steps.objects.replace_all(&objects);
        Ok(())
    }

    /// Makes this the one executable graph of a graph with memory nodes. Those of earlier updates
    /// keep it too, which no page says.
    fn become_instance_of(
        &self,
        graph: GraphId,
    ) -> std::result::Result<(), CUgraphExecUpdateResult> {
        let mut store = store();
        let home = store
            .graph_mut(graph)
            .map_err(|_| CUgraphExecUpdateResult::ERROR)?;
        let other = home.instance.upgrade();
        if other.is_some_and(|other| !Arc::ptr_eq(&other, &self.token)) {
            return Err(CUgraphExecUpdateResult::ERROR_NOT_SUPPORTED);
        }
        home.instance = Arc::downgrade(&self.token);
        Ok(())
    }
}

impl Step {
    fn replace(&mut self, work: NodeWork, context: Option<Arc<Context>>) -> Result {
        if self.work.kind() != work.kind()
            || work.is_memory()
            || matches!(work, NodeWork::MemOps(_))
        {
            return Err(CUresult::INVALID_VALUE);
        }
        self.work = work;
        self.context = context;
        Ok(())
    }
}

fn is_elsewhere(old: &Option<Arc<Context>>, new: &Option<Arc<Context>>) -> bool {
    let id = |context: &Option<Arc<Context>>| context.as_ref().map(|context| context.id());
    id(old) != id(new)
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

/// The reason why `old` cannot become `new`, if any.
fn difference(old: &Step, new: &Step) -> Option<CUgraphExecUpdateResult> {
    if old.after != new.after {
        return Some(CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED);
    }
    if old.work.kind() != new.work.kind() {
        return Some(CUgraphExecUpdateResult::ERROR_NODE_TYPE_CHANGED);
    }
    match (&old.work, &new.work) {
        (NodeWork::Alloc(_), NodeWork::Alloc(_)) | (NodeWork::Free(_), NodeWork::Free(_)) => None,
        _ => {
            let operands = match (&old.work, &new.work) {
                (NodeWork::Op(old), NodeWork::Op(new)) => operands::may_become(old, new),
                _ => true,
            };
            let moved = is_elsewhere(&old.context, &new.context) || !operands;
            moved.then_some(CUgraphExecUpdateResult::ERROR_PARAMETERS_CHANGED)
        }
    }
}
