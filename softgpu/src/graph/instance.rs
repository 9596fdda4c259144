//! Executable graphs: a graph flattened into steps with their dependencies. It can be launched any
//! number of times.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpushare_cuda_abi::cuda::{CUgraphExec, CUgraphInstantiate_flags, CUresult};

use super::allocation::Allocation;
use super::capture;
use super::objects::Held;
use super::store::{Graph, GraphId, Node, NodeId, NodeWork, PLAIN, Store, store};
use crate::context::Context;
use crate::error::Result;
use crate::exec::memop::{self, MemOp};
use crate::exec::{self, BatchItem, OpId, StreamRef, Work, shared};
use crate::handle::Handles;

static EXECS: Handles<Exec> = Handles::new();

/// One operation of an executable graph.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The node it was made from.
    pub(super) origin: NodeId,
    pub(super) work: NodeWork,
    pub(super) context: Option<Arc<Context>>,
    /// The steps it depends on, by index; empty for a step without predecessors.
    pub(super) after: Vec<usize>,
    pub(super) enabled: bool,
}

/// An executable graph.
#[derive(Debug)]
pub struct Exec {
    handle: usize,
    flags: u64,
    steps: Mutex<Steps>,
    /// Prevents a second executable graph of a graph with memory nodes.
    pub(super) token: Arc<()>,
}

#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) list: Vec<Step>,
    /// References to user objects.
    pub(super) objects: Held,
    /// The last operation of the previous launch. Launches of one executable graph never overlap.
    last: OpId,
}

/// Flattens `graph`, whose roots depend on the steps `entry`; returns its last steps.
fn flatten(
    store: &Store,
    graph: GraphId,
    entry: &[usize],
    steps: &mut Vec<Step>,
) -> Result<Vec<usize>> {
    let home = store.graph(graph)?;
    let order = home.order()?;
    let mut exits: HashMap<NodeId, Vec<usize>> = HashMap::new();
    let nodes: HashMap<_, _> = home.nodes().collect();
    for id in &order {
        let before: Vec<NodeId> = home
            .edges()
            .iter()
            .filter(|edge| edge.to == *id)
            .map(|edge| edge.from)
            .collect();
        let mut after: Vec<usize> = if before.is_empty() {
            entry.to_vec()
        } else {
            before.iter().flat_map(|from| exits[from].clone()).collect()
        };
        after.sort_unstable();
        after.dedup();
        let node = nodes[id];
        let ends = if let NodeWork::Child(child) = node.work {
            flatten(store, child, &after, steps)?
        } else if let NodeWork::MemOps(ops) = &node.work {
            chain(*id, node, ops, after, steps)
        } else {
            let (work, context) = (node.work.clone(), node.context.clone());
            steps.push(Step {
                origin: *id,
                work,
                context,
                after,
                enabled: true,
            });
            let own = vec![steps.len() - 1];
            match &node.work {
                NodeWork::Conditional(conditional) => match store.chosen(conditional)? {
                    Some(body) => flatten(store, body, &own, steps)?,
                    None => own,
                },
                _ => own,
            }
        };
        exits.insert(*id, ends);
    }
    if order.is_empty() {
        return Ok(entry.to_vec());
    }
    let last = order
        .iter()
        .filter(|id| !home.edges().iter().any(|edge| edge.from == **id));
    Ok(last.flat_map(|id| exits[id].clone()).collect())
}

/// Adds the steps of a batch of memory operations, one after the other. Returns the last step.
fn chain(
    origin: NodeId,
    node: &Node,
    ops: &[MemOp],
    mut after: Vec<usize>,
    steps: &mut Vec<Step>,
) -> Vec<usize> {
    for op in ops {
        let work = NodeWork::MemOps([*op].into());
        steps.push(Step {
            origin,
            work,
            context: node.context.clone(),
            after,
            enabled: true,
        });
        after = vec![steps.len() - 1];
    }
    after
}

/// The steps of a graph in its current state.
///
/// # Errors
/// `INVALID_VALUE` if there is no such graph, or its edges form a cycle.
pub(super) fn steps_of(graph: GraphId) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    flatten(&store(), graph, &[], &mut steps)?;
    Ok(steps)
}

