//! The timeline: operations and their dependencies, from submission until their effect is applied.
//!
//! An operation is `Queued` (it waits for other operations), then `Running`, then `Finished` (the
//! hardware would be done; the time is known), then `Applying`; then it is forgotten. *Finished* is
//! a state of the timeline only and decides when successors begin. *Applied* means that the effect
//! has happened, which is as late as is legal ([`apply`](super::apply)). Numbers only grow, and an
//! operation waits only for lower numbers. Therefore a number that is not in the table belongs to a
//! complete operation, and the order of numbers is a legal order.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::chain::{Chains, Link};
use super::clock;
use super::event::EventId;
use super::host::HostCall;
use super::job::{Job, Jobs};
use super::lane::{Lane, PASSING};
use super::needs::Needs;
use super::op::{Demand, Effect, EngineKind};
use super::rng::Rng;
use super::share::Words;
use super::stream::StreamId;
use super::value::ValueWait;
use crate::context::Context;
use crate::spec::Stamp;

/// The number of an operation, from 1, never reused; 0 is "none".
pub(crate) type OpId = u64;

/// One engine as one context sees it: the context's number and the engine.
pub(super) type LaneKey = (u64, EngineKind);

/// An effect that no thread waits for happens this long after the hardware would have been done, at
/// least and at most (ns). The delay is long enough to expose a program that does not synchronise,
/// and short enough that a program that polls memory makes progress.
const LATE: (u64, u64) = (200_000, 2_000_000);

/// The time, call or value that an operation needs before it is finished.
#[derive(Debug)]
pub(crate) enum Work {
    /// Nothing.
    Instant,
    /// Time on an engine, for which it needs memory.
    Engine(Demand, Needs),
    /// Time on an engine, and then more time until a value is in memory.
    Spin(Demand, ValueWait),
    /// Time on an engine, and then more time until a job is done, which says how long it takes.
    Runs(Demand, Job),
    /// A call into the application.
    Host(HostCall),
    /// A value in memory.
    Value(ValueWait),
}

/// An operation to be added.
pub(crate) struct Item {
    pub(crate) context: Arc<Context>,
    /// Operations that must be complete before it begins; numbers that are no longer in the table
    /// are allowed.
    pub(crate) after: Vec<OpId>,
    pub(crate) work: Work,
    pub(crate) effect: Option<Effect>,
    /// The event that it records.
    pub(crate) records: Option<EventId>,
    /// The stream whose queue counts it.
    pub(crate) stream: StreamId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Queued,
    Running,
    /// It has used its time and runs on until its value is in memory, or its job is done.
    Spinning,
    Finished,
    Applying,
}

pub(super) struct Operation {
    pub(super) context: Arc<Context>,
    pub(super) phase: Phase,
    /// Unfinished operations in `after`.
    pending: usize,
    /// The latest end among the finished operations in `after`.
    ready: u64,
    /// Whether the operation that ended at `ready` belongs to this context and had an engine. Then
    /// the context still has the engine, and an event recorded here completes at once.
    on_engine: bool,
    pub(super) after: Vec<OpId>,
    dependents: Vec<OpId>,
    pub(super) work: Work,
    pub(super) effect: Option<Effect>,
    records: Option<EventId>,
    stream: StreamId,
    /// When it is applied if no thread waits for it earlier.
    late: u64,
    /// Its place in a chain of work without pauses.
    link: Option<Link>,
}

/// An event's last recording.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recording {
    /// The operation; 0 if never recorded.
    pub(super) op: OpId,
    /// When the operation finished; `None` until then.
    pub(super) end: Option<u64>,
}

/// A stream as the timeline sees it.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) context: u64,
    /// The streams that it implicitly synchronises with: the number of its context, or of its green
    /// context.
    pub(super) domain: u64,
    /// The last operation submitted, 0 for none.
    pub(super) last: OpId,
    /// Operations not finished.
    pub(super) unfinished: usize,
    /// Whether it and the legacy default stream synchronise with each other.
    pub(super) blocking: bool,
    /// The stream is destroyed. The queue is forgotten once its last operation is complete.
    pub(super) gone: bool,
}

