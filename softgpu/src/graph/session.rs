//! Capture sessions: their member streams, and the dependencies of each member's next node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use gpushare_cuda_abi::cuda::{CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureMode};

use super::store::{GraphId, NodeId, NodeWork, PLAIN, store};
use crate::error::Result;
use crate::exec::StreamRef;
use crate::exec::event::EventId;
use crate::exec::stream::{Stream, StreamId};

/// The dependencies of a member's next node.
pub(super) type Tail = Vec<(NodeId, CUgraphEdgeData)>;

/// A stream in a session.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) tail: Tail,
    pub(super) context: u64,
    /// The streams that it implicitly synchronises with.
    pub(super) domain: u64,
    pub(super) blocking: bool,
    /// The arrays that `cuStreamGetCaptureInfo` last returned pointers to.
    pub(super) told: (Vec<CUgraphNode>, Vec<CUgraphEdgeData>),
}

impl Member {
    /// Adds dependencies to the next node.
    pub(super) fn come_after(&mut self, tail: Tail) {
        for entry in tail {
            if !self.tail.iter().any(|(node, _)| *node == entry.0) {
                self.tail.push(entry);
            }
        }
    }
}

/// One capture.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) graph: GraphId,
    /// Whether the graph was created for this capture.
    pub(super) owned: bool,
    pub(super) origin: StreamId,
    pub(super) mode: CUstreamCaptureMode,
    pub(super) thread: ThreadId,
    pub(super) valid: bool,
    pub(super) members: HashMap<StreamId, Member>,
}

/// All captures of the process.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) sessions: HashMap<u64, Session>,
    /// The session of each member.
    pub(super) streams: HashMap<StreamId, u64>,
    /// Events last recorded in a session. The session may have ended.
    pub(super) events: HashMap<EventId, (u64, Tail)>,
    pub(super) last: u64,
}

/// The number of sessions and captured events. A process without any pays one load.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// The captures; `None` if there are none.
pub(super) fn active() -> Option<MutexGuard<'static, Captures>> {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        None
    } else {
        Some(captures())
    }
}

pub(super) fn captures() -> MutexGuard<'static, Captures> {
    static CAPTURES: LazyLock<Mutex<Captures>> = LazyLock::new(Mutex::default);
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Captures {
    pub(super) fn count(&self) {
        ACTIVE.store(self.sessions.len() + self.events.len(), Ordering::Release);
    }

    /// The session of `stream`.
    pub(super) fn of(&mut self, stream: StreamId) -> Option<(u64, &mut Session)> {
        let id = *self.streams.get(&stream)?;
        Some((id, self.sessions.get_mut(&id)?))
    }

    pub(super) fn invalidate(&mut self, session: u64) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.valid = false;
        }
    }

    pub(super) fn join(&mut self, session: u64, stream: &Stream, tail: Tail) {
        let member = Member {
            tail,
            context: stream.context().id(),
            domain: stream.domain(),
            blocking: stream.is_blocking(),
            told: (Vec::new(), Vec::new()),
        };
        if let Some(found) = self.sessions.get_mut(&session) {
            found.members.insert(stream.id(), member);
            self.streams.insert(stream.id(), session);
        }
    }

    /// Refuses the legacy default stream while a blocking stream of its context captures.
    pub(super) fn refuse_legacy(&mut self, stream: &Stream, invalidates: bool) -> Result {
        if !stream.is_legacy() {
            return Ok(());
        }
        let domain = stream.domain();
        let mut refused = false;
        for session in self.sessions.values_mut() {
            if session
                .members
                .values()
                .any(|member| member.blocking && member.domain == domain)
            {
                session.valid &= !invalidates;
                refused = true;
            }
        }
        if refused {
            Err(CUresult::STREAM_CAPTURE_IMPLICIT)
        } else {
            Ok(())
        }
    }

    /// Removes a session and its stream entries. Events keep the session's number.
    pub(super) fn remove(&mut self, id: u64) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.streams.retain(|_, of| *of != id);
        self.count();
        Some(session)
    }

    pub(super) fn drop_session(&mut self, id: u64) {
        if let Some(session) = self.remove(id).filter(|session| session.owned) {
            let _ = store().destroy(session.graph);
        }
    }
}

/// The nodes that come before the next node of the session's origin stream; `None` if the graph is
/// gone.
pub(super) fn nodes_before_end(session: &Session) -> Option<Vec<NodeId>> {
    let store = store();
    let graph = store.graph(session.graph).ok()?;
    let origin = session.members.get(&session.origin);
    let tail = origin.into_iter().flat_map(|member| &member.tail);
    let mut before: Vec<NodeId> = tail.map(|(node, _)| *node).collect();
    let mut at = 0;
    while let Some(node) = before.get(at).copied() {
        at += 1;
        for edge in graph.edges().iter().filter(|edge| edge.to == node) {
            if !before.contains(&edge.from) {
                before.push(edge.from);
            }
        }
    }
    Some(before)
}

/// A plain dependency on one node.
pub(super) fn after(node: NodeId) -> Tail {
    vec![(node, PLAIN)]
}

/// Adds a node for `stream` to its session's graph. An error invalidates the session.
pub(super) fn add_node(
    session: &mut Session,
    stream: StreamId,
    add: impl FnOnce(GraphId, &Tail) -> Result<NodeId>,
) -> Result<NodeId> {
    if !session.valid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    let graph = session.graph;
    let member = session.members.get_mut(&stream).ok_or(CUresult::UNKNOWN)?;
    match add(graph, &member.tail) {
        Ok(node) => {
            member.tail = after(node);
            Ok(node)
        }
        Err(error) => {
            session.valid = false;
            Err(error)
        }
    }
}

/// Adds a captured node with its work and the context it runs in.
pub(super) fn add_work(
    session: &mut Session,
    stream: &StreamRef,
    work: NodeWork,
) -> Result<NodeId> {
    let context = Some(Arc::clone(stream.context()));
    add_node(session, stream.id(), |graph, tail| {
        store().add(graph, tail, work, context)
    })
}
