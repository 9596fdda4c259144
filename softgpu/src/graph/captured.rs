//! Recording: work submitted to a capturing stream becomes graph nodes.

use std::sync::Arc;

use gpushare_cuda_abi::cuda::{CUmemPoolProps, CUresult};

use super::allocation::{self, Allocation};
use super::session::{active, add_node, add_work};
use super::store::{GraphId, NodeWork, store};
use crate::context::Context;
use crate::error::Result;
use crate::exec::event::Event;
use crate::exec::memop::MemOp;
use crate::exec::{HostCall, Kind, Op, StreamRef};
use crate::world::process;

/// Records `op` if `stream` captures; returns false if it does not.
pub(crate) fn record(stream: &StreamRef, op: &Op) -> Result<bool> {
    let Some(mut captures) = active() else {
        return Ok(false);
    };
    captures.refuse_legacy(stream, true)?;
    let Some((_, session)) = captures.of(stream.id()) else {
        return Ok(false);
    };
    if matches!(op.kind, Kind::Plain | Kind::Host(HostCall::Callback { .. })) {
        let was_valid = std::mem::replace(&mut session.valid, false);
        return Err(if was_valid {
            CUresult::STREAM_CAPTURE_UNSUPPORTED
        } else {
            CUresult::STREAM_CAPTURE_INVALIDATED
        });
    }
    add_work(session, stream, NodeWork::Op(Arc::new(op.clone()))).map(|_| true)
}

/// Records memory operations as one node if `stream` captures; returns false if it does not.
pub(crate) fn record_mem_ops(stream: &StreamRef, ops: &[MemOp]) -> Result<bool> {
    let Some(mut captures) = active() else {
        return Ok(false);
    };
    captures.refuse_legacy(stream, true)?;
    let Some((_, session)) = captures.of(stream.id()) else {
        return Ok(false);
    };
    add_work(session, stream, NodeWork::MemOps(ops.into())).map(|_| true)
}

/// Records the launch of a graph as a child graph node if `stream` captures; returns false if it
/// does not.
pub(crate) fn record_graph(
    stream: &StreamRef,
    graph: impl FnOnce() -> Result<GraphId>,
) -> Result<bool> {
    let Some(mut captures) = active() else {
        return Ok(false);
    };
    captures.refuse_legacy(stream, true)?;
    let Some((_, session)) = captures.of(stream.id()) else {
        return Ok(false);
    };
    let added = add_node(session, stream.id(), |home, tail| {
        let child = graph()?;
        let mut store = store();
        let added = store.add_child(home, tail, child);
        store.destroy(child)?;
        added
    });
    added.map(|_| true)
}

/// Records an event in a capture; returns true then. If `stream` does not capture, forgets an
/// earlier recording of the event in a capture and returns false.
pub(crate) fn record_event(stream: &StreamRef, event: &Arc<Event>, external: bool) -> Result<bool> {
    let Some(mut captures) = active() else {
        return Ok(false);
    };
    captures.refuse_legacy(stream, true)?;
    let Some((id, session)) = captures.of(stream.id()) else {
        captures.events.remove(&event.id());
        captures.count();
        return Ok(false);
    };
    if external {
        return add_work(session, stream, NodeWork::EventRecord(Arc::clone(event))).map(|_| true);
    }
    if !session.valid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    let tail = session
        .members
        .get(&stream.id())
        .map(|member| member.tail.clone())
        .unwrap_or_default();
    captures.events.insert(event.id(), (id, tail));
    captures.count();
    Ok(true)
}

