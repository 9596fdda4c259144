//! The device: a queue a process, and time slices among processes that have work, even and fine
//! enough to be a rate.

use gpushare_core::Nanos;
use std::collections::VecDeque;

/// Work submitted as one: kernels behind each other, up to a mark.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The remaining time.
    pub left: u64,
}

#[derive(Debug, Default)]
pub struct Gpu {
    queues: Vec<VecDeque<Batch>>,
}

impl Gpu {
    pub fn add(&mut self) -> usize {
        self.queues.push(VecDeque::new());
        self.queues.len() - 1
    }

    pub fn submit(&mut self, process: usize, batch: Batch) {
        self.queues[process].push_back(batch);
    }

    pub fn forget(&mut self, process: usize) {
        self.queues[process].clear();
    }

    pub fn is_busy(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }

    fn running(&self) -> u64 {
        self.queues.iter().filter(|queue| !queue.is_empty()).count() as u64
    }

    /// When the first batch is complete.
    pub fn next(&self, now: Nanos) -> Option<Nanos> {
        let least = self
            .queues
            .iter()
            .filter_map(VecDeque::front)
            .map(|batch| batch.left)
            .min()?;
        Some(now + Nanos(least * self.running()))
    }

    /// Lets time pass; at most up to [`Self::next`]. Returns each process's running time, and the
    /// processes that completed a batch.
    pub fn pass(&mut self, time: u64) -> (Vec<u64>, Vec<usize>) {
        let share = time / self.running().max(1);
        let (mut ran, mut complete) = (vec![0; self.queues.len()], Vec::new());
        for (process, queue) in self.queues.iter_mut().enumerate() {
            let Some(batch) = queue.front_mut() else {
                continue;
            };
            let did = share.min(batch.left);
            batch.left -= did;
            ran[process] = did;
            if batch.left == 0 {
                queue.pop_front();
                complete.push(process);
            }
        }
        (ran, complete)
    }
}
