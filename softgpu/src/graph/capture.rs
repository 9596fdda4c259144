//! Stream capture: sessions, who belongs to them, what is forbidden meanwhile.
//!
//! A session begins on one stream and spreads over events: a stream that waits for an event recorded in the session joins it. What
//! is submitted to a member becomes a node after the member's *tail*. Anything illegal invalidates the session: its streams then
//! refuse everything until it is ended, which fails too.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use gpushare_cuda_abi::cuda::{CUgraphEdgeData, CUgraphNode, CUresult, CUstreamCaptureMode};

use super::store::{GraphId, NodeId, NodeWork, PLAIN, node_handle, store};
use crate::context::Context;
use crate::error::Result;
use crate::exec::StreamRef;
use crate::exec::event::{Event, EventId};
use crate::exec::stream::{Stream, StreamId};

pub(crate) use super::captured::{record, record_event, record_graph, wait_event};

/// What a member's next node comes after.
pub(super) type Tail = Vec<(NodeId, CUgraphEdgeData)>;

/// A stream in a session.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) tail: Tail,
    context: u64,
    blocking: bool,
    /// What `cuStreamGetCaptureInfo` last pointed to.
    told: (Vec<CUgraphNode>, Vec<CUgraphEdgeData>),
}

/// One capture.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) graph: GraphId,
    /// The graph was made for this capture.
    owned: bool,
    origin: StreamId,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    pub(super) valid: bool,
    pub(super) members: HashMap<StreamId, Member>,
}

/// All captures of the process.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) sessions: HashMap<u64, Session>,
    /// The session of each member.
    pub(super) streams: HashMap<StreamId, u64>,
    /// Events last recorded in a session, which may have ended.
    pub(super) events: HashMap<EventId, (u64, Tail)>,
    last: u64,
}

/// Sessions and captured events, so that a process without any pays one load.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::GLOBAL) };
}

/// The captures, `None` if there are none.
pub(super) fn active() -> Option<MutexGuard<'static, Captures>> {
    if ACTIVE.load(Ordering::Acquire) == 0 {
        None
    } else {
        Some(captures())
    }
}

fn captures() -> MutexGuard<'static, Captures> {
    static CAPTURES: LazyLock<Mutex<Captures>> = LazyLock::new(Mutex::default);
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Captures {
    pub(super) fn count(&self) {
        ACTIVE.store(self.sessions.len() + self.events.len(), Ordering::Release);
    }

    /// The session that `stream` is in.
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
        let context = stream.context().id();
        let mut refused = false;
        for session in self.sessions.values_mut() {
            if session
                .members
                .values()
                .any(|member| member.blocking && member.context == context)
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

    /// Takes a session away with everything that points to it, except events, which remember.
    fn remove(&mut self, id: u64) -> Option<Session> {
        let session = self.sessions.remove(&id)?;
        self.streams.retain(|_, of| *of != id);
        self.count();
        Some(session)
    }

    fn drop_session(&mut self, id: u64) {
        if let Some(session) = self.remove(id).filter(|session| session.owned) {
            let _ = store().destroy(session.graph);
        }
    }
}

/// Begins a capture on `stream`, into a new graph or into `target` after nodes of it.
///
/// # Errors
/// `INVALID_VALUE` for an unknown mode or nodes that are not in the graph, `STREAM_CAPTURE_UNSUPPORTED` for the legacy default stream,
/// `ILLEGAL_STATE` if the stream captures already.
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

/// Whether all of `tail` are nodes of `graph`.
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

/// Ends the capture that began on `stream`; its graph.
///
/// # Errors
/// `ILLEGAL_STATE` if the stream captures nothing, `STREAM_CAPTURE_UNMATCHED` if it only joined, `_WRONG_THREAD` in another thread than
/// it began in (unless relaxed). These leave the capture as it is, invalidated. Then the capture is over in any case:
/// `_INVALIDATED`, `_UNJOINED` if a stream that joined was not joined back.
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

/// Whether everything that members did comes before the origin's tail.
fn joined(session: &Session) -> Result {
    let store = store();
    let graph = store
        .graph(session.graph)
        .map_err(|_| CUresult::STREAM_CAPTURE_INVALIDATED)?;
    let tail = session
        .members
        .get(&session.origin)
        .map(|member| member.tail.clone())
        .unwrap_or_default();
    let mut before: Vec<NodeId> = tail.into_iter().map(|(node, _)| node).collect();
    let mut at = 0;
    while let Some(node) = before.get(at).copied() {
        at += 1;
        for edge in graph.edges().iter().filter(|edge| edge.to == node) {
            if !before.contains(&edge.from) {
                before.push(edge.from);
            }
        }
    }
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

/// What is known about a stream's capture.
#[derive(Debug)]
pub struct Info {
    /// The capture's number.
    pub id: u64,
    /// Its graph.
    pub graph: GraphId,
    /// Whether it has been invalidated.
    pub valid: bool,
    /// Addresses of the nodes the stream's next node comes after and of the edges' data, good until the stream is used again.
    pub tail: (usize, usize),
    /// How many they are.
    pub count: usize,
    /// Whether an edge has data.
    pub has_data: bool,
}

/// The capture that `stream` is in, if any.
///
/// # Errors
/// `STREAM_CAPTURE_IMPLICIT` for the legacy default stream while a blocking stream captures (which goes on).
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

/// Sets what the next node of a capturing stream comes after, or adds to it.
///
/// # Errors
/// `ILLEGAL_STATE` if the stream does not capture, `INVALID_VALUE` for nodes of another graph, `STREAM_CAPTURE_INVALIDATED`.
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
    for entry in tail {
        if !member.tail.iter().any(|(node, _)| *node == entry.0) {
            member.tail.push(entry);
        }
    }
    Ok(())
}

/// Exchanges the calling thread's mode, which says what it may do while captures go on.
///
/// # Errors
/// `INVALID_VALUE` for an unknown mode.
pub fn exchange_mode(mode: CUstreamCaptureMode) -> Result<CUstreamCaptureMode> {
    if mode > CUstreamCaptureMode::RELAXED {
        Err(CUresult::INVALID_VALUE)
    } else {
        Ok(MODE.replace(mode))
    }
}

/// Refuses a potentially unsafe call: if this thread has a capture that is not relaxed, or (in global mode) another thread has a
/// global one. The captures are invalidated.
pub(crate) fn forbids() -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    let (mine, mode) = (thread::current().id(), MODE.get());
    let mut refused = false;
    for session in captures.sessions.values_mut() {
        let disturbed = match mode {
            CUstreamCaptureMode::RELAXED => false,
            _ if session.thread == mine => session.mode != CUstreamCaptureMode::RELAXED,
            CUstreamCaptureMode::GLOBAL => session.mode == CUstreamCaptureMode::GLOBAL,
            _ => false,
        };
        if disturbed {
            session.valid = false;
            refused = true;
        }
    }
    if refused {
        Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
    } else {
        Ok(())
    }
}