/// Waits for an event if a capture is involved; returns true if the wait is handled.
///
/// A stream that does not capture joins the event's session. Two sessions do not merge, and a
/// session never waits for work outside it.
pub(crate) fn wait_event(stream: &StreamRef, event: &Arc<Event>, external: bool) -> Result<bool> {
    let Some(mut captures) = active() else {
        return Ok(false);
    };
    captures.refuse_legacy(stream, true)?;
    let recorded = captures.events.get(&event.id()).cloned();
    let recorded = recorded.map(|(id, tail)| {
        (
            captures.sessions.get(&id).map(|session| session.valid),
            id,
            tail,
        )
    });
    let mine = captures
        .of(stream.id())
        .map(|(id, session)| (id, session.valid));
    match (mine, recorded) {
        (None, None) => Ok(false),
        (Some((_, false)), _) | (None, Some((Some(false), ..))) => {
            Err(CUresult::STREAM_CAPTURE_INVALIDATED)
        }
        (Some((id, true)), None) => {
            let Some(session) = captures.sessions.get_mut(&id) else {
                return Ok(false);
            };
            if external {
                return add_work(session, stream, NodeWork::EventWait(Arc::clone(event)))
                    .map(|_| true);
            }
            session.valid = false;
            Err(CUresult::STREAM_CAPTURE_ISOLATION)
        }
        (mine, Some((None, ..))) => {
            // The event's session is over: there is nothing to wait for.
            mine.into_iter().for_each(|(id, _)| captures.invalidate(id));
            Err(CUresult::CAPTURED_EVENT)
        }
        (None, Some((Some(true), id, _))) if stream.is_legacy() => {
            captures.invalidate(id);
            Err(CUresult::STREAM_CAPTURE_IMPLICIT)
        }
        (None, Some((Some(true), id, tail))) => {
            captures.join(id, stream, tail);
            Ok(true)
        }
        (Some((own, true)), Some((Some(_), id, _))) if own != id => {
            captures.invalidate(own);
            captures.invalidate(id);
            Err(CUresult::STREAM_CAPTURE_MERGE)
        }
        (Some((_, true)), Some((Some(_), _, tail))) => {
            let member = captures
                .of(stream.id())
                .and_then(|(_, session)| session.members.get_mut(&stream.id()));
            let member = member.ok_or(CUresult::UNKNOWN)?;
            member.come_after(tail);
            Ok(true)
        }
    }
}

/// Records an allocation in a capturing stream as a node. Every launch uses the returned address.
///
/// # Errors
/// As [`Allocation::new`]; `ILLEGAL_STATE` if the stream does not capture,
/// `STREAM_CAPTURE_INVALIDATED`.
pub fn capture_alloc(
    _: &Arc<Context>,
    stream: &StreamRef,
    properties: &CUmemPoolProps,
    bytes: u64,
) -> Result<u64> {
    let device = Arc::clone(process()?.device(properties.location.id)?);
    let mut captures = active().ok_or(CUresult::ILLEGAL_STATE)?;
    let (_, session) = captures.of(stream.id()).ok_or(CUresult::ILLEGAL_STATE)?;
    let memory = Allocation::new(&device, session.graph, *properties, bytes)?;
    let address = memory.address();
    add_work(session, stream, NodeWork::Alloc(memory))?;
    Ok(address)
}

/// Records a free in a capturing stream as a node.
///
/// # Errors
/// `INVALID_VALUE` if the address is not an allocation of a graph (memory allocated outside graphs
/// cannot be freed in a graph), or is freed already in this graph; `ILLEGAL_STATE` if the stream
/// does not capture, `STREAM_CAPTURE_INVALIDATED`.
pub fn capture_free(_: &Arc<Context>, stream: &StreamRef, address: u64) -> Result {
    let mut captures = active().ok_or(CUresult::ILLEGAL_STATE)?;
    let (_, session) = captures.of(stream.id()).ok_or(CUresult::ILLEGAL_STATE)?;
    let memory = allocation::at(address)?;
    let graph = session.graph;
    if is_freed_in(graph, address)? {
        return Err(CUresult::INVALID_VALUE);
    }
    add_work(session, stream, NodeWork::Free(memory)).map(drop)
}

/// Whether a graph has a node that frees `address`.
///
/// # Errors
/// `INVALID_VALUE` if `graph` names no graph.
pub fn is_freed_in(graph: GraphId, address: u64) -> Result<bool> {
    let store = store();
    let freed = store.graph(graph)?.nodes().any(
        |(_, node)| matches!(&node.work, NodeWork::Free(memory) if memory.address() == address),
    );
    Ok(freed)
}
