//! Graphs: nodes, edges, child graphs. One lock guards all graphs of the process; no thread waits
//! for work while it holds that lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUgraph, CUgraphEdgeData, CUgraphNode, CUresult};

use super::conditional::Conditions;
pub use super::node::{Edge, Node, NodeWork, PLAIN};
use super::objects::GraphReferences;
use crate::context::Context;
use crate::error::Result;
use crate::handle;

/// A graph's number. It equals the graph's handle value.
pub type GraphId = usize;
/// A node's number. It equals the node's handle value.
pub type NodeId = usize;

/// A graph.
#[derive(Debug, Default)]
pub struct Graph {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    edges: Vec<Edge>,
    /// The child or conditional node that owns this graph, if any.
    pub(super) owner: Option<NodeId>,
    /// The graph this graph was cloned from, if any.
    original: Option<GraphId>,
    /// Alive while an executable graph of this graph exists. A graph with memory nodes may have
    /// only one.
    pub(super) instance: std::sync::Weak<()>,
    /// References to user objects, released with the graph.
    pub(super) objects: GraphReferences,
}

/// All graphs of this process.
#[derive(Debug, Default)]
pub struct Store {
    graphs: HashMap<GraphId, Graph>,
    /// The graph of each node.
    pub(super) homes: HashMap<NodeId, GraphId>,
    pub(super) conditions: Conditions,
}

static STORE: LazyLock<Mutex<Store>> = LazyLock::new(Mutex::default);

/// Locks the store of all graphs.
pub fn store() -> MutexGuard<'static, Store> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of a graph.
pub fn graph_handle(graph: GraphId) -> CUgraph {
    CUgraph(std::ptr::without_provenance_mut(graph))
}

/// The handle of a node.
pub fn node_handle(node: NodeId) -> CUgraphNode {
    CUgraphNode(std::ptr::without_provenance_mut(node))
}

impl Graph {
    /// Its nodes by number, oldest first.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// Its edges.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Nodes without a predecessor.
    pub fn roots(&self) -> Vec<NodeId> {
        self.nodes
            .keys()
            .copied()
            .filter(|id| !self.edges.iter().any(|edge| edge.to == *id))
            .collect()
    }

    /// Whether it has nodes that allocate or free memory.
    pub fn has_memory(&self) -> bool {
        self.nodes.values().any(|node| node.work.is_memory())
    }

    /// Whether it has conditional nodes. Such a graph is not cloned and is no child graph.
    fn has_conditional(&self) -> bool {
        let mut works = self.nodes.values().map(|node| &node.work);
        works.any(|work| matches!(work, NodeWork::Conditional(_)))
    }

    /// The nodes in topological order; among independent nodes the older comes first.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the edges form a cycle.
    pub fn order(&self) -> Result<Vec<NodeId>> {
        let mut open: BTreeMap<NodeId, usize> = self.nodes.keys().map(|id| (*id, 0)).collect();
        for edge in &self.edges {
            *open.entry(edge.to).or_default() += 1;
        }
        let mut order = Vec::with_capacity(open.len());
        while let Some(next) = open
            .iter()
            .find(|(_, count)| **count == 0)
            .map(|(id, _)| *id)
        {
            open.remove(&next);
            for edge in self.edges.iter().filter(|edge| edge.from == next) {
                if let Some(count) = open.get_mut(&edge.to) {
                    *count -= 1;
                }
            }
            order.push(next);
        }
        if open.is_empty() {
            Ok(order)
        } else {
            Err(CUresult::INVALID_VALUE)
        }
    }
}

impl Store {
    /// Creates an empty graph.
    pub fn create(&mut self) -> GraphId {
        let id = handle::fresh();
        self.graphs.insert(id, Graph::default());
        id
    }

    /// The graph with this number.
    ///
    /// # Errors
    /// `INVALID_VALUE` if there is no such graph.
    pub fn graph(&self, graph: GraphId) -> Result<&Graph> {
        self.graphs.get(&graph).ok_or(CUresult::INVALID_VALUE)
    }

    pub(super) fn graph_mut(&mut self, graph: GraphId) -> Result<&mut Graph> {
        self.graphs.get_mut(&graph).ok_or(CUresult::INVALID_VALUE)
    }

