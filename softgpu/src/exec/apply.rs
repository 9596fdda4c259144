//! Application of effects: at the latest legal moment, in a legal order drawn from the seed.
//!
//! A thread that waits applies only the operations it waited for and their predecessors. The order
//! among independent operations is random. A background thread applies an effect that no thread
//! waits for.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;

use gpushare_cuda_abi::cuda::CUresult;

use super::engine::{OpId, Phase, Timeline};
use super::rng::Rng;
use super::{DONE, lock};

/// A partial order still to be applied: for each operation the number of its remaining predecessors
/// and its successors; and the operations without remaining predecessors.
struct Order {
    left: HashMap<OpId, (usize, Vec<OpId>)>,
    free: Vec<OpId>,
}

impl Order {
    /// The incomplete predecessors of `targets`, and `targets` themselves.
    fn before(timeline: &Timeline, targets: &[OpId]) -> Self {
        let mut left: HashMap<OpId, (usize, Vec<OpId>)> = HashMap::new();
        let mut edges = Vec::new();
        let mut stack: Vec<OpId> = targets.to_vec();
        while let Some(op) = stack.pop() {
            let Some(node) = timeline.nodes.get(&op) else {
                continue;
            };
            if left.contains_key(&op) {
                continue;
            }
            let present: Vec<OpId> = node
                .after
                .iter()
                .copied()
                .filter(|op| timeline.nodes.contains_key(op))
                .collect();
            left.insert(op, (present.len(), Vec::new()));
            edges.extend(present.iter().map(|before| (*before, op)));
            stack.extend(present);
        }
        for (before, after) in edges {
            if let Some((_, followers)) = left.get_mut(&before) {
                followers.push(after);
            }
        }
        let mut free: Vec<OpId> = left
            .iter()
            .filter(|(_, (count, _))| *count == 0)
            .map(|(op, _)| *op)
            .collect();
        free.sort_unstable();
        Self { left, free }
    }

    fn draw(&mut self, rng: &mut Rng) -> Option<OpId> {
        if self.free.is_empty() {
            None
        } else {
            Some(self.free.swap_remove(rng.index(self.free.len())))
        }
    }

    fn done(&mut self, op: OpId) {
        let Some((_, followers)) = self.left.remove(&op) else {
            return;
        };
        for next in followers {
            if let Some((count, _)) = self.left.get_mut(&next) {
                *count -= 1;
                if *count == 0 {
                    self.free.push(next);
                }
            }
        }
    }
}

/// Makes `targets` complete, all of which are finished: applies them and their predecessors.
pub(super) fn apply<'a>(
    mut timeline: MutexGuard<'a, Timeline>,
    targets: &[OpId],
) -> MutexGuard<'a, Timeline> {
    let mut order = Order::before(&timeline, targets);
    while let Some(op) = order.draw(&mut timeline.rng) {
        loop {
            match timeline.nodes.get(&op).map(|node| node.phase) {
                None => break,
                // Another thread applies it: wait until it is done, without holding a lock that it
                // could need.
                Some(Phase::Applying) => timeline = DONE.wait(timeline, None),
                Some(_) => timeline = apply_one(timeline, op),
            }
        }
        order.done(op);
    }
    timeline
}

/// Runs one effect, outside the lock.
fn apply_one(mut timeline: MutexGuard<'_, Timeline>, op: OpId) -> MutexGuard<'_, Timeline> {
    let Some(node) = timeline.nodes.get_mut(&op) else {
        return timeline;
    };
    node.phase = Phase::Applying;
    let (context, effect) = (node.context.clone(), node.effect.take());
    if let Some(effect) = effect.filter(|_| context.check().is_ok()) {
        drop(timeline);
        // A bug in an effect must not abort the application. It becomes a failed launch, like a
        // crash on the device.
        let result =
            catch_unwind(AssertUnwindSafe(|| effect())).unwrap_or(Err(CUresult::LAUNCH_FAILED));
        drop(effect);
        if let Err(error) = result {
            context.poison(error);
        }
        timeline = lock();
    }
    timeline.forget(op);
    DONE.ring(&timeline);
    timeline
}
