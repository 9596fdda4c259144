//! Jobs: work that runs while its operation has the engine, and whose time is known when it is
//! done.
//!
//! A kernel of a PTX module is one. Its operation holds the engine from its beginning until the job
//! is done, and until the time that the job says has passed. The effects of all earlier operations
//! happen before the job begins. Its own effects happen while it runs: other kernels, and programs
//! that look at memory, see them as they come.
//!
//! Each job has a thread while it runs, so that jobs which wait for each other make progress.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use gpushare_cuda_abi::cuda::CUresult;

use super::engine::{OpId, Timeline, Work};
use super::needs::Needs;
use super::threads::{nudge, without_signals};
use super::{DONE, JOBS, apply, lock};
use crate::error::Result;

/// Threads for jobs at most: as many kernels as a device runs at a time (CUDA C++ programming
/// guide, table of technical specifications, compute capability 7.5 and later).
const WORKERS: usize = 128;

/// Work that says how long it took (ns of the engine), and its fault if it has one.
#[derive(Clone)]
pub(crate) struct Job(Arc<dyn Fn() -> (u64, Result) + Send + Sync>);

impl Job {
    /// A job. It may run any number of times, and on any thread.
    pub(crate) fn new(run: impl Fn() -> (u64, Result) + Send + Sync + 'static) -> Self {
        Self(Arc::new(run))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

/// The jobs that have begun and no thread has taken, and the threads that take them.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    begun: VecDeque<OpId>,
    workers: usize,
    idle: usize,
}

impl Jobs {
    /// Adds a job that has begun.
    pub(super) fn push_back(&mut self, op: OpId) {
        self.begun.push_back(op);
    }
}

impl Timeline {
    /// Wakes the threads that run jobs, if a job has begun.
    pub(super) fn call_workers(&self) {
        if !self.jobs.begun.is_empty() {
            JOBS.ring(self);
        }
    }

    /// Notes that the job of `op` is done and takes `ns` of the engine, of which it has had a part.
    fn job_done(&mut self, op: OpId, now: u64, ns: u64) {
        let Some(node) = self.nodes.get_mut(&op) else {
            return;
        };
        let Work::Runs(demand, _) = node.work else {
            return;
        };
        node.work = Work::Engine(demand, Needs::default());
        let key = (node.context.id(), demand.engine);
        if let Some((_, lane)) = self.lanes.get_mut(&key) {
            // `demand` counts what the operation was given; what is left of that it has not had.
            lane.settle(op, now, |left| {
                ns.saturating_sub(demand.ns.saturating_sub(left)).max(1)
            });
        }
        self.claim(key);
    }
}

/// Runs jobs, for ever. One thread is always idle, up to the limit: before a thread runs a job it
/// starts another one if there is none.
pub(super) fn work() {
    let mut timeline = lock();
    timeline.jobs.workers += 1;
    loop {
        let Some(op) = timeline.jobs.begun.pop_front() else {
            timeline.jobs.idle += 1;
            timeline = JOBS.wait(timeline, None);
            timeline.jobs.idle -= 1;
            continue;
        };
        let more = timeline.jobs.idle == 0 && timeline.jobs.workers < WORKERS;
        let before = timeline.nodes.get(&op).map(|node| node.after.clone());
        timeline = apply::apply(timeline, &before.unwrap_or_default());
        let Some((job, context)) = timeline.nodes.get(&op).and_then(|node| match &node.work {
            Work::Runs(_, job) => Some((job.clone(), Arc::clone(&node.context))),
            _ => None,
        }) else {
            continue;
        };
        drop(timeline);
        if more {
            // Without another thread jobs run one after the other.
            let name = "softgpu-kernels".to_owned();
            let start = || drop(std::thread::Builder::new().name(name).spawn(work));
            without_signals(start);
        }
        let (ns, result) = if context.check().is_ok() {
            let run = catch_unwind(AssertUnwindSafe(|| (job.0)()));
            run.unwrap_or((0, Err(CUresult::LAUNCH_FAILED)))
        } else {
            (0, Ok(()))
        };
        if let Err(error) = result {
            context.poison(error);
        }
        timeline = lock();
        let now = timeline.catch_up();
        timeline.job_done(op, now, ns);
        DONE.ring(&timeline);
        nudge(&timeline);
    }
}