/// The whole state of the timeline. One lock guards it ([`lock`](super::lock)); no thread waits for
/// time while it holds that lock.
pub(super) struct Timeline {
    pub(super) nodes: HashMap<OpId, Operation>,
    next: OpId,
    pub(super) lanes: HashMap<LaneKey, (Words, Lane)>,
    chains: Chains,
    pub(super) queues: HashMap<StreamId, Queue>,
    /// The legacy default stream of each domain that has one.
    pub(super) legacy: HashMap<u64, StreamId>,
    /// The operations that all later work of a domain waits for (`cuCtxWaitEvent`). A context's
    /// barriers also apply to its green contexts.
    pub(super) barriers: HashMap<u64, Vec<OpId>>,
    pub(super) events: HashMap<EventId, Recording>,
    /// Operations that are finished and not applied, by their latest time of application.
    pub(super) late: BTreeSet<(u64, OpId)>,
    /// Host functions that are ready to be called, in order.
    pub(super) calls: VecDeque<OpId>,
    /// Value waits that are polled now.
    pub(super) values: Vec<OpId>,
    /// Jobs that have begun, in order.
    pub(super) jobs: Jobs,
    pub(super) rng: Rng,
    /// When the watching thread looks next; `u64::MAX` while it sleeps without a limit.
    pub(super) watch: u64,
    /// Whether the thread that applies late effects sleeps until there are late effects.
    pub(super) dozing: bool,
}

