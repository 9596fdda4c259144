//! Nodes and edges: a node's work, its context and its launch attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUgraphEdgeData, CUgraphNodeType, CUlaunchAttributeID, CUresult};

use super::allocation::Allocation;
use super::conditional::Conditional;
use super::store::{GraphId, NodeId, Store};
use crate::context::Context;
use crate::error::Result;
use crate::exec::event::Event;
use crate::exec::memop::MemOp;
use crate::exec::stream::AttributeBytes;
use crate::exec::{Kind, Op};

/// The work of a node.
#[derive(Debug, Clone)]
pub enum NodeWork {
    /// A kernel, copy, memset or host function.
    Op(Arc<Op>),
    /// The nodes of another graph, which this node owns.
    Child(GraphId),
    /// Bodies that run or not, which this node owns.
    Conditional(Arc<Conditional>),
    /// No work: a node that only joins edges.
    Empty,
    /// Waits for the recording that an event has at the launch.
    EventWait(Arc<Event>),
    /// Records an event.
    EventRecord(Arc<Event>),
    /// Allocates memory.
    Alloc(Arc<Allocation>),
    /// Frees memory.
    Free(Arc<Allocation>),
    /// Memory operations, executed in order.
    MemOps(Arc<[MemOp]>),
}

impl NodeWork {
    /// Its type as the API names it.
    pub fn kind(&self) -> CUgraphNodeType {
        match self {
            Self::Op(op) => match op.kind {
                Kind::Kernel(_) => CUgraphNodeType::KERNEL,
                Kind::Copy(_) => CUgraphNodeType::MEMCPY,
                Kind::Fill(_) => CUgraphNodeType::MEMSET,
                Kind::Host(_) => CUgraphNodeType::HOST,
                Kind::Plain => CUgraphNodeType::EMPTY,
            },
            Self::Child(_) => CUgraphNodeType::GRAPH,
            Self::Conditional(_) => CUgraphNodeType::CONDITIONAL,
            Self::Empty => CUgraphNodeType::EMPTY,
            Self::EventWait(_) => CUgraphNodeType::WAIT_EVENT,
            Self::EventRecord(_) => CUgraphNodeType::EVENT_RECORD,
            Self::Alloc(_) => CUgraphNodeType::MEM_ALLOC,
            Self::Free(_) => CUgraphNodeType::MEM_FREE,
            Self::MemOps(_) => CUgraphNodeType::BATCH_MEM_OP,
        }
    }

    /// Whether it allocates or frees memory.
    pub fn is_memory(&self) -> bool {
        matches!(self, Self::Alloc(_) | Self::Free(_))
    }
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its work.
    pub work: NodeWork,
    /// The context it runs in; `None` for a node that runs in the launching stream's context.
    pub context: Option<Arc<Context>>,
    /// The node it was cloned from.
    pub(super) original: Option<NodeId>,
    /// A kernel's launch attributes that were set.
    attributes: BTreeMap<CUlaunchAttributeID, AttributeBytes>,
}

impl Node {
    pub(super) fn new(work: NodeWork, context: Option<Arc<Context>>) -> Self {
        Self {
            work,
            context,
            original: None,
            attributes: BTreeMap::new(),
        }
    }
}

/// Checks that a node has launch attributes and that `id` is one.
fn kernel_attribute(work: &NodeWork, id: CUlaunchAttributeID) -> Result {
    let known = CUlaunchAttributeID::IGNORE < id && id < CUlaunchAttributeID::MAX;
    if work.kind() == CUgraphNodeType::KERNEL && known {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

/// An edge.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// The earlier node.
    pub from: NodeId,
    /// The later node.
    pub to: NodeId,
    /// Ports and type; all zero means a full dependency.
    pub data: CUgraphEdgeData,
}

/// Edge data of a plain dependency.
pub const PLAIN: CUgraphEdgeData = CUgraphEdgeData {
    from_port: 0,
    to_port: 0,
    type_: 0,
    reserved: [0; 5],
};

impl Store {
    /// A launch attribute of a kernel node; zeroes, which mean the default, if it was not set.
    ///
    /// # Errors
    /// `INVALID_VALUE` if `node` is no kernel node or `id` is no attribute.
    pub fn attribute(&self, node: NodeId, id: CUlaunchAttributeID) -> Result<AttributeBytes> {
        let (_, found) = self.node(node)?;
        kernel_attribute(&found.work, id)?;
        Ok(found.attributes.get(&id).copied().unwrap_or([0; 64]))
    }

    /// Sets a launch attribute of a kernel node.
    ///
    /// # Errors
    /// As [`attribute`](Self::attribute).
    pub fn set_attribute(
        &mut self,
        node: NodeId,
        id: CUlaunchAttributeID,
        value: AttributeBytes,
    ) -> Result {
        let (home, found) = self.node(node)?;
        kernel_attribute(&found.work, id)?;
        if let Some(found) = self.graph_mut(home)?.nodes.get_mut(&node) {
            found.attributes.insert(id, value);
        }
        Ok(())
    }

    /// Copies the launch attributes of one kernel node to another.
    ///
    /// # Errors
    /// `INVALID_VALUE` if a node is no kernel node.
    pub fn copy_attributes(&mut self, to: NodeId, from: NodeId) -> Result {
        let source = self.node(from)?.1;
        kernel_attribute(&source.work, CUlaunchAttributeID::PRIORITY)?;
        let copied = source.attributes.clone();
        copied
            .into_iter()
            .try_for_each(|(id, value)| self.set_attribute(to, id, value))
    }
}
