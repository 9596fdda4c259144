//! Waiting for a value in memory: in stream order (`cuStreamWaitValue32` and the like), or by a
//! kernel that occupies its device until it has come.

use std::fmt;
use std::sync::Arc;

use super::engine::{OpId, Phase, Timeline, Work};
use crate::context::Context;

/// How much of its engine a kernel that spins asks for at a time (ns): long enough that no thread
/// that waits for something else looks without a pause.
const SPIN: u64 = 200_000;

/// A condition on memory, looked at until it holds.
#[derive(Clone)]
pub(crate) struct ValueWait(Arc<dyn Fn() -> bool + Send + Sync>);

impl ValueWait {
    /// A wait that ends when `come` says so; `come` is called often, on a thread of the driver, and
    /// must be quick.
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
    /// A kernel that has had its time goes on if it waits for a value.
    pub(super) fn spins_on(&mut self, op: OpId, at: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&op) else {
            return false;
        };
        let Work::Spin(demand, _) = node.work else {
            return false;
        };
        if node.phase == Phase::Running {
            node.phase = Phase::Spinning;
            self.values.push(op);
        }
        let key = (node.context.id(), demand.engine);
        if let Some((words, lane)) = self.lanes.get_mut(&key) {
            words.with(demand.engine, |turns| {
                lane.push(turns, op, at, SPIN, demand.load);
            });
            words.had(demand.engine, lane.taken());
        }
        true
    }

    /// The value that `op` waits for has come: a stream goes on at once, a kernel with what it has
    /// left.
    pub(super) fn come(&mut self, op: OpId, now: u64) {
        let Some(node) = self.nodes.get_mut(&op) else {
            return;
        };
        if let Work::Spin(demand, _) = node.work {
            node.work = Work::Engine(demand);
            let key = (node.context.id(), demand.engine);
            if let Some((_, lane)) = self.lanes.get_mut(&key) {
                lane.ends(op, now);
            }
            self.claim(key);
        } else {
            self.finish(op, now);
        }
    }

    /// The value that `op` waits for, and for which context; `None` if it is no such operation.
    pub(super) fn value_wait(&self, op: OpId) -> Option<(ValueWait, Arc<Context>)> {
        let node = self.nodes.get(&op)?;
        if let Work::Value(value) | Work::Spin(_, value) = &node.work {
            Some((value.clone(), Arc::clone(&node.context)))
        } else {
            None
        }
    }
}