    /// The node with this number, and the number of its graph.
    ///
    /// # Errors
    /// `INVALID_VALUE` if there is no such node.
    pub fn node(&self, node: NodeId) -> Result<(GraphId, &Node)> {
        let home = *self.homes.get(&node).ok_or(CUresult::INVALID_VALUE)?;
        Ok((
            home,
            self.graph(home)?
                .nodes
                .get(&node)
                .ok_or(CUresult::INVALID_VALUE)?,
        ))
    }

    /// Adds a node that depends on the nodes `after`.
    ///
    /// # Errors
    /// `INVALID_VALUE` if a predecessor is not in the graph or is named twice.
    pub fn add(
        &mut self,
        graph: GraphId,
        after: &[(NodeId, CUgraphEdgeData)],
        work: NodeWork,
        context: Option<Arc<Context>>,
    ) -> Result<NodeId> {
        let id = handle::fresh();
        let home = self.graph_mut(graph)?;
        for (at, (from, _)) in after.iter().enumerate() {
            if !home.nodes.contains_key(from) || after[..at].iter().any(|(other, _)| other == from)
            {
                return Err(CUresult::INVALID_VALUE);
            }
        }
        home.nodes.insert(id, Node::new(work, context));
        home.edges.extend(
            after
                .iter()
                .map(|&(from, data)| Edge { from, to: id, data }),
        );
        self.homes.insert(id, graph);
        Ok(id)
    }

