//! Waiting for a value in memory: in stream order (`cuStreamWaitValue32` and similar), or by a
//! kernel that occupies its engine until the value is there.

use std::fmt;
use std::sync::Arc;

use super::engine::{OpId, Phase, Timeline, Work};
use super::needs::Needs;
use crate::context::Context;

/// Engine time that a spinning kernel requests at a time (ns): long enough that threads which wait
/// for other work do not poll without a pause.
const SPIN: u64 = 200_000;

/// A condition on memory, polled until it holds.
#[derive(Clone)]
pub(crate) struct ValueWait(Arc<dyn Fn() -> bool + Send + Sync>);

impl ValueWait {
    /// A wait that ends when `come` returns true. A driver thread calls `come` often, so it must be
    /// quick.
    pub(crate) fn new(come: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(come))
    }

    pub(super) fn has_come(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for ValueWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueWait")
    }
}

impl Timeline {
    /// Keeps a kernel running that has used its time and waits for a value, or is still being
    /// computed. Returns whether `op` is such a kernel.
    pub(super) fn spins_on(&mut self, op: OpId, at: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&op) else {
            return false;
        };
        let demand = match &mut node.work {
            Work::Spin(demand, _) => *demand,
            Work::Runs(demand, _) => {
                demand.ns += SPIN;
                *demand
            }
            _ => return false,
        };
        if node.phase == Phase::Running {
            node.phase = Phase::Spinning;
            match node.work {
                Work::Runs(..) => self.jobs.push_back(op),
                _ => self.values.push(op),
            }
        }
        let key = (node.context.id(), demand.engine);
        if let Some((words, lane)) = self.lanes.get_mut(&key) {
            words.with(demand.engine, |turns| {
                lane.stay(turns, op, at, SPIN, demand.load);
            });
            words.had(demand.engine, lane.taken());
        }
        true
    }

    /// Handles the arrival of the value that `op` waits for: a stream wait finishes at once, a
    /// kernel after the rest of its current time.
    pub(super) fn come(&mut self, op: OpId, now: u64) {
        let Some(node) = self.nodes.get_mut(&op) else {
            return;
        };
        if let Work::Spin(demand, _) = node.work {
            node.work = Work::Engine(demand, Needs::default());
            let key = (node.context.id(), demand.engine);
            if let Some((_, lane)) = self.lanes.get_mut(&key) {
                lane.settle(op, now, |left| left.min(1));
            }
            self.claim(key);
        } else {
            self.finish(op, now);
        }
    }

    /// The value that `op` waits for, and its context; `None` if `op` waits for no value.
    pub(super) fn value_wait(&self, op: OpId) -> Option<(ValueWait, Arc<Context>)> {
        let node = self.nodes.get(&op)?;
        if let Work::Value(value) | Work::Spin(_, value) = &node.work {
            Some((value.clone(), Arc::clone(&node.context)))
        } else {
            None
        }
    }
}