impl Timeline {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: HashMap::new(),
            next: 1,
            lanes: HashMap::new(),
            chains: Chains::default(),
            queues: HashMap::new(),
            legacy: HashMap::new(),
            barriers: HashMap::new(),
            events: HashMap::new(),
            late: BTreeSet::new(),
            calls: VecDeque::new(),
            values: Vec::new(),
            jobs: Jobs::default(),
            rng: Rng::new(seed),
            watch: 0,
            dozing: false,
        }
    }

    /// The operations that the next operation of `stream` waits for: the stream's last operation,
    /// the domain's barriers, and the implicit synchronisation of the legacy default stream. The
    /// legacy stream waits for the last operations of the blocking streams, and a blocking stream
    /// for the last operation of the legacy stream.
    pub(super) fn stream_order(&self, stream: StreamId) -> Vec<OpId> {
        let Some(queue) = self.queues.get(&stream) else {
            return Vec::new();
        };
        let mut after = vec![queue.last];
        after.extend(self.barriers.get(&queue.domain).into_iter().flatten());
        if queue.domain != queue.context {
            after.extend(self.barriers.get(&queue.context).into_iter().flatten());
        }
        match self.legacy.get(&queue.domain) {
            Some(&legacy) if legacy == stream => after.extend(
                self.queues
                    .values()
                    .filter(|other| other.blocking && other.domain == queue.domain)
                    .map(|other| other.last),
            ),
            Some(legacy) if queue.blocking => {
                after.extend(self.queues.get(legacy).map(|legacy| legacy.last))
            }
            _ => {}
        }
        after
    }

    /// Adds an operation at `now`; it may be finished on return. The caller has called
    /// [`advance`](Self::advance).
    pub(super) fn add(&mut self, now: u64, mut item: Item) -> OpId {
        let id = self.next;
        self.next += 1;
        let mut after = std::mem::take(&mut item.after);
        after.sort_unstable();
        after.dedup();
        after.retain(|op| self.nodes.contains_key(op));
        let (mut pending, mut before) = (0, None);
        for op in &after {
            if let Some(node) = self.nodes.get_mut(op).filter(|node| !node.is_finished()) {
                node.dependents.push(id);
                pending += 1;
                before = node.link.map(|link| (*op, link));
            }
        }
        let (link, longer) = self.link(id, &item, before.filter(|_| pending == 1));
        if let Some(queue) = self.queues.get_mut(&item.stream) {
            queue.unfinished += 1;
        }
        if let Some(event) = item.records {
            self.events.insert(event, Recording { op: id, end: None });
        }
        let Item {
            context,
            after: _,
            work,
            effect,
            records,
            stream,
        } = item;
        let (phase, dependents) = (Phase::Queued, Vec::new());
        let node = Operation {
            context,
            phase,
            pending,
            ready: now,
            on_engine: false,
            after,
            dependents,
            work,
            effect,
            records,
            stream,
            late: 0,
            link,
        };
        self.nodes.insert(id, node);
        if pending == 0 {
            self.begin(id);
        } else if let Some(key) = link
            .filter(|_| longer)
            .and_then(|link| self.chains.key(link))
        {
            self.claim(key);
        }
        id
    }

    /// The place of a new operation in a chain, and whether it made an existing chain longer.
    fn link(
        &mut self,
        id: OpId,
        item: &Item,
        before: Option<(OpId, Link)>,
    ) -> (Option<Link>, bool) {
        match &item.work {
            Work::Engine(demand, _) => {
                let key = (item.context.id(), demand.engine);
                self.chains.add(id, Some((key, demand.ns)), before)
            }
            Work::Instant if before.is_none() && waits_for_turn(item.records, &item.context) => {
                let key = (item.context.id(), EngineKind::Compute);
                self.chains.add(id, Some((key, PASSING)), None)
            }
            Work::Instant => self.chains.add(id, None, before),
            Work::Spin(..) | Work::Runs(..) | Work::Host(_) | Work::Value(_) => (None, false),
        }
    }

    /// Publishes to other contexts how much engine time this lane certainly needs.
    pub(super) fn claim(&mut self, key: LaneKey) {
        let Some((words, lane)) = self.lanes.get_mut(&key) else {
            return;
        };
        let link = |op| self.nodes.get(&op).and_then(|node: &Operation| node.link);
        let ahead = |op| link(op).map_or(0, |link| self.chains.ahead(link));
        words.with(key.1, |turns| lane.claim(turns, ahead));
    }

    /// Processes everything that the hardware would have done by `now`, in that order.
    pub(super) fn advance(&mut self, now: u64) {
        while let Some((at, key)) = self.next_lane() {
            if at > now {
                break;
            }
            let Some((words, lane)) = self.lanes.get_mut(&key) else {
                break;
            };
            let ended = words.with(key.1, |turns| lane.step(turns, at));
            words.had(key.1, lane.taken());
            // What stays has its place before any successor of the rest.
            let stays: Vec<bool> = ended.iter().map(|op| self.spins_on(*op, at)).collect();
            for (op, _) in ended.iter().zip(stays).filter(|(_, stays)| !stays) {
                self.finish(*op, at);
            }
            self.claim(key);
        }
        for ((_, engine), (words, lane)) in &self.lanes {
            words.with(*engine, |turns| turns.run(now, lane.seat()));
        }
    }

    /// The next moment at which the hardware does something by itself.
    pub(super) fn next_event(&self) -> Option<u64> {
        self.next_lane().map(|(at, _)| at)
    }

    fn next_lane(&self) -> Option<(u64, LaneKey)> {
        let next = |(key, (words, lane)): (&LaneKey, &(Words, Lane))| {
            let at = words.with(key.1, |turns| lane.next_event(turns));
            Some((at?, *key))
        };
        self.lanes.iter().filter_map(next).min()
    }

    /// Marks the operation finished at `at`, and after it the successors that take no time.
    pub(super) fn finish(&mut self, op: OpId, at: u64) {
        let mut done = vec![(op, at)];
        while let Some((op, at)) = done.pop() {
            let on_engine = self.on_engine(op);
            for next in self.mark_finished(op, at) {
                let Some(node) = self.nodes.get_mut(&next) else {
                    continue;
                };
                node.pending -= 1;
                if at >= node.ready {
                    let has = on_engine == Some(node.context.id());
                    node.on_engine = has || (at == node.ready && node.on_engine);
                    node.ready = at;
                }
                if node.pending == 0 {
                    done.extend(self.start(next));
                }
            }
        }
    }

    /// The context that has an engine at the end of `op`; decided by the kind of `op`.
    fn on_engine(&self, op: OpId) -> Option<u64> {
        let node = self.nodes.get(&op)?;
        let has = match node.work {
            Work::Engine(..) | Work::Spin(..) | Work::Runs(..) => true,
            Work::Instant => node.on_engine || node.records.is_some(),
            Work::Host(_) | Work::Value(_) => false,
        };
        has.then(|| node.context.id())
    }

    fn begin(&mut self, op: OpId) {
        if let Some((op, at)) = self.start(op) {
            self.finish(op, at);
        }
    }

    /// Starts an operation whose predecessors are all finished. Returns its end if it takes no
    /// time.
    fn start(&mut self, op: OpId) -> Option<(OpId, u64)> {
        let node = self.nodes.get_mut(&op)?;
        node.phase = Phase::Running;
        let at = node.ready;
        match &node.work {
            Work::Instant if node.on_engine || !waits_for_turn(node.records, &node.context) => {
                return Some((op, at));
            }
            Work::Instant => {
                let context = Arc::clone(&node.context);
                let (words, lane) = self.lane(&context, EngineKind::Compute);
                if words.with(EngineKind::Compute, |turns| lane.pass(turns, op, at)) {
                    return Some((op, at));
                }
                self.claim((context.id(), EngineKind::Compute));
            }
            Work::Engine(..) | Work::Spin(..) | Work::Runs(..) => {
                let context = Arc::clone(&node.context);
                let demand = match &node.work {
                    Work::Engine(demand, needs) => needs.begin(*demand, &context),
                    Work::Spin(demand, _) | Work::Runs(demand, _) => *demand,
                    _ => return None,
                };
                let key = (context.id(), demand.engine);
                let (words, lane) = self.lane(&context, demand.engine);
                words.with(demand.engine, |turns| {
                    lane.push(turns, op, at, demand.ns, demand.load)
                });
                words.had(demand.engine, lane.taken());
                self.claim(key);
            }
            Work::Host(_) => self.calls.push_back(op),
            Work::Value(_) => self.values.push(op),
        }
        None
    }

    /// The lane of `context` on an engine, created at first use.
    fn lane(&mut self, context: &Context, engine: EngineKind) -> &mut (Words, Lane) {
        let device = context.device();
        self.lanes.entry((context.id(), engine)).or_insert_with(|| {
            let mut words = Words::of_device(device);
            let seat = words.sit(engine);
            let place = words.with(engine, |turns| turns.place());
            (words, engine.lane(device.spec(), seat, place))
        })
    }

    /// Marks one operation finished; returns the operations that waited for it.
    fn mark_finished(&mut self, op: OpId, at: u64) -> Vec<OpId> {
        let lag = LATE.0 + self.rng.below(LATE.1 - LATE.0);
        let Some(node) = self.nodes.get_mut(&op) else {
            return Vec::new();
        };
        node.phase = Phase::Finished;
        node.late = at.saturating_add(lag);
        if let Some(link) = node.link {
            self.chains.finished(op, link);
        }
        self.late.insert((node.late, op));
        if let Some(recording) = node.records.and_then(|event| self.events.get_mut(&event))
            && recording.op == op
        {
            recording.end = Some(at);
        }
        if let Some(queue) = self.queues.get_mut(&node.stream) {
            queue.unfinished -= 1;
        }
        std::mem::take(&mut node.dependents)
    }

    /// Whether the hardware would be done with `op`.
    pub(super) fn is_finished(&self, op: OpId) -> bool {
        self.nodes.get(&op).is_none_or(Operation::is_finished)
    }

    /// Forgets an operation whose effect has happened.
    pub(super) fn forget(&mut self, op: OpId) {
        let Some(node) = self.nodes.remove(&op) else {
            return;
        };
        self.late.remove(&(node.late, op));
        if self
            .queues
            .get(&node.stream)
            .is_some_and(|queue| queue.gone && queue.last == op)
        {
            self.queues.remove(&node.stream);
        }
    }

    /// The host function that `op` calls, and its context; `None` if `op` is not a host function.
    pub(super) fn host_call(&self, op: OpId) -> Option<(HostCall, Arc<Context>)> {
        let node = self.nodes.get(&op)?;
        if let Work::Host(call) = node.work {
            Some((call, Arc::clone(&node.context)))
        } else {
            None
        }
    }

    /// Advances to the present and returns it.
    pub(super) fn catch_up(&mut self) -> u64 {
        let now = clock::now();
        self.advance(now);
        self.call_workers();
        now
    }
}

/// Whether an operation records an event that completes only while its context has the
/// multiprocessors.
fn waits_for_turn(records: Option<EventId>, context: &Context) -> bool {
    records.is_some() && context.device().spec().stamp == Stamp::Turn
}

impl Operation {
    fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Applying)
    }
}
