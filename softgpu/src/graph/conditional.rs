//! Conditional nodes: bodies that run or not as a condition says when the graph is launched.
//!
//! On a GPU kernels set conditions. No kernel of softgpu does, so a condition has its default value
//! in every launch, or 0 without a default, and instantiation knows which body runs. A loop whose
//! condition is not 0 would never end: such a graph is not instantiated.

use std::collections::HashMap;
use std::sync::Arc;

use gpushare_cuda_abi::cuda::{
    CU_GRAPH_COND_ASSIGN_DEFAULT, CUgraph, CUgraphConditionalHandle, CUgraphConditionalNodeType,
    CUgraphEdgeData, CUgraphNodeType, CUresult,
};

use super::store::{Graph, GraphId, NodeId, NodeWork, Store, graph_handle};
use crate::context::Context;
use crate::error::Result;
use crate::exec::Kind;
use crate::handle;
use crate::memory::copy::{Place, Transfer};

/// A condition of a graph.
#[derive(Debug)]
struct Condition {
    /// The graph that it was created for.
    graph: GraphId,
    /// The context of its node and of all work in the node's bodies, by number.
    context: u64,
    /// Its value in every launch.
    value: u32,
    /// The node that uses it.
    node: Option<NodeId>,
}

/// All conditions, by handle.
#[derive(Debug, Default)]
pub(super) struct Conditions(HashMap<CUgraphConditionalHandle, Condition>);

impl Conditions {
    /// A node is destroyed: its condition can be used again.
    pub(super) fn node_gone(&mut self, node: NodeId) {
        for condition in self.0.values_mut() {
            condition.node = condition.node.filter(|user| *user != node);
        }
    }

    /// A graph is destroyed, with its conditions.
    pub(super) fn graph_gone(&mut self, graph: GraphId) {
        self.0.retain(|_, condition| condition.graph != graph);
    }
}

/// A conditional node.
#[derive(Debug)]
pub struct Conditional {
    kind: CUgraphConditionalNodeType,
    condition: CUgraphConditionalHandle,
    /// The array that the API shows; it stays where it is as long as the node.
    bodies: Box<[CUgraph]>,
}

impl Conditional {
    /// The bodies' handles.
    pub fn handles(&self) -> &[CUgraph] {
        &self.bodies
    }

    /// The bodies.
    pub fn bodies(&self) -> impl Iterator<Item = GraphId> {
        self.bodies.iter().map(|body| body.0.addr())
    }
}

/// How many bodies a node of a type may have.
fn fits(kind: CUgraphConditionalNodeType, size: u32) -> bool {
    match kind {
        CUgraphConditionalNodeType::IF => (1..=2).contains(&size),
        CUgraphConditionalNodeType::WHILE => size == 1,
        CUgraphConditionalNodeType::SWITCH => size > 0,
        _ => false,
    }
}

impl Store {
    /// Creates a condition of `graph`.
    ///
    /// # Errors
    /// `INVALID_VALUE` for unknown flags or if there is no such graph.
    pub fn create_condition(
        &mut self,
        graph: GraphId,
        context: &Context,
        value: u32,
        flags: u32,
    ) -> Result<CUgraphConditionalHandle> {
        self.graph(graph)?;
        if flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let assigned = flags & CU_GRAPH_COND_ASSIGN_DEFAULT != 0;
        let condition = Condition {
            graph,
            context: context.id(),
            value: if assigned { value } else { 0 },
            node: None,
        };
        let handle = handle::fresh() as CUgraphConditionalHandle;
        self.conditions.0.insert(handle, condition);
        Ok(handle)
    }