/// Instantiates a graph.
///
/// # Errors
/// `INVALID_VALUE` for unknown flags, automatic frees in a graph for the device, a cycle, a second
/// executable graph of a graph with memory nodes, a condition without a node, or work that the body
/// of a conditional node may not hold; `NOT_SUPPORTED` for launching from the device, or a loop
/// that never ends.
pub fn instantiate(graph: GraphId, flags: u64) -> Result<CUgraphExec> {
    let automatic = u64::from(CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH.0);
    let device = u64::from(CUgraphInstantiate_flags::DEVICE_LAUNCH.0);
    let others = CUgraphInstantiate_flags::UPLOAD.0 | CUgraphInstantiate_flags::USE_NODE_PRIORITY.0;
    let unknown = flags & !(automatic | device | u64::from(others)) != 0;
    if unknown || flags & automatic != 0 && flags & device != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    if flags & device != 0 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    {
        let store = store();
        store.check_bodies(store.graph(graph)?, None)?;
        if store.has_unused_condition(graph) {
            return Err(CUresult::INVALID_VALUE);
        }
    }
    let list = steps_of(graph)?;
    let token = Arc::new(());
    let objects = {
        let mut store = store();
        let once = has_memory(&store, store.graph(graph)?);
        let home = store.graph_mut(graph)?;
        if once {
            if home.instance.strong_count() > 0 {
                return Err(CUresult::INVALID_VALUE);
            }
            home.instance = Arc::downgrade(&token);
        }
        Held::of(&store, graph)?
    };
    let handle = EXECS.fresh();
    let steps = Mutex::new(Steps {
        list,
        objects,
        last: 0,
    });
    EXECS.insert_at(
        handle,
        Arc::new(Exec {
            handle,
            flags,
            steps,
            token,
        }),
    );
    Ok(CUgraphExec(std::ptr::without_provenance_mut(handle)))
}

/// The executable graph of a handle.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no executable graph.
pub fn lookup(exec: CUgraphExec) -> Result<Arc<Exec>> {
    EXECS.get(exec.0.addr()).ok_or(CUresult::INVALID_VALUE)
}

/// Destroys an executable graph. Launched work still runs, memory that it allocated stays, and the
/// user objects of a launch live until it ends.
///
/// # Errors
/// `INVALID_VALUE` if the handle names no executable graph.
pub fn destroy(exec: CUgraphExec) -> Result {
    EXECS
        .remove(exec.0.addr())
        .map(drop)
        .ok_or(CUresult::INVALID_VALUE)
}

impl Steps {
    fn allocations(&self) -> Vec<Arc<Allocation>> {
        let alloc = |step: &Step| {
            if let NodeWork::Alloc(memory) = &step.work {
                Some(Arc::clone(memory))
            } else {
                None
            }
        };
        self.list.iter().filter_map(alloc).collect()
    }

    fn freed(&self) -> Vec<Arc<Allocation>> {
        let free = |step: &Step| {
            if let NodeWork::Free(memory) = &step.work {
                Some(Arc::clone(memory))
            } else {
                None
            }
        };
        self.list.iter().filter_map(free).collect()
    }
}

impl Exec {
    /// Its number.
    pub fn id(&self) -> usize {
        self.handle
    }

    /// The flags it was instantiated with.
    pub fn flags(&self) -> u64 {
        self.flags
    }

    pub(super) fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory for one launch, all of it or none. Returns the allocations that the launch
    /// must free first (automatic free).
    fn take_memory(&self, steps: &Steps) -> Result<Vec<Arc<Allocation>>> {
        let (allocations, freed) = (steps.allocations(), steps.freed());
        let own =
            |memory: &Arc<Allocation>| allocations.iter().any(|other| Arc::ptr_eq(memory, other));
        if freed
            .iter()
            .any(|memory| !own(memory) && !memory.is_outstanding())
        {
            return Err(CUresult::INVALID_VALUE);
        }
        let automatic =
            self.flags & u64::from(CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH.0) != 0;
        if !automatic && allocations.iter().any(|memory| memory.is_outstanding()) {
            return Err(CUresult::INVALID_VALUE);
        }
        let unfreed: Vec<_> = allocations
            .iter()
            .filter(|memory| memory.submit_free())
            .cloned()
            .collect();
        for (at, memory) in allocations.iter().enumerate() {
            if let Err(error) = memory.take() {
                for taken in allocations[..at]
                    .iter()
                    .filter(|memory| memory.submit_free())
                {
                    taken.free();
                }
                unfreed.iter().for_each(|memory| memory.free());
                return Err(error);
            }
        }
        for memory in freed {
            memory.submit_free();
        }
        Ok(unfreed)
    }

