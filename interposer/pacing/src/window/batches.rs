//! Batches and their marks. A batch is closed before its mark is made: the driver may take its time
//! for that.

use super::{StreamKey, Window};
use crate::queue::{Batch, Queue};

impl<M> Window<M> {
    /// Closes the batch at the end of `stream_key`: `None` if there is no work without a mark.
    /// [`marked`](Self::marked) or [`unmarked`](Self::unmarked) follows.
    pub fn close_batch(&mut self, stream_key: StreamKey, now: u64) -> Option<u64> {
        self.known(stream_key)
            .filter(|queue| queue.unmarked.count > 0)?;
        self.numbers += 1;
        let number = self.numbers;
        self.queue(stream_key, now).close(number, now, 0);
        Some(number)
    }

    /// As [`close_batch`](Self::close_batch) for a stream that may hold untracked work, or stands
    /// for all work of its context.
    pub fn close_blindly(&mut self, stream_key: StreamKey, now: u64) -> u64 {
        self.numbers += 1;
        let (number, covers) = (self.numbers, self.submitted);
        self.queue(stream_key, now).close(number, now, covers);
        number
    }

    /// The mark behind batch `number` is in its stream. `Err` gives it back if the batch has one
    /// already, or is no longer known: its context went, or the program waited for it. The stream
    /// may have another name than when the batch was closed.
    pub fn marked(&mut self, number: u64, mark: M) -> Result<(), M> {
        let mut batches = self.queues.iter_mut().flat_map(|queue| &mut queue.marked);
        match batches.find(|batch| batch.number == number) {
            Some(batch) if batch.mark.is_none() => {
                batch.mark = Some(mark);
                Ok(())
            }
            _ => Err(mark),
        }
    }

    /// The stream's batches whose marks are being made.
    pub fn in_making(&self, stream_key: StreamKey) -> impl Iterator<Item = u64> + '_ {
        let queues = self.queues.iter();
        let batches = queues
            .filter(move |queue| queue.stream_key == stream_key)
            .flat_map(|queue| &queue.marked);
        batches
            .filter(|batch| batch.mark.is_none())
            .map(|batch| batch.number)
    }

    /// No mark could be made behind batch `number`: if it has none, its operations wait for the
    /// next one.
    pub fn unmarked(&mut self, number: u64) {
        let is_it = |batch: &Batch<M>| batch.number == number && batch.mark.is_none();
        let holds = |queue: &&mut Queue<M>| queue.marked.iter().any(is_it);
        if let Some(queue) = self.queues.iter_mut().find(holds) {
            queue.reopen(number);
        }
        self.forget_empty();
    }
}