    /// Adds a conditional node with `size` empty bodies.
    ///
    /// # Errors
    /// As [`add`](Self::add); `INVALID_VALUE` for a condition that is another graph's, another
    /// context's or another node's, an unknown type, or a number of bodies that the type does not
    /// have.
    pub fn add_conditional(
        &mut self,
        graph: GraphId,
        after: &[(NodeId, CUgraphEdgeData)],
        condition: CUgraphConditionalHandle,
        (kind, size): (CUgraphConditionalNodeType, u32),
        context: Arc<Context>,
    ) -> Result<(NodeId, Arc<Conditional>)> {
        let around = self.around(graph)?;
        let found = self.conditions.0.get(&condition);
        let usable = found.is_some_and(|found| {
            found.node.is_none() && found.context == context.id() && around.contains(&found.graph)
        });
        if !usable || !fits(kind, size) {
            return Err(CUresult::INVALID_VALUE);
        }
        let bodies = (0..size).map(|_| graph_handle(self.create())).collect();
        let node = Arc::new(Conditional {
            kind,
            condition,
            bodies,
        });
        let work = NodeWork::Conditional(Arc::clone(&node));
        let id = match self.add(graph, after, work, Some(context)) {
            Ok(id) => id,
            Err(error) => {
                node.bodies().for_each(|body| self.drop_graph(body));
                return Err(error);
            }
        };
        for body in node.bodies() {
            self.graph_mut(body)?.owner = Some(id);
        }
        if let Some(found) = self.conditions.0.get_mut(&condition) {
            found.node = Some(id);
        }
        Ok((id, node))
    }

    /// The body that a launch runs, if any.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` for a loop that would never end.
    pub(super) fn chosen(&self, node: &Conditional) -> Result<Option<GraphId>> {
        let found = self.conditions.0.get(&node.condition);
        let value = found.map_or(0, |condition| condition.value);
        let at = match (node.kind, value) {
            (CUgraphConditionalNodeType::WHILE, 0) => return Ok(None),
            (CUgraphConditionalNodeType::WHILE, _) => return Err(CUresult::NOT_SUPPORTED),
            (CUgraphConditionalNodeType::IF, value) => u32::from(value == 0),
            (_, value) => value,
        };
        Ok(node.bodies().nth(at as usize))
    }

    /// Whether a condition of `graph` or of a graph in it is used by no node.
    pub fn has_unused_condition(&self, graph: GraphId) -> bool {
        let unused = self
            .conditions
            .0
            .values()
            .filter(|found| found.node.is_none());
        unused.into_iter().any(|found| {
            let around = self.around(found.graph);
            around.is_ok_and(|around| around.contains(&graph))
        })
    }

    /// Checks what the bodies in `graph` hold. `context` is that of the bodies around it.
    ///
    /// # Errors
    /// `INVALID_VALUE` for work that no body may hold: other than kernels, sets, copies of memory
    /// that the driver knows, empty nodes, child graphs and conditional nodes; or work of another
    /// context.
    pub(super) fn check_bodies(&self, graph: &Graph, context: Option<u64>) -> Result {
        for (_, node) in graph.nodes() {
            let elsewhere = |context| node.context.as_ref().is_some_and(|own| own.id() != context);
            if context.is_some() && !may_be_inside(&node.work) || context.is_some_and(elsewhere) {
                return Err(CUresult::INVALID_VALUE);
            }
            match &node.work {
                NodeWork::Child(child) => self.check_bodies(self.graph(*child)?, context)?,
                NodeWork::Conditional(inner) => {
                    let found = self.conditions.0.get(&inner.condition);
                    let context = found.map(|condition| condition.context);
                    for body in inner.bodies() {
                        self.check_bodies(self.graph(body)?, context)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A graph and the graphs around it, the nearest first.
    pub(super) fn around(&self, graph: GraphId) -> Result<Vec<GraphId>> {
        let (mut around, mut next) = (Vec::new(), Some(graph));
        while let Some(id) = next {
            around.push(id);
            let owner = self.graph(id)?.owner;
            next = owner.and_then(|node| self.homes.get(&node).copied());
        }
        Ok(around)
    }
}

fn may_be_inside(work: &NodeWork) -> bool {
    match work {
        NodeWork::Op(op) => match &op.kind {
            Kind::Copy(copy) => Transfer::from_3d(&copy.0).is_ok_and(|copy| {
                let known = |place: &Place| matches!(place, Place::Address(_) | Place::Array(_));
                known(&copy.src.place) && known(&copy.dst.place)
            }),
            _ => work.kind() != CUgraphNodeType::HOST,
        },
        NodeWork::Child(_) | NodeWork::Empty | NodeWork::Conditional(_) => true,
        _ => false,
    }
}
