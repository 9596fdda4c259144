//! The timeline's entries of a context, a green context or a stream, and their removal.

use super::engine::{OpId, Queue, Timeline};
use super::stream::StreamId;

impl Timeline {
    /// Marks a stream as destroyed; its operations still run.
    pub(super) fn retire(&mut self, stream: StreamId) {
        let Some(queue) = self.queues.get_mut(&stream) else {
            return;
        };
        queue.gone = true;
        if !self.nodes.contains_key(&queue.last) {
            self.queues.remove(&stream);
        }
    }

    /// All incomplete operations of `context`.
    pub(super) fn of_context(&self, context: u64) -> Vec<OpId> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.context.id() == context)
            .map(|(op, _)| *op)
            .collect()
    }

    /// All incomplete operations on the device with this ordinal.
    pub(super) fn of_device(&self, ordinal: u32) -> Vec<OpId> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.context.device().ordinal() == ordinal)
            .map(|(op, _)| *op)
            .collect()
    }

    /// The last operations of the streams of a domain.
    pub(super) fn of_domain(&self, domain: u64) -> Vec<OpId> {
        self.queues
            .values()
            .filter(|queue| queue.domain == domain)
            .map(|queue| queue.last)
            .collect()
    }

    /// Drops the lanes, queues, default streams and barriers of a context that has no operations
    /// left.
    pub(super) fn drop_context(&mut self, context: u64) {
        self.lanes.retain(|(owner, engine), (words, lane)| {
            let stays = *owner != context;
            if !stays {
                words.rise(*engine, lane.seat());
            }
            stays
        });
        let gone = |queue: &Queue| queue.context == context;
        let queues = self.queues.values();
        let mut domains: Vec<u64> = queues
            .filter(|queue| gone(queue))
            .map(|queue| queue.domain)
            .collect();
        domains.push(context);
        self.queues.retain(|_, queue| !gone(queue));
        for domain in domains {
            self.legacy.remove(&domain);
            self.barriers.remove(&domain);
        }
    }
}