/// Refuses to wait for a stream that captures, or for the legacy default stream beside one.
pub(crate) fn check_wait(stream: &StreamRef) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    captures.refuse_legacy(stream, true)?;
    let Some((_, session)) = captures.of(stream.id()) else {
        return Ok(());
    };
    if !session.valid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    session.valid = false;
    Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses what has no node, on a stream that captures.
pub(crate) fn forbids_plain(stream: &StreamRef) -> Result {
    check_wait(stream)
}

/// Refuses to wait for a context one of whose streams captures.
pub(crate) fn check_drain(context: &Arc<Context>) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    let mut refused = false;
    for session in captures.sessions.values_mut() {
        if session
            .members
            .values()
            .any(|member| member.context == context.id())
        {
            session.valid = false;
            refused = true;
        }
    }
    if refused {
        Err(CUresult::STREAM_CAPTURE_UNSUPPORTED)
    } else {
        Ok(())
    }
}

/// Refuses to look at or wait for an event last recorded in a capture.
pub(crate) fn check_event(event: &Event) -> Result {
    let Some(mut captures) = active() else {
        return Ok(());
    };
    let Some(&(session, _)) = captures.events.get(&event.id()) else {
        return Ok(());
    };
    captures.invalidate(session);
    Err(CUresult::CAPTURED_EVENT)
}

/// Whether `stream` captures.
pub(crate) fn is_active(stream: &StreamRef) -> Result<bool> {
    let Some(mut captures) = active() else {
        return Ok(false);
    };
    match captures.of(stream.id()) {
        None => Ok(false),
        Some((_, session)) if session.valid => Ok(true),
        Some(_) => Err(CUresult::STREAM_CAPTURE_INVALIDATED),
    }
}

/// A stream is destroyed: a capture that began on it is over, one it joined is invalid.
pub(crate) fn stream_gone(stream: &Stream) {
    let Some(mut captures) = active() else { return };
    let Some((id, session)) = captures.of(stream.id()) else {
        return;
    };
    session.valid = false;
    session.members.remove(&stream.id());
    let origin = session.origin == stream.id();
    captures.streams.remove(&stream.id());
    if origin {
        captures.drop_session(id);
    }
}

/// An event is destroyed.
pub(crate) fn event_gone(event: EventId) {
    let Some(mut captures) = active() else { return };
    captures.events.remove(&event);
    captures.count();
}

/// A context is destroyed: captures on its streams are over.
pub(super) fn context_gone(context: u64) {
    let Some(mut captures) = active() else { return };
    let hit = |session: &Session| {
        session
            .members
            .values()
            .any(|member| member.context == context)
    };
    let gone: Vec<u64> = captures
        .sessions
        .iter()
        .filter(|(_, session)| hit(session))
        .map(|(id, _)| *id)
        .collect();
    gone.into_iter().for_each(|id| captures.drop_session(id));
}

/// A plain dependency on one node.
pub(super) fn after(node: NodeId) -> Tail {
    vec![(node, PLAIN)]
}

/// Adds a node for `stream` to its session's graph; an error invalidates the session.
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

/// The work of a captured node, added with the context it runs in.
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