    /// Adds a node that takes ownership of `child`. A child graph with memory nodes can be added
    /// only this way.
    ///
    /// # Errors
    /// As [`add`](Self::add); `INVALID_VALUE` if another node owns the child, or the child is
    /// `graph` itself or contains it; `NOT_SUPPORTED` if the child has conditional nodes.
    pub fn move_child(
        &mut self,
        graph: GraphId,
        after: &[(NodeId, CUgraphEdgeData)],
        child: GraphId,
    ) -> Result<NodeId> {
        if self.around(graph)?.contains(&child) || self.graph(child)?.owner.is_some() {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.graph(child)?.has_conditional() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let node = self.add(graph, after, NodeWork::Child(child), None)?;
        self.graph_mut(child)?.owner = Some(node);
        Ok(node)
    }

    /// Adds a node that owns a copy of `child`.
    ///
    /// # Errors
    /// As [`add`](Self::add); `NOT_SUPPORTED` if the child has memory or conditional nodes.
    pub fn add_child(
        &mut self,
        graph: GraphId,
        after: &[(NodeId, CUgraphEdgeData)],
        child: GraphId,
    ) -> Result<NodeId> {
        let copy = self.clone_graph(child)?;
        let added = self.add(graph, after, NodeWork::Child(copy), None);
        match added {
            Ok(node) => self.graph_mut(copy)?.owner = Some(node),
            Err(_) => self.drop_graph(copy),
        }
        added
    }

    /// Replaces a node's work by work of the same type.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the type differs, `NOT_SUPPORTED` for memory nodes.
    pub fn replace(
        &mut self,
        node: NodeId,
        work: NodeWork,
        context: Option<Arc<Context>>,
    ) -> Result {
        let (home, old) = self.node(node)?;
        if old.work.kind() != work.kind() {
            return Err(CUresult::INVALID_VALUE);
        }
        if old.work.is_memory() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        if let Some(node) = self.graph_mut(home)?.nodes.get_mut(&node) {
            node.work = work;
            node.context = context;
        }
        Ok(())
    }

    /// Adds an edge between nodes of `graph`.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the edge exists, leads from a node to itself, or names a node that is not
    /// in the graph.
    pub fn link(&mut self, graph: GraphId, edge: Edge) -> Result {
        let home = self.graph_mut(graph)?;
        let inside = home.nodes.contains_key(&edge.from)
            && home.nodes.contains_key(&edge.to)
            && edge.from != edge.to;
        if !inside
            || home
                .edges
                .iter()
                .any(|old| (old.from, old.to) == (edge.from, edge.to))
        {
            return Err(CUresult::INVALID_VALUE);
        }
        home.edges.push(edge);
        Ok(())
    }

    /// Removes an edge.
    ///
    /// # Errors
    /// `INVALID_VALUE` if there is no such edge, `NOT_SUPPORTED` if the graph has memory nodes.
    pub fn unlink(&mut self, graph: GraphId, from: NodeId, to: NodeId) -> Result {
        let home = self.graph_mut(graph)?;
        if home.has_memory() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let at = home
            .edges
            .iter()
            .position(|edge| (edge.from, edge.to) == (from, to))
            .ok_or(CUresult::INVALID_VALUE)?;
        home.edges.remove(at);
        Ok(())
    }

    /// Removes a node and its edges.
    ///
    /// # Errors
    /// `INVALID_VALUE` if there is no such node, `NOT_SUPPORTED` for memory nodes.
    pub fn remove(&mut self, node: NodeId) -> Result {
        let (home, old) = self.node(node)?;
        if old.work.is_memory() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let graph = self.graph_mut(home)?;
        graph
            .edges
            .retain(|edge| edge.from != node && edge.to != node);
        let gone = graph.nodes.remove(&node);
        self.homes.remove(&node);
        self.conditions.node_gone(node);
        if let Some(node) = gone {
            self.drop_inner(&node.work);
        }
        Ok(())
    }

    /// Destroys a graph; its executable graphs stay.
    ///
    /// # Errors
    /// `INVALID_VALUE` if there is no such graph, or a node owns it.
    pub fn destroy(&mut self, graph: GraphId) -> Result {
        if self.graph(graph)?.owner.is_some() {
            return Err(CUresult::INVALID_VALUE);
        }
        self.drop_graph(graph);
        Ok(())
    }

    pub(super) fn drop_graph(&mut self, graph: GraphId) {
        let Some(gone) = self.graphs.remove(&graph) else {
            return;
        };
        self.conditions.graph_gone(graph);
        for (id, node) in gone.nodes {
            self.homes.remove(&id);
            self.conditions.node_gone(id);
            self.drop_inner(&node.work);
        }
    }

    /// Drops the graphs that a node owns.
    fn drop_inner(&mut self, work: &NodeWork) {
        match work {
            NodeWork::Child(child) => self.drop_graph(*child),
            NodeWork::Conditional(node) => node.bodies().for_each(|body| self.drop_graph(body)),
            _ => {}
        }
    }

    /// Whether a graph can be cloned: neither it nor a child graph has memory or conditional nodes.
    fn is_cloned(&self, graph: GraphId) -> Result<bool> {
        let from = self.graph(graph)?;
        let mut is = !from.has_memory() && !from.has_conditional();
        for (_, node) in from.nodes() {
            if let NodeWork::Child(child) = &node.work {
                is &= self.is_cloned(*child)?;
            }
        }
        Ok(is)
    }

    /// Clones a graph with its child graphs and its references to user objects.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` if it has memory or conditional nodes.
    pub fn clone_graph(&mut self, graph: GraphId) -> Result<GraphId> {
        if !self.is_cloned(graph)? {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let from = self.graph(graph)?;
        let (nodes, edges) = (from.nodes.clone(), from.edges.clone());
        let objects = from.objects.clone();
        let copy = self.create();
        let mut names = HashMap::new();
        for (id, mut node) in nodes {
            let new = handle::fresh();
            if let NodeWork::Child(child) = &mut node.work {
                *child = self.clone_graph(*child)?;
                self.graph_mut(*child)?.owner = Some(new);
            }
            node.original = Some(id);
            names.insert(id, new);
            self.homes.insert(new, copy);
            self.graph_mut(copy)?.nodes.insert(new, node);
        }
        let made = self.graph_mut(copy)?;
        made.original = Some(graph);
        made.objects = objects;
        made.edges = edges
            .into_iter()
            .map(|edge| Edge {
                from: names[&edge.from],
                to: names[&edge.to],
                data: edge.data,
            })
            .collect();
        Ok(copy)
    }

    /// The node of `clone` that was cloned from `original`.
    ///
    /// # Errors
    /// `INVALID_VALUE` if `clone` is no clone of that node's graph.
    pub fn find_in_clone(&self, original: NodeId, clone: GraphId) -> Result<NodeId> {
        let (home, _) = self.node(original)?;
        let graph = self.graph(clone)?;
        if graph.original != Some(home) {
            return Err(CUresult::INVALID_VALUE);
        }
        let found = graph
            .nodes
            .iter()
            .find(|(_, node)| node.original == Some(original));
        found.map(|(id, _)| *id).ok_or(CUresult::INVALID_VALUE)
    }
}
