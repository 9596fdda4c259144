//! Contexts that go, and their streams with them.

use super::{StreamKey, Window};
use crate::queue::Queue;

impl<M> Window<M> {
    /// Forgets streams whose context has failed, and their marks: of their work it is not known
    /// what was done.
    pub fn forget(&mut self, gone: impl Fn(&StreamKey) -> bool) {
        let going = self.queues.iter().filter(|queue| gone(&queue.stream_key));
        let ns: u64 = going.map(Queue::total).sum();
        self.total = self.total.saturating_sub(ns);
        self.queues.retain(|queue| !gone(&queue.stream_key));
        self.forget_empty();
    }

    /// The context of these streams has ended, and their marks with it. The driver finishes the
    /// work of a context before that ends. When it was complete is not known, so it teaches
    /// nothing.
    pub fn ended(&mut self, now: u64, gone: impl Fn(&StreamKey) -> bool) {
        let beside = self.side_by_side();
        let _ = self.counted(now);
        for at in 0..self.queues.len() {
            if !gone(&self.queues[at].stream_key) {
                continue;
            }
            let (queue, mut school) = self.pupil(at);
            queue.teaches_nothing();
            let all = u64::MAX;
            let mut seen = queue.finish_until(now, beside, all, false, &mut school, &mut |_| None);
            // How long it was beside others is not known either.
            seen.first = None;
            self.note(now, at, seen);
        }
        self.forget_empty();
    }
}