    /// Launches into `stream`, or records the launch if the stream captures.
    ///
    /// # Errors
    /// `INVALID_VALUE` if memory of an earlier launch was not freed (without automatic free), or if
    /// the graph frees memory that is not allocated; `OUT_OF_MEMORY`; the errors of capture, and of
    /// a lost or destroyed context of a node.
    pub fn launch(&self, stream: &StreamRef) -> Result {
        if capture::record_graph(stream, || self.as_graph())? {
            return Ok(());
        }
        exec::host_takes(stream.context().device().spec().launch);
        exec::make_room(stream);
        let mut steps = self.steps();
        // Work of a context that is gone would have an engine's seat that nobody gives back.
        let mut contexts = steps.list.iter().filter_map(|step| step.context.as_ref());
        contexts.try_for_each(|context| context.check())?;
        let mut items: Vec<BatchItem> = Vec::new();
        for memory in self.take_memory(&steps)? {
            items.push(BatchItem::instant(stream.context(), move || {
                memory.free();
                Ok(())
            }));
        }
        let first = items.len();
        items.extend(
            steps
                .list
                .iter()
                .map(|step| step.item(stream.context(), first)),
        );
        if !steps.objects.is_empty() {
            let held = steps.objects.clone();
            let mut end = BatchItem::instant(stream.context(), move || {
                let _until_here = &held;
                Ok(())
            });
            end.after = (0..items.len()).collect();
            items.push(end);
        }
        steps.last = exec::submit_batch(stream, steps.last, items)?;
        Ok(())
    }

    /// A new graph with the current steps. A captured launch becomes this child graph, which has
    /// no conditional nodes.
    fn as_graph(&self) -> Result<GraphId> {
        let steps = self.steps();
        let conditional = |step: &Step| matches!(step.work, NodeWork::Conditional(_));
        if steps.list.iter().any(conditional) {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let mut store = store();
        let graph = store.create();
        let mut names = Vec::with_capacity(steps.list.len());
        for step in &steps.list {
            let after: Vec<_> = step.after.iter().map(|&at| (names[at], PLAIN)).collect();
            names.push(store.add(graph, &after, step.work.clone(), step.context.clone())?);
        }
        store.graph_mut(graph)?.objects = steps.objects.together();
        Ok(graph)
    }
}

impl Step {
    /// The step as an item of a batch, after the `first` items that the launch itself adds.
    fn item(&self, home: &Arc<Context>, first: usize) -> BatchItem {
        let context = self.context.as_ref().unwrap_or(home);
        let after = self
            .after
            .iter()
            .map(|at| at + first)
            .chain(0..first)
            .collect();
        let mut item = BatchItem {
            context: Arc::clone(context),
            after,
            also: 0,
            work: Work::Instant,
            effect: None,
            records: None,
        };
        if !self.enabled {
            return item;
        }
        match &self.work {
            NodeWork::Op(op) => {
                item.work = op.work(context.device().spec());
                item.effect.clone_from(&op.effect);
            }
            NodeWork::EventWait(event) => match event.shared() {
                Some(shared) => {
                    item.work = shared::passed(shared).map_or(Work::Instant, Work::Value);
                }
                None => item.also = event.recorded(),
            },
            NodeWork::EventRecord(event) => {
                item.records = Some(event.id());
                // If it cannot be told, the other processes see no recording.
                item.effect = event
                    .shared()
                    .and_then(|shared| shared::publish(shared).ok());
            }
            NodeWork::Free(memory) => {
                let memory = Arc::clone(memory);
                item.effect = Some(Arc::new(move || {
                    memory.free();
                    Ok(())
                }));
            }
            NodeWork::MemOps(ops) => {
                if let Some(op) = ops.first() {
                    (item.work, item.effect) = memop::lower(context, *op);
                }
            }
            NodeWork::Alloc(_)
            | NodeWork::Empty
            | NodeWork::Child(_)
            | NodeWork::Conditional(_) => {}
        }
        item
    }
}

/// Whether a graph or one of its child graphs has memory nodes.
pub fn has_memory(store: &Store, graph: &Graph) -> bool {
    graph.has_memory()
        || graph.nodes().any(|(_, node)| match node.work {
            NodeWork::Child(child) => store
                .graph(child)
                .is_ok_and(|child| has_memory(store, child)),
            _ => false,
        })
}
