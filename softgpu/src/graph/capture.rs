//! Stream capture: sessions, their member streams, and how a session begins and ends.
//!
//! A session begins on one stream and spreads over events: a stream that waits for an event
//! recorded in the session joins it. Work submitted to a member becomes a node after the member's
//! *tail*. An illegal call invalidates the session: its streams then refuse all work until the
//! capture is ended, and ending it fails too.

use std::collections::HashMap;
use std::thread;

use gpushare_cuda_abi::cuda::{CUresult, CUstreamCaptureMode};

use super::session::{Session, Tail, active, captures, nodes_before_end};
use super::store::{GraphId, NodeId, node_handle, store};
use crate::error::Result;
use crate::exec::StreamRef;

pub use super::rules::exchange_mode;

pub(crate) use super::captured::{record, record_event, record_graph, record_mem_ops, wait_event};
pub(crate) use super::green::{check_green, green_gone};
pub(crate) use super::rules::{
    check_drain, check_elapsed, check_event, check_number, check_submit, check_wait, event_gone,
    forbids, is_active, stream_gone,
};

/// Begins a capture on `stream`, into a new graph or into `target` after the given nodes of it.
///
/// # Errors
/// `INVALID_VALUE` for an unknown mode or nodes that are not in the graph,
/// `STREAM_CAPTURE_UNSUPPORTED` for the legacy default stream, `ILLEGAL_STATE` if the stream
/// captures already.
pub fn begin(
    stream: &StreamRef,
    mode: CUstreamCaptureMode,
    target: Option<(GraphId, Tail)>,
) -> Result {
    if mode > CUstreamCaptureMode::RELAXED {
        return Err(CUresult::INVALID_VALUE);
    }
    if stream.is_legacy() {
        return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut captures = captures();
    if captures.of(stream.id()).is_some() {
        return Err(CUresult::ILLEGAL_STATE);
    }
    let owned = target.is_none();
    let (graph, tail) = match target {
        None => (store().create(), Tail::new()),
        Some((graph, tail)) => {
            are_in(graph, &tail)?;
            (graph, tail)
        }
    };
    captures.last += 1;
    let id = captures.last;
    let (origin, thread) = (stream.id(), thread::current().id());
    captures.sessions.insert(
        id,
        Session {
            graph,
            owned,
            origin,
            mode,
            thread,
            valid: true,
            members: HashMap::new(),
        },
    );
    captures.join(id, stream, tail);
    captures.count();
    Ok(())
}

/// Whether all nodes of `tail` are in `graph`.
fn are_in(graph: GraphId, tail: &Tail) -> Result {
    let store = store();
    store.graph(graph)?;
    let inside = |node: NodeId| store.node(node).is_ok_and(|(home, _)| home == graph);
    if tail.iter().all(|(node, _)| inside(*node)) {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

/// Ends the capture that began on `stream` and returns its graph.
///
/// # Errors
/// `ILLEGAL_STATE` if the stream does not capture. `STREAM_CAPTURE_UNMATCHED` if the stream only
/// joined the capture: the capture goes on, invalidated. `STREAM_CAPTURE_WRONG_THREAD` in another
/// thread than the one that began the capture (unless it is relaxed): the capture goes on
/// unchanged. The other errors end the capture: `STREAM_CAPTURE_INVALIDATED`, and
/// `STREAM_CAPTURE_UNJOINED` if a joined stream was not joined back.
pub fn end(stream: &StreamRef) -> Result<GraphId> {
    let mut captures = captures();
    let (id, session) = captures.of(stream.id()).ok_or(CUresult::ILLEGAL_STATE)?;
    if session.origin != stream.id() {
        session.valid = false;
        return Err(CUresult::STREAM_CAPTURE_UNMATCHED);
    }
    if session.mode != CUstreamCaptureMode::RELAXED && session.thread != thread::current().id() {
        return Err(CUresult::STREAM_CAPTURE_WRONG_THREAD);
    }
    let verdict = if session.valid {
        joined(session)
    } else {
        Err(CUresult::STREAM_CAPTURE_INVALIDATED)
    };
    let graph = session.graph;
    match verdict {
        Ok(()) => drop(captures.remove(id)),
        Err(_) => captures.drop_session(id),
    }
    verdict.map(|()| graph)
}

/// Checks that all work of the members comes before the origin's tail.
fn joined(session: &Session) -> Result {
    let before = nodes_before_end(session).ok_or(CUresult::STREAM_CAPTURE_INVALIDATED)?;
    let all = session
        .members
        .values()
        .flat_map(|member| &member.tail)
        .all(|(node, _)| before.contains(node));
    if all {
        Ok(())
    } else {
        Err(CUresult::STREAM_CAPTURE_UNJOINED)
    }
}

/// The state of a stream's capture.
#[derive(Debug)]
pub struct Info {
    /// The capture's number.
    pub id: u64,
    /// Its graph.
    pub graph: GraphId,
    /// Whether it has been invalidated.
    pub valid: bool,
    /// Addresses of two arrays: the nodes that the stream's next node depends on, and the data of
    /// the edges. They are valid until the next query of the stream's capture.
    pub tail: (usize, usize),
    /// The length of the arrays.
    pub count: usize,
    /// Whether an edge has data.
    pub has_data: bool,
}

/// The capture that `stream` is in, if any.
///
/// # Errors
/// `STREAM_CAPTURE_IMPLICIT` for the legacy default stream while a blocking stream captures. The
/// capture stays valid.
pub fn info(stream: &StreamRef) -> Result<Option<Info>> {
    let Some(mut captures) = active() else {
        return Ok(None);
    };
    captures.refuse_legacy(stream, false)?;
    let Some((id, session)) = captures.of(stream.id()) else {
        return Ok(None);
    };
    let (graph, valid) = (session.graph, session.valid);
    let member = session
        .members
        .get_mut(&stream.id())
        .ok_or(CUresult::UNKNOWN)?;
    member.told = member
        .tail
        .iter()
        .map(|(node, data)| (node_handle(*node), *data))
        .unzip();
    let tail = (
        member.told.0.as_ptr().expose_provenance(),
        member.told.1.as_ptr().expose_provenance(),
    );
    let has_data = member
        .tail
        .iter()
        .any(|(_, data)| data.type_ != 0 || data.from_port != 0 || data.to_port != 0);
    Ok(Some(Info {
        id,
        graph,
        valid,
        tail,
        count: member.tail.len(),
        has_data,
    }))
}

/// Sets the dependencies of the next node of a capturing stream, or adds to them.
///
/// # Errors
/// `ILLEGAL_STATE` if the stream does not capture, `INVALID_VALUE` for nodes of another graph,
/// `STREAM_CAPTURE_INVALIDATED`.
pub fn update_tail(stream: &StreamRef, tail: Tail, replace: bool) -> Result {
    let mut captures = captures();
    let (_, session) = captures.of(stream.id()).ok_or(CUresult::ILLEGAL_STATE)?;
    if !session.valid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    are_in(session.graph, &tail)?;
    let member = session
        .members
        .get_mut(&stream.id())
        .ok_or(CUresult::UNKNOWN)?;
    if replace {
        member.tail.clear();
    }
    member.come_after(tail);
    Ok(())
}
